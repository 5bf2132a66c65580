//! `adapter-sim`: the adapter of the simulated cloud.

use std::process::ExitCode;

use adapter_sim::SimOptions;
use clap::Parser;
use cloud_adapter::Options;

/// The adapter of the simulated cloud: serves the cloud contract over gRPC, and speaks to a simcloud over HTTP. Starts and
/// waits, saying so, if that is not there yet.
#[derive(Debug, Parser)]
#[command(version)]
struct Args {
    #[command(flatten)]
    cloud: SimOptions,
    #[command(flatten)]
    options: Options,
}

fn main() -> ExitCode {
    let Args { cloud, options } = Args::parse();
    cloud_adapter::run(&options, |_stop| cloud.driver())
}
