//! The pause image, which every pod needs. It is built here, without a registry.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::cluster::layout::{Layout, PAUSE_IMAGE};
use crate::cluster::run::run;

const PAUSE: &str = "#include <signal.h>\n#include <unistd.h>\n\
                     static void end(int signal) { (void)signal; _exit(0); }\n\
                     int main(void) { signal(SIGTERM, end); signal(SIGINT, end); for (;;) pause(); }\n";

/// Writes the archive with the image, in the format of `docker save`.
pub(crate) fn pause(layout: &Layout) -> anyhow::Result<PathBuf> {
    let (folder, archive) = (layout.home.join("pause"), layout.home.join("pause.tar"));
    if archive.is_file() {
        return Ok(archive);
    }
    fs::create_dir_all(folder.join("root")).with_context(|| format!("cannot create {}", folder.display()))?;
    write(&folder.join("pause.c"), PAUSE.as_bytes())?;
    let (source, program) = (folder.join("pause.c"), folder.join("root").join("pause"));
    run(Command::new("cc").args(["-static", "-Os", "-s", "-o"]).arg(&program).arg(&source)).context(
        "the C compiler and the static C library are required (Debian: libc6-dev, Fedora: glibc-static)",
    )?;
    let layer = folder.join("layer.tar");
    tar(&layer, &folder.join("root"), &["pause"])?;
    let bytes = fs::read(&layer).with_context(|| format!("cannot read {}", layer.display()))?;
    write(&folder.join("config.json"), config(&bytes).to_string().as_bytes())?;
    write(&folder.join("manifest.json"), manifest().to_string().as_bytes())?;
    // The archive gets its final name only when it is complete.
    let unfinished = folder.join("pause.tar");
    tar(&unfinished, &folder, &["manifest.json", "config.json", "layer.tar"])?;
    fs::rename(&unfinished, &archive).with_context(|| format!("cannot write {}", archive.display()))?;
    Ok(archive)
}

fn config(layer: &[u8]) -> Value {
    let digest: String = Sha256::digest(layer).iter().map(|byte| format!("{byte:02x}")).collect();
    // The name of the architecture in Go and in image manifests.
    let architecture = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    json!({
        "architecture": architecture,
        "os": "linux",
        "config": { "Entrypoint": ["/pause"] },
        "rootfs": { "type": "layers", "diff_ids": [format!("sha256:{digest}")] },
    })
}

fn manifest() -> Value {
    json!([{ "Config": "config.json", "RepoTags": [PAUSE_IMAGE], "Layers": ["layer.tar"] }])
}

fn tar(archive: &Path, folder: &Path, files: &[&str]) -> anyhow::Result<()> {
    let mut command = Command::new("tar");
    command.args(["--create", "--owner=0", "--group=0", "--mtime=@0", "--file"]).arg(archive);
    run(command.arg("--directory").arg(folder).args(files)).map(drop)
}

fn write(path: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    fs::write(path, bytes).with_context(|| format!("cannot write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_image_names_its_layer_by_content() {
        let config = config(b"");
        let empty = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(config.pointer("/rootfs/diff_ids/0").unwrap(), empty);
    }
}
