//! The command line of the benchmark at full size. It is in this crate so that `cargo xtask` can check it and show the help before anything
//! is built.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Parser, ValueEnum};

/// Maximum number of nodes. Up to this number, each node can have two pod networks, and the simulated cloud can create all instances.
const NODES_MAX: i64 = 10_000;
/// Maximum number of Services. Up to this number, each Service can have a node port, including Services that scenarios add.
const SERVICES_MAX: i64 = 1_300;

const ABOUT: &str = "Measures the controllers and the adapter on a large cluster, and compares the \
                     results with the targets";

// Each paragraph is one line, because clap wraps it to the width of the terminal.
const LONG_ABOUT: &str = "Measures the controllers and the adapter on a large cluster, and compares the results with the targets.

Starts etcd, kube-apiserver and a simulated cloud with a latency of 50 ms, installs the chart with Helm, and runs the four processes as the chart describes them, all built for release. Nodes and Services are created through the API server. There are no kubelets: the benchmark reports the status of each node every 5 minutes, as kubelets do while nothing changes. It does not renew their Leases, which no measured process reads. Vendor calls are counted by the cloud, writes to the API server by its audit log, memory and CPU time by the kernel.

All scenarios but the last share one set-up. With the defaults a run takes an hour and 4 GiB; its results are meaningful only on a host without other load. The load of the host is printed beside each scenario.";

const AFTER_HELP: &str = "Examples:
  cargo xtask bench scale --nodes 100 --services 20 --seconds 30   a quick try, two minutes
  cargo xtask bench scale --scenario steady --scenario restart
  cargo xtask bench scale --json target/bench.json
  cargo xtask bench scale --write-docs target/bench.json           writes docs/benchmarks.md from it

Exit codes:
  0    all targets are met
  1    a target is missed, or could not be measured; the table says which
  2    wrong usage
  130  interrupted before the last scenario";

/// The command line.
#[derive(Clone, Debug, PartialEq, Eq, Parser)]
#[command(
    name = "bench-scale",
    bin_name = "cargo xtask bench scale",
    display_name = "cargo xtask bench scale",
    version
)]
#[command(about = ABOUT, long_about = LONG_ABOUT, after_help = AFTER_HELP)]
pub struct Args {
    /// Also measure a cloud controller manager in Go, once with ten workers and once with its defaults, which takes hours at full size
    #[arg(long)]
    pub peer: bool,
    /// Run only this scenario; may be repeated
    #[arg(long = "scenario", value_name = "NAME")]
    pub scenarios: Vec<Scenario>,
    /// Number of nodes, 10 to 10000
    #[arg(long, value_name = "N", default_value_t = 5000, value_parser = clap::value_parser!(u16).range(10..=NODES_MAX))]
    pub nodes: u16,
    /// Number of Services of type LoadBalancer, 2 to 1300
    #[arg(long, value_name = "S", default_value_t = 1000, value_parser = clap::value_parser!(u16).range(2..=SERVICES_MAX))]
    pub services: u16,
    /// Number of nodes behind the load balancers; the others have the label that excludes them
    #[arg(long, value_name = "M", default_value_t = 200, value_parser = clap::value_parser!(u16).range(1..=NODES_MAX))]
    pub members: u16,
    /// Duration of the steady state; other scenarios with a fixed duration take a fraction of it
    #[arg(long, value_name = "SECONDS", default_value_t = 600, value_parser = clap::value_parser!(u16).range(5..=7200))]
    pub seconds: u16,
    /// Write all measurements to this file
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Do not measure, but write docs/benchmarks.md from files of earlier runs; later files take precedence
    #[arg(long, value_name = "FILE", num_args = 1.., conflicts_with_all = ["json", "peer", "scenarios"])]
    pub write_docs: Vec<PathBuf>,
}

/// The scenarios, in the order in which they run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum Scenario {
    /// A fifth of the nodes joins at once
    Join,
    /// Calls, memory and CPU time at a quarter of the size, half the size, and full size
    Growth,
    /// The creation of the routes of all nodes, two per node
    Routes,
    /// The steady state, without changes
    Steady,
    /// A fifth of the nodes is not ready for a while
    NotReady,
    /// One node joins, and all load balancers are updated, while users create new Services
    OneMore,
    /// Nodes leave, as the cluster autoscaler removes them
    Leave,
    /// Users create many Services at once, half as many as exist
    Crowd,
    /// Each controller is restarted
    Restart,
    /// The adapter is restarted
    AdapterRestart,
    /// The vendor throttles at 60 % of the configured rate
    Throttled,
    /// One, two and four replicas of each controller share the work, and one replica is killed; this runs on a separate cluster, a fifth as
    /// large
    Replicas,
}

impl Scenario {
    /// The name of the scenario on the command line and in files.
    #[must_use]
    pub fn name(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }
}

impl Args {
    /// The scenarios to measure, in order.
    #[must_use]
    pub fn wanted(&self) -> Vec<Scenario> {
        let asked = |it: &&Scenario| self.scenarios.is_empty() || self.scenarios.contains(it);
        Scenario::value_variants().iter().filter(asked).copied().collect()
    }

    /// The equivalent command line.
    #[must_use]
    pub fn to_flags(&self) -> Vec<OsString> {
        let Self { peer, scenarios, nodes, services, members, seconds, json, write_docs } = self;
        let mut flags: Vec<OsString> = Vec::new();
        if !write_docs.is_empty() {
            flags.push("--write-docs".into());
            flags.extend(write_docs.iter().map(OsString::from));
            return flags;
        }
        if *peer {
            flags.push("--peer".into());
        }
        flags.extend(scenarios.iter().map(|it| format!("--scenario={}", it.name()).into()));
        let numbers = [("nodes", nodes), ("services", services), ("members", members), ("seconds", seconds)];
        flags.extend(numbers.map(|(flag, number)| format!("--{flag}={number}").into()));
        if let Some(file) = json {
            flags.extend(["--json".into(), OsString::from(file)]);
        }
        flags
    }
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, Parser};

    use super::{Args, Scenario};

    fn parse(given: &[&str]) -> Result<Args, clap::Error> {
        Args::try_parse_from([&["bench-scale"], given].concat())
    }

    #[test]
    fn flags_have_the_documented_defaults() {
        Args::command().debug_assert();
        let all = parse(&[]).unwrap();
        assert_eq!((all.nodes, all.services, all.wanted().first()), (5000, 1000, Some(&Scenario::Join)));
        let some = parse(&["--scenario=restart", "--scenario=not-ready"]).unwrap();
        assert_eq!(some.wanted(), [Scenario::NotReady, Scenario::Restart]);
    }

    #[test]
    fn flags_are_passed_on_unchanged() {
        for given in [
            &["--nodes=50", "--json=a b"][..],
            &["--peer", "--scenario=one-more", "--scenario=join", "--members=3", "--seconds=9"],
            &["--write-docs", "a", "b"],
        ] {
            let args = parse(given).unwrap();
            let flags = args.to_flags();
            let flags = [vec!["bench-scale".into()], flags].concat();
            assert_eq!(Args::try_parse_from(flags).unwrap(), args);
        }
    }

    #[test]
    fn wrong_usage_exits_with_2_and_names_the_flag() {
        for (given, named) in
            [("--nodes=3", "10..=10000"), ("--node=30", "--nodes"), ("--scenario=joins", "'join'")]
        {
            let error = parse(&[given]).unwrap_err();
            assert_eq!(error.exit_code(), 2);
            assert!(error.to_string().contains(named), "{error}");
        }
    }
}
