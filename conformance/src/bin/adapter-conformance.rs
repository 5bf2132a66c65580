//! `adapter-conformance`: parses the flags and calls the library.

use std::process::ExitCode;

use adapter_conformance::{Options, program};
use clap::Parser as _;

#[tokio::main]
async fn main() -> ExitCode {
    let options = Options::parse();
    tracing_subscriber::fmt().with_max_level(tracing::Level::WARN).with_writer(std::io::stderr).init();
    program::main(options).await
}
