//! The binary `route-controller`; the code is in the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    route_controller::run(std::env::args_os())
}
