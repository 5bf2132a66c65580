//! The binary: flags in, exit code out.

use std::process::ExitCode;

use node_controller::{Config, NAMES, run};

fn main() -> ExitCode {
    match Config::parse(std::env::args_os()) {
        Ok(config) => {
            let common = config.common.clone();
            controller_core::start::run(NAMES, &common, |process| run(config, process))
        }
        Err(error) => error.exit(),
    }
}
