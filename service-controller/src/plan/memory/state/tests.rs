//! The table of all transitions, and properties of arbitrary sequences of events.

use std::sync::Arc;

use cloud_api_proto::v1alpha1::{LoadBalancerSpec, Recreate};
use proptest::prelude::*;

use super::*;
use crate::plan::{
    cloud::Details,
    memory::Memory,
    spec::{Shape, Takeover},
    status::Shown,
    wanted::Wanted,
};

const README: &str = include_str!("../../../../README.md");
const SECOND: Duration = Duration::from_secs(1);

fn ask(why: Why, at: Duration) -> Ask {
    let spec = LoadBalancerSpec::default();
    let shape = Shape { spec: spec.clone(), takeover: Takeover::None, digest: "shape".to_owned() };
    let wanted = Arc::new(Wanted {
        shape,
        selector: None,
        shown: Shown::default(),
        unnamed: false,
        may_narrow: false,
    });
    let (stands_in, recreate, without) = (false, Recreate::Never, None);
    Ask { spec, wanted, stands_in, why, recreate, hosts: Hosts::some(), without, at }
}

fn answer(state: CloudState) -> EnsureResult {
    EnsureResult {
        state,
        steps: 0,
        applied_hash: "hash".to_owned(),
        ingress: Vec::new(),
        why: String::new(),
        budget: None,
        failure: None,
        retry_after: None,
    }
}

fn removal(state: CloudState) -> Removal {
    Removal { state, why: String::new(), budget: None, failure: None, retry_after: None }
}

fn shown() -> Vec<Balancer> {
    vec![Balancer {
        vendor_id: "lb-1".to_owned(),
        state: CloudState::Active,
        applied_hash: "hash".to_owned(),
        ingress: Vec::new(),
        listeners: Vec::new(),
        backends: 2,
        details: Details::default(),
    }]
}

/// An event of a test. The table of transitions uses the same names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Observed { shown: bool },
    Missing { shown: bool },
    OrphanKept,
    Compare,
    Build { retry: bool },
    UpdateNodes,
    Ensured(CloudState),
    FellBack,
    Delete,
    Deleted(CloudState),
    InSync,
    Released,
    Forgotten,
}

const KINDS: [(Kind, &str); 21] = [
    (Kind::Observed { shown: true }, "The Service is in the cache"),
    (Kind::Observed { shown: false }, "The Service is in the cache, its load balancer is not"),
    (Kind::Missing { shown: true }, "The Service is missing in the cache"),
    (Kind::Missing { shown: false }, "The Service is missing in the cache"),
    (Kind::OrphanKept, "The orphan is kept"),
    (Kind::Compare, "Ensure is called to compare"),
    (Kind::Build { retry: false }, "Ensure is called for other settings"),
    (Kind::Build { retry: true }, "Ensure is called for refused settings"),
    (Kind::UpdateNodes, "Ensure is called for other nodes"),
    (Kind::Ensured(CloudState::Active), "Ensure: active"),
    (Kind::Ensured(CloudState::Degraded), "Ensure: degraded"),
    (Kind::Ensured(CloudState::Pending), "Ensure: pending"),
    (Kind::Ensured(CloudState::Error), "Ensure: error"),
    (Kind::FellBack, "The settings are refused, others are in force"),
    (Kind::Delete, "Delete is called"),
    (Kind::Deleted(CloudState::Absent), "Delete: absent"),
    (Kind::Deleted(CloudState::Deleting), "Delete: deleting"),
    (Kind::Deleted(CloudState::Error), "Delete: error"),
    (Kind::InSync, "Nothing to do"),
    (Kind::Released, "The finalizer is removed"),
    (Kind::Forgotten, "Another controller keeps the finalizer"),
];

/// Calls `then` with the event of this kind. An answer belongs to an ensure that only compares ([`Why::FirstLook`]).
fn with_event<T>(kind: Kind, now: Duration, then: impl FnOnce(Event<'_>) -> T) -> T {
    let (service, seen, step) = (Service::default(), shown(), Operation::Sync);
    let cloud = |shown| if shown { &seen[..] } else { &[] };
    match kind {
        Kind::Observed { shown } => {
            then(Event::Observed { service: &service, cloud: Some(cloud(shown)), now })
        }
        Kind::Missing { shown } => then(Event::ServiceMissing { shown: Some(shown), now }),
        Kind::OrphanKept => then(Event::OrphanKept("lb-1")),
        Kind::Compare => then(Event::EnsureCalled { ask: &ask(Why::FirstLook, now), retry: false }),
        Kind::Build { retry } => then(Event::EnsureCalled { ask: &ask(Why::Changed, now), retry }),
        Kind::UpdateNodes => then(Event::EnsureCalled { ask: &ask(Why::Hosts, now), retry: false }),
        Kind::Ensured(state) => {
            let (ask, answer) = (ask(Why::FirstLook, now), answer(state));
            then(Event::EnsureAnswered { ask: &ask, answer: &answer, seen: Some(&seen) })
        }
        Kind::FellBack => then(Event::FellBack),
        Kind::Delete => then(Event::DeleteCalled { now }),
        Kind::Deleted(state) => then(Event::DeleteAnswered { step: &step, answer: &removal(state), now }),
        Kind::InSync => then(Event::InSync { as_requested: true }),
        Kind::Released => then(Event::Released),
        Kind::Forgotten => then(Event::Forgotten { seen: Some(&seen), now }),
    }
}

fn name(state: &State) -> &'static str {
    match state {
        State::Unknown => "Unknown",
        State::Ensuring(_) => "Ensuring",
        State::Settled(_) => "Settled",
        State::Updating(..) => "Updating",
        State::Orphaned(_) => "Orphaned",
        State::Removing { .. } => "Removing",
        State::Removed => "Removed",
        State::Forgotten { .. } => "Forgotten",
    }
}

fn examples() -> Vec<State> {
    let confirmed =
        || Confirmed::new(&ask(Why::Missing, SECOND), &answer(CloudState::Active), Some(&shown()));
    let mut other = ask(Why::Hosts, SECOND);
    other.hosts = Hosts::default();
    let before = Confirmed::new(&other, &answer(CloudState::Active), Some(&shown()));
    vec![
        State::Unknown,
        State::Ensuring(Task::Build),
        State::Settled(confirmed()),
        State::Updating(before, Task::Hosts { since: SECOND }),
        State::Orphaned(Orphan { since: SECOND, cache_view: CacheView::Shown, reported: false }),
        State::Removing { missing_since: None },
        State::Removed,
        State::Forgotten { vendor_ids: ["lb-1".to_owned()].into(), at: SECOND },
    ]
}

fn text(effect: &Effect) -> Option<String> {
    let variant = |fact: &Fact| format!("{fact:?}").split('(').next().unwrap_or_default().to_owned();
    Some(match effect {
        Effect::Emit(fact) => format!("`{}`", variant(fact)),
        Effect::Begin(fact) => format!("`{}` until the end", variant(fact)),
        Effect::Progress { .. } => "remind".to_owned(),
        Effect::End => "end".to_owned(),
        Effect::Problem(..) => "`Failed`".to_owned(),
        Effect::WriteFailed(..) => "`WriteFailed`".to_owned(),
        Effect::CountUpdate(_) | Effect::CountFailure => "count".to_owned(),
        Effect::Reset => "reset".to_owned(),
        Effect::Next(NextPass::After(_)) => "call again".to_owned(),
        Effect::Next(NextPass::Backoff) => "back off".to_owned(),
        Effect::Next(NextPass::Now) | Effect::ShowWait(_) | Effect::Resolve(_) => return None,
    })
}

/// Whether the controller and the adapter can cause this event in this state. For example, an answer follows a call, and a release follows
/// a removal.
fn is_possible(kind: Kind, state: &State) -> bool {
    let ensures =
        matches!(state, State::Unknown | State::Ensuring(_) | State::Settled(_) | State::Updating(..));
    match kind {
        Kind::Ensured(_) | Kind::FellBack => ensures,
        // The adapter is called only after the Service was observed, which ends the state `Orphaned`.
        Kind::Compare | Kind::Build { .. } | Kind::UpdateNodes => !matches!(state, State::Orphaned(_)),
        Kind::Deleted(_) => matches!(state, State::Removing { .. }),
        Kind::OrphanKept => matches!(state, State::Orphaned(_)),
        Kind::Released | Kind::Forgotten => *state == State::Removed,
        Kind::Observed { .. } | Kind::Missing { .. } | Kind::Delete | Kind::InSync => true,
    }
}

/// Returns the transitions that change the state or have effects. Rows with the same event and result are joined.
fn table() -> String {
    let mut rows: Vec<(&str, &str, String, Vec<&str>)> = Vec::new();
    for (kind, event) in KINDS {
        for state in examples().into_iter().filter(|state| is_possible(kind, state)) {
            let from = name(&state);
            let (after, effects) = with_event(kind, SECOND * 2, |event| state.step(&event));
            let effects = effects.iter().filter_map(text).collect::<Vec<_>>().join(", ");
            if name(&after) == from && effects.is_empty() {
                continue;
            }
            let to = if name(&after) == from { "the same" } else { name(&after) };
            match rows.iter_mut().find(|(a, b, c, _)| (*a, *b, c) == (event, to, &effects)) {
                Some((.., all)) if all.contains(&from) => (),
                Some((.., all)) => all.push(from),
                None => rows.push((event, to, effects, vec![from])),
            }
        }
    }
    let row = |(event, to, effects, from): &(&str, &str, String, Vec<&str>)| {
        format!("| {event} | {} | {to} | {effects} |\n", from.join(", "))
    };
    let head = "| event | from | to | effects |\n| --- | --- | --- | --- |\n";
    head.to_owned() + &rows.iter().map(row).collect::<String>()
}

#[test]
fn transitions_are_in_the_readme() {
    let table = table();
    assert!(README.contains(&table), "replace the table in README.md by:\n{table}");
}

/// The facts that each state must agree with, derived from the events since the last reset.
#[derive(Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts")]
struct History {
    missing: bool,
    ensured: bool,
    confirmed: bool,
    deleting: bool,
    deleted: bool,
    begun: usize,
    deletions: usize,
}

impl History {
    fn add(&mut self, kind: Kind) {
        match kind {
            Kind::Observed { .. } => self.missing = false,
            Kind::Missing { .. } => (self.missing, self.confirmed, self.ensured) = (true, false, false),
            Kind::Compare | Kind::Build { .. } | Kind::UpdateNodes => {
                *self =
                    Self { confirmed: self.confirmed, begun: self.begun, ensured: true, ..Self::default() };
            }
            Kind::Ensured(CloudState::Active | CloudState::Degraded) => self.confirmed = true,
            Kind::Ensured(CloudState::Error) => self.confirmed = false,
            Kind::Delete => (self.deleting, self.confirmed, self.ensured) = (true, false, false),
            Kind::Deleted(CloudState::Absent) => self.deleted = true,
            Kind::Released | Kind::Forgotten => *self = Self::default(),
            Kind::Ensured(_) | Kind::Deleted(_) | Kind::OrphanKept | Kind::FellBack | Kind::InSync => (),
        }
    }

    fn allows(&self, state: &State) -> bool {
        match state {
            State::Unknown | State::Forgotten { .. } => true,
            State::Ensuring(_) => self.ensured,
            State::Settled(_) | State::Updating(..) => self.confirmed && self.ensured,
            State::Orphaned(_) => self.missing,
            State::Removing { .. } => self.deleting && !self.deleted,
            State::Removed => self.deleting && self.deleted,
        }
    }
}

proptest! {
    /// For every sequence of events, the state is legal, and no Event is emitted more often than its cause occurs.
    // Behaviour: S9
    #[test]
    fn every_history_has_a_legal_state(kinds in prop::collection::vec(0..KINDS.len(), 0..64)) {
        let (mut state, mut history, mut now) = (State::default(), History::default(), SECOND);
        for (kind, _) in kinds.into_iter().map(|n| KINDS[n]) {
            let is_answer = matches!(kind, Kind::Ensured(_) | Kind::FellBack);
            if !is_possible(kind, &state) || (is_answer && !history.ensured) {
                continue;
            }
            now += SECOND;
            history.add(kind);
            let before = state.clone();
            let (after, effects) = with_event(kind, now, |event| state.step(&event));
            if effects.contains(&Effect::Reset) {
                history = History::default();
            }
            prop_assert!(history.allows(&after), "{kind:?} in {before:?}: {after:?}");
            let count = |wanted: fn(&Effect) -> bool| effects.iter().filter(|it| wanted(it)).count();
            history.begun += usize::from(after.task() == Some(Task::Build) && before.task() != after.task());
            let ended = count(|it| *it == Effect::Emit(Fact::Ensured));
            prop_assert!(ended <= history.begun, "only work that began ends");
            history.begun -= ended;
            history.deletions += count(|it| *it == Effect::Begin(Fact::Deleting));
            prop_assert!(history.deletions <= 1, "one Event for each deletion");
            prop_assert!(count(|it| matches!(it, Effect::Next(_))) <= 1);
            prop_assert!(count(|it| matches!(it, Effect::CountUpdate(_) | Effect::CountFailure)) <= 1);
            // If the event is repeated, it may have effects again only if it is an answer.
            let (_, again) = with_event(kind, now, |event| after.clone().step(&event));
            let is_call = is_possible(kind, &after) && !matches!(kind, Kind::Ensured(_) | Kind::Deleted(_));
            let repeated = again.iter().any(|it| !matches!(it, Effect::Resolve(_)));
            prop_assert!(!(is_call && repeated), "{kind:?} twice in {before:?}");
            state = after;
        }
    }

    /// As long as the cache does not change, a settled Service stays settled and emits no Event. This does not depend on the events that
    /// led to that state.
    #[test]
    fn settled_service_stays_settled(
        kinds in prop::collection::vec(0..KINDS.len(), 0..32),
        delays in prop::collection::vec(0..100_000_u64, 0..16),
    ) {
        let (mut memory, mut now) = (Memory::default(), SECOND);
        for kind in kinds.into_iter().map(|n| KINDS[n].0) {
            with_event(kind, now, |event| memory.on(event));
        }
        for kind in [Kind::Compare, Kind::Ensured(CloudState::Active), Kind::Observed { shown: true }, Kind::InSync] {
            with_event(kind, now, |event| memory.on(event));
        }
        let settled = memory.clone();
        for seconds in delays {
            now += Duration::from_secs(seconds);
            memory.begin_round([].into_iter());
            for kind in [Kind::Observed { shown: true }, Kind::InSync] {
                let outcome = with_event(kind, now, |event| memory.on(event));
                prop_assert_eq!(outcome.facts, []);
            }
            prop_assert_eq!(memory.confirmed().unwrap().drift(&shown(), now), None);
            prop_assert_eq!(&memory, &settled);
        }
    }
}
