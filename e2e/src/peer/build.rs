//! Builds the peer with Go, into the target folder. Go itself sees whether anything has changed.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, ensure};

use crate::pods::binaries;
use crate::process::in_path;

/// What vendors call theirs. The API server notes it as who wrote.
const PROGRAM: &str = "cloud-controller-manager";
/// How much of the compiler's output an error shows.
const TAIL_LINES: usize = 20;

/// The finished program.
///
/// Cost: 2 s if nothing has changed, 2 minutes on two cores if Go has none of it yet.
pub(super) async fn built() -> anyhow::Result<PathBuf> {
    // Beside the folder of a profile: it is the same for all.
    let folder = binaries()?.parent().context("the binaries are in no folder")?.join("go-peer");
    tokio::task::spawn_blocking(move || build(&folder)).await.context("the build has ended in a panic")?
}

fn build(folder: &Path) -> anyhow::Result<PathBuf> {
    let go = in_path("go").context(
        "the peer is written in Go, and there is none in PATH: install Go 1.26 or newer (https://go.dev/dl)",
    )?;
    fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    let lock = folder.join(".lock");
    let lock = File::create(&lock).with_context(|| format!("cannot create {}", lock.display()))?;
    lock.lock().context("cannot wait for another build of the peer")?;
    let program = folder.join(PROGRAM);
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("peer");
    let output = Command::new(go)
        // As the tools are built, so that Go finds in its cache what they have in common.
        .args(["build", "-trimpath", "-o"])
        .arg(&program)
        .arg(".")
        .current_dir(&source)
        // The pins decide, whatever workspace or flags the user works with.
        .envs([("CGO_ENABLED", "0"), ("GOFLAGS", "-mod=readonly -buildvcs=false"), ("GOWORK", "off")])
        .stdin(Stdio::null())
        .output()
        .context("cannot start go")?;
    ensure!(
        output.status.success(),
        "the peer does not build: mend {} ({})\n{}",
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
