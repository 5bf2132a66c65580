//! The binary `service-controller`. All code is in the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    service_controller::run(std::env::args_os())
}
