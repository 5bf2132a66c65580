//! These tests show that the documented table of transitions matches the code, and that random events keep the rules.

use std::{fmt::Write as _, mem::discriminant};

use cloud_api_proto::v1alpha1::{LoadBalancer, LoadBalancerKey, LoadBalancerSpec, Owner, Recreate};
use proptest::prelude::*;

use super::*;
use crate::{
    driver::{Adopter, DesiredLoadBalancer, Inheritance},
    load_balancers::goal::Terms,
};

type TestState = State<(), &'static str>;
type TestTask = Task<(), &'static str>;
type TestEvent = Event<(), &'static str>;
type TestDecision = Decision<(), &'static str>;

const POLL: Duration = Duration::from_secs(1);
const CREATE_HORIZON: Duration = Duration::from_mins(2);

fn task(now: Instant) -> TestTask {
    let cloud = Cloud {
        poll: POLL,
        consistency_horizon: Duration::from_secs(5),
        create_horizon: CREATE_HORIZON,
        deduplication: Deduplication::ListThenCreate,
    };
    Task::new(cloud, History::default(), now, now, now)
}

fn former() -> Arc<LoadBalancerRecord<()>> {
    Arc::new(LoadBalancerRecord::new(LoadBalancer::default(), ()))
}

fn decided(decision: TestDecision, proof: Instant) -> TestEvent {
    Event::Observed(Observation { decision, proof, fresh: false, vendor_ids: vec!["lb-1".to_owned()] })
}

fn failed(fault: Fault) -> TestEvent {
    Event::WriteFailed(VendorError::new(fault, "refused"))
}

fn over() -> TestEvent {
    Event::Failed(AdapterError::new(Reason::NotLeader, "the term is over"))
}

fn name(state: &TestState) -> &'static str {
    match state {
        State::Observing { .. } => "Observing",
        State::Writing(_) => "Writing",
        State::Waiting { .. } => "Waiting",
        State::Ending { .. } => "Ending",
        State::Ended => "Ended",
    }
}

fn after<const N: usize>(events: [TestEvent; N], now: Instant) -> TestTask {
    events.into_iter().fold(task(now), |task, event| task.step(event, now))
}

fn creating(now: Instant) -> TestTask {
    after([decided(Decision::Create(vec!["create"]), now)], now)
}

fn waiting(now: Instant) -> TestTask {
    after([decided(Decision::Wait("busy".to_owned()), now)], now)
}

fn ending(now: Instant) -> TestTask {
    after([decided(Decision::End(End::Absent), now)], now)
}

/// Returns the documented transitions from the state `Observing`. Each row contains a task, what happens, and the event.
fn observing_rows(now: Instant) -> Vec<(TestTask, &'static str, TestEvent)> {
    let (later, busy) = (now + CREATE_HORIZON, || Decision::Wait("busy".to_owned()));
    let stuck = TestTask { started: now - STUCK - POLL, ..task(now) };
    let again = || changed(now).step(Event::Elapsed(now), now);
    vec![
        (task(now), "the plan has a step", decided(Decision::Create(vec!["create"]), now)),
        (
            task(now),
            "the load balancer is in sync, or its absence is proven",
            decided(Decision::End(End::Absent), now),
        ),
        (task(now), "the cloud is still changing the load balancer", decided(busy(), now)),
        (stuck, "the cloud has been changing it for more than 15 minutes", decided(busy(), now)),
        (task(now), "only a later observation can prove absence", decided(Decision::Observe, later)),
        (task(now), "an observation now can prove absence", decided(Decision::Observe, now)),
        (task(now), "the observation may show the state before the last write", Event::Outdated),
        (
            task(now),
            "reads may not show the last create yet",
            decided(Decision::Create(vec!["create"]), later),
        ),
        (
            again(),
            "the plan repeats the last write, which reads may not show yet",
            decided(Decision::Write(vec!["change"]), now),
        ),
        (task(now), "the observation or the plan failed, or the term is over", over()),
    ]
}

fn other_rows(now: Instant) -> Vec<(TestTask, &'static str, TestEvent)> {
    let unknown = TestTask { unknown: UNKNOWN_MAX, ..creating(now) };
    let mut again = creating(now);
    again.history.former = Some(former());
    vec![
        (creating(now), "the write was made", Event::Written(Outcome::Accepted)),
        (creating(now), "the object is busy or not found", failed(Fault::Busy)),
        (creating(now), "the outcome is unknown", failed(Fault::OutcomeUnknown)),
        (unknown, "the outcome is unknown for the fourth time in a row", failed(Fault::OutcomeUnknown)),
        (again, "the vendor refused properties of the former load balancer", failed(Fault::Quota)),
        (creating(now), "the write failed for another reason", failed(Fault::Quota)),
        (waiting(now), "the delay is over", Event::Elapsed(now)),
        (waiting(now), "a newer request changed the desired state", Event::Replaced),
        (waiting(now), "the term is over", over()),
        (ending(now), "a newer request changed the desired state", Event::Replaced),
        (ending(now), "the result is published", Event::Published),
    ]
}

fn rows(now: Instant) -> Vec<(TestTask, &'static str, TestEvent)> {
    observing_rows(now).into_iter().chain(other_rows(now)).collect()
}

fn start() -> Instant {
    Instant::now() + STUCK * 2
}

#[test]
fn documented_transitions_are_those_of_the_code() {
    let now = start();
    let mut table = "| state | event | next state |\n| --- | --- | --- |\n".to_owned();
    for (task, text, event) in rows(now) {
        let state = name(&task.state);
        writeln!(table, "| {state} | {text} | {} |", name(&task.step(event, now).state)).expect("a string");
    }
    let page = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/explain/tasks.md"));
    assert!(page.contains(&format!("\n\n{table}\n")), "docs/explain/tasks.md lacks this table:\n{table}");
}

#[test]
fn event_of_another_state_ends_the_task() {
    let now = start();
    let events = || {
        let written = Event::Written(Outcome::Accepted);
        let failed = failed(Fault::Quota);
        let observed = decided(Decision::Observe, now);
        [
            observed,
            Event::Outdated,
            written,
            failed,
            Event::Elapsed(now),
            Event::Replaced,
            over(),
            Event::Published,
        ]
    };
    let known: Vec<_> =
        rows(now).iter().map(|(task, _, event)| (name(&task.state), discriminant(event))).collect();
    for state in [task, creating, waiting, ending] {
        for event in events() {
            let task = state(now);
            if !known.contains(&(name(&task.state), discriminant(&event))) {
                let task = task.step(event, now);
                let State::Ending { result: Err(error), .. } = &task.state else { panic!("{task:?}") };
                assert_eq!(error.reason, Reason::Internal);
            }
        }
    }
    for event in events() {
        let ended = after([decided(Decision::End(End::Absent), now), Event::Published], now);
        assert!(matches!(ended.step(event, now).state, State::Ended), "an ended task does nothing");
    }
}

fn changed(now: Instant) -> TestTask {
    after([decided(Decision::Write(vec!["change"]), now), Event::Written(Outcome::Accepted)], now)
}

#[test]
fn failed_write_stays_in_history_only_if_possibly_made() {
    let now = start();
    for (fault, kept, refused) in [
        (Fault::Busy, true, true),
        (Fault::OutcomeUnknown, true, false),
        (Fault::NotFound, false, true),
        (Fault::Quota, false, false),
    ] {
        let task = creating(now).step(failed(fault), now);
        assert_eq!((task.history.last.is_some(), task.refused.is_some()), (kept, refused), "{fault:?}");
    }
}

#[test]
fn refusal_unrelated_to_former_properties_keeps_them() {
    let now = start();
    for (fault, kept) in [(Fault::Throttled, true), (Fault::Quota, false)] {
        let mut task = creating(now);
        task.history.former = Some(former());
        task = task.step(failed(fault), now);
        assert_eq!(task.history.former.is_some(), kept, "{fault:?}");
    }
}

#[test]
fn accepted_change_forgets_failures_and_keeps_the_known_id() {
    let now = start();
    let begun = after([decided(Decision::Write(vec!["change"]), now)], now);
    let (refused, created) = (Some(Arc::new("change")), Some("lb-1".to_owned()));
    let mut task = TestTask { unknown: 2, refused, created, ..begun };
    task = task.step(Event::Written(Outcome::Accepted), now);
    let TestTask { unknown, refused, created, .. } = &task;
    assert_eq!((*unknown, refused, created.as_deref()), (0, &None, Some("lb-1")));
}

/// A failure ends when the write was made or when the plan begins with another step. It also ends when the cloud is changing what may have
/// been written.
#[test]
fn failure_is_reported_only_while_the_write_is_repeated() {
    let now = start();
    let unknown = || {
        let events = [decided(Decision::Write(vec!["change"]), now), failed(Fault::OutcomeUnknown)];
        after(events, now).step(Event::Elapsed(now), now)
    };
    let late = now + POLL * 60;
    let steps = |steps: &[&'static str]| decided(Decision::Write(steps.to_vec()), now);
    let (wait, look) = (decided(Decision::Wait("busy".to_owned()), now), decided(Decision::Observe, late));
    for (name, event, kept) in [
        ("the same step", steps(&["change"]), true),
        ("another step", steps(&["other", "change"]), false),
        ("the cloud works", wait, false),
        ("no proof", look, true),
        ("an outdated observation", Event::Outdated, true),
    ] {
        let task = unknown().step(event, late);
        assert_eq!(task.failure().is_some(), kept, "{name}");
    }
    let task = unknown().step(steps(&["change"]), late).step(Event::Written(Outcome::Accepted), late);
    assert_eq!(task.failure(), None);
}

#[test]
fn repeated_write_waits_only_until_reads_show_it() {
    let now = start();
    let mut task = changed(now);
    let later = now + task.cloud.consistency_horizon;
    task = task.step(Event::Elapsed(later), later);
    task = task.step(decided(Decision::Write(vec!["change"]), later), later);
    assert!(matches!(task.state, State::Writing(_)), "{task:?}");
}

#[test]
fn each_write_restarts_the_time_limit() {
    let now = start();
    let mut task = TestTask { started: now - STUCK - POLL, ..changed(now) };
    task = task.step(Event::Elapsed(now), now);
    task = task.step(decided(Decision::Wait("busy".to_owned()), now), now);
    assert!(matches!(task.state, State::Waiting { .. }), "{task:?}");
}

#[test]
fn newer_order_polls_again_with_the_first_delay() {
    let now = start();
    let mut task = TestTask { delay: POLL * 8, ..waiting(now) };
    task = task.step(Event::Replaced, now);
    assert_eq!(task.delay, POLL);
    assert!(matches!(task.state, State::Observing { polls: true, .. }), "{task:?}");
}

#[test]
fn proven_absence_without_a_step_is_an_error() {
    let now = start();
    let event = Observation { decision: Decision::Observe, proof: now, fresh: true, vendor_ids: Vec::new() };
    let task = after([Event::Observed(event)], now);
    let State::Ending { result: Err(error), .. } = &task.state else { panic!("{task:?}") };
    assert_eq!(error.reason, Reason::Internal);
}

/// A deletion of this term shows that the previous leader's last create is no longer in progress.
#[test]
fn absence_is_proven_sooner_after_a_deletion() {
    let now = start();
    let later = now + CREATE_HORIZON;
    let deleted = |vendor_ids: &[&str]| {
        let vendor_ids = vendor_ids.iter().map(ToString::to_string).collect();
        let decision = Decision::Remove(vec!["remove"]);
        let mut task = task(now);
        task =
            task.step(Event::Observed(Observation { decision, proof: now, fresh: false, vendor_ids }), later);
        task = task.step(Event::Written(Outcome::Accepted), later);
        task
    };
    let mut task = deleted(&["lb-1"]);
    assert_eq!(task.proof(&absent()), now + task.cloud.consistency_horizon);
    task.history.removed = Some(now - POLL);
    assert_eq!(task.proof(&absent()), later, "deleted in an earlier term");
    assert_eq!(deleted(&[]).history.removed, None, "the key had no load balancer");
}

#[test]
fn keys_without_a_create_need_no_create_horizon() {
    let now = start();
    let task = task(now);
    for (id, adoption, horizon) in [
        ("", Adoption::Never, CREATE_HORIZON),
        ("lb-1", Adoption::Never, task.cloud.consistency_horizon),
        ("", Adoption::ById, task.cloud.consistency_horizon),
    ] {
        let desired = DesiredLoadBalancer {
            key: LoadBalancerKey::default(),
            owner: Owner::default(),
            cluster_name: String::new(),
            inheritance: Inheritance::ByName,
            spec: LoadBalancerSpec { load_balancer_id: id.to_owned(), ..LoadBalancerSpec::default() },
            backends: Arc::new([]),
            hash: String::new(),
        };
        let terms = Terms { recreate: Recreate::Never, adoption, known: None };
        let goal = Goal::Present(Arc::new(desired), terms);
        assert_eq!(task.proof(&goal), now + horizon, "{id} {adoption:?}");
    }
}

fn absent() -> Goal {
    let adopter = Adopter {
        key: LoadBalancerKey::default(),
        owner: Owner::default(),
        cluster_name: String::new(),
        inheritance: Inheritance::ByName,
    };
    Goal::Absent { adopter: adopter.into(), adoption: Adoption::Never, known: None }
}

/// An observation is as old as the task accepts.
fn possible(task: &TestTask, choice: usize, now: Instant) -> TestEvent {
    match &task.state {
        &State::Observing { not_before, .. } => {
            let proof = task.proof(&absent());
            let fresh = not_before >= proof;
            let decision = match choice {
                0 => return Event::Outdated,
                1 => Decision::Wait("busy".to_owned()),
                2 => Decision::Write(vec!["change a", "change b"]),
                3 => Decision::Write(vec!["change b"]),
                4 => Decision::Remove(vec!["remove"]),
                5 => Decision::Replace(former(), vec!["remove", "create"]),
                6 if fresh => Decision::End(End::Absent),
                _ if fresh => Decision::Create(vec!["create"]),
                _ => Decision::Observe,
            };
            Event::Observed(Observation { decision, proof, fresh, vendor_ids: Vec::new() })
        }
        State::Writing(_) => match choice {
            0 | 1 => Event::Written(Outcome::Accepted),
            2 => Event::Written(Outcome::Created("lb-1".to_owned())),
            3 => failed(Fault::Busy),
            4 => failed(Fault::NotFound),
            5 => failed(Fault::Quota),
            _ => failed(Fault::OutcomeUnknown),
        },
        State::Waiting { .. } if choice == 0 => Event::Replaced,
        State::Waiting { .. } => Event::Elapsed(now),
        // In most cases a newer order replaces the result, so that the task continues.
        State::Ending { .. } if choice == 0 => Event::Published,
        State::Ending { .. } => Event::Replaced,
        State::Ended => Event::Elapsed(now),
    }
}

#[derive(Debug, Default)]
struct Log {
    /// The end of the last write, and whether this write was a create of unknown outcome.
    wrote: Option<(Instant, bool)>,
    /// The expected delay of the next wait, if there was neither a write nor a newer request since the last wait.
    delay: Option<Duration>,
    made: u32,
}

impl Log {
    fn check(&mut self, before: &TestState, event: &TestEvent, task: &TestTask, now: Instant) {
        match (before, &task.state) {
            (State::Ended, state) => assert!(matches!(state, State::Ended)),
            (&State::Observing { not_before, .. }, State::Writing(write)) => {
                assert!(
                    task.history.last.as_ref().is_some_and(|last| last.step == write.step),
                    "recorded first"
                );
                if let Some((at, unknown_create)) = self.wrote {
                    assert!(not_before >= at, "an observation after the last write");
                    let create = write.kind == WriteKind::Create;
                    assert!(!(unknown_create && create) || now >= at + CREATE_HORIZON, "a duplicate");
                }
                self.delay = None;
            }
            (before, State::Writing(_)) => panic!("a write without an observation, after {before:?}"),
            (State::Writing(write), _) => {
                let unknown =
                    matches!(event, Event::WriteFailed(error) if error.fault == Fault::OutcomeUnknown);
                self.wrote = Some((now, unknown && write.kind == WriteKind::Create));
                self.made += u32::from(matches!(event, Event::Written(_)));
            }
            (&State::Waiting { delay, .. }, _) => {
                self.delay = (!matches!(event, Event::Replaced)).then(|| (delay * 2).min(POLL_MAX));
            }
            (State::Observing { .. } | State::Ending { .. }, _) => (),
        }
        if let State::Waiting { delay, .. } = task.state {
            assert!(delay >= POLL && delay <= POLL_MAX, "{delay:?}");
            assert!(self.delay.is_none_or(|expected| delay == expected), "{delay:?}, {self:?}");
        }
        assert_eq!(task.done, self.made);
    }
}

proptest! {
    #[test]
    fn random_events_keep_the_rules(script in prop::collection::vec((0..10_usize, 0..40_000_u64), 1..200)) {
        let mut now = start();
        let (mut task, mut log) = (task(now), Log::default());
        for (choice, millis) in script {
            now += Duration::from_millis(millis);
            if let State::Waiting { delay, .. } = task.state {
                now += delay;
            }
            let event = possible(&task, choice, now);
            let (before, known) = (task.state.clone(), event.clone());
            task = task.step(event, now);
            log.check(&before, &known, &task, now);
        }
    }
}
