use std::time::Duration;

use super::{Breaker, CredentialBreaker};
use crate::{BreakerLimits, BreakerState, Time};

fn at(seconds: u64) -> Time {
    Time::ZERO + Duration::from_secs(seconds)
}

fn breaker() -> Breaker {
    Breaker::new(BreakerLimits::default())
}

/// Sends calls one after the other, all at the simulated time `now`.
fn calls(breaker: &mut Breaker, now: Time, outcomes: &[(u32, bool)]) {
    for &(calls, failed) in outcomes {
        for _ in 0..calls {
            breaker.sent();
            breaker.record_result(now, failed);
        }
    }
}

#[test]
fn half_of_twenty_failed_calls_open_the_breaker() {
    let open = BreakerState::Open { retry_at: at(15) };
    for (name, outcomes, state) in [
        ("10 of 20 failed", &[(10, false), (10, true)][..], open),
        ("all of 19 failed", &[(19, true)], BreakerState::Closed),
        ("9 of 20 failed", &[(11, false), (9, true)], BreakerState::Closed),
        ("the 20th call succeeds", &[(19, true), (1, false)], open),
    ] {
        let mut breaker = breaker();
        calls(&mut breaker, at(0), outcomes);
        assert_eq!(breaker.state(at(0)), state, "{name}");
        assert_eq!(breaker.admits(at(0)), state == BreakerState::Closed, "{name}");
    }
}

#[test]
fn calls_outside_the_window_do_not_count() {
    let mut breaker = breaker();
    calls(&mut breaker, at(0), &[(15, true)]);
    calls(&mut breaker, at(30), &[(15, true)]);
    assert_eq!(breaker.state(at(30)), BreakerState::Closed);
    calls(&mut breaker, at(45), &[(5, true)]);
    assert_eq!(breaker.state(at(45)), BreakerState::Open { retry_at: at(60) });
}

#[test]
fn memory_does_not_depend_on_the_number_of_calls() {
    let mut breaker = breaker();
    for second in 0..300 {
        calls(&mut breaker, at(second), &[(100, false)]);
    }
    let super::State::Closed { slots } = &breaker.state else { panic!("no call failed") };
    assert_eq!(slots.len(), 30);
}

#[test]
fn half_open_sends_one_call_at_a_time_and_three_successes_close() {
    let mut breaker = breaker();
    calls(&mut breaker, at(0), &[(20, true)]);
    assert!(!breaker.admits(at(14)));
    for _ in 0..3 {
        assert_eq!(breaker.state(at(15)), BreakerState::HalfOpen);
        assert!(breaker.admits(at(15)));
        breaker.sent();
        assert!(!breaker.admits(at(15)), "a call is in flight");
        breaker.record_result(at(15), false);
    }
    assert_eq!(breaker.state(at(15)), BreakerState::Closed);
    calls(&mut breaker, at(15), &[(19, true)]);
    assert_eq!(breaker.state(at(15)), BreakerState::Closed, "the old calls are no longer counted");
}

#[test]
fn failed_probes_double_the_open_period_up_to_two_minutes() {
    let mut breaker = breaker();
    calls(&mut breaker, at(0), &[(20, true)]);
    let mut now = at(0);
    for rest in [15, 30, 60, 120, 120] {
        assert_eq!(breaker.state(now), BreakerState::Open { retry_at: now + Duration::from_secs(rest) });
        now = now + Duration::from_secs(rest);
        // One success does not close the half-open breaker, and the failure after it opens the breaker again.
        calls(&mut breaker, now, &[(1, false), (1, true)]);
    }
    now = now + Duration::from_secs(120);
    calls(&mut breaker, now, &[(3, false), (20, true)]);
    assert_eq!(breaker.state(now), BreakerState::Open { retry_at: now + Duration::from_secs(15) });
}

#[test]
fn calls_sent_before_opening_are_not_probes() {
    let mut breaker = breaker();
    for _ in 0..5 {
        breaker.sent();
    }
    calls(&mut breaker, at(0), &[(20, true)]);
    for _ in 0..3 {
        breaker.record_result(at(1), false);
    }
    assert_eq!(breaker.state(at(1)), BreakerState::Open { retry_at: at(15) });
    assert!(!breaker.admits(at(15)), "two earlier calls are still in flight");
    breaker.record_result(at(14), true);
    breaker.record_result(at(14), true);
    assert_eq!(breaker.state(at(15)), BreakerState::HalfOpen, "earlier calls do not open the breaker again");
    assert!(breaker.admits(at(15)));
}

#[test]
fn new_limits_apply_from_the_next_open_period() {
    let mut breaker = breaker();
    breaker.configure(BreakerLimits {
        min_calls: 2,
        open: Duration::from_secs(60),
        ..BreakerLimits::default()
    });
    calls(&mut breaker, at(0), &[(2, true)]);
    assert_eq!(breaker.state(at(0)), BreakerState::Open { retry_at: at(60) });
}

#[test]
fn rejected_credentials_allow_one_self_check_per_30_seconds() {
    let mut credentials = CredentialBreaker::default();
    assert!(credentials.admits(at(0), false));
    credentials.self_check(at(0), false);
    assert_eq!(credentials.state(at(29)), BreakerState::Open { retry_at: at(30) });
    assert!(!credentials.admits(at(29), true));
    assert_eq!(credentials.state(at(30)), BreakerState::HalfOpen);
    assert!(!credentials.admits(at(30), false), "only self-checks may be sent");
    assert!(credentials.admits(at(30), true));
    credentials.sent(at(30));
    assert!(!credentials.admits(at(31), true), "a self-check is in flight, or was lost");
    assert!(credentials.admits(at(60), true));
    credentials.self_check(at(61), true);
    assert_eq!(credentials.state(at(61)), BreakerState::Closed);
    assert!(credentials.admits(at(61), false));
}

#[test]
fn a_self_check_does_not_disturb_credentials_that_are_good() {
    let mut credentials = CredentialBreaker::default();
    credentials.sent(at(0));
    assert!(credentials.admits(at(0), false));
}
