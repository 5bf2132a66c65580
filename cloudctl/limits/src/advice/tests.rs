use insta::assert_snapshot;
use proptest::prelude::*;

use super::applied;
use crate::{Cloud, Question, Report, cases::PATIENCE, simulate};

/// What is said to a cluster of a size with a file.
fn said((nodes, services): (u32, u32), text: &str) -> String {
    let question = Question::new((nodes, services, None), text, Cloud::Sim).expect("valid");
    let advice = simulate(&question).advice;
    advice.iter().map(|one| format!("{}\n  {}: {}\n", one.text, one.key, one.value)).collect()
}

#[test]
fn a_bucket_that_is_too_slow_is_told_with_the_rate_that_does() {
    assert_snapshot!(said((100, 300), "limits: {buckets: {loadbalancer: {rate: 2, burst: 20}}}"), @r#"
    loadbalancer binds: 300 load balancers need 1211 calls, 10.1 min at 2/s; to converge in 5 min it needs 4.5/s, if the vendor allows that
      limits.buckets.loadbalancer: {rate: 4.5, burst: 20}
    "#);
}

#[test]
fn users_who_wait_are_told_of_though_the_start_is_short() {
    assert_snapshot!(said((10, 3), "limits: {buckets: {loadbalancer: {rate: 0.05, burst: 20}}}"), @r#"
    loadbalancer binds: 3 load balancers and 20 that users make meanwhile need 97 calls, 32.3 min at 0.05/s; to converge in 5 min it needs 0.36/s, if the vendor allows that
      limits.buckets.loadbalancer: {rate: 0.36, burst: 20}
    steady listings use 25 % of loadbalancer: with a maxAge of 160s for loadBalancers it is 13 %
      cache.loadBalancers.maxAge: 160s
    "#);
}

#[test]
fn what_never_ends_is_told_what_it_needs() {
    let needed = |services| {
        let text = "limits: {buckets: {loadbalancer: {rate: 0.001, burst: 5}}}";
        let report = simulate(&Question::new((10, services, None), text, Cloud::Sim).expect("valid"));
        assert_eq!(report.bootstrap.converged_seconds, None);
        let advised = report.advised_bootstrap.and_then(|it| it.converged_seconds).expect("it ends");
        assert!(advised <= IN_TIME, "{services} Services: {advised} s, {:#?}", report.advice);
        report.advice.iter().map(|it| it.value.clone()).collect::<Vec<_>>()
    };
    assert_ne!(needed(200), needed(600), "thrice as many need more");
}

const IN_TIME: f64 = PATIENCE.as_secs_f64();

proptest! {
    #![proptest_config(ProptestConfig::with_cases(test_support::cases(8)))]

    /// Whoever takes the advice waits no longer than it says, however little was allowed before.
    #[test]
    fn advice_that_is_taken_is_enough(
        (nodes, services) in (0_u32..300, 0_u32..200), openstack: bool, digits in -4.0_f64..1.0, burst in 1_u32..40,
    ) {
        let cloud = if openstack { Cloud::Openstack } else { Cloud::Sim };
        let families = ["compute", "network", "loadbalancer", "identity"];
        let limit = format!("{{rate: {}, burst: {burst}}}", 10_f64.powf(digits));
        let buckets = families.map(|family| format!("{family}: {limit}")).join(", ");
        let text = format!("limits: {{buckets: {{{buckets}}}}}");
        let question = Question::new((nodes, services, None), &text, cloud).expect("valid");
        let advice = simulate(&question).advice;
        let Report { bootstrap, users, joins, .. } =
            simulate(&applied(&question, &advice).unwrap_or(question));
        let users = users.map(|it| it.ready.p99_seconds);
        for (what, lasts) in [("start", bootstrap.converged_seconds), ("users", users), ("joins", joins.converged_seconds)] {
            prop_assert!(lasts.is_some_and(|it| it <= IN_TIME), "{} takes {:?} s after {:#?}", what, lasts, advice);
        }
    }
}

#[test]
fn a_share_of_an_account_is_reckoned_back() {
    assert_snapshot!(said((100, 300), "limits: {share: 0.5, buckets: {loadbalancer: {rate: 4, burst: 40}}}"), @r#"
    loadbalancer binds: 300 load balancers need 1211 calls, 10.1 min at 2/s; to converge in 5 min it needs 4.5/s, if the vendor allows that
      limits.buckets.loadbalancer: {rate: 9, burst: 40}
    "#);
}

#[test]
fn few_calls_in_flight_are_told() {
    assert_snapshot!(said((100, 300), "limits: {concurrency: {loadbalancer: 1}}"), @r#"
    at most 1 in flight of loadbalancer is 2/s, as a write takes 500 ms: 20/s need 11
      limits.concurrency.loadbalancer: 11
    "#);
}

#[test]
fn an_account_below_its_families_is_told() {
    assert_snapshot!(said((10, 2), "limits: {buckets: {account: {rate: 10, burst: 20}}}"), @r#"
    account lets 10/s through, and the families that draw from it are given 65/s together: what is beyond the account's they never get at once. Raise it if the vendor allows that; else leave it, it is what holds
      limits.buckets.account: {rate: 65, burst: 20}
    "#);
}

#[test]
fn a_burst_below_one_service_is_told() {
    assert_snapshot!(said((10, 2), "limits: {buckets: {loadbalancer: {rate: 1, burst: 2}}}"), @r#"
    loadbalancer has a burst of 2, and one Service takes 3 writes of it: its last write waits 1 s though nothing else is sent
      limits.buckets.loadbalancer: {rate: 1, burst: 3}
    "#);
}

#[test]
fn listings_that_take_much_are_told() {
    let text = "limits: {buckets: {compute: {rate: 1, burst: 5}}}\ncache: {instances: {pageSize: 10}}";
    assert_snapshot!(said((100, 0), text), @r#"
    steady listings use 25 % of compute: with a maxAge of 80s for instances it is 13 %
      cache.instances.maxAge: 80s
    "#);
}

#[test]
fn queues_that_are_too_short_are_told() {
    let text = "limits: {queue: {total: 100, perLeaf: 5}, buckets: {loadbalancer: {rate: 10, burst: 20}}}";
    assert_snapshot!(said((10, 50), text), @r#"
    calls found no place in the queue 139 times, and came back later: more places cost a little memory, and no calls
      limits.queue.perLeaf: 1024
    "#);
}

#[test]
fn shadow_mode_is_told() {
    assert_snapshot!(said((10, 2), "limits: {mode: shadow}"), @r#"
    with mode shadow nothing is delayed; all figures here are those of enforce
      limits.mode: enforce
    "#);
}

#[test]
fn a_bucket_has_one_advice_and_a_small_rate_is_not_nothing() {
    let buckets = "{loadbalancer: {rate: 0.001, burst: 1}, account: {rate: 0.002, burst: 2}}";
    let question = Question::new((10, 2, None), &format!("limits: {{buckets: {buckets}}}"), Cloud::Sim);
    let advice = simulate(&question.expect("valid")).advice;
    for bucket in ["loadbalancer", "account"] {
        let key = format!("limits.buckets.{bucket}");
        let its: Vec<&str> = advice.iter().filter(|it| it.key == key).map(|it| it.value.as_str()).collect();
        assert!(its.len() == 1 && its.iter().all(|it| it.ends_with("burst: 3}")), "{bucket}: {its:?}");
    }
    let zero = |text: &str| text.contains(" 0/s") || text.contains("rate: 0,");
    assert!(advice.iter().all(|it| !zero(&it.text) && !zero(&it.value)), "{advice:#?}");
}
