use super::*;
use crate::settings::Timing;

const NONE: Option<u16> = None;

fn lease(division: Division, free: bool, now: Instant) -> LeaseState {
    let free_from = if free { now } else { now + Timing::default().duration };
    LeaseState {
        view: View { free_from: Some(free_from), ..View::default() },
        division,
        ..LeaseState::default()
    }
}

fn set(shards: u16, before: Option<u16>) -> Division {
    Division::Set { shards, before }
}

#[tokio::test(start_paused = true)]
async fn a_new_division_starts_once_all_leases_are_free() {
    let now = Instant::now();
    let fresh = (Division::Fresh, true);
    for (mine, leases, wanted) in [
        (3, vec![fresh, fresh, fresh], Opening::New { before: None }),
        (3, vec![fresh, fresh], Opening::No),
        (3, vec![fresh, fresh, (Division::Unknown, false)], Opening::No),
        (1, vec![fresh], Opening::No),
        (1, vec![fresh, fresh], Opening::New { before: None }),
        // The first Lease states this division; other Leases of the division may be held.
        (2, vec![(set(2, NONE), false), (set(2, NONE), false)], Opening::Ours),
        // The first Lease states another division.
        (2, vec![(set(3, NONE), true), fresh], Opening::No),
        (2, vec![(set(3, NONE), true), fresh, fresh], Opening::New { before: Some(3) }),
        (2, vec![(set(3, NONE), false), fresh, fresh], Opening::No),
        (2, vec![(set(3, NONE), true), fresh, (set(3, NONE), false)], Opening::No),
        (3, vec![(set(1, NONE), true), fresh, fresh], Opening::New { before: Some(3) }),
        (1, vec![(set(3, NONE), true), (set(3, NONE), false), fresh], Opening::No),
        // The first Lease states this division, but the process that wrote it died before it observed the end of another division.
        (2, vec![(set(2, Some(3)), true), fresh], Opening::No),
        (2, vec![(set(2, Some(3)), true), fresh, (set(3, NONE), false)], Opening::No),
        (2, vec![(set(2, Some(3)), true), fresh, fresh], Opening::New { before: Some(3) }),
        // The first Lease was recreated while other Leases of the division are held.
        (2, vec![fresh, (set(2, NONE), false)], Opening::New { before: Some(2) }),
        (2, vec![fresh, (set(3, NONE), false)], Opening::No),
        (2, vec![fresh, (set(3, NONE), false), fresh], Opening::No),
    ] {
        let leases: Vec<_> = leases.iter().map(|(division, free)| lease(*division, *free, now)).collect();
        assert_eq!(opening(mine, &leases, now), wanted, "{mine} of {leases:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn only_a_later_read_proves_the_end_of_a_division() {
    let begin = Instant::now();
    let taken = begin + Timing::default().retry;
    let now = taken + Timing::default().retry;
    let first = lease(set(2, Some(3)), false, begin);
    let settled = |change: &dyn Fn(&mut LeaseState)| {
        let mut others = [lease(set(3, NONE), true, begin), lease(set(3, NONE), true, begin)];
        for other in &mut others {
            other.record_read(taken);
        }
        change(&mut others[1]);
        let [one, other] = others;
        is_settled(2, &[first.clone(), one, other], taken, now)
    };
    assert!(settled(&|_| ()));
    assert!(!settled(&|other| other.last_read = None));
    assert!(!settled(&|other| other.record_read(begin)), "an earlier read");
    assert!(!settled(&|other| other.view.free_from = Some(now + Timing::default().retry)), "held now");
    assert!(
        !settled(&|other| {
            other.view.free_from = Some(now);
            other.record_read(taken);
        }),
        "it expired after that read, so its holder may have renewed it"
    );
    assert!(settled(&|other| {
        *other = lease(set(2, NONE), false, now);
        other.record_read(taken);
    }));
}

#[tokio::test(start_paused = true)]
async fn a_division_is_confirmed_by_a_later_read_or_the_first_lease() {
    let begin = Instant::now();
    let now = begin + Timing::default().retry;
    let mut first = lease(set(2, NONE), false, begin);
    assert!(confirmed_in(2, &first, begin, now).is_none());
    first.until = Some(now);
    assert!(confirmed_in(2, &first, begin, now).is_none(), "held by this process until shortly before");
    first.until = Some(now + Timing::default().retry);
    assert!(confirmed_in(2, &first, begin, now).is_some());
    first.until = None;
    first.record_read(begin);
    assert!(confirmed_in(2, &first, begin, now).is_some());
    assert!(confirmed_in(2, &first, now, now).is_none(), "an earlier read");
    for other in [set(3, NONE), set(2, Some(3)), Division::Fresh] {
        first.division = other;
        first.record_read(now);
        assert!(confirmed_in(2, &first, begin, now).is_none(), "{other:?}");
    }
}

/// Returns every interleaving of the steps of two processes.
fn interleaved<T: Copy>(one: &[T], other: &[T]) -> Vec<Vec<T>> {
    let (Some((first, ones)), Some((second, others))) = (one.split_first(), other.split_first()) else {
        return vec![[one, other].concat()];
    };
    let begins = |step: &T, rest: Vec<Vec<T>>| -> Vec<Vec<T>> {
        rest.into_iter().map(|steps| [vec![*step], steps].concat()).collect()
    };
    [begins(first, interleaved(ones, other)), begins(second, interleaved(one, others))].concat()
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Crossing {
    /// The old process takes the third Lease, which it held before.
    OldTakes,
    /// The old process reads the first Lease.
    OldLooks,
    /// The new process has observed that all Leases are free, and takes the first Lease.
    NewTakes,
    NewLooks(usize),
}

#[tokio::test(start_paused = true)]
async fn one_of_two_concurrent_divisions_observes_the_other() {
    use Crossing::{NewLooks, NewTakes, OldLooks, OldTakes};
    let (begin, retry) = (Instant::now(), Timing::default().retry);
    let free = |shards| lease(set(shards, NONE), true, begin);
    let (mut old_works, mut new_works) = (0, 0);
    for steps in interleaved(&[OldTakes, OldLooks], &[NewTakes, NewLooks(1), NewLooks(2)]) {
        // The contents of the Leases, and the holder of the third Lease.
        let (mut first, mut third_is_held) = (set(3, NONE), false);
        let (mut seen_by_old, mut seen_by_new) = (free(3), [free(3), free(3), free(3)]);
        let (mut old_took, mut new_took) = (None, None);
        let mut now = begin;
        for step in &steps {
            now += retry / 10;
            match step {
                OldTakes => (old_took, third_is_held) = (Some(now), true),
                OldLooks => {
                    seen_by_old.division = first;
                    seen_by_old.record_read(now);
                }
                NewTakes => {
                    let Opening::New { before } = opening(2, &seen_by_new, now) else {
                        panic!("all Leases are free")
                    };
                    first = set(2, before);
                    seen_by_new[0].division = first;
                    seen_by_new[0].until = Some(now + 3 * retry);
                    new_took = Some(now);
                }
                NewLooks(at) => {
                    let held = *at == 2 && third_is_held;
                    seen_by_new[*at] = lease(set(3, NONE), !held, if held { now } else { begin });
                    seen_by_new[*at].record_read(now);
                }
            }
        }
        let old = confirmed_in(3, &seen_by_old, old_took.expect("took"), now).is_some();
        let settled = first == set(2, NONE) || is_settled(2, &seen_by_new, new_took.expect("took"), now);
        assert!(!(old && settled), "{steps:?}");
        (old_works, new_works) = (old_works + u32::from(old), new_works + u32::from(settled));
    }
    assert!(old_works > 0 && new_works > 0, "{old_works} and {new_works}");
}

#[tokio::test(start_paused = true)]
async fn a_missing_lease_is_clear_after_its_duration() {
    let now = Instant::now();
    let missing = |free| LeaseState { missing: true, ..lease(Division::Fresh, free, now) };
    let first = lease(Division::Fresh, true, now);
    let used = lease(set(2, NONE), true, now);
    for (mine, leases, wanted) in [
        (1, vec![first.clone(), missing(false)], Opening::New { before: None }),
        (3, vec![first.clone(), missing(false), missing(false)], Opening::New { before: None }),
        (1, vec![missing(true), missing(false)], Opening::No),
        (1, vec![missing(true), missing(true)], Opening::New { before: None }),
        (3, vec![used.clone(), lease(set(2, NONE), true, now), missing(false)], Opening::No),
        (1, vec![used.clone(), missing(false)], Opening::No),
        (1, vec![used, missing(true)], Opening::New { before: Some(2) }),
        // The second Lease still states the division, although the first Lease has lost its annotations.
        (1, vec![first.clone(), lease(set(3, NONE), true, now)], Opening::No),
        (1, vec![first, lease(set(3, NONE), true, now), missing(true)], Opening::New { before: Some(3) }),
    ] {
        assert_eq!(opening(mine, &leases, now), wanted, "{mine} of {leases:#?}");
    }
}
