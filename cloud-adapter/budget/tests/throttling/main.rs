//! Tests the guarantees of the budget against a model vendor that throttles, in virtual time. Other strategies show that the model is
//! realistic: they are throttled often, or use little of what the vendor allows.

mod batch;
mod chance;
mod clients;
mod pace;
mod strategies;
mod vendor;
mod world;

use std::time::Duration;

use self::{
    strategies::{Figures, Strategy, lowered, raised, saturated},
    vendor::{Vendor, Verdict},
    world::{CallerAction, Client, World},
};

const MINUTES: Duration = Duration::from_mins(5);

#[track_caller]
fn assert_within(figures: Figures, throttled: f64, used: f64) {
    assert!(figures.throttled <= throttled && figures.used >= used, "{figures:?}");
}

/// P12
#[test]
fn a_vendor_that_allows_less_is_used_and_seldom_throttles() {
    for allowed in [6.0, 2.0] {
        let [_, learnt] = saturated(Strategy::Budget, Vendor::new(allowed));
        assert_within(learnt, 1.0, 0.95);
    }
}

#[test]
fn a_vendor_that_locks_out_is_used_more_than_by_other_clients() {
    let vendor = || Vendor::new(6.0).with_lockout(Duration::from_secs(30));
    let [budget, learnt] = saturated(Strategy::Budget, vendor());
    assert_within(budget, 3.0, 0.7);
    assert_within(learnt, 2.0, 0.8);
    for other in Strategy::ALL.into_iter().filter(|strategy| *strategy != Strategy::Budget) {
        let [other, _] = saturated(other, vendor());
        assert!(
            other.used < budget.used / 1.5 && other.throttled > budget.throttled * 5.0,
            "{other:?}, {budget:?}"
        );
    }
}

#[test]
fn a_vendor_that_sends_retry_after_throttles_less() {
    let vendor = || Vendor::new(6.0).with_lockout(Duration::from_secs(30));
    let [silent, _] = saturated(Strategy::Budget, vendor());
    let [hinted, _] = saturated(Strategy::Budget, vendor().with_retry_after());
    assert!(hinted.throttled < silent.throttled / 2.0, "{hinted:?}, {silent:?}");
}

/// P24
#[test]
fn foreign_calls_are_detected_from_headers() {
    let [all, learnt] = saturated(Strategy::Budget, Vendor::new(10.0).with_foreign(5.0).with_headers());
    assert_within(all, 1.0, 0.45);
    assert_within(learnt, 0.0, 0.45);
}

#[test]
fn a_limit_that_is_raised_is_found_within_five_minutes() {
    let found = raised(4.0, MINUTES);
    assert!(found <= MINUTES, "{found:?}");
}

#[test]
fn a_limit_that_is_lowered_is_used_and_seldom_met() {
    assert_within(lowered(4.0, MINUTES), 1.0, 0.97);
}

/// P11
#[test]
fn a_throttled_batch_is_not_split_into_single_calls() {
    let calls = batch::throttled();
    assert!((1..=2).contains(&calls), "{calls}");
}

/// Validates the model: clients that are known to be bad must show bad results.
#[test]
fn clients_without_a_memory_are_throttled_constantly() {
    for (strategy, at_least) in
        [(Strategy::Workers, 200.0), (Strategy::Fixed, 200.0), (Strategy::Cubic, 10.0), (Strategy::Aimd, 3.0)]
    {
        let [_, learnt] = saturated(strategy, Vendor::new(6.0));
        assert!(learnt.throttled > at_least, "{strategy:?}: {learnt:?}");
    }
}
