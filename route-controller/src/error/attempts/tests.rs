//! Tests when each action is retried.

use std::time::Duration;

use cloud_api_proto::Reason;
use tokio::time::Instant;

use super::{Attempts, Outcome};
use crate::plan::claims::RouteState;
use crate::plan::tests::{node, route, settled};
use crate::plan::{Creation, Plan};

fn seconds(n: u64) -> Duration {
    Duration::from_secs(n)
}

fn failed(again: Option<Duration>) -> Outcome {
    Outcome::Failed { reason: Reason::Unspecified, why: "it rains".to_owned(), again }
}

/// Returns the plan for a node without a route, and the creation of the route.
fn one_creation() -> (Plan, Creation) {
    let plan = settled(&[node("a").pods("10.244.1.0/24")], &[]);
    let creation = plan.creations[0].clone();
    (plan, creation)
}

/// Returns the plan for a node whose route leads to another next hop, and the creation of the new route.
fn one_replacement() -> (Plan, Creation) {
    let plan = settled(&[node("a").pods("10.244.1.0/24")], &[route("1", "10.244.1.0/24").of("gone")]);
    let creation = plan.creations[0].clone();
    (plan, creation)
}

#[test]
fn failed_route_backs_off_up_to_a_limit() {
    let (plan, creation) = one_creation();
    let mut attempts = Attempts::default();
    let mut now = Instant::now();
    for expected in [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300] {
        assert_eq!(attempts.due(&plan, now).creations.len(), 1);
        attempts.created(&creation, failed(None), Duration::ZERO, now);
        assert_eq!(attempts.next(now), Some(seconds(expected)));
        assert!(attempts.due(&plan, now + seconds(expected) - Duration::from_millis(1)).is_settled());
        now += seconds(expected);
    }
}

#[test]
fn each_outcome_has_its_delay_and_state() {
    let pending = |again| Outcome::Pending { again };
    for (name, outcome, delay, state) in [
        ("done", Outcome::Done, 15, RouteState::Ready),
        ("pending", pending(None), 1, RouteState::Open),
        ("pending, with a delay", pending(Some(seconds(9))), 9, RouteState::Open),
        ("pending, with no delay", pending(Some(Duration::ZERO)), 1, RouteState::Open),
        ("failed", failed(None), 1, RouteState::Failed),
        ("failed, with a delay", failed(Some(seconds(40))), 40, RouteState::Failed),
        (
            "failed, with a delay above the controller's own maximum",
            failed(Some(seconds(900))),
            900,
            RouteState::Failed,
        ),
        (
            "refused",
            Outcome::Refused { reason: Reason::Unspecified, why: String::new() },
            300,
            RouteState::Failed,
        ),
    ] {
        let (_, creation) = one_creation();
        let (mut attempts, now) = (Attempts::default(), Instant::now());
        assert_eq!(attempts.route_state(&creation), RouteState::Open, "{name}");
        attempts.created(&creation, outcome, Duration::ZERO, now);
        assert_eq!(attempts.next(now), Some(seconds(delay)), "{name}");
        assert_eq!(attempts.route_state(&creation), state, "{name}");
    }
}

#[test]
fn route_with_a_new_next_hop_is_created_at_once() {
    let (plan, creation) = one_creation();
    let (mut attempts, now) = (Attempts::default(), Instant::now());
    attempts.created(&creation, failed(None), Duration::ZERO, now);
    assert!(attempts.due(&plan, now).is_settled());

    let moved = settled(&[node("a").pods("10.244.1.0/24").at("192.0.2.1")], &[]);
    assert_eq!(attempts.due(&moved, now).creations.len(), 1);
}

#[test]
fn completed_actions_are_forgotten() {
    let (_, creation) = one_creation();
    let (mut attempts, now) = (Attempts::default(), Instant::now());
    attempts.created(&creation, Outcome::Done, Duration::ZERO, now);
    attempts.keep(&Plan::default());
    assert_eq!(attempts.next(now), None);
    assert_eq!(attempts.route_state(&creation), RouteState::Open);
}

#[test]
fn route_waits_for_the_conflicting_one_and_fails_with_it() {
    let (plan, creation) = one_replacement();
    let (mut attempts, now) = (Attempts::default(), Instant::now());
    attempts.removed(&creation.instead_of[0], failed(Some(seconds(7))), now);

    assert_eq!(attempts.route_state(&creation), RouteState::Failed);
    assert!(attempts.due(&plan, now).is_settled());
    assert_eq!(attempts.due(&plan, now + seconds(7)).creations, [creation]);
}

#[test]
fn completed_removal_is_not_repeated_while_the_cache_lags() {
    let (plan, creation) = one_replacement();
    let (mut attempts, now) = (Attempts::default(), Instant::now());
    attempts.removed(&creation.instead_of[0], Outcome::Done, now);
    attempts.created(&creation, failed(None), Duration::ZERO, now);

    let again = attempts.due(&plan, now + seconds(1));
    assert_eq!(again.creations, [Creation { instead_of: Vec::new(), ..creation }]);
}
