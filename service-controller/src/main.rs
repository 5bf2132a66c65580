//! The binary `service-controller`: everything is in the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    service_controller::run(std::env::args_os())
}
