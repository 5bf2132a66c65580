//! Tests of deadlines, and of calls that are throttled shortly before their deadline.

use super::*;
use crate::QueueLimits;

fn within(seconds: f64, object: &str) -> Call {
    Call { deadline: Some(at(seconds)), ..call("Get", object) }
}

fn taking(seconds: u64) -> CallResult {
    CallResult { latency: Duration::from_secs(seconds), ..answer(Outcome::Answered) }
}

/// A scheduler that sends nothing until allowed. If `usual` is set, the scheduler has seen one call, which took this many seconds.
fn halted(usual: Option<u64>) -> Scheduler {
    let mut scheduler = Scheduler::new(config([("compute", 1.0, 20)]), at(0.0));
    let first = scheduler.submit(at(0.0), call("Get", "first")).expect("place");
    assert_eq!(sent(&mut scheduler, at(0.0)), [first]);
    if let Some(seconds) = usual {
        scheduler.answered(at(0.0), first, taking(seconds));
    }
    scheduler.allow_until(Some(at(0.0)));
    scheduler
}

fn refused(scheduler: &mut Scheduler, now: Time) -> (Ticket, RefusalReason) {
    match scheduler.next(now) {
        Decision::Refuse(ticket, refusal) => (ticket, refusal.reason),
        other @ (Decision::Send { .. } | Decision::Wait(_)) => panic!("{other:?}"),
    }
}

#[test]
fn queued_call_expires_without_a_lease() {
    let mut scheduler = halted(None);
    let waits = scheduler.submit(at(0.0), within(10.0, "a")).expect("place");
    assert_eq!(scheduler.next(at(2.0)), Decision::Wait(Some(at(10.0))));
    assert_eq!(refused(&mut scheduler, at(10.0)), (waits, RefusalReason::Budget));
}

#[test]
fn queued_call_expires_its_usual_duration_before_the_deadline() {
    let mut scheduler = halted(Some(4));
    scheduler.submit(at(0.0), within(20.0, "a")).expect("place");
    let Decision::Wait(Some(expiry)) = scheduler.next(at(0.0)) else { panic!("the call waits") };
    assert!(expiry >= at(15.0) && expiry <= at(16.0), "{expiry:?}");
}

#[test]
fn call_that_became_slow_while_queued_is_not_sent_late() {
    let mut scheduler = halted(None);
    let waits = scheduler.submit(at(0.0), within(20.0, "a")).expect("place");
    scheduler.answered(at(1.0), Ticket(1), taking(15));
    scheduler.allow_until(None);
    assert_eq!(refused(&mut scheduler, at(6.0)), (waits, RefusalReason::Budget));
}

#[test]
fn refusal_says_that_too_little_time_is_left() {
    let mut scheduler = halted(Some(4));
    let refusal = scheduler.submit(at(0.0), within(2.0, "a")).expect_err("too late");
    assert!(refusal.message.contains("has no time left for a call to compute"), "{refusal}");
}

#[test]
fn expired_call_reports_what_delayed_it() {
    let mut scheduler = halted(None);
    let waits = scheduler.submit(at(0.0), within(10.0, "a")).expect("place");
    scheduler.self_check(at(0.0), false);
    assert_eq!(refused(&mut scheduler, at(10.0)), (waits, RefusalReason::Rejected));

    let mut scheduler = halted(None);
    let waits = scheduler.submit(at(0.0), within(10.0, "a")).expect("place");
    let throttled = Outcome::Throttled { retry_after: Some(Duration::from_secs(60)), bucket: None };
    scheduler.answered(at(0.0), Ticket(1), answer(throttled));
    assert_eq!(refused(&mut scheduler, at(10.0)), (waits, RefusalReason::Throttled));
}

/// After the throttle, the pause lasts one second, the first token is available after 1.4 s, and the second after 2.9 s.
#[test]
fn throttled_call_is_repeated_only_if_in_time() {
    for (what, reserve, usual, expected) in [
        ("uses the reserve", true, None, AfterCall::Again),
        ("leaves the reserve", false, None, AfterCall::Done),
        ("takes a second", true, Some(1), AfterCall::Done),
    ] {
        let mut scheduler = halted(usual);
        scheduler.allow_until(None);
        let call = Call { reserve, ..within(2.0, "a") };
        let ticket = scheduler.submit(at(0.0), call).expect("place");
        assert_eq!(sent(&mut scheduler, at(0.0)), [ticket], "{what}");
        let throttled = answer(Outcome::Throttled { retry_after: None, bucket: None });
        assert_eq!(scheduler.answered(at(0.0), ticket, throttled.clone()), expected, "{what}");
        if expected == AfterCall::Again {
            scheduler.allow_until(Some(at(0.0)));
            assert_eq!(refused(&mut scheduler, at(2.0)).0, ticket, "{what}");
        }
    }
}

#[test]
fn throttled_call_is_not_repeated_if_its_queue_is_full() {
    let defaults = QueueLimits::default();
    for full in [
        QueueLimits { per_object: 1, ..defaults },
        QueueLimits { per_leaf: 1, ..defaults },
        QueueLimits { total: 1, ..defaults },
    ] {
        let mut scheduler = Scheduler::new(Config { queue: full, ..config([("compute", 1.0, 1)]) }, at(0.0));
        let first = scheduler.submit(at(0.0), call("Get", "a")).expect("place");
        assert_eq!(sent(&mut scheduler, at(0.0)), [first]);
        scheduler.submit(at(0.0), call("Get", "a")).expect("place");
        let throttled = answer(Outcome::Throttled { retry_after: None, bucket: None });
        assert_eq!(scheduler.answered(at(0.0), first, throttled), AfterCall::Done, "{full:?}");
    }
}
