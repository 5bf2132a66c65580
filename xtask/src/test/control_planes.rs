//! The control planes that scenarios share: a program of e2e lends them, for as long as we hold its standard input.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, bail};

use crate::cargo;

const PROGRAM: &str = "control-planes";

/// Ends when dropped, and all control planes with it.
#[derive(Debug)]
pub(super) struct ControlPlanes {
    child: Child,
    _dir: tempfile::TempDir,
    variable: (String, String),
}

impl ControlPlanes {
    /// Starts it. Control planes come when they are wanted.
    ///
    /// # Errors
    /// When it is not built, or cannot listen.
    pub(super) fn start() -> anyhow::Result<Self> {
        // In the system's folder for temporary files: the path of a socket has at most 107 bytes.
        let dir = tempfile::Builder::new().prefix("cloud-controllers-e2e-").tempdir();
        let dir = dir.context("cannot create a temporary directory")?;
        let program = cargo::built(PROGRAM);
        let mut command = Command::new(&program);
        command.arg("--socket").arg(dir.path().join("control-planes"));
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut child = child.with_context(|| format!("cannot start {}", program.display()))?;
        let mut line = String::new();
        if let Some(output) = child.stdout.take() {
            BufReader::new(output)
                .read_line(&mut line)
                .context("cannot read where control planes are lent")?;
        }
        let Some((name, value)) = line.trim_end().split_once('=') else {
            bail!("{} ended and lends no control planes; read above why", program.display());
        };
        let variable = (name.to_owned(), value.to_owned());
        Ok(Self { child, _dir: dir, variable })
    }

    /// The environment variable that tells scenarios of it.
    pub(super) fn variable(&self) -> (&str, &str) {
        (&self.variable.0, &self.variable.1)
    }
}

impl Drop for ControlPlanes {
    fn drop(&mut self) {
        // The end of its input tells it; it fails only when it is gone already.
        drop(self.child.stdin.take());
        self.child.wait().ok();
    }
}
