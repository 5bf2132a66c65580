//! Tests each cause of a removal, and what happens if too many removals are due.

use insta::assert_snapshot;
use proptest::collection::vec;
use proptest::prelude::{Just, Strategy, any, prop_oneof, proptest};

use super::*;
use crate::plan::route::NextHop;

const GRACE: Duration = Duration::from_secs(10);
const WINDOW: Duration = Duration::from_mins(5);

fn guard() -> (Guard, Instant) {
    let now = Instant::now();
    (Guard::new(GRACE, Limits { share: 30, number: 20, window: WINDOW }, now), now)
}

fn removal(n: usize, cause: Cause) -> Removal {
    Removal {
        cause,
        vendor_id: format!("r{n}"),
        to: format!("10.{}.{}.0/24", n / 256, n % 256).parse().expect("a CIDR"),
        node_uid: Some(format!("n{n}")),
        via: Some(NextHop::default()),
    }
}

fn plan(n_ours: usize, removals: impl IntoIterator<Item = Removal>) -> Plan {
    Plan { n_ours, removals: removals.into_iter().collect(), ..Plan::default() }
}

fn unasked(n: usize) -> Vec<Removal> {
    (0..n).map(|n| removal(n, Cause::Unasked)).collect()
}

/// Returns how many removals are allowed, how many are held, and when the next removal is allowed, in seconds.
fn judged(guard: &mut Guard, mut plan: Plan, nodes: Nodes<'_>, now: Instant) -> (usize, usize, Option<u64>) {
    let judgement = guard.judge(&mut plan, nodes, now);
    (plan.removals.len(), judgement.n_held(), judgement.again.map(|again| again.as_secs()))
}

fn gone(n: usize, at: Instant) -> BTreeMap<String, Instant> {
    (0..n).map(|n| (format!("n{n}"), at)).collect()
}

#[tokio::test(start_paused = true)]
async fn each_cause_has_its_delay() {
    let (begin, none) = (Instant::now(), BTreeMap::new());
    let (grace, window) = (begin + GRACE, begin + WINDOW + GRACE);
    let seen = gone(1, begin);
    for (name, cause, n_listed, deleted, at, expected) in [
        ("another route to the destination", Cause::Replaced, 0, &none, begin, (1, 0, None)),
        ("the instance is gone, recently", Cause::LeadsNowhere, 0, &none, begin, (0, 0, Some(10))),
        ("the instance is gone", Cause::LeadsNowhere, 0, &none, grace, (1, 0, None)),
        ("the node was deleted, recently", Cause::Unasked, 0, &seen, begin, (0, 0, Some(10))),
        ("the node was deleted", Cause::Unasked, 0, &seen, grace, (1, 0, None)),
        ("the node is missing, recently", Cause::Unasked, 9, &none, begin, (0, 0, Some(10))),
        ("the node is missing", Cause::Unasked, 9, &none, grace, (1, 0, None)),
        ("all nodes are missing", Cause::Unasked, 0, &none, window, (0, 1, None)),
    ] {
        let mut guard = Guard::new(GRACE, Limits { share: 30, number: 20, window: WINDOW }, begin);
        let nodes = Nodes { n_listed, deleted };
        let asked = || plan(10, [removal(0, cause)]);
        guard.judge(&mut asked(), nodes, begin);
        assert_eq!(judged(&mut guard, asked(), nodes, at), expected, "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn after_a_start_routes_of_missing_nodes_are_removed_gradually() {
    let (mut guard, begin) = guard();
    let (none, seen) = (BTreeMap::new(), gone(2, begin));
    let missing = Nodes { n_listed: 8, deleted: &none };
    guard.judge(&mut plan(10, unasked(2)), missing, begin);
    assert_eq!(judged(&mut guard, plan(10, unasked(2)), missing, begin + GRACE), (1, 0, Some(90)));
    let now = begin + Duration::from_secs(101);
    assert_eq!(judged(&mut guard, plan(10, unasked(2)), missing, now), (2, 0, None));

    let mut guard = Guard::new(GRACE, Limits { share: 30, number: 20, window: WINDOW }, begin);
    let deleted = Nodes { n_listed: 8, deleted: &seen };
    assert_eq!(judged(&mut guard, plan(10, unasked(2)), deleted, begin + GRACE), (2, 0, None));
}

#[tokio::test(start_paused = true)]
async fn replica_that_waited_for_long_starts_again() {
    let (mut guard, begin) = guard();
    let term = begin + Duration::from_hours(1);
    guard.begins(Limits { share: 30, number: 20, window: WINDOW }, term);
    let none = BTreeMap::new();
    let missing = Nodes { n_listed: 8, deleted: &none };
    guard.judge(&mut plan(10, unasked(2)), missing, term);
    assert_eq!(judged(&mut guard, plan(10, unasked(2)), missing, term + GRACE), (1, 0, Some(90)));
}

/// Of four routes, two are removed one after the other, the first at once. Three of six routes exceed the limit, so none of them is
/// removed.
// Behaviour: R11
#[tokio::test(start_paused = true)]
async fn after_a_start_one_removal_is_allowed_and_of_too_many_none() {
    let (mut guard, begin) = guard();
    let none = BTreeMap::new();
    let nodes = Nodes { n_listed: 2, deleted: &none };
    guard.judge(&mut plan(4, unasked(2)), nodes, begin);
    let at = |seconds| begin + Duration::from_secs(seconds);
    assert_eq!(judged(&mut guard, plan(4, unasked(2)), nodes, at(10)), (1, 0, Some(140)));
    let second = || plan(3, [removal(1, Cause::Unasked)]);
    assert_eq!(judged(&mut guard, second(), nodes, at(149)), (0, 0, Some(1)));
    assert_eq!(judged(&mut guard, second(), nodes, at(151)), (1, 0, None));
    let third = plan(2, [removal(2, Cause::Unasked)]);
    guard.judge(&mut plan(2, [removal(2, Cause::Unasked)]), nodes, at(160));
    assert_eq!(judged(&mut guard, third, nodes, at(171)), (0, 1, None), "two were removed within the window");

    let mut guard = Guard::new(GRACE, Limits { share: 30, number: 20, window: WINDOW }, begin);
    guard.judge(&mut plan(6, unasked(3)), nodes, begin);
    assert_eq!(judged(&mut guard, plan(6, unasked(3)), nodes, at(10)), (0, 3, None));
    let no_nodes = Nodes { n_listed: 0, deleted: &none };
    assert_eq!(judged(&mut guard, plan(6, unasked(1)), no_nodes, at(10)), (0, 1, None), "no node is listed");
}

#[tokio::test(start_paused = true)]
async fn too_many_missing_nodes_are_held_until_they_are_back() {
    let (mut guard, begin) = guard();
    let deleted = BTreeMap::new();
    let nodes = Nodes { n_listed: 60, deleted: &deleted };
    guard.judge(&mut plan(100, unasked(40)), nodes, begin);
    for hours in 1..10 {
        let now = begin + Duration::from_hours(hours);
        assert_eq!(judged(&mut guard, plan(100, unasked(40)), nodes, now), (0, 40, None), "{hours} h");
    }
    let now = begin + Duration::from_hours(10);
    assert_eq!(
        judged(&mut guard, plan(100, []), Nodes { n_listed: 100, deleted: &deleted }, now),
        (0, 0, None)
    );
    assert_eq!(judged(&mut guard, plan(100, unasked(3)), nodes, now), (0, 0, Some(10)), "counted again");
}

#[tokio::test(start_paused = true)]
async fn routes_of_deleted_nodes_have_both_limits() {
    let (mut guard, begin) = guard();
    let (now, deleted) = (begin + GRACE, gone(100, begin));
    let nodes = Nodes { n_listed: 0, deleted: &deleted };
    assert_eq!(judged(&mut guard, plan(60, unasked(19)), nodes, now), (0, 0, Some(170)), "more than 30 %");
    assert_eq!(
        judged(&mut guard, plan(60, unasked(19)), nodes, begin + LISTED),
        (0, 19, None),
        "the held removals are reported"
    );
    assert_eq!(
        judged(&mut guard, plan(100, unasked(21)), nodes, begin + LISTED),
        (0, 21, None),
        "more than 20"
    );
    assert_eq!(judged(&mut guard, plan(100, unasked(20)), nodes, now), (20, 0, None));
    assert_eq!(
        judged(&mut guard, plan(100, unasked(20)), nodes, now),
        (20, 0, None),
        "a retry does not count"
    );
    let nowhere = (20..40).map(|n| removal(n, Cause::LeadsNowhere));
    assert_eq!(judged(&mut guard, plan(80, nowhere), nodes, now).0, 20, "their instances are gone");
}

#[tokio::test(start_paused = true)]
async fn node_that_returns_within_the_grace_loses_no_route() {
    let (mut guard, begin) = guard();
    let deleted = gone(1, begin);
    let nodes = Nodes { n_listed: 9, deleted: &deleted };
    assert_eq!(judged(&mut guard, plan(9, unasked(1)), nodes, begin), (0, 0, Some(10)));
    assert_eq!(judged(&mut guard, plan(9, []), nodes, begin + Duration::from_secs(9)), (0, 0, None));
}

#[tokio::test(start_paused = true)]
async fn route_is_removed_with_the_node_that_it_served_last() {
    let (mut guard, begin) = guard();
    let recreated =
        Plan { successors: BTreeMap::from([("r0".to_owned(), "n0-recreated".to_owned())]), ..plan(9, []) };
    let former = gone(1, begin);
    let nodes = Nodes { n_listed: 9, deleted: &former };
    assert_eq!(judged(&mut guard, recreated, nodes, begin), (0, 0, None));
    assert_eq!(guard.successors().collect::<Vec<_>>(), ["n0-recreated"]);

    let later = begin + Duration::from_mins(1);
    assert_eq!(
        judged(&mut guard, plan(9, unasked(1)), nodes, later),
        (0, 0, Some(10)),
        "the removal has its own grace period"
    );
    assert_eq!(guard.successors().count(), 1, "as long as the route is to be removed");
    let none_listed = Nodes { n_listed: 0, ..nodes };
    assert_eq!(judged(&mut guard, plan(9, unasked(1)), none_listed, later + GRACE), (0, 1, None), "missing");
    let seen = BTreeMap::from([("n0-recreated".to_owned(), later)]);
    let nodes = Nodes { n_listed: 0, deleted: &seen };
    assert_eq!(
        judged(&mut guard, plan(9, unasked(1)), nodes, later + GRACE),
        (1, 0, None),
        "the \
         deletion was observed"
    );
    judged(&mut guard, plan(8, []), nodes, later + GRACE);
    assert_eq!(guard.successors().count(), 0);
}

#[tokio::test(start_paused = true)]
async fn operator_allows_all_removals() {
    let begin = Instant::now();
    let mut guard = Guard::new(GRACE, Limits { share: 100, number: 40, window: WINDOW }, begin);
    let deleted = BTreeMap::new();
    let nodes = Nodes { n_listed: 0, deleted: &deleted };
    guard.judge(&mut plan(40, unasked(40)), nodes, begin);
    assert_eq!(judged(&mut guard, plan(40, unasked(40)), nodes, begin + WINDOW + GRACE), (40, 0, None));
}

#[tokio::test(start_paused = true)]
async fn text_of_held_removals_has_the_flags() {
    let held = |why| Held { removals: unasked(7), why };
    assert_snapshot!(held(Why::NoNodes), @"Removal is held for 7 routes whose nodes are no longer listed, and no other node is listed. If the nodes are gone for good, start the controller with --route-removal-max-share=100 until the routes are removed. Destinations: 10.0.0.0/24, 10.0.1.0/24, 10.0.2.0/24, 10.0.3.0/24, 10.0.4.0/24, …");
    assert_snapshot!(held(Why::Missing { allowance: 3, window: WINDOW }), @"Removal is held for 7 routes whose nodes are no longer listed; the limit is 3 per 5 min. If the nodes are gone for good, start the controller with --route-removal-max-share=100 and --route-removal-max-number=7 until the routes are removed. Destinations: 10.0.0.0/24, 10.0.1.0/24, 10.0.2.0/24, 10.0.3.0/24, 10.0.4.0/24, …");
    assert_snapshot!(held(Why::Deleted { allowance: 3, window: WINDOW }), @"Removal is held for 7 routes whose nodes were deleted; the limit is 3 per 5 min. If the nodes are gone for good, start the controller with --route-removal-max-share=100 and --route-removal-max-number=7 until the routes are removed. Destinations: 10.0.0.0/24, 10.0.1.0/24, 10.0.2.0/24, 10.0.3.0/24, 10.0.4.0/24, …");
}

#[tokio::test(start_paused = true)]
async fn event_of_held_removals_is_short_and_has_the_flags() {
    let held = |why| Held { removals: unasked(7), why }.note();
    assert_snapshot!(held(Why::NoNodes), @"Removal is held for 7 routes whose nodes are no longer listed, and no other node is listed. If the nodes are gone for good, set --route-removal-max-share=100");
    assert_snapshot!(held(Why::Deleted { allowance: 3, window: WINDOW }), @"Removal is held for 7 routes whose nodes were deleted; the limit is 3 per 5 min. If the nodes are gone for good, set --route-removal-max-share=100 --route-removal-max-number=7");
    for (n, allowance) in [(1, 1), (40, 30), (5000, 1500)] {
        let removals: Vec<_> = unasked(1).into_iter().cycle().take(n).collect();
        let note = Held { removals, why: Why::Missing { allowance, window: WINDOW } }.note();
        assert!(note.chars().count() <= NOTE_MAX, "{note}");
        let flags = format!("--route-removal-max-share=100 --route-removal-max-number={n}");
        assert!(note.ends_with(&flags), "{note}");
    }
}

/// An observation: which of eight routes are unneeded, which of their instances are gone, which deletions were observed, and how many nodes
/// are listed.
type Observation = (Vec<bool>, Vec<bool>, Vec<bool>, usize, u64);

fn look() -> impl Strategy<Value = Observation> {
    let flags = || vec(any::<bool>(), 8);
    (flags(), flags(), flags(), prop_oneof![Just(0), 1_usize..20], 0_u64..400)
}

proptest! {
    /// In any history, no route is removed before it was unneeded for the grace period. While no node is listed, no route that leads to an
    /// existing instance is removed because its node is missing. Within a window, the routes removed for missing nodes, and those removed
    /// for deleted nodes, never exceed the maximum number and percentage.
    #[test]
    fn no_route_is_removed_without_a_cause(looks in vec(look(), 1..40)) {
        let (mut guard, mut now) = guard();
        let mut since: BTreeMap<usize, Instant> = BTreeMap::new();
        let mut went: BTreeMap<usize, Instant> = BTreeMap::new();
        let (mut missing, mut deleted_went): (Vec<Instant>, Vec<Instant>) = (Vec::new(), Vec::new());
        for (unasked, nowhere, seen, n_listed, seconds) in looks {
            now += Duration::from_secs(seconds);
            let asked: Vec<usize> = (0..8).filter(|n| unasked[*n]).collect();
            since.retain(|n, _| asked.contains(n));
            went.retain(|n, _| asked.contains(n));
            let deleted: BTreeMap<String, Instant> =
                (0..8).filter(|n| seen[*n]).map(|n| (format!("n{n}"), now)).collect();
            let cause = |n: usize| if nowhere[n] { Cause::LeadsNowhere } else { Cause::Unasked };
            let mut plan = plan(8, asked.iter().map(|n| removal(*n, cause(*n))));
            guard.judge(&mut plan, Nodes { n_listed, deleted: &deleted }, now);
            for n in &asked {
                since.entry(*n).or_insert(now);
            }
            for n in asked.iter().filter(|n| plan.removals.contains(&removal(**n, cause(**n)))) {
                assert!(now.duration_since(since[n]) >= GRACE, "r{n} was needed a moment ago");
                if nowhere[*n] {
                    went.entry(*n).or_insert(now);
                    continue;
                }
                assert!(seen[*n] || n_listed > 0, "r{n} is removed though no node is listed");
                if !went.contains_key(n) {
                    went.insert(*n, now);
                    if seen[*n] { deleted_went.push(now) } else { missing.push(now) }
                }
            }
            for went in [&missing, &deleted_went] {
                let recent = went.iter().filter(|at| now.duration_since(**at) < WINDOW).count();
                // The limit is 30 % of the eight routes and of those removed within the window.
                assert!(recent <= (8 + recent) * 30 / 100 + 1, "{recent} went");
            }
        }
    }
}
