//! Tests of shadow mode, which counts delays and enforces nothing.

use super::*;

fn shadow<const N: usize>(buckets: [(&str, f64, u32); N]) -> Config {
    Config { mode: Mode::Shadow, ..config(buckets) }
}

#[test]
fn calls_in_flight_are_no_delay() {
    let limits = Config { concurrency: [("compute".to_owned(), 1)].into(), ..shadow([("compute", 1.0, 10)]) };
    let mut scheduler = Scheduler::new(limits, at(0.0));
    let tickets =
        ["a", "b", "c"].map(|object| scheduler.submit(at(0.0), call("Get", object)).expect("place"));
    assert_eq!(sent(&mut scheduler, at(0.0)), tickets);
    for ticket in tickets {
        scheduler.answered(at(1.0), ticket, answer(Outcome::Answered));
    }
    assert_eq!(sent(&mut scheduler, at(1.0)), []);
    assert_eq!(bucket(&scheduler, at(1.0), "compute").would_delay, 0);
}

#[test]
fn delay_is_counted_for_the_emptiest_bucket() {
    let mut scheduler = Scheduler::new(shadow([("account", 1.0, 1), ("compute", 10.0, 10)]), at(0.0));
    for object in ["a", "b"] {
        scheduler.submit(at(0.0), call("Get", object)).expect("place");
    }
    assert_eq!(sent(&mut scheduler, at(0.0)).len(), 2);
    assert_eq!(sent(&mut scheduler, at(1.0)), []);
    let delayed = |name| bucket(&scheduler, at(1.0), name).would_delay;
    assert_eq!((delayed("account"), delayed("compute")), (1, 0));
}

#[test]
fn throttled_calls_are_not_repeated() {
    let mut scheduler = Scheduler::new(shadow([("compute", 1.0, 10)]), at(0.0));
    let ticket = scheduler.submit(at(0.0), call("Get", "a")).expect("place");
    assert_eq!(sent(&mut scheduler, at(0.0)), [ticket]);
    let throttled = answer(Outcome::Throttled { retry_after: None, bucket: None });
    assert_eq!(scheduler.answered(at(0.0), ticket, throttled), AfterCall::Done);
}

#[test]
fn expired_and_cancelled_calls_leave_no_copy() {
    let mut scheduler = Scheduler::new(shadow([("compute", 1.0, 10)]), at(0.0));
    let hurried = Call { deadline: Some(at(1.0)), ..call("Get", "a") };
    let ticket = scheduler.submit(at(0.0), hurried).expect("place");
    let Decision::Refuse(refused, _) = scheduler.next(at(1.0)) else { panic!("the deadline has passed") };
    assert_eq!((refused, bucket(&scheduler, at(1.0), "compute").queued), (ticket, 0));

    let ticket = scheduler.submit(at(1.0), call("Get", "b")).expect("place");
    assert!(scheduler.cancel(ticket));
    assert_eq!(sent(&mut scheduler, at(1.0)), []);
}

#[test]
fn full_queue_sheds_only_a_copy() {
    let mut limits = shadow([("compute", 1.0, 10)]);
    limits.queue.total = 1;
    let mut scheduler = Scheduler::new(limits, at(0.0));
    let background = Call { class: Class::Background, ..call("Get", "a") };
    let tickets = [background, call("Get", "b")].map(|call| scheduler.submit(at(0.0), call).expect("place"));
    assert_eq!(sent(&mut scheduler, at(0.0)), tickets);
}
