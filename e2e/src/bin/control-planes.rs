//! Lends control planes to scenarios until standard input is closed. `cargo xtask test` starts it.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::thread;

use anyhow::Context as _;
use clap::Parser;
use e2e::{pool, tools};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;

/// Lend control planes to the scenarios of e2e, one after the other, until standard input is closed
#[derive(Debug, Parser)]
struct Args {
    /// The Unix socket to listen at; scenarios find its path in `CLOUD_CONTROLLERS_E2E_CONTROL_PLANES`
    #[arg(long, value_name = "PATH")]
    socket: PathBuf,
}

#[tokio::main]
async fn main() -> ExitCode {
    match run(&Args::parse()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Printing fails if standard error is closed; the exit code still reports the failure.
            io::stderr().write_all(format!("error: {error:#}\n").as_bytes()).ok();
            ExitCode::FAILURE
        }
    }
}

async fn run(args: &Args) -> anyhow::Result<()> {
    // Ctrl-C is ignored, because scenarios still clean up after Ctrl-C. Then the parent process closes standard input.
    let _ignored = signal(SignalKind::interrupt()).context("cannot catch Ctrl-C")?;
    let mut terminate = signal(SignalKind::terminate()).context("cannot catch SIGTERM")?;
    let tools = tools()?;
    let (closed, end) = oneshot::channel();
    // Reads in a separate thread, because a blocking read in tokio would delay the end of this process until there is input.
    thread::spawn(move || {
        io::copy(&mut io::stdin(), &mut io::sink()).ok();
        closed.send(()).ok();
    });
    tokio::select! {
        served = pool::serve(&args.socket, &tools) => served,
        _ = end => Ok(()),
        _ = terminate.recv() => Ok(()),
    }
}
