//! Shows the whole system at work. `cargo xtask demo` builds the required programs and starts this one.

use std::io::{self, Write};
use std::process::ExitCode;

use clap::Parser;
use e2e::demo::{Args, run};

#[tokio::main]
async fn main() -> ExitCode {
    match Box::pin(run(&Args::parse())).await {
        Ok(code) => code,
        Err(error) => {
            // Printing fails if standard error is closed; the exit code still reports the result.
            io::stderr().write_all(format!("error: {error:#}\n").as_bytes()).ok();
            ExitCode::FAILURE
        }
    }
}
