//! Flags and environment to a checked [`Config`]. Reads in one function, judges in another, and reports all faults at once.

use std::ffi::OsString;

use clap::Parser;
use controller_core::config::{CommonArgs, CommonConfig, Faults, read};

use crate::plan::{
    annotations::{add_default, settings::Defaults},
    compat::Compat,
};

/// More at once than any cloud answers.
const MOST_SYNCS: usize = 1000;

/// Gives Services of type LoadBalancer their load balancer, through a cloud adapter.
#[derive(Debug, Parser)]
#[command(name = "service-controller", version)]
struct Args {
    #[command(flatten)]
    common: CommonArgs,

    /// How many Services are worked on at once. What reaches the cloud is limited by the adapter's budget, not by this.
    #[arg(long, value_name = "N", default_value_t = 10)]
    concurrent_service_syncs: usize,

    /// Where /metrics, /healthz and /readyz are served over plain HTTP.
    #[arg(long, value_name = "ADDRESS", default_value = "0.0.0.0:10271")]
    http_address: String,

    /// What an annotation says of every Service that does not say it itself, without its prefix: idle-timeout=5m. Repeatable.
    #[arg(long, value_name = "KEY=VALUE")]
    service_default: Vec<String>,

    /// Whose annotations are understood beside ours, for Services that come from another controller. What it made is taken over.
    #[arg(long, value_name = "CONTROLLER")]
    compat: Option<Compat>,
}

/// The flags, checked.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    pub(crate) common: CommonConfig,
    /// Services worked on at once.
    pub(crate) workers: usize,
    /// What the cluster says of every Service that says nothing itself.
    pub(crate) defaults: Defaults,
    /// Whose annotations are understood beside ours.
    pub(crate) compat: Option<Compat>,
}

impl Config {
    /// # Errors
    /// What is wrong with the flags, all of it; `clap::Error::exit` prints it and ends the process with code 2.
    pub(crate) fn from_arguments(
        arguments: impl IntoIterator<Item = impl Into<OsString> + Clone>,
    ) -> Result<Self, clap::Error> {
        read(arguments, judge)
    }
}

fn judge(args: &Args, faults: &mut Faults) -> Option<Config> {
    let workers =
        faults.in_range("--concurrent-service-syncs <N>", args.concurrent_service_syncs, 1..=MOST_SYNCS);
    let common = args.common.check(&args.http_address, faults);
    let defaults = defaults(&args.service_default, faults);
    Some(Config { common: common?, workers: workers?, defaults, compat: args.compat })
}

fn defaults(pairs: &[String], faults: &mut Faults) -> Defaults {
    let mut defaults = Defaults::default();
    for pair in pairs {
        let judged = match pair.split_once('=') {
            Some((key, value)) => add_default(&mut defaults, key, value),
            None => Err("write it as idle-timeout=5m".to_owned()),
        };
        faults.check("--service-default <KEY=VALUE>", pair, judged);
    }
    defaults
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(flags: &[&str]) -> Result<Config, String> {
        let arguments = ["service-controller", "--cluster-id=u-1"].iter().chain(flags);
        Config::from_arguments(arguments).map_err(|error| {
            assert_eq!(error.exit_code(), 2);
            error.to_string()
        })
    }

    #[test]
    fn everything_but_the_cluster_id_has_a_default() {
        let config = parse(&[]).unwrap();
        assert_eq!(config.workers, 10);
        assert_eq!(config.common.http_address.to_string(), "0.0.0.0:10271");
    }

    #[test]
    fn all_faults_are_reported_at_once() {
        let error = parse(&["--concurrent-service-syncs=0", "--http-address=x"]).unwrap_err();
        assert!(
            error.contains("'0' for '--concurrent-service-syncs") && error.contains("1..=1000"),
            "{error}"
        );
        assert!(error.contains("'x' for '--http-address"), "{error}");
    }

    #[test]
    fn defaults_are_judged_as_annotations_are() {
        let good = [
            "--service-default=idle-timeout=5m",
            "--service-default=tags=team=shop",
            "--service-default=x.sim.a=b",
        ];
        parse(&good).unwrap();
        let bad = ["idle-timeout=5", "intrenal=true", "hostname=a.example.com", "size", "size=a", "size=b"];
        let error = parse(&bad.map(|pair| ["--service-default", pair]).concat()).unwrap_err();
        let faults: Vec<&str> = error.lines().filter(|line| line.contains("--service-default")).collect();
        insta::assert_snapshot!(faults.join("\n"), @r#"
        error: invalid value 'idle-timeout=5' for '--service-default <KEY=VALUE>': "5" is not a duration from 1s to 24h: write one such as 90s, 5m or 1h
        error: invalid value 'intrenal=true' for '--service-default <KEY=VALUE>': no such annotation, did you mean lb.cloudadapter.dev/internal?
        error: invalid value 'hostname=a.example.com' for '--service-default <KEY=VALUE>': hostname is about one Service or port, and has no default
        error: invalid value 'size' for '--service-default <KEY=VALUE>': write it as idle-timeout=5m
        error: invalid value 'size=b' for '--service-default <KEY=VALUE>': size is there twice: give it once
        "#);
    }

    #[test]
    fn annotations_of_other_controllers_are_understood_only_if_that_is_asked_for() {
        assert_eq!(parse(&[]).unwrap().compat, None);
        assert_eq!(parse(&["--compat=openstack"]).unwrap().compat, Some(Compat::Openstack));
        let error = parse(&["--compat=openstck"]).unwrap_err();
        assert!(error.contains("--compat <CONTROLLER>") && error.contains("openstack"), "{error}");
    }

    #[test]
    fn a_misspelt_flag_is_answered_with_the_nearest() {
        let error = parse(&["--concurrent-service-sync=3"]).unwrap_err();
        assert!(error.contains("--concurrent-service-syncs"), "{error}");
    }
}
