//! The scheduler has no clock, and must tolerate any time that its caller passes.

use std::time::Duration;

use cloud_budget::{Call, CallResult, Class, Decision, Outcome, Scheduler, Time};

use crate::world::{call, config};

const RATE: f64 = 10.0;
const BURST: u32 = 20;
const DAY: Duration = Duration::from_hours(24);

fn scheduler(waiting: usize) -> Scheduler {
    let mut scheduler = Scheduler::new(config(RATE, BURST), Time::ZERO);
    for n in 0..waiting {
        let one = Call { reserve: true, ..call(Class::Traffic, "anyone", &n.to_string()) };
        scheduler.submit(Time::ZERO, one).expect("the queue has space");
    }
    scheduler
}

fn sent(scheduler: &mut Scheduler, now: Time) -> u32 {
    let mut sent = 0;
    loop {
        match scheduler.next(now) {
            Decision::Send { ticket, .. } => {
                sent += 1;
                let answer = CallResult { outcome: Outcome::Answered, latency: Duration::ZERO, hint: None };
                scheduler.answered(now, ticket, answer);
            }
            Decision::Refuse(ticket, refusal) => panic!("{ticket:?} has no deadline: {refusal:?}"),
            Decision::Wait(_) => return sent,
        }
    }
}

#[test]
fn a_forward_jump_of_time_only_fills_a_bucket() {
    let mut scheduler = scheduler(200);
    let mut now = Time::ZERO;
    for jump in [Duration::ZERO, Duration::from_secs(3), DAY, 365 * DAY, 100 * 365 * DAY] {
        now = now + jump;
        assert_eq!(sent(&mut scheduler, now), BURST, "after {jump:?}");
        assert_eq!(
            sent(&mut scheduler, now + Duration::from_millis(200)),
            2,
            "and then the rate, after {jump:?}"
        );
    }
}

#[test]
fn time_that_goes_back_creates_no_tokens_and_no_debts() {
    let mut scheduler = scheduler(200);
    let noon = Time::ZERO + DAY;
    assert_eq!(sent(&mut scheduler, noon), BURST);
    for back in [Duration::from_nanos(1), Duration::from_hours(5), DAY] {
        assert_eq!(sent(&mut scheduler, noon - back), 0, "{back:?} back");
    }
    assert_eq!(sent(&mut scheduler, noon), 0);
    assert_eq!(
        sent(&mut scheduler, noon + Duration::from_millis(500)),
        5,
        "the same number as without the jump"
    );
}
