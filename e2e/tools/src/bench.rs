//! What one can ask of the benchmark at full size. It is here, and not with the benchmark, so that `cargo xtask` can judge a command
//! line and show the help before anything is built.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Parser, ValueEnum};

/// So many have two pod networks each, and are made by the simulated cloud.
const NODES_MAX: i64 = 10_000;
/// So many Services have a node port each, with room for those that come and go meanwhile.
const SERVICES_MAX: i64 = 1_300;

const ABOUT: &str = "Measures the controllers and the adapter on a large cluster, beside what was promised";

// One line a paragraph: clap breaks them where the terminal ends.
const LONG_ABOUT: &str = "\
Measures the controllers and the adapter on a large cluster, beside what was promised.

It starts etcd, kube-apiserver and a simulated cloud whose answers take 50 ms, installs the chart with Helm, and runs the four \
processes as it says, all built for release. Nodes and Services are made through the API server. There are no kubelets: the \
benchmark reports each node's status every 5 minutes, as kubelets do where nothing changes. It does not renew their Leases, which nobody \
here reads. Vendor calls are counted by the cloud, writes to the API server by its audit log, memory and CPU time by the kernel.

One set-up serves all scenarios but the last. With its defaults it takes an hour and 4 GiB; its figures are worth something on a machine that \
does nothing else. The load of the machine stands beside each scenario.";

const AFTER_HELP: &str = "\
Examples:
  cargo xtask bench scale --nodes 100 --services 20 --seconds 30   a first look, two minutes
  cargo xtask bench scale --scenario steady --scenario restart
  cargo xtask bench scale --scenario restart --profile target/perf
  cargo xtask bench scale --json target/bench.json
  cargo xtask bench scale --write-docs target/bench.json           makes docs/benchmarks.md of it

Exit codes:
  0    all targets are met
  1    one is missed, or could not be measured; the table says which
  2    wrong usage
  130  ended before its last scenario";

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
    /// Measures a cloud controller manager in Go, too: with ten workers, and with its own defaults, which takes hours at full size
    #[arg(long)]
    pub peer: bool,
    /// Only this one; may be given several times
    #[arg(long = "scenario", value_name = "NAME")]
    pub scenarios: Vec<Scenario>,
    /// How many nodes there are, 10 to 10000
    #[arg(long, value_name = "N", default_value_t = 5000, value_parser = clap::value_parser!(u16).range(10..=NODES_MAX))]
    pub nodes: u16,
    /// How many Services of type LoadBalancer there are, 2 to 1300
    #[arg(long, value_name = "S", default_value_t = 1000, value_parser = clap::value_parser!(u16).range(2..=SERVICES_MAX))]
    pub services: u16,
    /// How many of the nodes stand behind the load balancers; the others are excluded by Kubernetes' own label
    #[arg(long, value_name = "M", default_value_t = 200, value_parser = clap::value_parser!(u16).range(1..=NODES_MAX))]
    pub members: u16,
    /// How long the steady state is watched; the other scenarios that take their time take a part of it
    #[arg(long, value_name = "SECONDS", default_value_t = 600, value_parser = clap::value_parser!(u16).range(5..=7200))]
    pub seconds: u16,
    /// Samples where the CPU time goes in a restart and when one node joins, and keeps what `perf` recorded in this folder. Needs `perf`;
    /// the programs are built once more, with names of their functions
    #[arg(long, value_name = "DIR")]
    pub profile: Option<PathBuf>,
    /// Writes everything that was measured to this file
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Measures nothing, and writes docs/benchmarks.md from files of earlier runs; what is in a later one counts
    #[arg(long, value_name = "FILE", num_args = 1.., conflicts_with_all = ["json", "peer", "profile", "scenarios"])]
    pub write_docs: Vec<PathBuf>,
}

/// What can be measured, in the order in which it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum Scenario {
    /// A fifth of the nodes joins at once
    Join,
    /// Calls, memory and CPU time at a quarter, half and all of the size
    Growth,
    /// The routes of all nodes, two each
    Routes,
    /// Nothing happens
    Steady,
    /// A fifth of the nodes is not ready for a while
    NotReady,
    /// One node joins, and all load balancers follow, while users make new ones
    OneMore,
    /// Nodes leave, as the cluster autoscaler removes them
    Leave,
    /// Half as many Services again are created at once
    Crowd,
    /// Each controller is stopped and started
    Restart,
    /// The adapter is stopped and started
    AdapterRestart,
    /// The vendor throttles at 60 % of what is configured
    Throttled,
    /// One, two and four replicas of each controller share the work, and one is killed: on a cluster of its own, a fifth as large
    Replicas,
}

impl Scenario {
    /// As it is written on the command line and in files.
    #[must_use]
    pub fn name(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }
}

impl Args {
    /// The scenarios to measure, in their order.
    #[must_use]
    pub fn wanted(&self) -> Vec<Scenario> {
        let asked = |it: &&Scenario| self.scenarios.is_empty() || self.scenarios.contains(it);
        Scenario::value_variants().iter().filter(asked).copied().collect()
    }

    /// The command line that says the same.
    #[must_use]
    pub fn to_flags(&self) -> Vec<OsString> {
        let Self { peer, scenarios, nodes, services, members, seconds, profile, json, write_docs } = self;
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
        if let Some(dir) = profile {
            flags.extend(["--profile".into(), OsString::from(dir)]);
        }
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
    fn flags_mean_what_the_help_says() {
        Args::command().debug_assert();
        let all = parse(&[]).unwrap();
        assert_eq!((all.nodes, all.services, all.wanted().first()), (5000, 1000, Some(&Scenario::Join)));
        let some = parse(&["--scenario=restart", "--scenario=not-ready"]).unwrap();
        assert_eq!(some.wanted(), [Scenario::NotReady, Scenario::Restart]);
    }

    #[test]
    fn what_is_handed_over_says_the_same() {
        for given in [
            &["--nodes=50", "--json=a b", "--profile=c"][..],
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
    fn wrong_usage_has_a_code_of_its_own_and_names_the_flag() {
        for (given, named) in
            [("--nodes=3", "10..=10000"), ("--node=30", "--nodes"), ("--scenario=joins", "'join'")]
        {
            let error = parse(&[given]).unwrap_err();
            assert_eq!(error.exit_code(), 2);
            assert!(error.to_string().contains(named), "{error}");
        }
    }
}
