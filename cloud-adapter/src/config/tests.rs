use std::time::Duration;

use cloud_budget::{Adaptive, BucketConfig, Mode, RateLimit};
use insta::assert_snapshot;

use super::*;

const WHOLE: &str = r#"
limits:
  mode: shadow
  safety: 0.9
  share: 0.5
  freeFloor: 0.1
  buckets:
    account: {limit: 3600, window: 1h, burst: 60}
    compute: {parent: account, rate: 20, burst: 40}
    loadbalancer: {rate: 5, burst: 20, adaptive: {floor: 0.4, decrease: 0.6}}
    "compute:DescribeInstances": {rate: 9, burst: 45}
  reserve: 0.2
  weights: {traffic: 9, interactive: 7, lifecycle: 2, background: 1}
  queue: {total: 100, perLeaf: 50, perObject: 5}
  concurrency: {compute: 16, loadbalancer: 8, network: 8, perKeyWrites: 1}
  deadline: {default: 20s, max: 40s}
  breaker: {window: 1m, minCalls: 10, failureRatio: 0.4, open: 10s, openMax: 1m}
cache:
  instances: {maxAge: 15s, pageSize: 250, refreshShare: 0.5}
  loadBalancers: {maxAge: 45s}
  batch: {idle: 10ms, max: 100ms}
"#;

fn bucket(parent: Option<&str>, rate: f64, burst: u32) -> BucketConfig {
    let adaptive = Some(Adaptive::default());
    BucketConfig { parent: parent.map(str::to_owned), limit: RateLimit { rate, burst }, adaptive }
}

#[track_caller]
fn faults(text: &str) -> String {
    Config::parse(text, &[]).expect_err("has faults").replace("; ", "\n")
}

#[test]
fn every_key_is_read() {
    let config = Config::parse(WHOLE, &[]).expect("valid");
    let limits = &config.limits;
    assert_eq!((limits.mode, limits.free_floor, limits.reserve, config.share), (Mode::Shadow, 0.1, 0.2, 0.5));
    assert_eq!((limits.weights.traffic, limits.weights.lifecycle), (9, 2));
    assert_eq!((limits.queue.total, limits.queue.per_leaf, limits.queue.per_object), (100, 50, 5));
    assert_eq!(limits.concurrency["loadbalancer"], 8);
    assert_eq!(limits.deadline.default, Duration::from_secs(20));
    assert_eq!((limits.breaker.min_calls, limits.breaker.open_max), (10, Duration::from_mins(1)));
    assert_eq!(config.cache.instances.max_age, Duration::from_secs(15));
    assert_eq!((config.cache.instances.page_size, config.cache.routes.page_size), (Some(250), None));
    assert_eq!(config.cache.load_balancers.max_age, Duration::from_secs(45));
    assert_eq!(config.cache.routes, CacheSettings::default().routes);
    assert_eq!(config.cache.batch.idle, Duration::from_millis(10));
    assert_eq!(config.assumed, ["network", "identity"]);
}

#[test]
fn a_cluster_gets_its_share_of_the_vendors_limit() {
    let config = Config::parse(WHOLE, &[]).expect("valid");
    let buckets = &config.limits.buckets;
    // Half of 3,600 calls an hour, times the safety factor 0.9, is 1,620 calls an hour. This number includes the burst of 30.
    assert_eq!(buckets["account"], bucket(None, 1590.0 / 3600.0, 30));
    assert_eq!(buckets["compute"], bucket(Some("account"), 10.0, 20));
    let adaptive = Some(Adaptive { floor: 0.4, decrease: 0.6 });
    assert_eq!(buckets["loadbalancer"], BucketConfig { adaptive, ..bucket(Some("account"), 2.5, 10) });
    assert_eq!(buckets["compute:DescribeInstances"], bucket(Some("compute"), 4.5, 22));
    assert_eq!(buckets["network"], BucketConfig::unconfigured(), "the limit is never unlimited");
}

#[test]
fn missing_buckets_use_driver_limits_then_slow_defaults() {
    let usual = [
        ("account", VendorLimit::Window { limit: 3600.0, window: Duration::from_hours(1), burst: 60 }),
        ("compute", VendorLimit::Bucket { rate: 8.0, burst: 16 }),
    ];
    let none = Config::parse("", &usual).expect("an empty file is valid");
    assert_eq!(none.limits.buckets["account"].limit, RateLimit { rate: 3180.0 / 3600.0, burst: 60 });
    assert_eq!(none.limits.buckets["compute"], bucket(Some("account"), 8.0, 16));
    assert_eq!(none.assumed, ["network", "loadbalancer", "identity"]);
    let some = Config::parse("limits: {buckets: {compute: {rate: 2, burst: 4}}}", &usual).expect("valid");
    assert_eq!(some.limits.buckets["compute"], bucket(Some("account"), 2.0, 4));
    assert_ne!(none.revision, some.revision);
}

#[test]
fn a_slow_bucket_can_become_slower() {
    let config = Config::parse("limits: {buckets: {compute: {rate: 0.1, burst: 1}}}", &[]).expect("valid");
    let adaptive = config.limits.buckets["compute"].adaptive.expect("adapts");
    assert!(adaptive.floor < 0.1, "{adaptive:?}");
}

#[test]
fn all_faults_are_reported_with_keys_and_fixes() {
    let text = r#"
limits:
  mode: on
  safety: 1.5
  share: 0
  saftey: 0.9
  buckets:
    gpu: {rate: 1, burst: 1}
    comptue: {rate: 1, burst: 1}
    compute: {rate: 0, burst: 1}
    network: {limit: 100, window: 1m, burst: 95}
    identity: {rate: 1, limit: 5, window: 1s, burst: 1}
    loadbalancer: {rate: 1, burst: 1, adaptive: {floor: 5, decrease: 1}}
    "compute:ListInstances": {parent: acount, rate: 1, burst: 1}
    account: {rate: fast, burst: 10}
  reserve: 2
  weights: {traffic: 0}
  queue: 5
  concurrency: {computer: 3, perKeyWrites: 2}
  deadline: {default: 2m}
  breaker: {open: 30, openMax: 1s}
cache:
  instances: {maxAge: 0s, pageSize: -1}
  batch: {idle: 1s}
limit: {}
"#;
    assert_snapshot!(faults(text), @r#"
    limits.mode: true: use enforce or shadow
    limits.safety: 1.5: use a fraction of the limit, above 0 and at most 1
    limits.share: 0: use this cluster's share, above 0 and at most 1
    limits.reserve: 2: use a fraction of each burst, at least 0 and below 1
    limits.buckets.account.rate: "fast": use calls a second, above 0 and at most 100000
    limits.buckets.comptue: unknown family, did you mean 'compute'? Use one of: account, compute, network, loadbalancer, identity, or an operation such as compute:ListInstances
    limits.buckets.compute.rate: 0: use calls a second, above 0 and at most 100000
    limits.buckets.gpu: unknown family: use one of: account, compute, network, loadbalancer, identity, or an operation such as compute:ListInstances
    limits.buckets.identity: use either rate and burst, or limit, window and burst
    limits.buckets.loadbalancer.adaptive.decrease: 1: use the factor after a throttle, above 0 and below 1
    limits.buckets.loadbalancer.adaptive.floor: 5 is above the bucket's rate: use a smaller one
    limits.buckets.network.burst: 95 calls at once use up the whole window (90 calls, after safety and share) and leave no rate: use a smaller burst
    limits.buckets.compute:ListInstances.parent: unknown bucket 'acount', did you mean 'account'?
    limits.weights.traffic: 0: use a whole number from 1 to 1000
    limits.queue: expected a mapping of keys to values, found 5
    limits.concurrency.perKeyWrites: only 1 keeps the writes to an object in order: remove this key
    limits.concurrency.computer: unknown key, did you mean 'compute'? Use one of: perKeyWrites, compute, network, loadbalancer, identity
    limits.deadline.default: is above max: use a value of at most max
    limits.breaker.open: invalid duration 30: use a number with its unit, such as 20ms, 30s, 2m, 1h
    limits.breaker.openMax: is below open: use a value of at least open
    limits.saftey: unknown key, did you mean 'safety'? Use one of: mode, safety, share, freeFloor, reserve, buckets, weights, queue, concurrency, deadline, breaker
    cache.instances.maxAge: invalid duration "0s": use a number with its unit, such as 20ms, 30s, 2m, 1h
    cache.instances.pageSize: -1: use a whole number from 1 to 10000
    cache.batch.idle: is above max: use a value of at most max
    limit: unknown key, did you mean 'limits'? Use one of: limits, cache
    "#);
}

#[test]
fn cycles_of_buckets_are_refused() {
    let text = r#"
limits:
  buckets:
    account: {parent: compute, rate: 1, burst: 1}
    compute: {parent: network, rate: 1, burst: 1}
    network: {rate: 1, burst: 1}
    identity: {parent: identity, rate: 1, burst: 1}
"#;
    assert_snapshot!(faults(text), @r#"
    limits.buckets.account.parent: compute is itself below account: parents must not form a cycle
    limits.buckets.compute.parent: network is itself below compute: parents must not form a cycle
    limits.buckets.identity.parent: identity is itself below identity: parents must not form a cycle
    limits.buckets.network.parent: account is itself below network: parents must not form a cycle
    "#);
}

#[test]
fn invalid_yaml_is_refused_with_its_place() {
    for (name, text, wanted) in [
        ("a list", "- 1", "the file"),
        ("open bracket", "limits: {buckets: {", "line"),
        ("a key twice", "limits: {reserve: 0.1, reserve: 0.2}", "reserve"),
    ] {
        assert!(faults(text).contains(wanted), "{name}: {}", faults(text));
    }
}

#[test]
fn invalid_yaml_is_not_quoted() {
    let reported = faults("users:\n- name: a\n  password: hunter2\n   token: hunter2\n");
    assert!(
        reported.contains("line 4") && !reported.contains("hunter2") && !reported.contains('\n'),
        "{reported}"
    );
}

#[test]
fn times_that_would_overflow_the_clock_are_refused() {
    Config::parse("cache: {instances: {maxAge: 720h}}", &[]).expect("thirty days");
    let found = faults("cache: {instances: {maxAge: 4000000000000000h}}\nlimits: {deadline: {max: 721h}}");
    assert_snapshot!(found, @r#"
    limits.deadline.max: "721h": use 30 days or less, such as 720h
    cache.instances.maxAge: "4000000000000000h": use 30 days or less, such as 720h
    "#);
}

#[test]
fn excessive_numbers_are_refused() {
    let most = r"
limits:
  buckets:
    compute: {rate: 100000, burst: 100000}
    network: {limit: 1000000000, window: 24h, burst: 1}
";
    Config::parse(most, &[]).expect("the largest accepted values");
    let more = r"
limits:
  buckets:
    account: {rate: 1e300, burst: 1}
    compute: {rate: 100000.1, burst: 4294967295}
    identity: {rate: 1, burst: 1, adaptive: {floor: 1e300}}
    loadbalancer: {limit: 1000000, window: 1ms, burst: 1}
    network: {limit: 1e300, window: 1h, burst: 1}
  weights: {traffic: 1000000}
  queue: {total: 4294967295}
  concurrency: {compute: 1000000}
  breaker: {minCalls: 18446744073709551615}
cache: {instances: {pageSize: 4294967295}}
";
    assert_snapshot!(faults(more), @"
    limits.buckets.account.rate: 1e+300: use calls a second, above 0 and at most 100000
    limits.buckets.compute.rate: 100000.1: use calls a second, above 0 and at most 100000
    limits.buckets.compute.burst: 4294967295: use a whole number from 1 to 100000
    limits.buckets.identity.adaptive.floor: 1e+300: use calls a second, above 0 and at most 100000
    limits.buckets.loadbalancer.window: results in 899999000 calls a second: use a longer window, so that the rate is at most 100000
    limits.buckets.network.limit: 1e+300: use the number of calls per window, 1 to 1000000000
    limits.weights.traffic: 1000000: use a whole number from 1 to 1000
    limits.queue.total: 4294967295: use a whole number from 1 to 1000000
    limits.concurrency.compute: 1000000: use a whole number from 1 to 10000
    limits.breaker.minCalls: 18446744073709551615: use a whole number from 1 to 1000000
    cache.instances.pageSize: 4294967295: use a whole number from 1 to 10000
    ");
}
