//! Tests of unusual settings, and of settings that change while calls are queued.

use super::*;

fn in_flight(most: u32) -> Config {
    Config { concurrency: [("compute".to_owned(), most)].into(), ..config([("compute", 1.0, 20)]) }
}

#[test]
fn one_call_may_always_be_in_flight() {
    let mut scheduler = Scheduler::new(in_flight(0), at(0.0));
    for object in ["a", "b"] {
        scheduler.submit(at(0.0), call("Get", object)).expect("place");
    }
    assert_eq!(sent(&mut scheduler, at(0.0)), [Ticket(1)]);
}

#[test]
fn new_limit_of_calls_in_flight_applies_to_queued_calls() {
    let mut scheduler = Scheduler::new(in_flight(1), at(0.0));
    for object in ["a", "b", "c"] {
        scheduler.submit(at(0.0), call("Get", object)).expect("place");
    }
    assert_eq!(sent(&mut scheduler, at(0.0)), [Ticket(1)]);
    scheduler.configure(at(0.0), in_flight(2));
    assert_eq!(sent(&mut scheduler, at(0.0)), [Ticket(2)]);
}

#[test]
fn breaker_opens_according_to_its_newest_limits() {
    let with = |min_calls, failure_ratio| {
        let mut limits = config([("compute", 1.0, 20)]);
        limits.breaker.min_calls = min_calls;
        limits.breaker.failure_ratio = failure_ratio;
        limits
    };
    let mut scheduler = Scheduler::new(with(20, 0.5), at(0.0));
    let returns = |scheduler: &mut Scheduler, outcome| {
        let ticket = scheduler.submit(at(0.0), call("Get", "a")).expect("place");
        assert_eq!(sent(scheduler, at(0.0)), [ticket]);
        scheduler.answered(at(0.0), ticket, answer(outcome));
        scheduler.report(at(0.0)).breakers.remove(0).1
    };
    assert_eq!(returns(&mut scheduler, Outcome::Answered), BreakerState::Closed);
    scheduler.configure(at(0.0), with(1, 0.0));
    assert_eq!(returns(&mut scheduler, Outcome::Answered), BreakerState::Closed, "no call failed");
    assert!(matches!(returns(&mut scheduler, Outcome::Failed), BreakerState::Open { .. }));
}

/// The previous leader may have used the tokens of a family that this process uses first after a reload.
#[test]
fn families_are_empty_for_a_new_leader_also_after_a_reload() {
    let limits = config([("account", 100.0, 100)]);
    let mut scheduler = Scheduler::new(limits.clone(), at(0.0));
    scheduler.empty(at(0.0));
    scheduler.configure(at(0.0), limits);
    scheduler.submit(at(0.0), call("Get", "a")).expect("place");
    assert!(bucket(&scheduler, at(0.0), "compute").tokens < 0.01);
}
