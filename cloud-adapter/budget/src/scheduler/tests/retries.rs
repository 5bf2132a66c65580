//! Tests of the times at which refused callers may retry, and of outcomes that do not open a circuit breaker.

use super::*;

/// A scheduler whose only token is used.
fn spent(rate: f64) -> Scheduler {
    let mut scheduler = Scheduler::new(config([("compute", rate, 1)]), at(0.0));
    scheduler.submit(at(0.0), call("Get", "first")).expect("place");
    assert_eq!(sent(&mut scheduler, at(0.0)).len(), 1);
    scheduler
}

/// Submits a call that has half a second left. Returns the delay before the retry, in seconds.
fn retry(scheduler: &mut Scheduler, now: f64, namespace: &str) -> f64 {
    let call = Call { namespace: namespace.into(), deadline: Some(at(now + 0.5)), ..call("Get", "a") };
    scheduler.submit(at(now), call).expect_err("too late").retry_after.as_secs_f64()
}

/// Namespaces take turns, so a namespace gets every second token while another namespace waits. Retry times are spaced 1.25 times as widely
/// as the rate requires.
#[test]
fn retries_of_a_namespace_leave_turns_to_the_others() {
    let mut scheduler = spent(0.1);
    scheduler.submit(at(0.0), Call { namespace: "x".into(), ..call("Get", "a") }).expect("place");
    let (first, second) = (retry(&mut scheduler, 0.0, "y"), retry(&mut scheduler, 0.0, "y"));
    assert!((20.0..=24.0).contains(&first), "{first}");
    assert!((45.0..=54.0).contains(&second), "{second}");
    let other = retry(&mut scheduler, 0.0, "z");
    assert!(
        (first - other).abs() > 0.01,
        "callers that are refused together return together: {first}, {other}"
    );
}

#[test]
fn retry_is_at_most_an_hour_away() {
    let seconds = retry(&mut spent(0.000_1), 0.0, "x");
    assert!((3_600.0..=4_320.0).contains(&seconds), "{seconds}");
}

#[test]
fn new_limits_shorten_the_time_to_the_retry() {
    let mut scheduler = spent(0.01);
    assert!(retry(&mut scheduler, 0.0, "x") >= 100.0);
    scheduler.configure(at(0.0), config([("compute", 1.0, 1)]));
    let seconds = retry(&mut scheduler, 0.0, "x");
    assert!(seconds <= 1.2, "{seconds}");
}

#[test]
fn expired_retry_times_are_forgotten() {
    let mut scheduler = spent(0.01);
    for namespace in 0..2_000 {
        retry(&mut scheduler, 0.0, &namespace.to_string());
    }
    scheduler.submit(at(7_200.0), call("Get", "second")).expect("place");
    assert_eq!(sent(&mut scheduler, at(7_200.0)).len(), 1);
    retry(&mut scheduler, 7_200.0, "x");
    assert_eq!(scheduler.promised.len(), 1);
}

#[test]
fn calls_with_refused_credentials_open_no_breaker() {
    let mut scheduler = Scheduler::new(config([("compute", 100.0, 100)]), at(0.0));
    for object in 0..40 {
        let ticket = scheduler.submit(at(0.0), call("Get", &object.to_string())).expect("place");
        assert_eq!(sent(&mut scheduler, at(0.0)), [ticket]);
        scheduler.answered(at(0.0), ticket, answer(Outcome::Unauthorized));
    }
    assert_eq!(scheduler.report(at(0.0)).breakers, [("compute".to_owned(), BreakerState::Closed)]);
}

#[test]
fn cancelled_call_that_was_shed_is_not_reported() {
    let mut limits = config([("compute", 1.0, 10)]);
    limits.queue.total = 1;
    let mut scheduler = Scheduler::new(limits, at(0.0));
    let background = Call { class: Class::Background, ..call("Get", "a") };
    let shed = scheduler.submit(at(0.0), background).expect("place");
    let kept = scheduler.submit(at(0.0), call("Get", "b")).expect("place");
    assert!(scheduler.cancel(shed));
    assert_eq!(sent(&mut scheduler, at(0.0)), [kept]);
}

/// Shedding a call here would let two namespaces shed each other's calls in turns.
#[test]
fn full_queue_sheds_no_call_of_a_namespace_with_one_more() {
    let mut limits = config([("compute", 1.0, 1)]);
    limits.queue.total = 3;
    let mut scheduler = Scheduler::new(limits, at(0.0));
    let of = |namespace: &str, object| Call { namespace: namespace.into(), ..call("Get", object) };
    for call in [of("x", "a"), of("x", "b"), of("y", "c")] {
        scheduler.submit(at(0.0), call).expect("place");
    }
    let refusal = scheduler.submit(at(0.0), of("y", "d")).expect_err("the namespaces would only swap");
    assert_eq!(refusal.reason, RefusalReason::QueueFull);
}
