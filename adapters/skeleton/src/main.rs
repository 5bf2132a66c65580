//! `adapter-skeleton`: the adapter for skeleton.

use std::process::ExitCode;

use adapter_skeleton::SkeletonOptions;
use clap::Parser;
use cloud_adapter::Options;

/// The adapter for skeleton. It serves the cloud contract over gRPC, and calls the cloud's HTTP API.
#[derive(Debug, Parser)]
#[command(version)]
struct Args {
    #[command(flatten)]
    cloud: SkeletonOptions,
    #[command(flatten)]
    options: Options,
}

fn main() -> ExitCode {
    let Args { cloud, options } = Args::parse();
    cloud_adapter::run(&options, |_stop| async move { cloud.driver() })
}
