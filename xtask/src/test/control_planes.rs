//! The control planes that scenarios share. A program of the package `e2e` starts them and lends them to scenarios until the program's
//! standard input is closed.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, bail};

use crate::cargo;

const PROGRAM: &str = "control-planes";

/// The program that lends control planes. Dropping this value stops the program and all control planes.
#[derive(Debug)]
pub(super) struct ControlPlanes {
    child: Child,
    _dir: tempfile::TempDir,
    variable: (String, String),
}

impl ControlPlanes {
    /// Starts the program, which then starts control planes on demand.
    pub(super) fn start() -> anyhow::Result<Self> {
        // The socket is in the system's folder for temporary files, because the path of a socket has at most 107 bytes.
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
                .context("cannot read the address of the lender of control planes")?;
        }
        let Some((name, value)) = line.trim_end().split_once('=') else {
            bail!("{} ended and lends no control planes; see its output above", program.display());
        };
        let variable = (name.to_owned(), value.to_owned());
        Ok(Self { child, _dir: dir, variable })
    }

    /// The environment variable by which scenarios find the program.
    pub(super) fn variable(&self) -> (&str, &str) {
        (&self.variable.0, &self.variable.1)
    }
}

impl Drop for ControlPlanes {
    fn drop(&mut self) {
        // The program stops when its standard input is closed. Waiting fails only if the program has already ended.
        drop(self.child.stdin.take());
        self.child.wait().ok();
    }
}
