//! The command line of the demo. It is in this crate so that `cargo xtask` can check it and show the help before the demo is built.

use clap::{Parser, ValueEnum};

/// Maximum number of nodes. Up to this number, each node has a pod network, and the simulated cloud can create all instances in one call.
const NODES_MAX: i64 = 1000;

const ABOUT: &str = "Shows the controllers and the adapter at work, on a real control plane";

// Each paragraph is one line, because clap wraps it to the width of the terminal.
const LONG_ABOUT: &str = "Shows the controllers and the adapter at work, on a real control plane.

Starts etcd, kube-apiserver and a simulated cloud on loopback (or uses OpenStack, see --cloud), installs the chart with Helm, and runs the four processes with the flags, environment and ServiceAccounts that the chart gives them. Then nodes join, a Service gets its load balancer, another node joins and leaves, the adapter is killed while it creates a load balancer, the controllers are restarted, and the Services are deleted. Each step prints its results, its duration and its vendor calls, as counted by the cloud; a table at the end summarises them.

With --cloud openstack the cloud is the one of `cargo xtask openstack`: if it does not run, it is started, and stopped at the end. The demo has a project of its own there, and removes it with everything in it.

If OTEL_EXPORTER_OTLP_ENDPOINT or other OTEL_* variables are set, the processes get them, too, and send their traces there.

After the last step the cluster keeps running until Ctrl-C, with a KUBECONFIG to use and commands to try; a process that ends is restarted. A second Ctrl-C kills everything at once.";

const AFTER_HELP: &str = "Examples:
  cargo xtask demo                     three nodes, then keep running
  cargo xtask demo --nodes 100 --once  a hundred nodes at once, then end
  cargo xtask demo --cloud openstack   the same on Keystone, Nova, Neutron and Octavia
  cargo xtask demo --observe           a real Prometheus scrapes the processes
  cargo xtask demo --once --json | jq 'select(.event == \"step_passed\")'

Exit codes:
  0    all steps passed
  1    a step failed, or the demo could not start
  2    wrong usage
  130  interrupted before the last step

The narration is coloured on a terminal, unless NO_COLOR is set. Progress of builds goes to standard error.";

/// The command line.
#[derive(Clone, Debug, PartialEq, Eq, Parser)]
#[command(name = "demo", bin_name = "cargo xtask demo", display_name = "cargo xtask demo", version)]
#[command(about = ABOUT, long_about = LONG_ABOUT, after_help = AFTER_HELP)]
pub struct Args {
    /// Number of nodes that join at once, 1 to 1000
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=NODES_MAX))]
    pub nodes: u16,
    /// Cloud to use
    #[arg(long, value_name = "CLOUD", default_value = "sim")]
    pub cloud: Cloud,
    /// Also start a Prometheus that scrapes the processes and evaluates the chart's alerts
    #[arg(long)]
    pub observe: bool,
    /// End after the last step
    #[arg(long)]
    pub once: bool,
    /// Print one JSON object per line instead of the narration
    #[arg(long)]
    pub json: bool,
}

/// The cloud of the demo.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Cloud {
    /// The simulated cloud
    #[default]
    Sim,
    /// The real services of `cargo xtask openstack`, started if they do not run
    Openstack,
}

impl Cloud {
    fn word(self) -> &'static str {
        match self {
            Self::Sim => "sim",
            Self::Openstack => "openstack",
        }
    }
}

impl Args {
    /// The equivalent command line.
    pub fn to_flags(&self) -> Vec<String> {
        let Self { nodes, cloud, observe, once, json } = self;
        let switches = [(*observe, "--observe"), (*once, "--once"), (*json, "--json")];
        let switches = switches.into_iter().filter(|(on, _)| *on).map(|(_, flag)| flag.to_owned());
        [format!("--nodes={nodes}"), format!("--cloud={}", cloud.word())]
            .into_iter()
            .chain(switches)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, Parser};

    use super::Args;

    #[test]
    fn flags_have_the_documented_defaults() {
        Args::command().debug_assert();
        let args = Args::parse_from(["demo", "--nodes", "100", "--once"]);
        assert_eq!((args.nodes, args.once, args.json), (100, true, false));
        assert_eq!(Args::parse_from(["demo"]).nodes, 3);
    }

    #[test]
    fn flags_are_passed_on_unchanged() {
        for given in [
            &["demo"][..],
            &["demo", "--nodes=7", "--json", "--observe"],
            &["demo", "--once", "--cloud=openstack"],
        ] {
            let args = Args::parse_from(given);
            let flags = args.to_flags();
            assert_eq!(Args::parse_from(["demo"].into_iter().chain(flags.iter().map(String::as_str))), args);
        }
    }

    #[test]
    fn wrong_usage_exits_with_2_and_names_the_flag() {
        for (given, named) in [
            (["--nodes=0"], "1..=1000"),
            (["--node=3"], "--nodes"),
            (["--onc"], "--once"),
            (["--cloud=aws"], "[possible values: sim, openstack]"),
        ] {
            let error = Args::try_parse_from(["demo"].into_iter().chain(given)).unwrap_err();
            assert_eq!(error.exit_code(), 2);
            assert!(error.to_string().contains(named), "{error}");
        }
    }
}
