//! The directory of a control plane. If a test fails, the path of the directory is printed.

use std::env;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::thread;

use anyhow::Context;
use tempfile::TempDir;

/// Environment variable: if the variable is set, the directories of passed tests are kept, too.
const KEEP: &str = "CLOUD_CONTROLLERS_E2E_KEEP";

/// The directory. Dropping this value removes it, unless the thread panics or the user wants to keep it.
#[derive(Debug)]
pub(crate) struct WorkDir {
    dir: TempDir,
    keep: bool,
}

impl WorkDir {
    pub(crate) fn new() -> anyhow::Result<Self> {
        let dir = tempfile::Builder::new().prefix("cloud-controllers-e2e-").tempdir();
        let dir = dir.context("cannot create a temporary directory")?;
        let this = Self { dir, keep: env::var_os(KEEP).is_some() };
        for sub in [this.logs(), this.path().join("home")] {
            fs::create_dir(&sub).with_context(|| format!("cannot create {}", sub.display()))?;
        }
        Ok(this)
    }

    pub(crate) fn path(&self) -> &Path {
        self.dir.path()
    }

    pub(crate) fn keep(&mut self) {
        self.keep = true;
    }

    pub(crate) fn logs(&self) -> PathBuf {
        self.path().join("logs")
    }
}

impl Drop for WorkDir {
    fn drop(&mut self) {
        if !thread::panicking() && !self.keep {
            return;
        }
        self.dir.disable_cleanup(true);
        // etcd preallocates 64 MB, and a user who reads the logs does not need its data.
        fs::remove_dir_all(self.path().join("etcd")).ok();
        let line = format!("The logs are kept in {}\n", self.logs().display());
        io::stderr().write_all(line.as_bytes()).ok();
    }
}
