//! The binary `cloudctl`. All its code is in the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    cloudctl::run(std::env::args_os())
}
