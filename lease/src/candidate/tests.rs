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
        ..Record::default()
    }
}

fn released(transitions: u32) -> Record {
    Record { released: true, ..record(None, transitions, 0) }
}

fn candidate(now: Instant) -> Candidate {
    Candidate::new("a", Timing::default(), now)
}

/// Returns a candidate that has led in term 5 since `now`.
fn leader(now: Instant) -> Candidate {
    let mut leader = candidate(now);
    leader.saw(now, Some(released(4)));
    leader.wrote(now, now, record(Some("a"), 5, 1));
    leader
}

/// Returns the action that acquires a lease of this version. `transitions` is the new value of `leaseTransitions`.
fn acquire(transitions: u32, version: Option<&str>) -> Action {
    // If the Lease has no acquire time, the epoch is the number of transitions.
    let after = u64::from(transitions) - 1;
    Action::Acquire(Acquisition { transitions, after, version: version.map(str::to_owned) })
}

#[tokio::test(start_paused = true)]
async fn a_free_lease_is_taken_at_once_in_a_new_term() {
    let now = Instant::now();
    for (found, wanted) in [
        (Record { version: "9".into(), ..Record::default() }, acquire(1, Some("9"))),
        (released(4), acquire(5, Some("4.0"))),
    ] {
        let mut free = candidate(now);
        assert_eq!(free.decide(now), Action::Read);
        free.saw(now, Some(found.clone()));
        assert_eq!(free.decide(now), wanted, "{found:?}");
    }
}

// Behaviour: P10
#[tokio::test(start_paused = true)]
async fn an_emptied_or_missing_lease_is_taken_after_its_duration() {
    let begin = Instant::now();
    for (found, wanted) in [(None, acquire(1, None)), (Some(record(None, 4, 0)), acquire(5, Some("4.0")))] {
        let mut fresh = candidate(begin);
        for seconds in [0, 5, 9] {
            fresh.saw(begin + seconds * SECOND, found.clone());
        }
        assert_eq!(fresh.decide(begin + 9 * SECOND), Action::Wait(begin + 10 * SECOND), "{found:?}");
        assert_eq!(fresh.decide(begin + 10 * SECOND), wanted, "{found:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_goes_back_in_time_is_taken_once_it_expired() {
    let begin = Instant::now();
    // In the restored record, the Lease was released, emptied, or never held. Now another process relies on it.
    for (found, transitions) in [(released(2), 2), (record(None, 2, 0), 2), (Record::default(), 0)] {
        let mut standby = candidate(begin);
        standby.saw(begin, Some(record(Some("b"), 4, 0)));
        standby.saw(begin + SECOND, Some(found.clone()));
        assert!(matches!(standby.decide(begin + 10 * SECOND), Action::Read | Action::Wait(_)), "{found:?}");
        let Action::Acquire(taken) = standby.decide(begin + 11 * SECOND) else { panic!("{found:?}") };
        assert_eq!((taken.transitions, taken.after), (transitions + 1, 4), "{found:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_old_observation_creates_no_lease() {
    let begin = Instant::now();
    let mut fresh = candidate(begin);
    fresh.saw(begin, None);
    // Another client may have created and deleted the Lease since the last read.
    let now = begin + 12 * SECOND;
    assert_eq!(fresh.decide(now), Action::Read);
    fresh.saw(now, None);
    assert_eq!(fresh.decide(now + SECOND), Action::Wait(now + 2 * SECOND));
}

#[tokio::test(start_paused = true)]
async fn a_leader_recreates_its_deleted_lease_at_once() {
    let begin = Instant::now();
    let mut leader = leader(begin);
    let now = begin + SECOND;
    leader.saw(now, None);
    assert_eq!(leader.decide(now), Action::Lost(Lost::Emptied));
    leader.resign();
    let now = begin + 2 * SECOND;
    assert_eq!(leader.decide(now), acquire(6, None));
    leader.wrote(now, now, record(Some("a"), 6, 2));
    assert_eq!(
        (leader.term(), leader.since()),
        (Some((6, now + 6 * SECOND)), 5),
        "no other process had a term"
    );
}

#[tokio::test(start_paused = true)]
async fn consecutive_terms_end_with_a_term_of_another_process() {
    let begin = Instant::now();
    for (found, since) in [
        (record(Some("a"), 5, 1), 5),
        // This process acquired the Lease without getting an answer.
        (record(Some("a"), 6, 2), 5),
        (record(None, 5, 1), 5),
        (record(None, 5, 2), 5),
        (released(6), 7),
        (record(None, 6, 2), 7),
    ] {
        let mut leader = leader(begin);
        leader.resign();
        let now = begin + 11 * SECOND;
        leader.failed(now, now);
        leader.saw(now, Some(found.clone()));
        let now = now + 10 * SECOND;
        let Action::Acquire(taken) = leader.decide(now) else { panic!("{found:?}") };
        leader.wrote(now, now, record(Some("a"), taken.transitions, 3));
        assert_eq!(leader.since(), since, "{found:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_held_lease_is_taken_after_its_duration_unchanged() {
    let begin = Instant::now();
    let mut standby = candidate(begin);
    standby.saw(begin, Some(record(Some("b"), 4, 0)));
    let renewed = begin + 9 * SECOND;
    standby.saw(renewed, Some(record(Some("b"), 4, 9)));
    // The same record in another version, such as after an edited annotation, is not a renewal.
    let edited = Record { version: "edited".into(), ..record(Some("b"), 4, 9) };
    standby.saw(begin + 18 * SECOND, Some(edited));
    let expires = renewed + 10 * SECOND;
    assert_eq!(standby.decide(expires - SECOND / 10), Action::Wait(expires));
    assert_eq!(standby.decide(expires), acquire(5, Some("edited")));
}

#[tokio::test(start_paused = true)]
async fn the_holder_of_a_deleted_lease_is_waited_for() {
    let begin = Instant::now();
    let mut standby = candidate(begin);
    standby.saw(begin, Some(record(Some("b"), 4, 0)));
    standby.saw(begin + SECOND, None);
    standby.saw(begin + 5 * SECOND, None);
    standby.saw(begin + 10 * SECOND, None);
    // The holder may have renewed the Lease, unobserved, before the Lease was deleted.
    assert_eq!(standby.decide(begin + 10 * SECOND), Action::Wait(begin + 11 * SECOND));
    assert_eq!(standby.decide(begin + 11 * SECOND), acquire(5, None));
}

#[tokio::test(start_paused = true)]
async fn a_leader_relies_on_the_start_of_its_last_renewal() {
    let begin = Instant::now();
    let mut leader = leader(begin);
    assert_eq!(leader.decide(begin + SECOND), Action::Wait(begin + 2 * SECOND));
    assert_eq!(leader.decide(begin + 2 * SECOND), Action::Renew { version: "5.1".into() });
    let (started, now) = (begin + 2 * SECOND, begin + 3 * SECOND);
    leader.wrote(started, now, record(Some("a"), 5, 2));
    assert_eq!(leader.term(), Some((5, started + 6 * SECOND)));
    assert_eq!(leader.decide(started + 6 * SECOND), Action::Lost(Lost::NotRenewed));
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_observes_another_holder_stops() {
    let now = Instant::now();
    for (found, why) in [
        (Some(record(Some("b"), 6, 2)), Lost::TakenBy("b".into())),
        (Some(record(None, 5, 2)), Lost::Emptied),
        (None, Lost::Emptied),
    ] {
        let mut leader = leader(now);
        leader.saw(now + SECOND, found);
        assert_eq!(leader.decide(now + SECOND), Action::Lost(why));
    }
}

#[tokio::test(start_paused = true)]
async fn a_refused_renewal_is_followed_by_a_read_and_a_retry() {
    let begin = Instant::now();
    let mut leader = leader(begin);
    let now = begin + 2 * SECOND;
    leader.failed(now, now);
    assert_eq!(leader.decide(now), Action::Read);
    let edited = Record { version: "edited".into(), ..record(Some("a"), 5, 1) };
    leader.saw(now, Some(edited));
    assert_eq!(leader.decide(now), Action::Renew { version: "edited".into() });
    leader.failed(now, now);
    assert_eq!(leader.decide(now), Action::Wait(now + 2 * SECOND), "the candidate runs in a busy loop");
}

#[tokio::test(start_paused = true)]
async fn without_api_server_a_leader_keeps_its_term_until_expiry() {
    let begin = Instant::now();
    let mut leader = leader(begin);
    let mut now = begin;
    let mut calls = 0;
    loop {
        match leader.decide(now) {
            Action::Wait(until) => now = until,
            Action::Renew { .. } => {
                calls += 1;
                leader.failed(now, now + SECOND);
                now += SECOND;
            }
            Action::Read => {
                calls += 1;
                leader.saw_nothing(now);
                now += SECOND;
            }
            Action::Lost(why) => {
                assert_eq!((why, now), (Lost::NotRenewed, begin + 6 * SECOND));
                break;
            }
            step @ Action::Acquire(_) => panic!("{step:?}"),
        }
    }
    assert!((2..=5).contains(&calls), "{calls} calls");
}
