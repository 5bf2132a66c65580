//! Parses the flags into a validated configuration.

use std::{ffi::OsString, time::Duration};

use clap::Parser;
use controller_core::{
    brake::Limits,
    config::{self, CommonArgs, CommonConfig, Faults},
};

use crate::lifecycle;

/// Minimum for the period flags; a shorter period would only cost CPU time.
const SHORTEST_PERIOD: Duration = Duration::from_millis(100);
/// Minimum for --node-deletion-confirm-after and --node-deletion-window, because two answers at the same moment count as one.
const SHORTEST_APART: Duration = Duration::from_secs(1);

/// Printed at the end of the help. No line is longer than 76 characters, because clap wraps longer lines on a terminal, and a copied
/// command would fail.
const EXAMPLE: &str = "\
Example, outside of a cluster, with an adapter on this host:
  node-controller --kubeconfig admin.conf \\
    --adapter-endpoint http://127.0.0.1:8443 \\
    --cluster-id \"$(kubectl get namespace kube-system \\
      -o jsonpath='{.metadata.uid}')\"

Kubelets must be started with --cloud-provider=external. Until a node is
initialised it has the taint node.cloudprovider.kubernetes.io/uninitialized,
and its Events say what it waits for.";

/// Initialises Kubernetes nodes from the cloud, keeps their addresses and labels in sync, and deletes nodes whose instances are gone.
#[derive(Debug, Parser)]
#[command(name = "node-controller", version, next_help_heading = "Work", after_long_help = EXAMPLE)]
struct Args {
    /// Maximum number of nodes reconciled at once.
    #[arg(long, value_name = "N", default_value = "10", allow_negative_numbers = true)]
    concurrent_node_syncs: String,

    /// Maximum number of nodes whose addresses are written at once; 0: the same as --concurrent-node-syncs.
    #[arg(long, value_name = "N", default_value = "0", allow_negative_numbers = true)]
    concurrent_node_status_updates: String,

    /// How often all nodes are compared with the cached instances, even if nothing changed. The comparison makes no vendor call. The
    /// adapter's cache.instances.maxAge (30 s) decides how soon the controller sees a change in the cloud.
    #[arg(long, value_name = "DURATION", default_value = "5m")]
    node_status_update_frequency: String,

    #[command(flatten)]
    lifecycle: LifecycleArgs,

    // Keep this field last, because its help headings apply to all fields that follow.
    #[command(flatten)]
    common: CommonArgs,

    /// Address on which /metrics, /healthz, /livez and /readyz are served over plain HTTP.
    #[arg(long, value_name = "ADDRESS", default_value = "0.0.0.0:10270", help_heading = "Pages")]
    http_address: String,
}

/// Flags for the deletion of nodes whose instances are gone.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Node deletion")]
struct LifecycleArgs {
    /// How often nodes that are not ready are compared with the cached instances. The comparison makes no vendor call for nodes whose
    /// instances the cloud lists.
    #[arg(long, value_name = "DURATION", default_value = "5s")]
    node_monitor_period: String,

    /// Minimum time between the two answers of the cloud that together prove that an instance is gone. A node is deleted only after this
    /// proof.
    #[arg(long, value_name = "DURATION", default_value = "30s")]
    node_deletion_confirm_after: String,

    /// Minimum age of a node that is not initialised yet before it can be deleted.
    #[arg(long, value_name = "DURATION", default_value = "5m")]
    node_minimum_age: String,

    /// Deletion brake: maximum percentage of all nodes deleted per window, rounded up. If more nodes are due for deletion, none is deleted.
    #[arg(long, value_name = "PERCENT", default_value = "30", allow_negative_numbers = true)]
    node_deletion_max_share: String,

    /// Deletion brake: maximum number of nodes deleted per window, in addition to the percentage.
    #[arg(long, value_name = "N", default_value = "50", allow_negative_numbers = true)]
    node_deletion_max_number: String,

    /// Window of the deletion brake.
    #[arg(long, value_name = "DURATION", default_value = "10m")]
    node_deletion_window: String,
}

#[derive(Clone, Debug)]
pub(crate) struct Config {
    pub(crate) common: CommonConfig,
    pub(crate) settings: Settings,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    /// Maximum number of nodes reconciled at once.
    pub(crate) workers: usize,
    /// Maximum number of nodes whose addresses are written at once.
    pub(crate) address_writers: usize,
    /// How often all nodes are compared with the cloud.
    pub(crate) compare_every: Duration,
    pub(crate) lifecycle: lifecycle::Settings,
}

impl Config {
    pub(crate) fn from_arguments(
        arguments: impl IntoIterator<Item = impl Into<OsString> + Clone>,
    ) -> Result<Self, clap::Error> {
        config::read(arguments, judge)
    }
}

fn judge(args: &Args, faults: &mut Faults) -> Option<Config> {
    let workers = faults.in_range("--concurrent-node-syncs <N>", &args.concurrent_node_syncs, 1..=1000);
    let writers = &args.concurrent_node_status_updates;
    let writers = faults.in_range("--concurrent-node-status-updates <N>", writers, 0..=1000);
    let frequency = &args.node_status_update_frequency;
    let compare_every =
        faults.at_least("--node-status-update-frequency <DURATION>", frequency, SHORTEST_PERIOD);
    let lifecycle = args.lifecycle.judge(faults);
    let common = args.common.check(&args.http_address, faults);
    let workers = workers?;
    let address_writers = if writers? == 0 { workers } else { writers? };
    let settings =
        Settings { workers, address_writers, compare_every: compare_every?, lifecycle: lifecycle? };
    Some(Config { common: common?, settings })
}

impl LifecycleArgs {
    fn judge(&self, faults: &mut Faults) -> Option<lifecycle::Settings> {
        let share = &self.node_deletion_max_share;
        let share = faults.in_range("--node-deletion-max-share <PERCENT>", share, 1..=100);
        let number = &self.node_deletion_max_number;
        let number = faults.in_range("--node-deletion-max-number <N>", number, 1..=100_000);
        let mut read = |flag, text: &str, shortest| {
            let flag = format!("{flag} <DURATION>");
            faults.at_least(&flag, text, shortest)
        };
        let period = read("--node-monitor-period", &self.node_monitor_period, SHORTEST_PERIOD);
        let apart = &self.node_deletion_confirm_after;
        let confirm_after = read("--node-deletion-confirm-after", apart, SHORTEST_APART);
        let minimum_age = read("--node-minimum-age", &self.node_minimum_age, Duration::ZERO);
        let window = read("--node-deletion-window", &self.node_deletion_window, SHORTEST_APART);
        let limits = Limits { share: share?, number: number?, window: window? };
        Some(lifecycle::Settings {
            period: period?,
            confirm_after: confirm_after?,
            minimum_age: minimum_age?,
            limits,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Behaviour: W2
    #[test]
    fn the_defaults_are_as_documented() {
        let config = Config::from_arguments(["node-controller", "--cluster-id=u"]).expect("valid flags");
        let Settings { workers, address_writers, compare_every, lifecycle } = config.settings;
        assert_eq!((workers, address_writers, compare_every.as_secs()), (10, 10, 300));
        assert_eq!((lifecycle.period.as_secs(), lifecycle.confirm_after.as_secs()), (5, 30));
        assert_eq!(lifecycle.minimum_age.as_secs(), 300);
        assert_eq!(lifecycle.limits, Limits { share: 30, number: 50, window: Duration::from_mins(10) });
        assert_eq!(config.common.http_address.to_string(), "0.0.0.0:10270");
    }

    #[test]
    fn every_invalid_flag_is_named() {
        let bad = [
            ("--concurrent-node-syncs", "-5", "-5 is not in 1..=1000"),
            ("--concurrent-node-status-updates", "1001", "1001 is not in 0..=1000"),
            ("--node-status-update-frequency", "0s", "100ms or more"),
            ("--node-monitor-period", "soon", "100ms or more"),
            ("--node-deletion-confirm-after", "0", "1s or more"),
            ("--node-minimum-age", "-5m", "0ns or more"),
            ("--node-deletion-max-share", "0", "0 is not in 1..=100"),
            ("--node-deletion-max-number", "all", "use a whole number in 1..=100000"),
            ("--node-deletion-window", "10", "1s or more"),
        ];
        let flags = bad.iter().map(|(flag, value, _)| format!("{flag}={value}"));
        let arguments = ["node-controller", "--cluster-id=u"].map(str::to_owned).into_iter().chain(flags);
        let error = Config::from_arguments(arguments).expect_err("all flags are invalid").to_string();
        for (flag, _, why) in bad {
            let line =
                error.lines().find(|line| line.contains(flag)).unwrap_or_else(|| panic!("{flag}: {error}"));
            assert!(line.contains(why), "{line}");
        }
    }

    // Behaviour: P2
    #[test]
    fn zero_workers_are_refused() {
        let error =
            Config::from_arguments(["node-controller", "--cluster-id=u", "--concurrent-node-syncs=0"]);
        let error = error.expect_err("zero workers are refused");
        assert_eq!(error.exit_code(), 2);
        assert!(error.to_string().contains("'--concurrent-node-syncs <N>': 0 is not in 1..=1000"), "{error}");
    }

    #[test]
    fn flags_are_well_formed() {
        <Args as clap::CommandFactory>::command().debug_assert();
    }
}
