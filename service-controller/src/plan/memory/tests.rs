//! Unusual answers of the cloud, and writes that the cache does not show yet.

use std::sync::Arc;

use cloud_api_proto::v1alpha1::{LoadBalancerSpec, Recreate};

use super::*;
use crate::plan::{
    Operation, Why,
    cloud::{Details, EnsureResult, Removal, State, WriteFailure},
    features::name,
    service::{Class, FamilyPolicy},
    spec::Takeover,
    status::Shown,
    targets::Hosts,
    without_nodes::WithoutNodes,
};

fn wanted(digest: &str) -> Arc<Wanted> {
    let shape =
        Shape { spec: LoadBalancerSpec::default(), takeover: Takeover::None, digest: digest.to_owned() };
    Arc::new(Wanted { shape, selector: None, shown: Shown::default(), unnamed: false, may_narrow: false })
}

fn ask(why: Why) -> Ask {
    Ask {
        spec: LoadBalancerSpec::default(),
        wanted: wanted("shape"),
        stands_in: false,
        why,
        recreate: Recreate::Never,
        hosts: Hosts::some(),
        without: None,
        at: Duration::ZERO,
    }
}

fn answer(state: State, why: &str) -> EnsureResult {
    EnsureResult {
        state,
        steps: 0,
        applied_hash: "hash".to_owned(),
        ingress: Vec::new(),
        why: why.to_owned(),
        budget: None,
        failure: None,
        retry_after: None,
    }
}

fn called(memory: &mut Memory, ask: &Ask) -> Vec<Fact> {
    memory.ensure_called(ask).facts
}

#[expect(clippy::needless_pass_by_value, reason = "shorter calls")]
fn answered(memory: &mut Memory, ask: &Ask, answer: EnsureResult, seen: Option<&[Balancer]>) -> Outcome {
    let answer = &answer;
    memory.on(Event::EnsureAnswered { ask, answer, seen })
}

fn deleting(memory: &mut Memory) -> Vec<Fact> {
    memory.on(Event::DeleteCalled { now: Duration::ZERO }).facts
}

fn deleted(memory: &mut Memory, step: &Operation, answer: &Removal, now: Duration) -> Outcome {
    memory.on(Event::DeleteAnswered { step, answer, now })
}

fn in_sync(memory: &mut Memory, as_requested: bool) {
    memory.on(Event::InSync { as_requested });
}

fn drift(memory: &Memory, cloud: &[Balancer], now: Duration) -> Option<String> {
    memory.confirmed().unwrap().drift(cloud, now)
}

fn service() -> Service {
    Service { version: "7".to_owned(), ..Service::default() }
}

#[test]
fn load_balancer_in_error_is_reported_once_and_retried() {
    let mut memory = Memory::default();
    let first = answered(&mut memory, &ask(Why::FirstLook), answer(State::Error, "no capacity"), None);
    let reported = Fact::Failed(Operation::Sync, "the load balancer is in error: no capacity".to_owned());
    assert_eq!((first.facts, first.next), (vec![reported], NextPass::Backoff));
    let second = answered(&mut memory, &ask(Why::Missing), answer(State::Error, "no capacity"), None);
    assert_eq!((second.facts, second.next), (Vec::new(), NextPass::Backoff));
    assert_eq!(memory.confirmed(), None);
}

#[test]
fn returning_failure_is_reported_again() {
    let mut memory = Memory::default();
    answered(&mut memory, &ask(Why::FirstLook), answer(State::Error, "no capacity"), None);
    answered(&mut memory, &ask(Why::Missing), answer(State::Active, ""), None);
    let again = answered(&mut memory, &ask(Why::Changed), answer(State::Error, "no capacity"), None);
    assert_eq!(again.facts.len(), 1);
}

#[test]
fn degraded_load_balancer_is_reported_once() {
    let mut memory = Memory::default();
    let reported =
        answered(&mut memory, &ask(Why::FirstLook), answer(State::Degraded, "1 of 2 pools"), None).facts;
    let want = "the load balancer serves, but is degraded: 1 of 2 pools";
    assert_eq!(reported, [Fact::Failed(Operation::Sync, want.to_owned())]);
    assert!(memory.confirmed().is_some());
    in_sync(&mut memory, false);
    assert!(
        answered(&mut memory, &ask(Why::FirstLook), answer(State::Degraded, "1 of 2 pools"), None)
            .facts
            .is_empty()
    );
}

// Behaviour: W8
#[test]
fn unknown_state_is_neither_success_nor_absence() {
    let mut memory = Memory::default();
    let outcome = answered(&mut memory, &ask(Why::FirstLook), answer(State::Unknown, ""), None);
    assert_eq!((outcome.next, memory.confirmed()), (NextPass::Backoff, None));
    let unknown =
        Removal { state: State::Unknown, why: String::new(), budget: None, failure: None, retry_after: None };
    assert_eq!(deleted(&mut memory, &Operation::Sync, &unknown, Duration::ZERO).next, NextPass::Backoff);
    assert!(!memory.is_removed());
}

#[test]
fn adapter_sets_delay_of_next_call() {
    let mut memory = Memory::default();
    let pending = EnsureResult { retry_after: Some(Duration::from_secs(7)), ..answer(State::Pending, "") };
    let outcome = answered(&mut memory, &ask(Why::FirstLook), pending, None);
    assert_eq!(
        (outcome.facts, outcome.next),
        (vec![Fact::Ensuring], NextPass::After(Duration::from_secs(7)))
    );
    let deleting = Removal {
        state: State::Deleting,
        why: String::new(),
        budget: None,
        failure: None,
        retry_after: None,
    };
    assert_eq!(
        deleted(&mut memory, &Operation::Sync, &deleting, Duration::ZERO).next,
        NextPass::After(RETRY_DELAY)
    );
    let reported = Removal { retry_after: Some(Duration::from_secs(9)), ..deleting };
    assert_eq!(
        deleted(&mut memory, &Operation::LeftOver, &reported, Duration::ZERO).next,
        NextPass::After(Duration::from_secs(9))
    );
}

/// Returns the Events that follow from these answers of the adapter. Each answer consists of its time in seconds and the bucket that the
/// load balancer waits for, if any.
fn reported(memory: &mut Memory, answers: &[(u64, Option<&str>)]) -> Vec<Fact> {
    let heard = answers.iter().flat_map(|(at, budget)| {
        let ask = Ask { at: Duration::from_secs(*at), ..ask(Why::Missing) };
        let budget = budget.map(|bucket| format!("waits for the call budget of bucket {bucket}"));
        answered(memory, &ask, EnsureResult { budget, ..answer(State::Pending, "") }, None).facts
    });
    heard.filter(|fact| *fact != Fact::Ensuring).collect()
}

// Behaviour: S24
#[test]
fn only_long_budget_waits_are_reported() {
    let waits = || Fact::WaitsForBudget("waits for the call budget of bucket b".to_owned());
    let b = Some("b");
    for (name, answers, wanted) in [
        ("short", &[(0, b), (5, b), (9, b), (60, None)][..], vec![]),
        ("long", &[(0, b), (9, b), (10, b)], vec![waits()]),
        (
            "one wait of an hour",
            &[(0, b), (10, b), (1809, b), (1810, Some("c")), (3610, b)],
            vec![waits(), waits(), waits()],
        ),
        ("longer", &[(0, b), (11, b), (12, b), (100, Some("c")), (200, b)], vec![waits()]),
        ("several short waits", &[(0, b), (6, None), (90, b), (94, b)], vec![waits()]),
        ("mostly waits for something else", &[(0, None), (60, None), (90, b)], vec![]),
    ] {
        assert_eq!(reported(&mut Memory::default(), answers), wanted, "{name}");
    }
    let mut memory = Memory::default();
    assert_eq!(reported(&mut memory, &[(0, b), (20, b)]), [waits()]);
    answered(&mut memory, &ask(Why::Missing), answer(State::Active, ""), None);
    assert_eq!(reported(&mut memory, &[(100, b), (120, b)]), [waits()], "another wait is reported");
}

const UNKNOWN: &str = "create web failed (503, OUTCOME_UNKNOWN): CreateLoadBalancer: out of order";

fn failure(error: &str, rest: u64) -> Option<WriteFailure> {
    Some(WriteFailure { error: error.to_owned(), next: format!("next try in about {rest} s") })
}

/// Returns the Events that follow from an answer at this time in seconds. The answer reports this failure of a write.
fn with_failure(memory: &mut Memory, at: u64, failure: Option<WriteFailure>) -> Vec<Fact> {
    let ask = Ask { at: Duration::from_secs(at), ..ask(Why::Missing) };
    let mut facts =
        answered(memory, &ask, EnsureResult { failure, ..answer(State::Pending, "") }, None).facts;
    facts.retain(|fact| *fact != Fact::Ensuring);
    facts
}

// Behaviour: S33
#[test]
fn failed_write_is_reported_once_per_cause() {
    let fact = |error, rest| Fact::WriteFailed(Operation::Sync, failure(error, rest).unwrap());
    let (mut memory, quota) = (Memory::default(), "create web failed (409, OPERATION_CONFLICT): busy");
    assert_eq!(with_failure(&mut memory, 10, failure(UNKNOWN, 40)), [fact(UNKNOWN, 40)]);
    assert_eq!(with_failure(&mut memory, 12, failure(UNKNOWN, 38)), []);
    assert_eq!(with_failure(&mut memory, 20, None), [], "the retry is in progress");
    assert_eq!(with_failure(&mut memory, 30, failure(UNKNOWN, 40)), [], "the same failure");
    assert_eq!(with_failure(&mut memory, 40, failure(quota, 2)), [fact(quota, 2)], "another failure");
    assert_eq!(with_failure(&mut memory, 50, failure(UNKNOWN, 7)), [], "failures that alternate");
    assert_eq!(with_failure(&mut memory, 1810, failure(UNKNOWN, 7)), [fact(UNKNOWN, 40)], "a reminder");
    answered(&mut memory, &ask(Why::Missing), answer(State::Active, ""), None);
    assert_eq!(with_failure(&mut memory, 1900, failure(UNKNOWN, 3)), [fact(UNKNOWN, 3)], "a new failure");
}

// Behaviour: S33
#[test]
fn failed_write_of_deletion_is_reported_once() {
    let mut memory = Memory::default();
    deleting(&mut memory);
    let mut reported = |at| {
        let (why, state) = (String::new(), State::Deleting);
        let answer = Removal { state, why, budget: None, failure: failure(UNKNOWN, at), retry_after: None };
        deleted(&mut memory, &Operation::LeftOver, &answer, Duration::from_secs(at)).facts
    };
    assert_eq!(reported(10), [Fact::WriteFailed(Operation::LeftOver, failure(UNKNOWN, 10).unwrap())]);
    assert_eq!(reported(15), []);
}

#[test]
fn long_budget_wait_of_deletion_is_reported_once() {
    let mut memory = Memory::default();
    let mut reported = |at: u64, budget: Option<&str>| {
        let budget = budget.map(str::to_owned);
        let (why, retry_after) = (String::new(), None);
        let answer = Removal { state: State::Deleting, why, budget, failure: None, retry_after };
        let mut facts = deleting(&mut memory);
        facts.extend(deleted(&mut memory, &Operation::Sync, &answer, Duration::from_secs(at)).facts);
        facts
    };
    let waits = Some("waits for the call budget of bucket b");
    assert_eq!(reported(0, waits), [Fact::Deleting]);
    assert_eq!(reported(9, waits), []);
    assert_eq!(
        reported(11, waits),
        [Fact::WaitsForBudget("waits for the call budget of bucket b".to_owned())]
    );
    assert_eq!(reported(60, waits), []);
}

#[test]
fn node_update_time_counts_from_first_call() {
    let mut memory = Memory::default();
    let at = |seconds| Ask { at: Duration::from_secs(seconds), ..ask(Why::Hosts) };
    called(&mut memory, &at(10));
    assert_eq!(answered(&mut memory, &at(10), answer(State::Pending, ""), None).hosts_updated, None);
    called(&mut memory, &at(14));
    let outcome = answered(&mut memory, &at(14), answer(State::Active, ""), None);
    assert_eq!((outcome.facts, outcome.hosts_updated), (vec![Fact::Updated], Some(Duration::from_secs(4))));
}

#[test]
fn own_write_is_not_repeated_before_cache_shows_it() {
    let mut memory = Memory::default();
    let written = Service { finalizer: true, ..service() };
    memory.pacing.wrote(Write::Finalizer, &written, Duration::ZERO);
    assert!(memory.pacing.overlay(service()).finalizer, "the cache lags behind, so the own write is added");
    let newer = Service { version: "8".to_owned(), ..service() };
    assert!(!memory.pacing.overlay(newer).finalizer, "the cache has caught up");
    assert!(!memory.pacing.overlay(service()).finalizer, "the write is forgotten");
}

#[test]
fn removal_discards_confirmation() {
    let mut memory = Memory::default();
    answered(&mut memory, &ask(Why::FirstLook), answer(State::Active, ""), None);
    assert_eq!(deleting(&mut memory), [Fact::Deleting]);
    assert_eq!(deleting(&mut memory), []);
    assert_eq!(memory.confirmed(), None);
    let absent =
        Removal { state: State::Absent, why: String::new(), budget: None, failure: None, retry_after: None };
    assert_eq!(
        (deleted(&mut memory, &Operation::Sync, &absent, Duration::ZERO).next, memory.is_removed()),
        (NextPass::Now, true)
    );
    called(&mut memory, &ask(Why::Missing));
    assert!(!memory.is_removed(), "the load balancer may exist again");
}

#[test]
fn just_deleted_load_balancer_is_not_an_orphan() {
    let (mut memory, begin) = (Memory::default(), Duration::from_secs(100));
    memory.on(Event::ServiceMissing { shown: None, now: begin });
    assert_eq!(memory.orphan_doubt(begin), Some(ORPHAN_AFTER));
    assert_eq!(memory.orphan_doubt(begin + ORPHAN_AFTER / 2), Some(ORPHAN_AFTER / 2));
    assert_eq!(memory.orphan_doubt(begin + ORPHAN_AFTER), None);
    in_sync(&mut memory, false);
    assert!(!memory.outlives_its_service(begin));
}

fn shown(backends: u32) -> Vec<Balancer> {
    vec![Balancer {
        vendor_id: "lb-1".to_owned(),
        state: State::Active,
        applied_hash: "hash".to_owned(),
        ingress: Vec::new(),
        listeners: Vec::new(),
        backends,
        details: Details::default(),
    }]
}

#[test]
fn removed_backends_are_detected_once_cache_caught_up() {
    let (mut memory, now) = (Memory::default(), Duration::from_secs(10));
    let (service, worked) = (service(), |steps| EnsureResult { steps, ..answer(State::Active, "") });
    answered(&mut memory, &ask(Why::Hosts), worked(2), Some(&shown(4)));
    memory.observe(&service, Some(&shown(4)), now);
    assert_eq!(drift(&memory, &shown(6), now), None, "the backends that were just written are no difference");
    memory.observe(&service, Some(&shown(6)), now);
    assert_eq!(drift(&memory, &shown(6), now), None);
    let found = drift(&memory, &shown(5), now);
    assert_eq!(found.as_deref(), Some("the backends changed from 6 to 5"));

    // The adapter repairs the backends when it is called. What the cache showed before does not count as a change.
    answered(&mut memory, &ask(Why::Drift(String::new())), worked(1), Some(&shown(5)));
    memory.observe(&service, Some(&shown(5)), now);
    assert_eq!(drift(&memory, &shown(6), now), None);
    memory.observe(&service, Some(&shown(6)), now);

    // If the adapter answers that everything is in sync, the number in the cache is right, too.
    answered(&mut memory, &ask(Why::Drift(String::new())), worked(0), Some(&shown(7)));
    memory.observe(&service, Some(&shown(7)), now);
    assert_eq!(drift(&memory, &shown(7), now + LAG), None);
    assert!(drift(&memory, &shown(6), now).is_some());
}

#[test]
fn unchanged_backend_count_is_trusted_after_lag() {
    let (mut memory, service) = (Memory::default(), service());
    let answer = EnsureResult { steps: 1, ..answer(State::Active, "") };
    answered(&mut memory, &ask(Why::Hosts), answer, Some(&shown(4)));
    memory.observe(&service, Some(&shown(4)), LAG);
    assert!(drift(&memory, &shown(5), LAG).is_some());
}

#[test]
fn refused_settings_are_not_retried_at_once() {
    let mut memory = Memory::default();
    answered(&mut memory, &ask(Why::Missing), answer(State::Active, ""), None);
    let bad = Ask { wanted: wanted("bad"), at: Duration::from_secs(10), ..ask(Why::Changed) };
    assert_eq!(called(&mut memory, &bad), [Fact::Ensuring]);
    memory.refuse(&bad);
    let is_refused = |memory: &Memory, digest, at| memory.settings.is_refused(&wanted(digest).shape, at);
    assert!(is_refused(&memory, "bad", Duration::from_secs(20)) && memory.settings.accepted.is_some());
    assert!(!is_refused(&memory, "bad", bad.at + LAG) && !is_refused(&memory, "other", bad.at));

    // The last valid settings follow the nodes as usual.
    let hosts = Ask {
        stands_in: true,
        hosts: Hosts::default(),
        without: Some(WithoutNodes::PortsReleased),
        ..ask(Why::Hosts)
    };
    called(&mut memory, &hosts);
    let none = Fact::NoTargets(WithoutNodes::PortsReleased);
    assert_eq!(answered(&mut memory, &hosts, answer(State::Active, ""), None).facts, [none]);

    let again = Ask { at: bad.at + LAG, ..bad };
    assert_eq!(called(&mut memory, &again), [], "the Event was emitted when the settings were refused");
    assert_eq!(answered(&mut memory, &again, answer(State::Active, ""), None).facts, [Fact::Ensured]);
    assert!(!is_refused(&memory, "bad", again.at));
}

#[test]
fn refused_former_settings_leave_no_fallback() {
    let mut memory = Memory::default();
    answered(&mut memory, &ask(Why::Missing), answer(State::Active, ""), None);
    memory.refuse(&ask(Why::Changed));
    assert_eq!(memory.settings.accepted, None);
}

#[test]
fn failed_node_update_is_reported_beside_other_failures() {
    let mut memory = Memory::default();
    let hosts = Operation::Hosts(Hosts::some());
    let refusal = |memory: &mut Memory, topic, name: &str| {
        usize::from(memory.reported.report(topic, name, Fact::Ensuring, Duration::ZERO).is_some())
    };
    assert_eq!(refusal(&mut memory, Topic::Wish, "a"), 1);
    assert_eq!(refusal(&mut memory, Topic::Refused, "c"), 1);
    assert!(memory.reported.report_failure(&hosts, "b", Duration::ZERO).is_some());
    assert!(memory.reported.report_failure(&Operation::Sync, "d", Duration::ZERO).is_some());
    assert_eq!(refusal(&mut memory, Topic::Wish, "a") + refusal(&mut memory, Topic::Refused, "c"), 0);
    assert_eq!(memory.reported.report_failure(&hosts, "b", Duration::ZERO), None);
    let stands_in = Ask { stands_in: true, ..ask(Why::Hosts) };
    answered(&mut memory, &stands_in, answer(State::Active, ""), None);
    in_sync(&mut memory, false);
    let again = refusal(&mut memory, Topic::Wish, "a") + refusal(&mut memory, Topic::Refused, "c");
    assert_eq!(again, 0, "the replaced settings are still refused");
    assert!(
        memory.reported.report_failure(&hosts, "b", Duration::ZERO).is_some(),
        "the earlier failure is over, so a new one is reported"
    );
    assert!(
        memory.reported.report_failure(&Operation::Sync, "d", Duration::ZERO).is_some(),
        "the same for this step"
    );
    answered(&mut memory, &ask(Why::Changed), answer(State::Active, ""), None);
    assert_eq!(refusal(&mut memory, Topic::Wish, "a"), 1, "the settings were valid in between");
}

#[test]
fn failed_node_update_of_broken_load_balancer_is_counted() {
    for (why, state, want) in [
        (Why::Hosts, State::Error, true),
        (Why::Hosts, State::Absent, true),
        (Why::Hosts, State::Pending, false),
        (Why::Hosts, State::Degraded, false),
        (Why::Changed, State::Error, false),
    ] {
        let outcome = answered(&mut Memory::default(), &ask(why.clone()), answer(state, ""), None);
        assert_eq!(outcome.hosts_failed, want, "{why} {state}");
    }
}

/// The settings are refused, reverted, and written again within minutes.
#[test]
fn refusal_is_reported_again_after_valid_settings() {
    let mut memory = Memory::default();
    answered(&mut memory, &ask(Why::Missing), answer(State::Active, ""), None);
    let other = Ask { wanted: wanted("other"), ..ask(Why::Changed) };
    memory.refuse(&other);
    assert!(memory.settings.is_refused(&other.wanted.shape, Duration::ZERO));
    in_sync(&mut memory, true);
    assert!(!memory.settings.is_refused(&other.wanted.shape, Duration::ZERO), "the next refusal is reported");
}

fn prefers_two() -> (Service, Ask) {
    let service = Service { families: vec![Family::V4, Family::V6], ..service() };
    let both = Arc::new(Wanted { may_narrow: true, ..Wanted::clone(&wanted("both")) });
    (service, Ask { wanted: both, ..ask(Why::FirstLook) })
}

#[test]
fn narrowing_needs_a_mere_preference() {
    let ((service, both), features) = (prefers_two(), Features::default());
    let mut memory = Memory::default();
    assert!(!memory.narrow(&ask(Why::FirstLook), Some(Family::V4), &service, &features));
    assert_eq!(memory.settings.family(), None);
    assert!(memory.narrow(&both, Some(Family::V6), &service, &features));
    assert_eq!(memory.settings.family(), Some(Family::V6));
    deleting(&mut memory);
    assert_eq!(memory.settings.family(), None, "the next load balancer is created with both families");
}

/// The refusal of the second family applies to one adapter, one load balancer and one Service.
#[test]
fn narrowing_ends_when_inputs_change() {
    let ((service, both), features) = (prefers_two(), Features::from([name::DUAL_STACK]));
    let narrowed = || {
        let mut memory = Memory::default();
        assert!(memory.narrow(&both, Some(Family::V6), &service, &features));
        memory
    };
    let single = Service { families: vec![Family::V4], ..service.clone() };
    let insists = Service { family_policy: FamilyPolicy::BothRequired, ..service.clone() };
    let other = Features::from([name::DUAL_STACK, name::NAME]);
    for (name, service_now, features_now, stays) in [
        ("nothing", &service, &features, true),
        ("the families", &single, &features, false),
        ("the policy", &insists, &features, false),
        ("the adapter", &service, &other, false),
    ] {
        let mut memory = narrowed();
        memory.settings.widen(service_now, Some(features_now));
        memory.settings.widen(&service, Some(&features));
        assert_eq!(memory.settings.family().is_some(), stays, "{name} changed, and is changed back");
    }

    let (mut memory, now) = (narrowed(), Duration::ZERO);
    memory.observe(&service, Some(&[]), now);
    memory.observe(&service, None, now);
    assert!(memory.settings.family().is_some(), "the cache does not show it yet");
    memory.observe(&service, Some(&shown(2)), now);
    memory.observe(&service, None, now);
    assert!(memory.settings.family().is_some(), "the cache shows it");
    memory.observe(&service, Some(&[]), now);
    assert_eq!(memory.settings.family(), None, "the load balancer is gone");
}

/// The delays for orphans are counted from the last time at which the Service disappeared.
#[test]
fn removal_of_returned_service_forgets_that_it_was_missing() {
    let mut memory = Memory::default();
    deleting(&mut memory);
    memory.on(Event::ServiceMissing { shown: None, now: Duration::ZERO });
    assert!(memory.orphan_doubt(Duration::from_secs(1)).is_some());
    memory.observe(&service(), None, Duration::from_secs(1));
    assert_eq!(memory.orphan_doubt(Duration::from_secs(1)), None);
}

#[test]
fn orphan_vanishes_only_after_it_was_shown() {
    let mut memory = Memory::default();
    for (shown, vanished) in [(Some(false), false), (Some(false), false), (Some(true), false), (None, false)]
    {
        memory.on(Event::ServiceMissing { shown, now: Duration::ZERO });
        assert_eq!(memory.has_vanished(), vanished, "{shown:?}");
    }
    memory.on(Event::ServiceMissing { shown: Some(false), now: Duration::ZERO });
    assert!(memory.has_vanished());
}

#[test]
fn node_update_during_creation_is_part_of_it() {
    let mut memory = Memory::default();
    called(&mut memory, &ask(Why::Missing));
    called(&mut memory, &ask(Why::Hosts));
    let outcome = answered(&mut memory, &ask(Why::Hosts), answer(State::Active, ""), None);
    assert_eq!((outcome.facts, outcome.hosts_updated), (vec![Fact::Ensured], None));
}

#[test]
fn adapter_sets_delay_after_error() {
    let delay = Duration::from_secs(7);
    let failed = EnsureResult { retry_after: Some(delay), ..answer(State::Error, "") };
    let outcome = answered(&mut Memory::default(), &ask(Why::FirstLook), failed, None);
    assert_eq!(outcome.next, NextPass::After(delay));
}

#[test]
fn only_refused_settings_are_replaced_and_only_once() {
    let (mut memory, bad) = (Memory::default(), ask(Why::Changed));
    let replaced = || Wanted::clone(&wanted("other"));
    assert!(!memory.replace(&bad.wanted.shape, |_| Some(replaced())), "they were not refused");
    memory.refuse(&bad);
    assert!(memory.replace(&bad.wanted.shape, |_| Some(replaced())));
    assert!(!memory.replace(&bad.wanted.shape, |_| Some(replaced())), "it was tried");
}

/// A Service gets another controller's class. This controller still owns the load balancer that it created, as long as the cache shows the
/// load balancer.
#[test]
fn created_load_balancer_is_remembered_under_another_class() {
    let (mut memory, other) = (Memory::default(), Service { class: Class::Others, ..service() });
    called(&mut memory, &ask(Why::Missing));
    memory.observe(&other, Some(&shown(2)), Duration::ZERO);
    assert!(memory.owned.created);
    memory.observe(&other, Some(&[]), Duration::ZERO);
    assert!(!memory.owned.created);
}
