//! Prometheus and its promtool, from `PATH` or from Debian's package. The package is only unpacked into the cache, because an installation
//! would start a service.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::environment::Environment;
use crate::error::Error;

const PACKAGE: &str = "prometheus";
const SERVER: &str = "prometheus";
const CHECKER: &str = "promtool";

/// Both programs, in the same version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prometheus {
    /// The server, which scrapes and answers queries.
    pub server: PathBuf,
    /// promtool, which checks and tests rules.
    pub promtool: PathBuf,
}

impl Prometheus {
    /// Finds both programs, and downloads them if they are missing.
    ///
    /// Cost: none if both exist; otherwise a download of 20 MB.
    pub fn get(environment: &Environment) -> Result<Self, Error> {
        let slot = environment.cache.join("prometheus-debian");
        let places = environment.path.iter().cloned().chain([slot.join("usr/bin")]);
        if let Some(found) = places.into_iter().find_map(|dir| Self::within(&dir)) {
            return Ok(found);
        }
        let unfinished = environment.cache.join(format!(".prometheus.{}", std::process::id()));
        let got = unpack(&unfinished);
        // The rename fails if another process was faster; the result of that process is the same.
        let moved = got.map(|()| fs::rename(unfinished.join("root"), &slot).ok());
        fs::remove_dir_all(&unfinished).ok();
        match (Self::within(&slot.join("usr/bin")), moved) {
            (Some(found), _) => Ok(found),
            (None, Err(error)) => Err(error),
            (None, Ok(_)) => Err(Error::NoPrometheus {
                output: "the package does not contain prometheus and promtool".to_owned(),
            }),
        }
    }

    fn within(dir: &Path) -> Option<Self> {
        let found = Self { server: dir.join(SERVER), promtool: dir.join(CHECKER) };
        (found.server.is_file() && found.promtool.is_file()).then_some(found)
    }
}

fn unpack(dir: &Path) -> Result<(), Error> {
    let io = |source| Error::Io { what: "cannot create", path: dir.to_path_buf(), source };
    fs::create_dir_all(dir).map_err(io)?;
    run(dir, "apt-get", &["download", "--quiet", PACKAGE].map(OsStr::new))?;
    let files = fs::read_dir(dir).map_err(io)?.flatten().map(|entry| entry.path());
    let package = files.into_iter().find(|path| path.extension() == Some(OsStr::new("deb")));
    let package =
        package.ok_or_else(|| Error::NoPrometheus { output: "apt-get downloaded no file".to_owned() })?;
    run(dir, "dpkg", &[OsStr::new("--extract"), package.as_os_str(), OsStr::new("root")])
}

fn run(dir: &Path, program: &str, args: &[&OsStr]) -> Result<(), Error> {
    let answer = Command::new(program).args(args).current_dir(dir).stdin(Stdio::null()).output();
    let answer = answer.map_err(|error| Error::NoPrometheus { output: format!("{program}: {error}") })?;
    if answer.status.success() {
        return Ok(());
    }
    Err(Error::NoPrometheus { output: String::from_utf8_lossy(&answer.stderr).trim().to_owned() })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::{Environment, Prometheus};

    #[test]
    fn programs_in_the_path_are_used_only_together() {
        let dir = tempfile::tempdir().unwrap();
        let (half, both) = (dir.path().join("half"), dir.path().join("both"));
        for (place, names) in [(&half, &["prometheus"][..]), (&both, &["prometheus", "promtool"])] {
            fs::create_dir(place).unwrap();
            for name in names {
                fs::write(place.join(name), "").unwrap();
            }
        }
        let environment = Environment {
            assets: None,
            path: vec![half, both.clone()],
            cache: dir.path().join("cache"),
            modules: dir.path().to_path_buf(),
        };
        let found = Prometheus::get(&environment).unwrap();
        assert_eq!(found, Prometheus { server: both.join("prometheus"), promtool: both.join("promtool") });
    }
}
