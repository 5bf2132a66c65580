//! The binary `node-controller`; the code is in the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    node_controller::run(std::env::args_os())
}
