//! The program as a separate process, with a configuration file.

use std::{io::Write as _, ops::Deref};

use cloud_adapter::kit::testing::Program as Process;
use tempfile::NamedTempFile;

use crate::support::PROGRAM;

pub(crate) struct Program {
    pub(crate) process: Process,
    _config: NamedTempFile,
}

impl Program {
    /// Starts the program, and returns when its ports are open. `config`: the content of its configuration file.
    pub(crate) async fn start(cloud: &str, config: &str, flags: &[&str]) -> Self {
        let mut file = NamedTempFile::new().expect("a file");
        writeln!(file, "{config}").expect("a written file");
        let path = file.path().to_str().expect("a plain path");
        let own = ["--endpoint", cloud, "--consistency-horizon-ms", "50", "--config", path];
        let process = Process::start(PROGRAM, [&own[..], flags].concat()).await;
        Self { process, _config: file }
    }
}

impl Deref for Program {
    type Target = Process;

    fn deref(&self) -> &Process {
        &self.process
    }
}
