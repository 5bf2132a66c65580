//! Builds images from the programs that cargo has built for other tests, so that nothing is compiled for the images. These programs are not
//! static. The image therefore contains the shared libraries of this system that they load. Tests with such images do not show how release
//! images are linked.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, bail, ensure};

use crate::cargo;

/// A shared library, at the path where the program looks for it.
#[derive(Debug)]
pub(crate) struct Library {
    /// The path without the leading slash.
    pub(crate) path: String,
    pub(crate) content: Vec<u8>,
}

/// Copies the program without its debug information.
pub(crate) fn program(name: &str, folder: &Path) -> anyhow::Result<PathBuf> {
    let (built, stripped) = (cargo::built(name), folder.join(name));
    let status = Command::new("strip").arg("-o").arg(&stripped).arg(&built).status();
    let status = status.context("cannot start `strip`; install binutils")?;
    ensure!(
        status.success(),
        "strip {}: {status}; build it: `cargo build --workspace --bins`",
        built.display()
    );
    Ok(stripped)
}

/// Returns the libraries that the dynamic linker loads for the program, and the linker itself.
pub(crate) fn libraries(program: &Path) -> anyhow::Result<Vec<Library>> {
    let answer = Command::new("ldd")
        .arg(program)
        .output()
        .context("cannot start `ldd`; install the C library's tools")?;
    ensure!(
        answer.status.success(),
        "ldd {}: {}",
        program.display(),
        String::from_utf8_lossy(&answer.stderr)
    );
    let text = String::from_utf8_lossy(&answer.stdout).into_owned();
    paths(&text)?
        .into_iter()
        .map(|path| {
            let content = fs::read(path).with_context(|| format!("cannot read {path}"))?;
            Ok(Library { path: path.trim_start_matches('/').to_owned(), content })
        })
        .collect()
}

/// Parses lines such as `libc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x...)` and `/lib64/ld-linux-x86-64.so.2 (0x...)`.
fn paths(listed: &str) -> anyhow::Result<Vec<&str>> {
    let mut paths = Vec::new();
    for line in listed.lines().map(str::trim) {
        if line.ends_with("not found") {
            bail!("this system lacks a library: {line}");
        }
        let place = line.split_once("=> ").map_or(line, |(_, place)| place);
        let path = place.split(' ').next().unwrap_or_default();
        // The kernel's vDSO is not a file.
        paths.extend(Some(path).filter(|path| path.starts_with('/')));
    }
    Ok(paths)
}

#[cfg(test)]
mod tests {
    use super::paths;

    #[test]
    fn libraries_and_the_dynamic_linker_are_found() {
        let listed =
            "\tlinux-vdso.so.1 (0x1)\n\tlibc.so.6 => /lib/x/libc.so.6 (0x2)\n\t/lib64/ld-linux.so.2 (0x3)\n";
        assert_eq!(paths(listed).unwrap(), ["/lib/x/libc.so.6", "/lib64/ld-linux.so.2"]);
        assert!(paths("\tlibx.so => not found\n").is_err());
    }
}
