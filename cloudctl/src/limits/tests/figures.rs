//! Results that can be verified by hand, and errors for an invalid file.

use std::collections::BTreeMap;

use clap::Parser;

use crate::{
    limits::{Cloud, LimitsArgs, Question, Report, Scenario, results::CallCount, simulate},
    session::Usage,
};

fn report(size: (u32, u32), text: &str) -> Report {
    let question = Question::new(size.0, size.1, text, Cloud::Sim).expect("valid");
    simulate(&question)
}

#[track_caller]
fn assert_near(found: Option<f64>, wanted: f64, part: f64) {
    let found = found.expect("it ends");
    assert!((found - wanted).abs() <= wanted * part, "{found} instead of {wanted}");
}

fn calls(scenario: &Scenario, family: &str) -> (u32, u32) {
    let of = scenario.calls.iter().find(|calls| calls.family == family).expect("the family has calls");
    (of.reads, of.writes)
}

fn all_calls(scenario: &Scenario) -> u32 {
    scenario.calls.iter().map(|CallCount { reads, writes, .. }| reads + writes).sum()
}

#[test]
fn a_small_cluster_starts_within_the_latency_of_its_calls() {
    let report = report((1, 1), "{}");
    let Report { bootstrap, .. } = &report;
    // The buckets are empty at the beginning, so the self-check waits 0.2 s for its token. Then each collection is listed once.
    assert_eq!(bootstrap.nodes_seconds, Some(0.6));
    assert_eq!(bootstrap.bound_by, None);
    assert_eq!(calls(bootstrap, "identity"), (1, 0));
    assert_eq!((calls(bootstrap, "compute"), calls(bootstrap, "network")), ((1, 0), (1, 1)));
    // The adapter lists all load balancers before the first write of a load balancer, and after each of the three writes.
    assert_eq!(calls(bootstrap, "loadbalancer"), (1 + 1 + 3, 3));
    assert!(report.advice.is_empty(), "{:?}", report.advice);
}

#[test]
fn the_binding_bucket_determines_the_duration() {
    let report = report((10, 200), "limits: {buckets: {loadbalancer: {rate: 2, burst: 10}}}");
    let (reads, writes) = calls(&report.bootstrap, "loadbalancer");
    assert_eq!(writes, 600, "three for each Service");
    assert_near(report.bootstrap.load_balancers_seconds, f64::from(reads + writes) / 2.0, 0.01);
    let bound = report.bootstrap.bound_by.as_ref().expect("this bucket limits the start");
    assert_eq!(bound.key, "limits.buckets.loadbalancer");
    let (reads, writes) = calls(&report.joins, "loadbalancer");
    assert_eq!(writes, 200, "one for each Service");
    // A node joins a cluster whose buckets are full.
    assert_near(report.joins.load_balancers_seconds, f64::from(reads + writes - 10) / 2.0, 0.02);
}

#[test]
fn the_account_binds_if_its_rate_is_lowest() {
    let report = report((10, 20), "limits: {buckets: {account: {rate: 1, burst: 5}}}");
    let bound = report.bootstrap.bound_by.as_ref().expect("this bucket limits the start");
    assert_eq!(bound.key, "limits.buckets.account");
    assert_near(report.bootstrap.converged_seconds, f64::from(all_calls(&report.bootstrap)), 0.02);
}

#[test]
fn a_low_concurrency_limit_binds() {
    let report = report((10, 100), "limits: {concurrency: {loadbalancer: 1}}");
    let bound = report.bootstrap.bound_by.as_ref().expect("this bucket limits the start");
    assert_eq!(bound.key, "limits.concurrency.loadbalancer");
    let (reads, writes) = calls(&report.bootstrap, "loadbalancer");
    let takes = f64::from(reads) * 0.2 + f64::from(writes) * 0.5;
    assert_near(report.bootstrap.load_balancers_seconds, takes, 0.02);
}

#[test]
fn an_hour_costs_the_listings_of_the_configured_ages() {
    let text = "cache: {instances: {maxAge: 10s, pageSize: 50}, routes: {maxAge: 1m}}";
    let steady = report((100, 250), text).steady;
    let found: Vec<_> = steady.families.iter().map(|one| (one.family, one.calls_per_hour)).collect();
    // Per hour: 2 pages every 10 s; 1 page every minute; 3 pages every minute.
    assert_eq!(found, [("compute", 720.0), ("network", 60.0), ("loadbalancer", 180.0)]);
    assert_near(Some(steady.families[0].share), 0.01, 0.0);
}

#[test]
fn listings_are_limited_to_their_share() {
    let text = "limits: {buckets: {compute: {rate: 1, burst: 5}}}\ncache: {instances: {pageSize: 10}}";
    let report = report((100, 0), text);
    // 10 pages, which use a quarter of the rate of one call per second.
    assert_near(Some(report.steady.listings[0].every_seconds), 40.0, 0.0);
    assert_near(Some(report.steady.families[0].share), 0.25, 0.0);
}

#[test]
fn the_same_question_has_the_same_answer() {
    let text = "limits: {buckets: {loadbalancer: {rate: 3, burst: 6}}}";
    let json = || serde_json::to_string(&report((300, 60), text)).expect("the report is JSON");
    assert_eq!(json(), json());
}

#[test]
fn a_user_waits_for_less_than_the_whole_start() {
    let report = report((100, 200), "limits: {buckets: {loadbalancer: {rate: 5, burst: 20}}}");
    let users = report.users.expect("it ends");
    let storm = report.bootstrap.converged_seconds.expect("it ends");
    assert!(users.wait.p50_seconds < users.ready.p50_seconds && users.ready.max_seconds < storm, "{users:?}");
}

#[test]
fn an_empty_cluster_can_be_simulated() {
    let report = report((0, 0), "{}");
    assert_eq!((report.bootstrap.refused, report.advice.len()), (0, 0));
    assert!(report.joins.converged_seconds.is_some());
}

#[derive(Parser)]
struct Program {
    #[command(flatten)]
    args: LimitsArgs,
}

fn asked(path: &std::path::Path) -> Result<Report, Usage> {
    let path = path.to_str().expect("text");
    let words = ["limits", "simulate", "--nodes", "10", "--services", "2", "--limits", path];
    Program::try_parse_from(words).expect("usage").args.report()
}

#[test]
fn faults_of_a_file_are_reported_as_by_the_adapter() {
    let dir = tempfile::tempdir().expect("a place");
    let missing = asked(&dir.path().join("none.yaml")).expect_err("the file is missing").to_string();
    assert!(missing.contains("none.yaml: cannot be read: No such file"), "{missing}");
    let path = dir.path().join("limits.yaml");
    std::fs::write(&path, "limits: {saftey: 1, buckets: {compute: {rate: 0, burst: 1}}}").expect("written");
    let faults = asked(&path).expect_err("the file is invalid").to_string();
    for fault in ["limits.saftey: unknown key, did you mean 'safety'?", "limits.buckets.compute.rate: 0"] {
        assert!(faults.contains(fault), "{faults}");
    }
    std::fs::write(&path, " \n").expect("written");
    let empty = asked(&path).expect_err("the file is empty").to_string();
    assert!(empty.ends_with("the file is empty: write {} to use the adapter's own limits"), "{empty}");
    std::fs::write(&path, "{}").expect("written");
    asked(&path).expect("the adapter's own limits");
}

#[test]
fn impossible_sizes_are_refused() {
    let parses = |flag, value| {
        let mut flags = BTreeMap::from([("--nodes", "1"), ("--services", "1"), ("--limits", "x")]);
        flags.insert(flag, value);
        let flags = flags.into_iter().flat_map(<[&str; 2]>::from);
        Program::try_parse_from(["limits", "simulate"].into_iter().chain(flags)).is_ok()
    };
    assert!(parses("--nodes", "10000") && parses("--cloud", "openstack"));
    for (flag, value) in [("--nodes", "10001"), ("--services", "5001"), ("--nodes", "-1"), ("--cloud", "gcp")]
    {
        assert!(!parses(flag, value), "{flag} {value}");
    }
}
