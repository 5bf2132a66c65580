//! `conformance-sim`: runs `adapter-conformance` against the simulated cloud, and provides the commands of its parameter file.

use std::{
    io::{self, Write as _},
    net::SocketAddr,
    path::PathBuf,
    process::ExitCode,
};

use adapter_conformance::sim::{Plan, Setting, command, lease_server};
use adapter_conformance::{Options, program};
use clap::{Parser, Subcommand};

/// Run adapter-conformance against the simulated cloud
#[derive(Debug, Parser)]
#[command(version)]
struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Start lanes, run the suite on them and stop them
    Run {
        /// Number of lanes; each lane is a cloud with an adapter
        #[arg(long, default_value_t = 3, value_name = "N")]
        lanes: usize,
        /// Additional flag for each adapter; may be repeated
        #[arg(long, value_name = "FLAG", allow_hyphen_values = true)]
        adapter_flag: Vec<String>,
        /// Folder for the files of the run
        #[arg(long, value_name = "FOLDER", default_value = "target/conformance")]
        folder: PathBuf,
        /// Flags for adapter-conformance
        #[arg(last = true)]
        suite: Vec<String>,
    },
    /// Run an API server with a single Lease, for replicas
    LeaseServer {
        /// Listen address
        #[arg(long, value_name = "IP:PORT")]
        listen: SocketAddr,
    },
    /// Run one command of the parameter file
    Command {
        /// Name of the command in the parameter file
        name: String,
    },
}

#[tokio::main]
async fn main() -> ExitCode {
    tracing_subscriber::fmt().with_max_level(tracing::Level::WARN).with_writer(io::stderr).init();
    match answer(Args::parse().what).await {
        Ok(code) => code,
        Err(error) => {
            io::stderr().write_all(format!("error: {error:#}\n").as_bytes()).unwrap_or_default();
            ExitCode::FAILURE
        }
    }
}

async fn answer(what: What) -> anyhow::Result<ExitCode> {
    match what {
        What::Command { name } => {
            let printed = command::run(&name).await?;
            io::stdout().write_all(printed.as_bytes())?;
            Ok(ExitCode::SUCCESS)
        }
        What::LeaseServer { listen } => {
            lease_server::serve(listen).await?;
            Ok(ExitCode::SUCCESS)
        }
        What::Run { lanes, adapter_flag, folder, suite } => {
            let plan = Plan { lanes, adapter_flags: adapter_flag, ..Plan::default() };
            let setting = Setting::start(&plan, &std::path::absolute(folder)?)?;
            let params = setting.params().display().to_string();
            let flags = ["adapter-conformance".to_owned(), "--params".to_owned(), params];
            match Options::try_parse_from(flags.into_iter().chain(suite)) {
                Ok(options) => Ok(program::main(options).await),
                Err(error) => {
                    // Drop the lanes first, because `exit` ends the process without running destructors.
                    drop(setting);
                    error.exit()
                }
            }
        }
    }
}
