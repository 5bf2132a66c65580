//! Parses the flags into a validated configuration.

use std::{ffi::OsString, time::Duration};

use clap::Parser;
use controller_core::{
    brake::Limits,
    config::{self, CommonArgs, CommonConfig, Faults},
    selector::Selector,
};

use crate::{
    lifecycle,
    ownership::{EXCLUSION_LABEL, LabelRules, OWNER_LABEL, OwnerLabel},
    plan::labels,
};

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
    sharing: SharingArgs,

    #[command(flatten)]
    lifecycle: LifecycleArgs,

    // Keep this field last, because its help headings apply to all fields that follow.
    #[command(flatten)]
    common: CommonArgs,

    /// Address on which /metrics, /healthz, /livez and /readyz are served over plain HTTP.
    #[arg(long, value_name = "ADDRESS", default_value = "0.0.0.0:10270", help_heading = "Pages")]
    http_address: String,
}

/// Flags for a cluster with nodes of several clouds, each with its own release.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Nodes of several clouds")]
struct SharingArgs {
    /// Label selector, as for kubectl get --selector: the nodes without provider ID that this controller initialises. It does nothing to
    /// other nodes without provider ID. Empty: all nodes.
    #[arg(long, value_name = "SELECTOR", default_value = "", hide_default_value = true)]
    node_selector: String,

    /// Name of this controller's cloud. Each node of this cloud gets the owner label with this value, and the controller does nothing to a
    /// node whose owner label has another value. Do not change the name later. Empty: no owner label.
    #[arg(long, value_name = "NAME", default_value = "", hide_default_value = true)]
    cloud_name: String,

    /// Key of the owner label. All releases in a cluster must use the same key.
    #[arg(long, value_name = "KEY", default_value = OWNER_LABEL)]
    node_owner_label: String,
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

    /// Key of the label that excludes a node from deletion and from the shutdown taint, unless the value is false.
    #[arg(long, value_name = "KEY", default_value = EXCLUSION_LABEL)]
    node_exclusion_label: String,
}

#[derive(Clone, Debug)]
pub(crate) struct Config {
    pub(crate) common: CommonConfig,
    pub(crate) settings: Settings,
    pub(crate) rules: LabelRules,
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
    let rules = judge_labels(&args.sharing, &args.lifecycle.node_exclusion_label, faults);
    let lifecycle = args.lifecycle.judge(faults);
    let common = args.common.check(&args.http_address, faults);
    let workers = workers?;
    let address_writers = if writers? == 0 { workers } else { writers? };
    let settings =
        Settings { workers, address_writers, compare_every: compare_every?, lifecycle: lifecycle? };
    Some(Config { common: common?, settings, rules: rules? })
}

fn judge_labels(args: &SharingArgs, exclusion: &str, faults: &mut Faults) -> Option<LabelRules> {
    let SharingArgs { node_selector, cloud_name, node_owner_label } = args;
    let selector = if node_selector.trim().is_empty() {
        Some(None)
    } else {
        faults.check("--node-selector <SELECTOR>", node_selector, Selector::read(node_selector).map(Some))
    };
    let key = faults.check("--node-owner-label <KEY>", node_owner_label, owner_key(node_owner_label));
    let cloud = faults.check("--cloud-name <NAME>", cloud_name, cloud(cloud_name));
    let exclusion = faults.check("--node-exclusion-label <KEY>", exclusion, label_key(exclusion));
    let owner = cloud?.map(|cloud| Some(OwnerLabel { key: key.clone()?, cloud }));
    // The key of an owner label that is not used must be valid, too.
    key?;
    Some(LabelRules { selector: selector?, owner: owner.flatten(), exclusion: exclusion? })
}

fn label_key(key: &str) -> Result<String, &'static str> {
    let why = "use a label key such as example.com/key";
    labels::is_label(key, "").then(|| key.to_owned()).ok_or(why)
}

/// The controller writes the label, and may not write labels of Kubernetes' own domains.
fn owner_key(key: &str) -> Result<String, &'static str> {
    match label_key(key) {
        Ok(key) if labels::may_be_ours(&key) && !labels::PAIRS.as_flattened().contains(&key.as_str()) => {
            Ok(key)
        }
        Ok(_) => Err("use a label key outside of kubernetes.io and k8s.io, such as example.com/key"),
        Err(why) => Err(why),
    }
}

fn cloud(name: &str) -> Result<Option<String>, &'static str> {
    let why =
        "use a label value: at most 63 letters, digits, -, _ and ., with a letter or digit at both ends";
    match name {
        "" => Ok(None),
        name if labels::is_value(name) => Ok(Some(name.to_owned())),
        _ => Err(why),
    }
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
        let LabelRules { selector, owner, exclusion } = config.rules;
        assert_eq!((selector, owner), (None, None));
        assert_eq!(exclusion, "node.kubernetes.io/exclude-from-lifecycle-management");
    }

    // Behaviour: NI22, NI23, ND14
    #[test]
    fn labels_are_configurable() {
        let flags = [
            "--node-selector=topology.kubernetes.io/region=eu,!example.com/bare-metal",
            "--cloud-name=eu",
            "--node-exclusion-label=example.com/keep",
        ];
        let arguments = ["node-controller", "--cluster-id=u"].into_iter().chain(flags);
        let rules = Config::from_arguments(arguments).expect("valid flags").rules;
        let selector = rules.selector.map(|selector| selector.to_string());
        assert_eq!(selector.as_deref(), Some("!example.com/bare-metal,topology.kubernetes.io/region=eu"));
        let (key, cloud) = ("cloudadapter.dev/cloud".to_owned(), "eu".to_owned());
        assert_eq!(
            (rules.owner, rules.exclusion.as_str()),
            (Some(OwnerLabel { key, cloud }), "example.com/keep")
        );
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
            ("--node-selector", "region=eu,zone in a", "invalid requirement \"zone in a\": write key=value"),
            ("--cloud-name", "my cloud", "use a label value: at most 63 letters"),
            ("--node-owner-label", "kubernetes.io/cloud", "outside of kubernetes.io and k8s.io"),
            ("--node-exclusion-label", "a/b/c", "use a label key such as example.com/key"),
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
