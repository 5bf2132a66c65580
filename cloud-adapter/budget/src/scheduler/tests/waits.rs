//! Tests of the reports on queued calls.

use super::*;
use crate::QueueReport;

fn submit(scheduler: &mut Scheduler, now: Time, call: Call) -> Ticket {
    scheduler.submit(now, call).expect("place")
}

fn said(scheduler: &mut Scheduler, now: Time, ticket: Ticket) -> Option<String> {
    scheduler.wait(now, ticket).map(|wait| wait.to_string())
}

/// The reported delay is the time after which the call is sent, and the reported number of calls ahead is correct.
#[test]
fn a_waiting_call_reports_calls_ahead_and_expected_time() {
    let mut scheduler = Scheduler::new(config([("compute", 0.5, 1)]), at(0.0));
    let tickets: Vec<Ticket> =
        ["a", "b", "c"].map(|object| submit(&mut scheduler, at(0.0), call("Get", object))).to_vec();
    assert_eq!(sent(&mut scheduler, at(0.0)), tickets[..1]);
    let reported: Vec<_> = tickets.iter().map(|ticket| said(&mut scheduler, at(0.0), *ticket)).collect();
    let second =
        "waits for the call budget of bucket compute: 0 calls ahead at 0.5 a second, next call in about 2 s";
    let third =
        "waits for the call budget of bucket compute: 1 call ahead at 0.5 a second, next call in about 4 s";
    assert_eq!(reported, [None, Some(second.to_owned()), Some(third.to_owned())]);
    assert_eq!(sent(&mut scheduler, at(2.0)), tickets[1..2]);
    assert_eq!(sent(&mut scheduler, at(3.9)), []);
    assert_eq!(sent(&mut scheduler, at(4.0)), tickets[2..]);
}

#[test]
fn the_delaying_bucket_is_named_of_equals_the_most_specific() {
    let limits = config([("account", 0.1, 1), ("compute", 1.0, 1), ("compute:List", 1.0, 1)]);
    let mut scheduler = Scheduler::new(limits, at(0.0));
    submit(&mut scheduler, at(0.0), call("List", "a"));
    assert_eq!(sent(&mut scheduler, at(0.0)).len(), 1);
    let waits = submit(&mut scheduler, at(0.0), call("List", "b"));
    assert_eq!(scheduler.wait(at(0.0), waits).expect("waits").bucket, "account");

    let mut scheduler = Scheduler::new(config([("compute", 1.0, 1), ("compute:List", 1.0, 1)]), at(0.0));
    submit(&mut scheduler, at(0.0), call("List", "a"));
    assert_eq!(sent(&mut scheduler, at(0.0)).len(), 1);
    let waits = submit(&mut scheduler, at(0.0), call("List", "b"));
    assert_eq!(scheduler.wait(at(0.0), waits).expect("waits").bucket, "compute:List");
}

#[test]
fn calls_delayed_by_other_causes_do_not_wait_for_the_budget() {
    let mut busy = config([("compute", 10.0, 10)]);
    busy.concurrency.insert("compute".to_owned(), 1);
    let mut scheduler = Scheduler::new(busy, at(0.0));
    submit(&mut scheduler, at(0.0), call("Get", "a"));
    assert_eq!(sent(&mut scheduler, at(0.0)).len(), 1);
    let behind = submit(&mut scheduler, at(0.0), call("Get", "b"));
    assert_eq!(said(&mut scheduler, at(0.0), behind), None, "the limit of calls in flight delays the call");

    let mut scheduler = Scheduler::new(config([("compute", 10.0, 10)]), at(0.0));
    let first = submit(&mut scheduler, at(0.0), call("Get", "a"));
    assert_eq!(sent(&mut scheduler, at(0.0)).len(), 1);
    let retry_after = Some(Duration::from_secs(30));
    assert_eq!(
        scheduler.answered(at(0.1), first, answer(Outcome::Throttled { retry_after, bucket: None })),
        AfterCall::Again
    );
    assert_eq!(said(&mut scheduler, at(0.2), first), None, "the vendor's pause delays the call");

    let mut scheduler = Scheduler::new(config([("compute", 0.1, 1)]), at(0.0));
    submit(&mut scheduler, at(0.0), call("Get", "a"));
    assert_eq!(sent(&mut scheduler, at(0.0)).len(), 1);
    let behind = submit(&mut scheduler, at(0.0), call("Get", "b"));
    scheduler.self_check(at(0.0), false);
    assert_eq!(said(&mut scheduler, at(0.0), behind), None, "the rejected credentials delay the call");

    let mut shadow = config([("compute", 0.1, 1)]);
    shadow.mode = Mode::Shadow;
    let mut scheduler = Scheduler::new(shadow, at(0.0));
    submit(&mut scheduler, at(0.0), call("Get", "a"));
    let second = submit(&mut scheduler, at(0.0), call("Get", "b"));
    assert_eq!(said(&mut scheduler, at(0.0), second), None, "no call is delayed");
}

#[test]
fn slow_calls_in_flight_delay_a_call_longer_than_its_budget() {
    let mut limits = config([("compute", 1.0, 1)]);
    limits.concurrency.insert("compute".to_owned(), 1);
    let mut scheduler = Scheduler::new(limits, at(0.0));
    let first = submit(&mut scheduler, at(0.0), call("Get", "a"));
    assert_eq!(sent(&mut scheduler, at(0.0)), [first]);
    let slow = CallResult { latency: Duration::from_secs(10), ..answer(Outcome::Answered) };
    scheduler.answered(at(0.0), first, slow);
    let second = submit(&mut scheduler, at(5.0), call("Get", "b"));
    assert_eq!(sent(&mut scheduler, at(5.0)), [second]);
    let behind = submit(&mut scheduler, at(5.0), call("Get", "c"));
    assert_eq!(said(&mut scheduler, at(5.0), behind), None);
}

#[test]
fn queues_are_reported_for_the_delaying_bucket() {
    let mut scheduler = Scheduler::new(config([("account", 0.1, 1), ("compute", 10.0, 10)]), at(0.0));
    for object in ["a", "b"] {
        submit(&mut scheduler, at(0.0), call("Get", object));
    }
    assert_eq!(sent(&mut scheduler, at(0.0)).len(), 1);
    let buckets: Vec<_> = scheduler.queues(at(0.0)).into_iter().map(|queue| queue.bucket).collect();
    assert_eq!(buckets, ["account"]);
}

#[test]
fn a_refusal_says_the_same_words() {
    let mut scheduler = Scheduler::new(config([("compute", 0.1, 1)]), at(0.0));
    submit(&mut scheduler, at(0.0), call("Get", "a"));
    assert_eq!(sent(&mut scheduler, at(0.0)).len(), 1);
    let hurried = Call { deadline: Some(at(5.0)), ..call("Get", "b") };
    let refusal = scheduler.submit(at(0.0), hurried).expect_err("the call would be too late");
    assert_eq!(refusal.reason, RefusalReason::Budget);
    assert_eq!(
        refusal.message,
        "waits for the call budget of bucket compute: 0 calls ahead at 0.1 a second, next call in about 10 s"
    );
}

#[test]
fn queues_are_reported_with_their_oldest_wait() {
    let limits = config([("compute", 0.1, 1), ("network", 0.1, 1)]);
    let mut scheduler = Scheduler::new(limits, at(0.0));
    let network = |object| Call { family: "network", controller: "route-controller", ..call("Get", object) };
    for (second, call) in [
        (0.0, call("Get", "sent")),
        (0.0, network("sent")),
        (1.0, call("Get", "a")),
        (2.0, call("List", "b")),
        (3.0, Call { class: Class::Background, ..call("Get", "c") }),
        (4.0, network("d")),
    ] {
        submit(&mut scheduler, at(second), call);
        sent(&mut scheduler, at(second));
    }
    let row = |bucket: &str, class, controller, queued, seconds| QueueReport {
        bucket: bucket.to_owned(),
        class,
        controller,
        queued,
        oldest: Duration::from_secs(seconds),
    };
    assert_eq!(
        scheduler.queues(at(5.0)),
        [
            row("compute", Class::Background, "service-controller", 1, 2),
            row("compute", Class::Interactive, "service-controller", 2, 4),
            row("network", Class::Interactive, "route-controller", 1, 1),
        ]
    );
}
