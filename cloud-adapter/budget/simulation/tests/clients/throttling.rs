//! Guarantees of the budget with vendors that throttle.

use std::time::Duration;

use cloud_budget_simulation::{
    Vendor, batch,
    throttling::{Figures, Strategy, lowered, raised, saturated},
};

const MINUTES: Duration = Duration::from_mins(5);

/// The limits: maximum number of throttled calls per minute, and minimum share of the allowed calls.
#[track_caller]
fn assert_within(figures: Figures, throttled: f64, used: f64) {
    assert!(figures.throttled <= throttled && figures.used >= used, "{figures:?}");
}

#[test]
fn a_vendor_that_allows_60_percent_is_used_and_seldom_throttles() {
    let [_, learnt] = saturated(Strategy::Ours, Vendor::new(6.0));
    assert_within(learnt, 1.0, 0.95);
}

#[test]
fn a_vendor_that_allows_a_fifth_is_used_and_seldom_throttles() {
    let [_, learnt] = saturated(Strategy::Ours, Vendor::new(2.0));
    assert_within(learnt, 1.0, 0.95);
}

#[test]
fn a_vendor_that_locks_out_is_used_more_than_by_other_clients() {
    let vendor = || Vendor::new(6.0).with_lockout(Duration::from_secs(30));
    let [ours, learnt] = saturated(Strategy::Ours, vendor());
    assert_within(ours, 3.0, 0.7);
    assert_within(learnt, 2.0, 0.8);
    for other in Strategy::ALL.into_iter().filter(|strategy| *strategy != Strategy::Ours) {
        let [other, _] = saturated(other, vendor());
        assert!(
            other.used < ours.used / 1.5 && other.throttled > ours.throttled * 5.0,
            "{other:?}, {ours:?}"
        );
    }
}

#[test]
fn a_vendor_that_sends_retry_after_throttles_less() {
    let vendor = || Vendor::new(6.0).with_lockout(Duration::from_secs(30));
    let [silent, _] = saturated(Strategy::Ours, vendor());
    let [told, _] = saturated(Strategy::Ours, vendor().with_retry_after());
    assert!(told.throttled < silent.throttled / 2.0, "{told:?}, {silent:?}");
}

#[test]
fn foreign_calls_are_detected_from_headers() {
    let [all, learnt] = saturated(Strategy::Ours, Vendor::new(10.0).with_foreign(5.0).with_headers());
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
