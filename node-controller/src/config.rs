//! Flags to a checked configuration.

use std::ffi::OsString;

use clap::Parser;
use controller_core::config::{self, CommonArgs, CommonConfig, Faults};

/// Initialises Kubernetes nodes from the cloud and keeps their addresses and labels right.
#[derive(Debug, Parser)]
#[command(name = "node-controller", version)]
struct Args {
    #[command(flatten)]
    common: CommonArgs,

    /// Where /metrics, /healthz and /readyz are served.
    #[arg(long, value_name = "ADDRESS", default_value = "0.0.0.0:10270")]
    http_address: String,

    /// How many nodes are worked on at once.
    #[arg(long, value_name = "N", default_value_t = 10)]
    concurrent_node_syncs: usize,
}

/// The configuration, checked.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    /// What all controllers have.
    pub(crate) common: CommonConfig,
    /// How many nodes are worked on at once.
    pub(crate) workers: usize,
}

impl Config {
    /// Reads the flags and judges them.
    ///
    /// # Errors
    /// Every fault at once; `clap::Error::exit` prints them and ends the process with code 2.
    pub(crate) fn from_arguments(
        arguments: impl IntoIterator<Item = impl Into<OsString> + Clone>,
    ) -> Result<Self, clap::Error> {
        config::read(arguments, judge)
    }
}

fn judge(args: &Args, faults: &mut Faults) -> Option<Config> {
    let workers = faults.in_range("--concurrent-node-syncs <N>", args.concurrent_node_syncs, 1..=1000);
    let common = args.common.check(&args.http_address, faults);
    Some(Config { common: common?, workers: workers? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_as_documented() {
        let config = Config::from_arguments(["node-controller", "--cluster-id=u"]).expect("good flags");
        assert_eq!(config.workers, 10);
        assert_eq!(config.common.http_address.to_string(), "0.0.0.0:10270");
    }

    #[test]
    fn no_workers_is_refused_and_not_silently_accepted() {
        let error =
            Config::from_arguments(["node-controller", "--cluster-id=u", "--concurrent-node-syncs=0"]);
        let error = error.expect_err("nobody would work");
        assert_eq!(error.exit_code(), 2);
        assert!(error.to_string().contains("'--concurrent-node-syncs <N>': 0 is not in 1..=1000"), "{error}");
    }

    #[test]
    fn flags_are_well_formed() {
        <Args as clap::CommandFactory>::command().debug_assert();
    }
}
