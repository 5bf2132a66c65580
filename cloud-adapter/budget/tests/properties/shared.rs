//! Properties of calls that several callers share.

use std::time::Duration;

use cloud_budget::{
    AfterCall, Call, CallResult, Class, Decision, Outcome, RefusalReason, Scheduler, Ticket, Time,
};

use crate::world::{call, config};

fn at(seconds: f64) -> Time {
    Time::ZERO + Duration::from_secs_f64(seconds)
}

/// A scheduler whose burst is spent, with `urgent` urgent calls and two background calls in its queue. Returns the ticket of the second
/// background call.
fn behind(urgent: usize) -> (Scheduler, Ticket) {
    let mut scheduler = Scheduler::new(config(1.0, 1), Time::ZERO);
    scheduler.submit(Time::ZERO, call(Class::Traffic, "service", "first")).expect("place");
    assert!(matches!(scheduler.next(Time::ZERO), Decision::Send { .. }));
    for object in 0..urgent {
        let urgent = call(Class::Traffic, "service", &object.to_string());
        scheduler.submit(Time::ZERO, urgent).expect("place");
    }
    let leisurely = second_of(&mut scheduler, call(Class::Background, "adapter", "list"));
    (scheduler, leisurely)
}

/// Submits the call twice and returns the second ticket, because the first call of a leaf is served soon, whatever the leaf's weight.
fn second_of(scheduler: &mut Scheduler, call: Call) -> Ticket {
    scheduler.submit(Time::ZERO, Call { deadline: None, ..call.clone() }).expect("place");
    scheduler.submit(Time::ZERO, call).expect("place")
}

fn sent_at(scheduler: &mut Scheduler, wanted: Ticket) -> Option<Time> {
    let mut now = Time::ZERO;
    loop {
        match scheduler.next(now) {
            Decision::Send { ticket, .. } if ticket == wanted => return Some(now),
            Decision::Refuse(ticket, _) if ticket == wanted => return None,
            Decision::Send { .. } | Decision::Refuse(..) => (),
            Decision::Wait(next) => now = next?,
        }
    }
}

#[test]
fn a_shared_call_has_the_priority_of_its_most_urgent_caller() {
    let urgent = call(Class::Interactive, "node", "list");
    let (mut alone, _) = behind(40);
    let own = alone.submit(Time::ZERO, urgent.clone()).expect("place");
    let own = sent_at(&mut alone, own);
    let (mut never, leisurely) = behind(40);
    assert!(sent_at(&mut never, leisurely) > own, "precondition of the test");
    let (mut raised, leisurely) = behind(40);
    assert!(raised.raise(Time::ZERO, leisurely, urgent));
    assert!(sent_at(&mut raised, leisurely) <= own);
}

#[test]
fn joining_never_worsens_the_place_of_a_call() {
    let mut scheduler = Scheduler::new(config(1.0, 1), Time::ZERO);
    let first = scheduler.submit(Time::ZERO, call(Class::Background, "adapter", "list")).expect("place");
    for object in 0..500 {
        let storm = call(Class::Interactive, "node", &object.to_string());
        scheduler.submit(Time::ZERO, storm).expect("place");
    }
    assert!(!scheduler.raise(Time::ZERO, first, call(Class::Interactive, "node", "list")));
    assert!(
        sent_at(&mut scheduler, first) < Some(at(20.0)),
        "the share of background work is a ninth of the rate"
    );
}

#[test]
fn a_queued_call_lives_until_its_last_deadline() {
    for (joined, sent) in [(false, false), (true, true)] {
        let mut scheduler = Scheduler::new(config(1.0, 1), Time::ZERO);
        scheduler.submit(Time::ZERO, call(Class::Traffic, "service", "first")).expect("place");
        let until =
            |seconds| Call { deadline: Some(at(seconds)), ..call(Class::Background, "adapter", "list") };
        let ticket = second_of(&mut scheduler, until(2.5));
        for object in 0..50 {
            let traffic = call(Class::Traffic, "service", &object.to_string());
            scheduler.submit(Time::ZERO, traffic).expect("place");
        }
        if joined {
            assert!(!scheduler.raise(Time::ZERO, ticket, until(60.0)), "the call keeps its place");
        }
        assert_eq!(sent_at(&mut scheduler, ticket).is_some(), sent);
    }
}

#[test]
fn a_late_caller_is_refused_and_the_call_stays() {
    let (mut scheduler, leisurely) = behind(0);
    assert_eq!(scheduler.late(Time::ZERO, leisurely, at(2.0)), None, "the call is just in time");
    let (expected, refusal) = scheduler.late(Time::ZERO, leisurely, at(1.5)).expect("the call is too late");
    assert_eq!((expected, refusal.reason), (at(2.0), RefusalReason::Budget));
    assert!(refusal.retry_after >= Duration::from_secs(2), "{refusal:?}");
    assert_eq!(sent_at(&mut scheduler, leisurely), Some(at(2.0)));
    assert_eq!(scheduler.late(at(2.0), leisurely, at(2.0)), None, "the call is in flight");
}

#[test]
fn a_throttled_shared_call_is_repeated_for_later_callers() {
    let mut scheduler = Scheduler::new(config(1.0, 10), Time::ZERO);
    let until = |seconds| Call { deadline: Some(at(seconds)), ..call(Class::Traffic, "service", "list") };
    let ticket = scheduler.submit(Time::ZERO, until(5.0)).expect("place");
    assert!(matches!(scheduler.next(Time::ZERO), Decision::Send { .. }));
    assert!(!scheduler.raise(Time::ZERO, ticket, until(60.0)), "the call is in flight");
    let outcome = Outcome::Throttled { retry_after: Some(Duration::from_secs(20)), bucket: None };
    let answer = CallResult { outcome, latency: Duration::ZERO, hint: None };
    assert_eq!(scheduler.answered(Time::ZERO, ticket, answer), AfterCall::Again);
    let (expected, refusal) =
        scheduler.late(Time::ZERO, ticket, at(5.0)).expect("no call is sent in the pause");
    assert_eq!(refusal.reason, RefusalReason::Throttled);
    assert!(expected >= at(20.0));
}
