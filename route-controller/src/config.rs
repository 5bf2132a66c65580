//! Parses flags and environment into a validated [`Config`], and reports all invalid flags at once.

mod cluster_cidrs;

use std::ffi::OsString;
use std::time::Duration;

use clap::Parser;
use controller_core::brake::Limits;
use controller_core::config::{CommonArgs, CommonConfig, Faults, read};

pub(crate) use self::cluster_cidrs::ClusterCidrs;

/// Minimum for the duration flags, because the controller does not compare the routes more often.
const SHORTEST: Duration = Duration::from_secs(1);

/// Printed at the end of the help. No line is longer than 76 characters, because clap wraps longer lines on a terminal, and a copied
/// command would fail.
const EXAMPLE: &str = "\
Example, outside of a cluster, with an adapter on this host:
  route-controller --kubeconfig admin.conf \\
    --adapter-endpoint http://127.0.0.1:8443 \\
    --cluster-cidr 10.244.0.0/16 \\
    --cluster-id \"$(kubectl get namespace kube-system \\
      -o jsonpath='{.metadata.uid}')\"

Run it only where the CNI neither routes nor encapsulates by itself. Each
node's condition NetworkUnavailable says whether its routes are there.";

/// Creates a route to the pods of each node in the cloud, and sets the node's condition NetworkUnavailable.
#[derive(Debug, Parser)]
#[command(name = "route-controller", version, next_help_heading = "Work", after_long_help = EXAMPLE)]
pub(crate) struct Args {
    /// Pod CIDRs of the cluster: one CIDR, or one of each address family, separated by a comma. Routes to pod CIDRs outside of these are
    /// created, but not removed when the node is deleted.
    #[arg(long, value_name = "CIDR[,CIDR]")]
    cluster_cidr: String,

    /// How often all routes are compared with all nodes even if nothing changed, such as 5m. The comparison makes no vendor call.
    #[arg(long, value_name = "DURATION", default_value = "5m")]
    route_reconciliation_period: String,

    /// How long a route is kept after the last node that needs it was deleted, such as 10s: a node may be registered again within that
    /// time.
    #[arg(long, value_name = "DURATION", default_value = "10s")]
    route_removal_grace: String,

    /// Maximum percentage of the routes removed per window because their nodes were deleted, or are not listed any more, while their
    /// instances exist. If more removals are due, none is made. 100 allows all, even if no node is listed.
    #[arg(long, value_name = "PERCENT", default_value = "30", allow_negative_numbers = true)]
    route_removal_max_share: String,

    /// Maximum number of routes removed per window because their nodes are gone. If more removals are due, none is made.
    #[arg(long, value_name = "N", default_value = "100", allow_negative_numbers = true)]
    route_removal_max_number: String,

    /// Window of both limits, such as 5m.
    #[arg(long, value_name = "DURATION", default_value = "5m")]
    route_removal_window: String,

    // Keep this field last: its help headings apply to all fields that follow.
    #[command(flatten)]
    common: CommonArgs,

    /// Address on which /metrics, /healthz, /livez and /readyz are served over plain HTTP.
    #[arg(long, value_name = "ADDRESS", default_value = "0.0.0.0:10272", help_heading = "Pages")]
    http_address: String,
}

#[derive(Clone, Debug)]
pub(crate) struct Config {
    pub(crate) common: CommonConfig,
    pub(crate) cluster_cidrs: ClusterCidrs,
    pub(crate) period: Duration,
    /// How long an unneeded route is kept.
    pub(crate) removal_grace: Duration,
    pub(crate) removal_limits: Limits,
}

impl Config {
    pub(crate) fn from_arguments(
        arguments: impl IntoIterator<Item = impl Into<OsString> + Clone>,
    ) -> Result<Self, clap::Error> {
        read(arguments, judge)
    }
}

fn judge(args: &Args, faults: &mut Faults) -> Option<Config> {
    let cidrs = args.cluster_cidr.parse::<ClusterCidrs>();
    let cluster_cidrs = faults.check("--cluster-cidr <CIDR[,CIDR]>", &args.cluster_cidr, cidrs);
    let period = &args.route_reconciliation_period;
    let period = faults.at_least("--route-reconciliation-period <DURATION>", period, SHORTEST);
    let grace = &args.route_removal_grace;
    let removal_grace = faults.at_least("--route-removal-grace <DURATION>", grace, SHORTEST);
    let window = faults.at_least("--route-removal-window <DURATION>", &args.route_removal_window, SHORTEST);
    let share = &args.route_removal_max_share;
    let share = faults.in_range("--route-removal-max-share <PERCENT>", share, 1..=100);
    let number = &args.route_removal_max_number;
    let number = faults.in_range("--route-removal-max-number <N>", number, 1..=1_000_000);
    let common = args.common.check(&args.http_address, faults);
    Some(Config {
        common: common?,
        cluster_cidrs: cluster_cidrs?,
        period: period?,
        removal_grace: removal_grace?,
        removal_limits: Limits { share: share?, number: number?, window: window? },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(flags: &[&str]) -> Result<Config, String> {
        let arguments = ["route-controller", "--cluster-id=u-1"].iter().chain(flags);
        Config::from_arguments(arguments).map_err(|error| {
            assert_eq!(error.exit_code(), 2);
            error.to_string()
        })
    }

    #[test]
    fn only_the_cluster_cidr_is_required() {
        let config = parse(&["--cluster-cidr=10.244.0.0/16"]).expect("defaults are valid");
        assert_eq!(config.period, Duration::from_mins(5));
        assert_eq!(config.removal_grace, Duration::from_secs(10));
        let window = Duration::from_mins(5);
        assert_eq!(config.removal_limits, Limits { share: 30, number: 100, window });
        assert_eq!(config.common.http_address.to_string(), "0.0.0.0:10272");
        let error = parse(&[]).expect_err("no CIDR");
        assert!(error.contains("--cluster-cidr"), "{error}");
    }

    #[test]
    fn all_invalid_flags_are_reported_at_once() {
        let flags = [
            "--cluster-cidr=10.244.0.0",
            "--route-reconciliation-period=fast",
            "--http-address=x",
            "--route-removal-max-share=101",
            "--route-removal-max-number=many",
        ];
        let error = parse(&flags).expect_err("all flags are invalid");
        for part in [
            "'10.244.0.0' for '--cluster-cidr",
            "such as 10.244.0.0/16",
            "'fast' for '--route-reconciliation-period",
            "such as 5m",
            "'x' for '--http-address",
            "'--route-removal-max-share <PERCENT>': 101 is not in 1..=100",
            "'--route-removal-max-number <N>': use a whole number in 1..=1000000",
        ] {
            assert!(error.contains(part), "{part} is missing in:\n{error}");
        }
    }

    #[test]
    fn periods_have_the_common_format() {
        let period = |text: &str| {
            let flag = format!("--route-reconciliation-period={text}");
            parse(&["--cluster-cidr=10.244.0.0/16", &flag]).map(|config| config.period)
        };
        for (text, seconds) in [("10s", 10), ("5m", 300), ("1h30m", 5400), ("30s1m", 90), ("1.5h30m", 7200)] {
            assert_eq!(period(text), Ok(Duration::from_secs(seconds)), "{text}");
        }
        for text in ["", "0s", "-5m", "500ms", "5", "soon"] {
            let error = period(text).expect_err(text);
            assert!(error.contains("1s or more, such as 5m"), "{text}: {error}");
        }
    }

    #[test]
    fn misspelt_flag_gets_a_suggestion() {
        let error = parse(&["--cluster-cidrs=10.244.0.0/16"]).expect_err("misspelt");
        assert!(error.contains("--cluster-cidr"), "{error}");
    }
}
