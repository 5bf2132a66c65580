use std::{collections::BTreeMap, sync::Arc, time::Duration};

use crate::{Answer, BucketConfig, Call, Class, Config, Decision, Outcome, RateLimit, Scheduler, Time};

fn call(object: &str) -> Call {
    Call {
        family: "compute",
        operation: "GetInstance",
        class: Class::Interactive,
        controller: "service-controller",
        reserve: true,
        object: Arc::from(object),
        cost: 1,
        deadline: None,
        write: false,
        self_check: false,
    }
}

#[test]
fn a_burst_goes_at_once_and_the_rest_at_the_rate() {
    let compute = BucketConfig { parent: None, limit: RateLimit { rate: 10.0, burst: 3 }, adaptive: None };
    let config = Config { buckets: BTreeMap::from([("compute".to_owned(), compute)]), ..Config::default() };
    let mut scheduler = Scheduler::new(config, Time::ZERO);
    for index in 0..6 {
        scheduler.submit(Time::ZERO, call(&format!("{}", index % 2))).expect("no deadline");
    }
    let (mut now, mut sent) = (Time::ZERO, Vec::new());
    loop {
        match scheduler.next(now) {
            Decision::Send { ticket, waited } => {
                sent.push((ticket.0, waited.as_millis()));
                let answer =
                    Answer { outcome: Outcome::Answered, latency: Duration::from_millis(50), hint: None };
                scheduler.answered(now, ticket, answer);
            }
            Decision::Wait(Some(until)) => now = until,
            Decision::Wait(None) => break,
            Decision::Refuse(ticket, refusal) => panic!("{ticket:?}: {refusal}"),
        }
    }
    assert_eq!(sent, [(1, 0), (2, 0), (3, 0), (4, 100), (5, 200), (6, 300)]);
}
