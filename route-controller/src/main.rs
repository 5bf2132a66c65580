//! The binary `route-controller`: everything is in the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    route_controller::run(std::env::args_os())
}
