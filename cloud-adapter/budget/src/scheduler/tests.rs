mod deadlines;
mod retries;
mod settings;
mod shadow;
mod waits;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use crate::{
    Adaptive, AfterCall, BreakerState, BucketConfig, BucketReport, Call, CallResult, Class, Config, Decision,
    Hint, Mode, Outcome, RateLimit, RefusalReason, Scheduler, Ticket, Time,
};

fn at(seconds: f64) -> Time {
    Time::ZERO + Duration::from_secs_f64(seconds)
}

fn config<const N: usize>(buckets: [(&str, f64, u32); N]) -> Config {
    let bucket = |rate, burst| BucketConfig {
        parent: None,
        limit: RateLimit { rate, burst },
        adaptive: Some(Adaptive::default()),
    };
    let buckets = buckets.map(|(name, rate, burst)| (name.to_owned(), bucket(rate, burst)));
    Config { buckets: BTreeMap::from(buckets), ..Config::default() }
}

fn call(operation: &'static str, object: &str) -> Call {
    Call {
        family: "compute",
        operation,
        class: Class::Interactive,
        controller: "service-controller",
        reserve: true,
        namespace: Arc::from(""),
        object: Arc::from(object),
        cost: 1,
        deadline: None,
        self_check: false,
    }
}

fn answer(outcome: Outcome) -> CallResult {
    CallResult { outcome, latency: Duration::from_millis(50), hint: None }
}

fn sent(scheduler: &mut Scheduler, now: Time) -> Vec<Ticket> {
    let mut sent = Vec::new();
    loop {
        match scheduler.next(now) {
            Decision::Send { ticket, .. } => sent.push(ticket),
            Decision::Refuse(ticket, refusal) => panic!("{ticket:?}: {refusal}"),
            Decision::Wait(_) => return sent,
        }
    }
}

fn bucket(scheduler: &Scheduler, now: Time, name: &str) -> BucketReport {
    let report = scheduler.report(now);
    report.buckets.into_iter().find(|bucket| bucket.name == name).expect("known")
}

#[test]
fn a_burst_is_sent_at_once_and_objects_take_turns() {
    let mut scheduler = Scheduler::new(config([("compute", 10.0, 3)]), at(0.0));
    for object in ["a", "a", "a", "b", "b", "b"] {
        scheduler.submit(at(0.0), call("Get", object)).expect("place");
    }
    let (mut now, mut order) = (at(0.0), Vec::new());
    loop {
        match scheduler.next(now) {
            Decision::Send { ticket, waited } => order.push((ticket.0, waited.as_millis())),
            Decision::Wait(Some(until)) => now = until,
            Decision::Wait(None) => break,
            Decision::Refuse(ticket, refusal) => panic!("{ticket:?}: {refusal}"),
        }
    }
    assert_eq!(order, [(1, 0), (4, 0), (2, 0), (5, 100), (3, 200), (6, 300)]);
}

#[test]
fn a_call_pays_from_all_its_buckets_or_from_none() {
    let limits = config([("account", 1.0, 5), ("compute", 1.0, 3), ("compute:List", 1.0, 1)]);
    let mut scheduler = Scheduler::new(limits, at(0.0));
    let tokens = |scheduler: &Scheduler| {
        ["account", "compute", "compute:List"]
            .map(|name| bucket(scheduler, at(0.0), name).tokens.round().to_string())
    };
    scheduler.submit(at(0.0), call("List", "a")).expect("place");
    scheduler.submit(at(0.0), call("List", "b")).expect("place");
    assert_eq!(sent(&mut scheduler, at(0.0)), [Ticket(1)]);
    assert_eq!(tokens(&scheduler), ["4", "2", "0"]);
    scheduler.submit(at(0.0), call("Get", "c")).expect("place");
    assert_eq!(sent(&mut scheduler, at(0.0)), [Ticket(3)], "the blocked call does not delay other calls");
    assert_eq!(tokens(&scheduler), ["3", "1", "0"]);
    assert_eq!(bucket(&scheduler, at(0.0), "account").queued, 1);
}

#[test]
fn an_unconfigured_family_is_slow() {
    let mut scheduler = Scheduler::new(Config::default(), at(0.0));
    for object in 0..20 {
        scheduler.submit(at(0.0), call("Get", &object.to_string())).expect("place");
    }
    assert_eq!(sent(&mut scheduler, at(0.0)).len(), 10);
    let compute = bucket(&scheduler, at(0.0), "compute");
    assert_eq!((compute.ceiling, compute.calls, compute.queued), (5.0, 10, 10));
}

#[test]
fn a_new_leader_begins_with_empty_buckets_and_no_reserve() {
    let mut scheduler = Scheduler::new(config([("compute", 1.0, 20)]), at(0.0));
    scheduler.empty(at(0.0));
    for object in 0..10 {
        let call = Call { reserve: false, ..call("Get", &object.to_string()) };
        scheduler.submit(at(0.0), call).expect("place");
    }
    assert_eq!(sent(&mut scheduler, at(0.0)), []);
    assert_eq!(sent(&mut scheduler, at(1.0)), [Ticket(1)], "the reserve is not filled first");
    let later = sent(&mut scheduler, at(9.5));
    assert_eq!(later.len(), 2, "8.5 tokens have accumulated: 6 are kept from now on");
}

#[test]
fn nothing_is_sent_at_or_after_the_end_of_the_lease() {
    let mut scheduler = Scheduler::new(config([("compute", 1.0, 20)]), at(0.0));
    scheduler.submit(at(0.0), call("Get", "a")).expect("place");
    scheduler.allow_until(Some(at(5.0)));
    assert_eq!(scheduler.next(at(5.0)), Decision::Wait(None));
    scheduler.allow_until(None);
    assert_eq!(sent(&mut scheduler, at(5.0)), [Ticket(1)]);
}

#[test]
fn no_more_calls_are_in_flight_than_configured() {
    let limits = Config { concurrency: [("compute".to_owned(), 2)].into(), ..config([("compute", 1.0, 20)]) };
    let mut scheduler = Scheduler::new(limits, at(0.0));
    for object in ["a", "b", "c"] {
        scheduler.submit(at(0.0), call("Get", object)).expect("place");
    }
    assert_eq!(sent(&mut scheduler, at(0.0)).len(), 2);
    scheduler.answered(at(0.0), Ticket(1), answer(Outcome::Answered));
    assert_eq!(sent(&mut scheduler, at(0.0)), [Ticket(3)]);
}

#[test]
fn a_throttled_call_is_sent_once_more_and_before_all_others() {
    let mut scheduler = Scheduler::new(config([("compute", 1.0, 1)]), at(0.0));
    for object in ["a", "b"] {
        scheduler.submit(at(0.0), call("Get", object)).expect("place");
    }
    assert_eq!(sent(&mut scheduler, at(0.0)), [Ticket(1)]);
    let throttled =
        || answer(Outcome::Throttled { retry_after: Some(Duration::from_secs(10)), bucket: None });
    assert_eq!(scheduler.answered(at(0.0), Ticket(1), throttled()), AfterCall::Again);
    assert_eq!(sent(&mut scheduler, at(9.999)), []);
    assert_eq!(sent(&mut scheduler, at(12.0)), [Ticket(1)], "one probe is sent: the call that was throttled");
    assert_eq!(scheduler.answered(at(12.0), Ticket(1), throttled()), AfterCall::Done);
    let refusal = scheduler.submit(at(12.0), Call { deadline: Some(at(20.0)), ..call("Get", "c") });
    assert_eq!(refusal.expect_err("the new pause is longer").reason, RefusalReason::Throttled);
    assert_eq!(bucket(&scheduler, at(12.0), "compute").throttled, 2);
}

#[test]
fn with_rejected_credentials_only_self_checks_pass() {
    let mut scheduler = Scheduler::new(config([("compute", 1.0, 20)]), at(0.0));
    let check = || Call { self_check: true, ..call("WhoAmI", "credentials") };
    let waiting = scheduler.submit(at(0.0), call("Get", "a")).expect("place");
    scheduler.self_check(at(0.0), false);
    let refusal = scheduler.submit(at(0.0), call("Get", "b")).expect_err("rejected");
    assert_eq!(refusal.reason, RefusalReason::Rejected);
    assert!(refusal.retry_after >= Duration::from_secs(30), "{refusal:?}");
    let check = scheduler.submit(at(0.0), check()).expect("place");
    assert_eq!(scheduler.next(at(0.0)), Decision::Wait(Some(at(30.0))));
    assert_eq!(sent(&mut scheduler, at(30.0)), [check]);
    scheduler.answered(at(30.0), check, answer(Outcome::Answered));
    scheduler.self_check(at(30.0), true);
    assert_eq!(sent(&mut scheduler, at(30.0)), [waiting]);
}

#[test]
fn a_failing_family_opens_its_breaker_and_is_probed() {
    let mut scheduler = Scheduler::new(config([("compute", 100.0, 100)]), at(0.0));
    for object in 0..40 {
        scheduler.submit(at(0.0), call("Get", &object.to_string())).expect("place");
    }
    while let Some(ticket) = sent(&mut scheduler, at(0.0)).first().copied() {
        scheduler.answered(at(0.0), ticket, answer(Outcome::Failed));
        for other in 1..=40 {
            scheduler.answered(at(0.0), Ticket(other), answer(Outcome::Failed));
        }
    }
    let report = scheduler.report(at(0.0));
    assert_eq!(report.breakers, [("compute".to_owned(), BreakerState::Open { retry_at: at(15.0) })]);
    let refusal = scheduler.submit(at(0.0), call("Get", "x")).expect_err("open");
    assert_eq!(refusal.reason, RefusalReason::BreakerOpen);
    assert_eq!(sent(&mut scheduler, at(15.0)).len(), 1);
}

#[test]
fn a_lower_count_of_the_vendor_is_adopted() {
    let mut scheduler = Scheduler::new(config([("account", 1.0, 50), ("compute", 1.0, 50)]), at(0.0));
    scheduler.submit(at(0.0), call("Get", "a")).expect("place");
    assert_eq!(sent(&mut scheduler, at(0.0)).len(), 1);
    let hint = Hint { bucket: None, remaining: 30, limit: Some(100), reset: None };
    scheduler.answered(at(0.0), Ticket(1), CallResult { hint: Some(hint), ..answer(Outcome::Answered) });
    let account = bucket(&scheduler, at(0.0), "account");
    assert!((account.tokens - 10.0).abs() < 0.01, "30 remaining calls minus a fifth of 100: {account:?}");
    assert_eq!(account.corrected, 1);
    assert_eq!(bucket(&scheduler, at(0.0), "compute").corrected, 0);
}

#[test]
fn shadow_mode_sends_waiting_calls_and_enforcing_drops_copies() {
    let limits = config([("compute", 1.0, 1)]);
    let mut scheduler = Scheduler::new(limits.clone(), at(0.0));
    for object in ["a", "b", "c"] {
        scheduler.submit(at(0.0), call("Get", object)).expect("place");
    }
    assert_eq!(sent(&mut scheduler, at(0.0)), [Ticket(1)]);
    scheduler.configure(at(0.0), Config { mode: Mode::Shadow, ..limits.clone() });
    assert_eq!(sent(&mut scheduler, at(0.0)), [Ticket(2), Ticket(3)]);
    assert_eq!(sent(&mut scheduler, at(1.5)), []);
    assert_eq!(bucket(&scheduler, at(1.5), "compute").would_delay, 1);
    scheduler.configure(at(1.5), limits);
    assert_eq!(
        bucket(&scheduler, at(1.5), "compute").queued,
        0,
        "the call of the last shadow has already been sent"
    );
    assert_eq!(sent(&mut scheduler, at(9.0)), []);
}

#[test]
fn new_buckets_begin_empty_and_unconfigured_ones_are_slow() {
    let mut scheduler = Scheduler::new(config([("compute", 50.0, 50)]), at(0.0));
    scheduler.submit(at(0.0), call("Get", "a")).expect("place");
    assert_eq!(sent(&mut scheduler, at(0.0)).len(), 1);
    scheduler.configure(at(0.0), config([("account", 1.0, 10)]));
    let report = scheduler.report(at(0.0));
    let reported: Vec<_> =
        report.buckets.iter().map(|b| (b.name.as_str(), b.ceiling, b.tokens.round())).collect();
    assert_eq!(reported, [("account", 1.0, 0.0), ("compute", 5.0, 10.0)]);
}
