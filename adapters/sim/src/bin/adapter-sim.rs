//! `adapter-sim`: the adapter of the simulated cloud.

use std::{io::Write as _, process::ExitCode};

use adapter_sim::{
    SimOptions,
    broken::{Broken, Fault},
};
use clap::{Parser, ValueEnum as _};
use cloud_adapter::Options;

/// The adapter of the simulated cloud: serves the cloud contract over gRPC, and calls a simcloud over HTTP. If the simcloud cannot be
/// reached at the start, the adapter logs this and retries
#[derive(Debug, Parser)]
#[command(version)]
struct Args {
    #[command(flatten)]
    cloud: SimOptions,
    #[command(flatten)]
    options: Options,
    /// Inject one fault, to test the conformance suite. `help` lists the faults
    #[arg(long = "break", value_name = "FAULT", value_parser = mistake, help_heading = "Tests")]
    mistake: Option<Mistake>,
}

#[derive(Clone, Copy, Debug)]
enum Mistake {
    Help,
    Make(Fault),
}

fn mistake(text: &str) -> Result<Mistake, String> {
    if text == "help" {
        return Ok(Mistake::Help);
    }
    Fault::from_str(text, false).map(Mistake::Make).map_err(|_same| "--break help lists them".to_owned())
}

fn main() -> ExitCode {
    let Args { cloud, options, mistake } = Args::parse();
    match mistake {
        None => cloud_adapter::run(&options, |_stop| cloud.driver()),
        Some(Mistake::Make(fault)) => broken(fault, cloud, &options),
        Some(Mistake::Help) => match std::io::stdout().write_all(Fault::table().as_bytes()) {
            Ok(()) => ExitCode::SUCCESS,
            Err(_) => ExitCode::FAILURE,
        },
    }
}

fn broken(fault: Fault, cloud: SimOptions, options: &Options) -> ExitCode {
    let broken = Broken::new(fault);
    let driver = |_stop| broken.driver(cloud, options);
    cloud_adapter::run_through(&broken.flags(options), driver, |services| broken.front(services))
}
