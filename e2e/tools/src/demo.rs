//! What one can ask of the demo. It is here, and not with the demo, so that `cargo xtask` can judge a command line and show
//! the help before it builds the demo.

use clap::{Parser, ValueEnum};

/// So many have a pod network each, and are made by the simulated cloud in one go.
const NODES_MAX: i64 = 1000;

const ABOUT: &str = "Shows the controllers and the adapter at work, on a real control plane";

// One line a paragraph: clap breaks them where the terminal ends.
const LONG_ABOUT: &str = "\
Shows the controllers and the adapter at work, on a real control plane.

It starts etcd, kube-apiserver and a simulated cloud on loopback (or takes a real one, see --cloud), installs the chart with Helm, and runs the four \
processes with the very flags, environment and ServiceAccounts that the chart gives them. Then nodes join, a Service \
gets its load balancer, a node follows and leaves again, the adapter is killed at a bad moment, the controllers are restarted, and the \
Services go. Each step tells what happened, how long it took and how many calls the cloud was sent, as the cloud counts \
them; in the end there is a table of them.

With --cloud openstack the cloud is the one of `cargo xtask openstack`: if nothing of that runs, it is started, and stopped \
in the end. The demo has a project of its own there, and removes it with everything in it.

With OTEL_EXPORTER_OTLP_ENDPOINT, or other variables of OTEL_*, in its environment the processes have them, too, and send their traces there.

Then it stays, with a KUBECONFIG to use and commands to try, until Ctrl-C; a process that ends meanwhile is started \
again. A second Ctrl-C kills all at once.";

const AFTER_HELP: &str = "\
Examples:
  cargo xtask demo                     three nodes, then stay and look around
  cargo xtask demo --nodes 100 --once  a hundred nodes at once, then end
  cargo xtask demo --cloud openstack   the same on Keystone, Nova, Neutron and Octavia
  cargo xtask demo --observe           a real Prometheus scrapes what runs
  cargo xtask demo --once --json | jq 'select(.event == \"step_passed\")'

Exit codes:
  0    all steps passed
  1    a step failed, or the demo could not start
  2    wrong usage
  130  ended before its last step

Narration is coloured on a terminal, unless NO_COLOR is set. Progress of builds goes to standard error.";

/// The command line.
#[derive(Clone, Debug, PartialEq, Eq, Parser)]
#[command(name = "demo", bin_name = "cargo xtask demo", display_name = "cargo xtask demo", version)]
#[command(about = ABOUT, long_about = LONG_ABOUT, after_help = AFTER_HELP)]
pub struct Args {
    /// How many nodes join at once, 1 to 1000
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=NODES_MAX))]
    pub nodes: u16,
    /// Which cloud
    #[arg(long, value_name = "CLOUD", default_value = "sim")]
    pub cloud: Cloud,
    /// Starts a Prometheus besides, which scrapes the processes and has the chart's alerts
    #[arg(long)]
    pub observe: bool,
    /// Ends by itself after the last step
    #[arg(long)]
    pub once: bool,
    /// Prints one JSON object a line instead of the narration
    #[arg(long)]
    pub json: bool,
}

/// The cloud under the demo.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Cloud {
    /// The simulated one
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
    /// The command line that says the same.
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
    fn flags_mean_what_the_help_says() {
        Args::command().debug_assert();
        let args = Args::parse_from(["demo", "--nodes", "100", "--once"]);
        assert_eq!((args.nodes, args.once, args.json), (100, true, false));
        assert_eq!(Args::parse_from(["demo"]).nodes, 3);
    }

    #[test]
    fn what_is_handed_over_says_the_same() {
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
    fn wrong_usage_has_a_code_of_its_own_and_names_the_flag() {
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
