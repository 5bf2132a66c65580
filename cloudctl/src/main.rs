//! The binary `cloudctl`: everything is in the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    cloudctl::run(std::env::args_os())
}
