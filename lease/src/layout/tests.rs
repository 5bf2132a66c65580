use super::*;
use crate::settings::Timing;

const NONE: Option<u16> = None;

/// A Lease of this division, that is free or not.
fn place(division: Division, free: bool, now: Instant) -> Place {
    let free_from = if free { now } else { now + Timing::default().duration };
    Place { view: View { free_from: Some(free_from), ..View::default() }, division, ..Place::default() }
}

fn set(shards: u16, before: Option<u16>) -> Division {
    Division::Set { shards, before }
}

#[tokio::test(start_paused = true)]
async fn the_first_lease_is_taken_for_another_division_once_all_leases_are_free() {
    let now = Instant::now();
    let fresh = (Division::Fresh, true);
    for (mine, leases, wanted) in [
        (3, vec![fresh, fresh, fresh], Opening::New { before: None }),
        (3, vec![fresh, fresh], Opening::No),
        (3, vec![fresh, fresh, (Division::Unknown, false)], Opening::No),
        (1, vec![fresh], Opening::No),
        (1, vec![fresh, fresh], Opening::New { before: None }),
        // Ours, also while others of it are held.
        (2, vec![(set(2, NONE), false), (set(2, NONE), false)], Opening::Ours),
        // Another.
        (2, vec![(set(3, NONE), true), fresh], Opening::No),
        (2, vec![(set(3, NONE), true), fresh, fresh], Opening::New { before: Some(3) }),
        (2, vec![(set(3, NONE), false), fresh, fresh], Opening::No),
        (2, vec![(set(3, NONE), true), fresh, (set(3, NONE), false)], Opening::No),
        (3, vec![(set(1, NONE), true), fresh, fresh], Opening::New { before: Some(3) }),
        (1, vec![(set(3, NONE), true), (set(3, NONE), false), fresh], Opening::No),
        // Ours, though another was not seen to be over when its writer died.
        (2, vec![(set(2, Some(3)), true), fresh], Opening::No),
        (2, vec![(set(2, Some(3)), true), fresh, (set(3, NONE), false)], Opening::No),
        (2, vec![(set(2, Some(3)), true), fresh, fresh], Opening::New { before: Some(3) }),
        // Made anew, while others of its division are held.
        (2, vec![fresh, (set(2, NONE), false)], Opening::New { before: Some(2) }),
        (2, vec![fresh, (set(3, NONE), false)], Opening::No),
        (2, vec![fresh, (set(3, NONE), false), fresh], Opening::No),
    ] {
        let places: Vec<_> = leases.iter().map(|(division, free)| place(*division, *free, now)).collect();
        assert_eq!(opening(mine, &places, now), wanted, "{mine} of {leases:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn only_a_look_that_was_started_later_tells_that_another_division_is_over() {
    let begin = Instant::now();
    let taken = begin + Timing::default().retry;
    let now = taken + Timing::default().retry;
    let first = place(set(2, Some(3)), false, begin);
    let settled = |change: &dyn Fn(&mut Place)| {
        let mut others = [place(set(3, NONE), true, begin), place(set(3, NONE), true, begin)];
        for other in &mut others {
            other.looked(taken);
        }
        change(&mut others[1]);
        let [one, other] = others;
        is_settled(2, &[first.clone(), one, other], taken, now)
    };
    assert!(settled(&|_| ()));
    assert!(!settled(&|other| other.looked = None));
    assert!(!settled(&|other| other.looked(begin)), "an earlier look");
    assert!(!settled(&|other| other.view.free_from = Some(now + Timing::default().retry)), "held now");
    assert!(
        !settled(&|other| {
            other.view.free_from = Some(now);
            other.looked(taken);
        }),
        "it expired since that look: its holder may have renewed it since"
    );
    assert!(settled(&|other| {
        *other = place(set(2, NONE), false, now);
        other.looked(taken);
    }));
}

#[tokio::test(start_paused = true)]
async fn a_division_is_confirmed_by_a_later_look_or_by_holding_it() {
    let begin = Instant::now();
    let now = begin + Timing::default().retry;
    let mut first = place(set(2, NONE), false, begin);
    assert!(!confirmed_in(2, &first, begin, now).is_some());
    first.until = Some(now);
    assert!(!confirmed_in(2, &first, begin, now).is_some(), "ours until a moment ago");
    first.until = Some(now + Timing::default().retry);
    assert!(confirmed_in(2, &first, begin, now).is_some());
    first.until = None;
    first.looked(begin);
    assert!(confirmed_in(2, &first, begin, now).is_some());
    assert!(!confirmed_in(2, &first, now, now).is_some(), "an earlier look");
    for other in [set(3, NONE), set(2, Some(3)), Division::Fresh] {
        first.division = other;
        first.looked(now);
        assert!(!confirmed_in(2, &first, begin, now).is_some(), "{other:?}");
    }
}
