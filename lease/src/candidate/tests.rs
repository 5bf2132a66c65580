use std::time::Duration;

use k8s_openapi::jiff::Timestamp;

use super::*;

mod election;

const SECOND: Duration = Duration::from_secs(1);

fn record(holder: Option<&str>, transitions: u32, renewed: i64) -> Record {
    Record {
        holder: holder.map(str::to_owned),
        transitions,
        renewed: Timestamp::from_second(renewed).ok(),
        version: format!("{transitions}.{renewed}"),
    }
}

fn candidate(now: Instant) -> Candidate {
    Candidate::new("a", Timing::default(), now)
}

/// One that leads in term 5 since `now`.
fn leader(now: Instant) -> Candidate {
    let mut leader = candidate(now);
    leader.saw(now, Some(record(None, 4, 0)));
    leader.wrote((now, now), record(Some("a"), 5, 1));
    leader
}

#[tokio::test(start_paused = true)]
async fn a_free_lease_is_taken_at_once_in_a_new_term() {
    let now = Instant::now();
    for (found, epoch, version) in [
        (None, 1, None),
        (Some(Record { version: "9".into(), ..Record::default() }), 1, Some("9")),
        (Some(record(None, 4, 0)), 5, Some("4.0")),
        (Some(record(Some("a"), 4, 0)), 5, Some("4.0")),
    ] {
        let mut free = candidate(now);
        assert_eq!(free.decide(now), Step::Look);
        free.saw(now, found.clone());
        let wanted = Step::Acquire { epoch, version: version.map(str::to_owned) };
        assert_eq!(free.decide(now), wanted, "{found:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_held_lease_is_taken_once_it_was_seen_unchanged_for_its_duration() {
    let begin = Instant::now();
    let mut standby = candidate(begin);
    standby.saw(begin, Some(record(Some("b"), 4, 0)));
    let renewed = begin + 9 * SECOND;
    standby.saw(renewed, Some(record(Some("b"), 4, 9)));
    // Another version of the same record, as an edited annotation makes, is no sign of life.
    let edited = Record { version: "edited".into(), ..record(Some("b"), 4, 9) };
    standby.saw(begin + 18 * SECOND, Some(edited));
    let expires = renewed + 10 * SECOND;
    assert_eq!(standby.decide(expires - SECOND / 10), Step::Wait(expires));
    assert_eq!(standby.decide(expires), Step::Acquire { epoch: 5, version: Some("edited".into()) });
}

#[tokio::test(start_paused = true)]
async fn who_held_a_lease_that_was_deleted_is_waited_for() {
    let begin = Instant::now();
    let mut standby = candidate(begin);
    standby.saw(begin, Some(record(Some("b"), 4, 0)));
    standby.saw(begin + SECOND, None);
    standby.saw(begin + 9 * SECOND, None);
    assert_eq!(standby.decide(begin + 9 * SECOND), Step::Wait(begin + 10 * SECOND));
    assert_eq!(standby.decide(begin + 10 * SECOND), Step::Acquire { epoch: 5, version: None });
}

#[tokio::test(start_paused = true)]
async fn a_leader_relies_on_the_start_of_its_last_renewal() {
    let begin = Instant::now();
    let mut leader = leader(begin);
    assert_eq!(leader.decide(begin + SECOND), Step::Wait(begin + 2 * SECOND));
    assert_eq!(leader.decide(begin + 2 * SECOND), Step::Renew { version: "5.1".into() });
    let (started, now) = (begin + 2 * SECOND, begin + 3 * SECOND);
    leader.wrote((started, now), record(Some("a"), 5, 2));
    assert_eq!(leader.term(), Some((5, started + 6 * SECOND)));
    assert_eq!(leader.decide(started + 6 * SECOND), Step::Lost(Lost::NotRenewed));
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_sees_another_holder_is_none() {
    let now = Instant::now();
    for (found, why) in [
        (Some(record(Some("b"), 6, 2)), Lost::TakenBy("b".into())),
        (Some(record(None, 5, 2)), Lost::Emptied),
        (None, Lost::Emptied),
    ] {
        let mut leader = leader(now);
        leader.saw(now + SECOND, found);
        assert_eq!(leader.decide(now + SECOND), Step::Lost(why));
    }
}

#[tokio::test(start_paused = true)]
async fn a_refused_renewal_is_looked_into_and_repeated_once_at_once() {
    let begin = Instant::now();
    let mut leader = leader(begin);
    let now = begin + 2 * SECOND;
    leader.failed(now, now);
    assert_eq!(leader.decide(now), Step::Look);
    let edited = Record { version: "edited".into(), ..record(Some("a"), 5, 1) };
    leader.saw(now, Some(edited));
    assert_eq!(leader.decide(now), Step::Renew { version: "edited".into() });
    leader.failed(now, now);
    assert_eq!(leader.decide(now), Step::Wait(now + 2 * SECOND), "no hot loop");
}

#[tokio::test(start_paused = true)]
async fn while_the_api_server_is_away_a_leader_keeps_its_term_and_no_longer() {
    let begin = Instant::now();
    let mut leader = leader(begin);
    let mut now = begin;
    let mut calls = 0;
    loop {
        match leader.decide(now) {
            Step::Wait(until) => now = until,
            Step::Renew { .. } => {
                calls += 1;
                leader.failed(now, now + SECOND);
                now += SECOND;
            }
            Step::Look => {
                calls += 1;
                leader.saw_nothing(now);
                now += SECOND;
            }
            Step::Lost(why) => {
                assert_eq!((why, now), (Lost::NotRenewed, begin + 6 * SECOND));
                break;
            }
            step @ Step::Acquire { .. } => panic!("{step:?}"),
        }
    }
    assert!((2..=5).contains(&calls), "{calls} calls");
}
