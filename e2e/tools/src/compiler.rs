//! Checks whether the Go compiler in `PATH` is new enough, because an old one prints unhelpful errors for a newer `go.mod`.

use std::io;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::error::Error;
use crate::tool::Tool;

/// The first version of Go that can download a newer compiler when a module requires a newer version.
const FETCHES_ITS_LIKE: (u64, u64) = (1, 21);

/// Returns an error if Go is missing or too old. Accepts Go if its version is unknown.
pub(crate) fn check(tool: Tool, go: &Path) -> Result<(), Error> {
    let mut command = Command::new(go);
    // The command runs in a directory without a go.mod, so that Go does not download a newer version.
    command.args(["env", "GOVERSION"]).current_dir("/").env("GOTOOLCHAIN", "local").env("GOWORK", "off");
    let answer = command.stdin(Stdio::null()).output().map_err(|source| start_error(tool, go, source))?;
    if !answer.status.success() {
        return Ok(());
    }
    match too_old(String::from_utf8_lossy(&answer.stdout).trim()) {
        Some(found) => Err(Error::OldGo { tool, found }),
        None => Ok(()),
    }
}

/// Describes the version if it is too old.
fn too_old(answer: &str) -> Option<String> {
    if answer.is_empty() {
        return Some("older than go1.16, which reports no version".to_owned());
    }
    (numbers(answer)? < FETCHES_ITS_LIKE).then(|| answer.to_owned())
}

/// Parses `go1.19.13`, `go1.21rc2` or `go1.26.8 X:exp`, and unreleased versions (`devel go1.27-abc`).
fn numbers(found: &str) -> Option<(u64, u64)> {
    let release = found.split_whitespace().find_map(|word| word.strip_prefix("go"))?;
    let (major, rest) = release.split_once('.')?;
    let minor = rest.split(|c: char| !c.is_ascii_digit()).next()?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

fn start_error(tool: Tool, go: &Path, source: io::Error) -> Error {
    if source.kind() == io::ErrorKind::NotFound {
        Error::NoGo { tool }
    } else {
        Error::Io { what: "cannot start", path: go.to_path_buf(), source }
    }
}

#[cfg(test)]
mod tests {
    use super::{Error, Path, Tool, check, too_old};

    #[test]
    fn go_before_1_21_is_too_old() {
        for old in ["go1.19.13", "go1.20", "go1.18beta1", ""] {
            assert!(too_old(old).is_some(), "{old}");
        }
        for good in ["go1.21rc2", "go1.21.0", "go1.26.8 X:nodwarf5", "devel go1.27-abc Mon", "gccgo", "go2.0"]
        {
            assert_eq!(too_old(good), None, "{good}");
        }
    }

    #[test]
    fn missing_compiler_is_not_an_io_error() {
        let error = check(Tool::Helm, Path::new("/nowhere/go")).unwrap_err();
        assert!(matches!(error, Error::NoGo { tool: Tool::Helm }), "{error}");
    }
}
