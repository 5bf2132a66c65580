//! Builds the peer with Go, into the target folder. Go itself detects whether anything has changed.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, ensure};

use crate::pods::binaries;
use crate::process::in_path;

/// The name that vendors usually give the program. The API server records it as the field manager.
const PROGRAM: &str = "cloud-controller-manager";
/// The number of lines of the compiler's output in an error.
const TAIL_LINES: usize = 20;

/// The build takes 2 s if nothing has changed, and 2 minutes on two cores with an empty Go cache.
pub(super) async fn built() -> anyhow::Result<PathBuf> {
    // The program is next to the folders of Cargo's profiles, because it is the same for all profiles.
    let folder =
        binaries()?.parent().context("the programs of this repository are in no folder")?.join("go-peer");
    tokio::task::spawn_blocking(move || build(&folder)).await.context("the build panicked")?
}

fn build(folder: &Path) -> anyhow::Result<PathBuf> {
    let go = in_path("go").context(
        "the peer is written in Go, which is not in PATH: install Go 1.26 or newer (https://go.dev/dl)",
    )?;
    fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    let lock = folder.join(".lock");
    let lock = File::create(&lock).with_context(|| format!("cannot create {}", lock.display()))?;
    lock.lock().context("cannot wait for another build of the peer")?;
    let program = folder.join(PROGRAM);
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("peer");
    let output = Command::new(go)
        // The environment is the same as for the tools, so that the packages that the tools share with the peer are reused from Go's cache.
        .args(["build", "-trimpath", "-o"])
        .arg(&program)
        .arg(".")
        .current_dir(&source)
        // The pinned versions apply, even if the user has set a workspace or flags.
        .envs([("CGO_ENABLED", "0"), ("GOFLAGS", "-mod=readonly -buildvcs=false"), ("GOWORK", "off")])
        .stdin(Stdio::null())
        .output()
        .context("cannot start go")?;
    ensure!(
        output.status.success(),
        "cannot build the peer: fix {} ({})\n{}",
        source.display(),
        output.status,
        tail(&String::from_utf8_lossy(&output.stderr))
    );
    Ok(program)
}

fn tail(text: &str) -> String {
    let lines: Vec<_> = text.lines().collect();
    lines.get(lines.len().saturating_sub(TAIL_LINES)..).unwrap_or_default().join("\n")
}
