use insta::assert_snapshot;
use proptest::prelude::*;

use super::applied;
use crate::limits::{Cloud, Question, Report, cases::CONVERGENCE_MAX, simulate};

fn said(nodes: u32, services: u32, text: &str) -> String {
    let question = Question::new(nodes, services, text, Cloud::Sim).expect("valid");
    let advice = simulate(&question).advice;
    advice.iter().map(|one| format!("{}\n  {}: {}\n", one.text, one.key, one.value)).collect()
}

#[test]
fn a_slow_bucket_gets_a_sufficient_rate() {
    assert_snapshot!(said(100, 300, "limits: {buckets: {loadbalancer: {rate: 2, burst: 20}}}"), @r#"
    loadbalancer is the tightest limit: 300 load balancers need 1211 calls, which take 10.1 min at 2/s; to converge in 5 min, set the rate to 4.5/s, if the vendor allows that
      limits.buckets.loadbalancer: {rate: 4.5, burst: 20}
    "#);
}

#[test]
fn waiting_users_cause_advice_even_after_a_short_start() {
    assert_snapshot!(said(10, 3, "limits: {buckets: {loadbalancer: {rate: 0.05, burst: 20}}}"), @r#"
    loadbalancer is the tightest limit: 3 load balancers and 20 that users create during the start need 97 calls, which take 32.3 min at 0.05/s; to converge in 5 min, set the rate to 0.36/s, if the vendor allows that
      limits.buckets.loadbalancer: {rate: 0.36, burst: 20}
    periodic listings use 25 % of loadbalancer: with a maxAge of 160s for loadBalancers they use 13 %
      cache.loadBalancers.maxAge: 160s
    "#);
}

#[test]
fn an_endless_start_gets_the_rate_it_needs() {
    let needed = |services| {
        let text = "limits: {buckets: {loadbalancer: {rate: 0.001, burst: 5}}}";
        let report = simulate(&Question::new(10, services, text, Cloud::Sim).expect("valid"));
        assert_eq!(report.bootstrap.converged_seconds, None);
        let advised =
            report.advised_bootstrap.and_then(|it| it.converged_seconds).expect("the start converges");
        assert!(advised <= IN_TIME, "{services} Services: {advised} s, {:#?}", report.advice);
        report.advice.iter().map(|it| it.value.clone()).collect::<Vec<_>>()
    };
    assert_ne!(needed(200), needed(600), "three times as many load balancers need more");
}

const IN_TIME: f64 = CONVERGENCE_MAX.as_secs_f64();

proptest! {
    #![proptest_config(ProptestConfig::with_cases(test_support::cases(8)))]

    /// After all advice is followed, each case takes at most [`IN_TIME`], however low the limits were before.
    #[test]
    fn followed_advice_is_sufficient(
        (nodes, services) in (0_u32..300, 0_u32..200), openstack: bool, digits in -4.0_f64..1.0, burst in 1_u32..40,
    ) {
        let cloud = if openstack { Cloud::Openstack } else { Cloud::Sim };
        let families = ["compute", "network", "loadbalancer", "identity"];
        let limit = format!("{{rate: {}, burst: {burst}}}", 10_f64.powf(digits));
        let buckets = families.map(|family| format!("{family}: {limit}")).join(", ");
        let text = format!("limits: {{buckets: {{{buckets}}}}}");
        let question = Question::new(nodes, services, &text, cloud).expect("valid");
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
fn advice_is_divided_by_the_share_of_the_account() {
    assert_snapshot!(said(100, 300, "limits: {share: 0.5, buckets: {loadbalancer: {rate: 4, burst: 40}}}"), @r#"
    loadbalancer is the tightest limit: 300 load balancers need 1211 calls, which take 10.1 min at 2/s; to converge in 5 min, set the rate to 4.5/s, if the vendor allows that
      limits.buckets.loadbalancer: {rate: 9, burst: 40}
    "#);
}

#[test]
fn few_calls_in_flight_cause_advice() {
    assert_snapshot!(said(100, 300, "limits: {concurrency: {loadbalancer: 1}}"), @r#"
    a limit of 1 for calls in flight of loadbalancer allows 2/s, because a write takes 500 ms: a rate of 20/s needs a limit of 11
      limits.concurrency.loadbalancer: 11
    "#);
}

#[test]
fn an_account_rate_below_its_families_causes_advice() {
    assert_snapshot!(said(10, 2, "limits: {buckets: {account: {rate: 10, burst: 20}}}"), @r#"
    account allows 10/s, but its families together have 65/s, which they can never use all at once. Raise the rate of account if the vendor allows that; otherwise leave it, since it is the effective limit
      limits.buckets.account: {rate: 65, burst: 20}
    "#);
}

#[test]
fn a_burst_below_one_service_causes_advice() {
    assert_snapshot!(said(10, 2, "limits: {buckets: {loadbalancer: {rate: 1, burst: 2}}}"), @r#"
    loadbalancer has a burst of 2, but one Service needs 3 writes: the last of these writes waits 1 s even if no other call is sent
      limits.buckets.loadbalancer: {rate: 1, burst: 3}
    "#);
}

#[test]
fn expensive_listings_cause_advice() {
    let text = "limits: {buckets: {compute: {rate: 1, burst: 5}}}\ncache: {instances: {pageSize: 10}}";
    assert_snapshot!(said(100, 0, text), @r#"
    periodic listings use 25 % of compute: with a maxAge of 80s for instances they use 13 %
      cache.instances.maxAge: 80s
    "#);
}

#[test]
fn short_queues_cause_advice() {
    let text = "limits: {queue: {total: 100, perLeaf: 5}, buckets: {loadbalancer: {rate: 10, burst: 20}}}";
    assert_snapshot!(said(10, 50, text), @r#"
    the full queue refused calls 139 times, and they were retried later: a longer queue needs a little more memory, but no more calls
      limits.queue.perLeaf: 1024
    "#);
}

#[test]
fn shadow_mode_causes_advice() {
    assert_snapshot!(said(10, 2, "limits: {mode: shadow}"), @r#"
    mode shadow does not delay calls; all figures here are for mode enforce
      limits.mode: enforce
    "#);
}

#[test]
fn each_bucket_has_one_advice_and_small_rates_are_not_zero() {
    let buckets = "{loadbalancer: {rate: 0.001, burst: 1}, account: {rate: 0.002, burst: 2}}";
    let question = Question::new(10, 2, &format!("limits: {{buckets: {buckets}}}"), Cloud::Sim);
    let advice = simulate(&question.expect("valid")).advice;
    for bucket in ["loadbalancer", "account"] {
        let key = format!("limits.buckets.{bucket}");
        let its: Vec<&str> = advice.iter().filter(|it| it.key == key).map(|it| it.value.as_str()).collect();
        assert!(its.len() == 1 && its.iter().all(|it| it.ends_with("burst: 3}")), "{bucket}: {its:?}");
    }
    let zero = |text: &str| text.contains(" 0/s") || text.contains("rate: 0,");
    assert!(advice.iter().all(|it| !zero(&it.text) && !zero(&it.value)), "{advice:#?}");
}
