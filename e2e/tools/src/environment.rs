//! The environment variables that determine where programs are searched. No other module reads the environment.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::error::Error;

/// The places to search, and the place for builds.
#[derive(Clone, Debug)]
pub struct Environment {
    /// `KUBEBUILDER_ASSETS`: a directory with ready programs.
    pub assets: Option<PathBuf>,
    /// The directories of `PATH`.
    pub path: Vec<PathBuf>,
    /// This project's directory below the user's cache.
    pub cache: PathBuf,
    /// The directory with the Go modules that pin the versions.
    pub modules: PathBuf,
}

impl Environment {
    /// Reads the environment of this process.
    pub fn of_this_process() -> Result<Self, Error> {
        let cache = cache_root(env::var_os("XDG_CACHE_HOME"), env::home_dir()).ok_or(Error::NoCache)?;
        Ok(Self {
            assets: env::var_os("KUBEBUILDER_ASSETS").filter(|dir| !dir.is_empty()).map(PathBuf::from),
            path: env::var_os("PATH").map(|path| env::split_paths(&path).collect()).unwrap_or_default(),
            cache: cache.join("cloud-controllers").join("tools"),
            modules: Path::new(env!("CARGO_MANIFEST_DIR")).to_path_buf(),
        })
    }
}

/// Follows the XDG base directory rules, which ignore a relative `XDG_CACHE_HOME`.
fn cache_root(xdg: Option<OsString>, home: Option<PathBuf>) -> Option<PathBuf> {
    let named = xdg.map(PathBuf::from).filter(|dir| dir.is_absolute());
    named.or_else(|| home.filter(|dir| dir.is_absolute()).map(|dir| dir.join(".cache")))
}

#[cfg(test)]
mod tests {
    use super::{PathBuf, cache_root};

    #[test]
    fn the_cache_follows_the_xdg_rules() {
        let home = Some(PathBuf::from("/home/a"));
        assert_eq!(cache_root(Some("/c".into()), home.clone()), Some("/c".into()));
        assert_eq!(cache_root(Some("relative".into()), home.clone()), Some("/home/a/.cache".into()));
        assert_eq!(cache_root(Some("".into()), home), Some("/home/a/.cache".into()));
        assert_eq!(cache_root(None, None), None);
    }
}
