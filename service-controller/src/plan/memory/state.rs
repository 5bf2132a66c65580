//! The life cycle of a Service's load balancer, as a state machine. [`State::step`] is pure and the only function that changes the state.
//! The table of all transitions is in `README.md`, and a test compares it with this code.

use std::{collections::BTreeSet, time::Duration};

use super::{
    super::{
        Ask, Fact, Operation, Why,
        cloud::{Balancer, EnsureResult, Removal, State as CloudState, WriteFailure},
        service::Service,
        targets::Hosts,
    },
    Confirmed, LAG, NextPass, RETRY_DELAY, Topic,
};

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) enum State {
    /// Nothing is confirmed: the Service is new, this process has not called the adapter yet, or the load balancer failed.
    #[default]
    Unknown,
    /// The controller requested a load balancer, and the adapter has not confirmed it yet.
    Ensuring(Task),
    /// The adapter confirmed the load balancer.
    Settled(Confirmed),
    /// The adapter confirmed the load balancer, and the controller has requested a change since then.
    Updating(Confirmed, Task),
    Orphaned(Orphan),
    /// The controller requested a deletion. `missing_since` is set if the Service is missing in the cache, too.
    Removing {
        missing_since: Option<Duration>,
    },
    /// The adapter confirmed that no part of the load balancer is left.
    Removed,
    /// The load balancer is deleted, and its Service belongs to another controller. The cache may still show the load balancer.
    Forgotten {
        vendor_ids: BTreeSet<String>,
        at: Duration,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Task {
    /// Update the nodes. `since`: the time of the first request of this update.
    Hosts {
        since: Duration,
    },
    Build,
}

/// A load balancer whose Service is missing in the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Orphan {
    /// Time at which the Service was first missing, counted from the start of the process.
    pub(super) since: Duration,
    pub(super) cache_view: CacheView,
    pub(super) reported: bool,
}

/// Whether the cache has shown the load balancer since the Service disappeared from the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CacheView {
    Never,
    Shown,
    /// The cache showed the load balancer and later did not, so another client deleted it.
    Vanished,
}

/// An event in the life of a load balancer. Times are since the start of the process.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Event<'a> {
    /// The Service is in the cache. `cloud`: its load balancers in the cache; `None` if the cache of load balancers is not synced.
    Observed {
        service: &'a Service,
        cloud: Option<&'a [Balancer]>,
        now: Duration,
    },
    /// The Service is missing in the cache. `shown`: whether the cache shows a load balancer; `None` if the cache of load balancers is not
    /// synced.
    ServiceMissing {
        shown: Option<bool>,
        now: Duration,
    },
    /// The orphan load balancers with these IDs are kept.
    OrphanKept(&'a str),
    /// The controller is about to call the adapter for an ensure. `retry`: the adapter refused the same settings in an earlier call.
    EnsureCalled {
        ask: &'a Ask,
        retry: bool,
    },
    EnsureAnswered {
        ask: &'a Ask,
        answer: &'a EnsureResult,
        seen: Option<&'a [Balancer]>,
    },
    /// The adapter refused the requested settings, and other settings are in force.
    FellBack,
    /// The controller is about to call the adapter for a deletion.
    DeleteCalled {
        now: Duration,
    },
    DeleteAnswered {
        step: &'a Operation,
        answer: &'a Removal,
        now: Duration,
    },
    /// A reconcile found nothing to do. `as_requested`: the settings in force are those that the Service requests.
    InSync {
        as_requested: bool,
    },
    /// The Service no longer has this controller's finalizer.
    Released,
    /// The deletion ended, and the finalizer belongs to another controller.
    Forgotten {
        seen: Option<&'a [Balancer]>,
        now: Duration,
    },
}

/// A consequence of an event. [`super::Memory::on`] converts effects into an [`super::Outcome`] for the executor.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Effect {
    Emit(Fact),
    /// Emit this Event now, and again if the work takes long.
    Begin(Fact),
    /// Emit the Event of the work in progress again if the Event is due, and measure the wait for the call budget.
    Progress {
        budget: Option<String>,
    },
    /// A vendor write of the work in progress fails repeatedly. Emit an Event about this failure, unless it was already reported.
    WriteFailed(Operation, WriteFailure),
    /// The work in progress ended.
    End,
    /// Emit an Event about this failure, unless it was already reported.
    Problem(Operation, String),
    /// The problems of this topic are over.
    Resolve(Topic),
    /// The nodes were updated. Contains the time from the first to the last request for the update.
    CountUpdate(Duration),
    /// The update of the nodes failed, and no load balancer serves traffic.
    CountFailure,
    ShowWait(String),
    /// Drop the memory of the Service, except for the state and the pacing of writes.
    Reset,
    /// When to plan for the Service again. Without this effect, that is at once.
    Next(NextPass),
}

type Transition = (State, Vec<Effect>);

impl Event<'_> {
    /// Time of the event. Zero if no effect depends on it.
    pub(super) fn now(&self) -> Duration {
        match *self {
            Self::EnsureCalled { ask, .. } | Self::EnsureAnswered { ask, .. } => ask.at,
            Self::Observed { now, .. }
            | Self::ServiceMissing { now, .. }
            | Self::DeleteCalled { now }
            | Self::DeleteAnswered { now, .. }
            | Self::Forgotten { now, .. } => now,
            Self::OrphanKept(_) | Self::FellBack | Self::InSync { .. } | Self::Released => Duration::ZERO,
        }
    }
}

impl State {
    pub(crate) fn step(self, event: &Event<'_>) -> Transition {
        match *event {
            Event::Observed { cloud, now, .. } => (observed(self, cloud, now), vec![]),
            Event::ServiceMissing { shown, now } => service_missing(&self, shown, now),
            Event::OrphanKept(ids) => {
                let Self::Orphaned(orphan) = self else { return (self, vec![]) };
                let fact = (!orphan.reported).then(|| Effect::Emit(Fact::Orphaned(ids.to_owned())));
                (Self::Orphaned(Orphan { reported: true, ..orphan }), fact.into_iter().collect())
            }
            Event::EnsureCalled { ask, retry } => ensure_called(self, ask, retry),
            Event::EnsureAnswered { ask, answer, seen } => ensure_answered(self, ask, answer, seen),
            Event::FellBack => (self.with_task(|_task| None), vec![]),
            Event::DeleteCalled { .. } => delete_called(self),
            Event::DeleteAnswered { step, answer, .. } => delete_answered(self, step, answer),
            Event::InSync { as_requested } => in_sync(self, as_requested),
            Event::Released => (Self::Unknown, gone()),
            Event::Forgotten { seen, now } => {
                let vendor_ids = seen.into_iter().flatten().map(|it| it.vendor_id.clone()).collect();
                (Self::Forgotten { vendor_ids, at: now }, gone())
            }
        }
    }

    /// The adapter's last confirmation that the requested load balancer exists.
    pub(crate) fn confirmed(&self) -> Option<&Confirmed> {
        match self {
            Self::Settled(confirmed) | Self::Updating(confirmed, _) => Some(confirmed),
            Self::Unknown
            | Self::Ensuring(_)
            | Self::Orphaned(_)
            | Self::Removing { .. }
            | Self::Removed
            | Self::Forgotten { .. } => None,
        }
    }

    pub(super) fn task(&self) -> Option<Task> {
        match self {
            Self::Ensuring(task) | Self::Updating(_, task) => Some(*task),
            Self::Unknown
            | Self::Settled(_)
            | Self::Orphaned(_)
            | Self::Removing { .. }
            | Self::Removed
            | Self::Forgotten { .. } => None,
        }
    }

    /// Whether a removal has begun, or its end was confirmed.
    pub(super) fn is_removal(&self) -> bool {
        matches!(self, Self::Removing { .. } | Self::Removed)
    }

    pub(super) fn is_gone(&self, balancer: &Balancer) -> bool {
        matches!(self, Self::Forgotten { vendor_ids, .. } if vendor_ids.contains(&balancer.vendor_id))
    }

    /// Changes the task. If `change` returns no task, a state without a task stays the same.
    fn with_task(self, change: impl FnOnce(Option<Task>) -> Option<Task>) -> Self {
        match (change(self.task()), self) {
            (None, Self::Settled(confirmed) | Self::Updating(confirmed, _)) => Self::Settled(confirmed),
            (Some(task), Self::Settled(confirmed) | Self::Updating(confirmed, _)) => {
                Self::Updating(confirmed, task)
            }
            (Some(task), _) => Self::Ensuring(task),
            (None, Self::Ensuring(_)) => Self::Unknown,
            (None, other) => other,
        }
    }
}

/// Updates the state from the cache, which shows the Service and may have caught up with the cloud.
fn observed(state: State, cloud: Option<&[Balancer]>, now: Duration) -> State {
    match (state, cloud) {
        (State::Orphaned(_), _) => State::Unknown,
        (State::Removing { .. }, _) => State::Removing { missing_since: None },
        (State::Settled(confirmed), Some(cloud)) => State::Settled(confirmed.observe(cloud, now)),
        (State::Updating(confirmed, task), Some(cloud)) => {
            State::Updating(confirmed.observe(cloud, now), task)
        }
        (State::Forgotten { vendor_ids, at }, Some(cloud))
            if now.saturating_sub(at) >= LAG
                || !cloud.iter().any(|it| vendor_ids.contains(&it.vendor_id)) =>
        {
            State::Unknown
        }
        (state, _) => state,
    }
}

fn service_missing(state: &State, shown: Option<bool>, now: Duration) -> Transition {
    let state = match *state {
        State::Removed => return (State::Unknown, gone()),
        State::Removing { missing_since } => {
            State::Removing { missing_since: Some(missing_since.unwrap_or(now)) }
        }
        State::Orphaned(orphan) => {
            let cache_view = match (orphan.cache_view, shown) {
                (_, Some(true)) => CacheView::Shown,
                (CacheView::Shown, Some(false)) => CacheView::Vanished,
                (cache_view, _) => cache_view,
            };
            State::Orphaned(Orphan { cache_view, ..orphan })
        }
        State::Unknown
        | State::Ensuring(_)
        | State::Settled(_)
        | State::Updating(..)
        | State::Forgotten { .. } => {
            let cache_view = if shown == Some(true) { CacheView::Shown } else { CacheView::Never };
            State::Orphaned(Orphan { since: now, cache_view, reported: false })
        }
    };
    (state, vec![])
}

/// From now on, the load balancer may exist, regardless of earlier events.
fn ensure_called(state: State, ask: &Ask, retry: bool) -> Transition {
    let state = match state {
        State::Unknown | State::Ensuring(_) | State::Settled(_) | State::Updating(..) => state,
        State::Orphaned(_) | State::Removing { .. } | State::Removed | State::Forgotten { .. } => {
            State::Unknown
        }
    };
    match ask.why {
        // The Event was already emitted when the settings were refused.
        Why::Changed if retry => (state.with_task(|_task| Some(Task::Build)), vec![]),
        Why::Changed | Why::Missing => start(state, Task::Build, ask),
        Why::Hosts => start(state, Task::Hosts { since: ask.at }, ask),
        Why::FirstLook | Why::Drift(_) => (state, vec![]),
    }
}

fn start(state: State, task: Task, ask: &Ask) -> Transition {
    let is_covered = match state.task() {
        Some(Task::Hosts { .. }) => task != Task::Build,
        Some(Task::Build) => true,
        None => false,
    };
    let effects = match task {
        _ if is_covered => return (state, vec![]),
        Task::Hosts { .. } => vec![],
        Task::Build => {
            let without = ask.without.clone().map(|why| Effect::Emit(Fact::NoTargets(why)));
            [Effect::Begin(Fact::Ensuring)].into_iter().chain(without).collect()
        }
    };
    (state.with_task(|_task| Some(task)), effects)
}

fn ensure_answered(state: State, ask: &Ask, answer: &EnsureResult, seen: Option<&[Balancer]>) -> Transition {
    let task = if ask.why == Why::Hosts { Task::Hosts { since: ask.at } } else { Task::Build };
    let (state, mut effects) = if answer.worked(seen) { start(state, task, ask) } else { (state, vec![]) };
    let next = answer.retry_after.map(NextPass::After);
    match answer.state {
        CloudState::Active | CloudState::Degraded => {
            if let Some(Task::Hosts { since }) = state.task() {
                effects.push(Effect::CountUpdate(ask.at.saturating_sub(since)));
            }
            effects.extend(finish(&state, ask));
            effects.push(if answer.state == CloudState::Degraded {
                let text = format!("the load balancer serves, but is degraded{}", tail(&answer.why));
                Effect::Problem(Operation::Sync, text)
            } else {
                Effect::Resolve(Topic::Work)
            });
            (State::Settled(Confirmed::new(ask, answer, seen)), effects)
        }
        CloudState::Pending => {
            effects.push(Effect::Progress { budget: answer.budget.clone() });
            effects.extend(answer.failure.clone().map(|it| Effect::WriteFailed(ask.step(), it)));
            effects.push(Effect::ShowWait(answer.why.clone()));
            effects.push(Effect::Next(next.unwrap_or(NextPass::After(RETRY_DELAY))));
            (state, effects)
        }
        CloudState::Error | CloudState::Deleting | CloudState::Absent | CloudState::Unknown => {
            let text = format!("the load balancer is {}{}", answer.state, tail(&answer.why));
            effects.push(Effect::Problem(ask.step(), text));
            effects.extend((ask.why == Why::Hosts).then_some(Effect::CountFailure));
            effects.push(Effect::Next(next.unwrap_or(NextPass::Backoff)));
            (state.task().map_or(State::Unknown, State::Ensuring), effects)
        }
    }
}

/// Returns the effects of a confirmation, except for problems of the load balancer.
fn finish(state: &State, ask: &Ask) -> Vec<Effect> {
    let without = ask.without.clone().map(Fact::NoTargets);
    let before = state.confirmed().map(|it| &it.hosts);
    // If the hosts are the same, only other attributes of these nodes changed, such as their zones.
    let done = |before: Option<&Hosts>| (before != Some(&ask.hosts)).then_some(Fact::Updated);
    let fact = match state.task() {
        None => None,
        Some(Task::Build) => Some(Fact::Ensured),
        Some(Task::Hosts { .. }) => without.or_else(|| done(before)),
    };
    let mut effects = vec![Effect::End];
    // If replacement settings are in force, the refused settings are still invalid.
    if !ask.stands_in {
        effects.extend([Effect::Resolve(Topic::Wish), Effect::Resolve(Topic::Refused)]);
    }
    effects.push(Effect::Resolve(Topic::Hosts));
    effects.extend(fact.map(Effect::Emit));
    effects
}

/// Discards the adapter's earlier confirmations.
fn delete_called(state: State) -> Transition {
    let missing_since = match state {
        State::Removing { .. } | State::Removed => return (state, vec![]),
        State::Orphaned(orphan) => Some(orphan.since),
        State::Unknown
        | State::Ensuring(_)
        | State::Settled(_)
        | State::Updating(..)
        | State::Forgotten { .. } => None,
    };
    (State::Removing { missing_since }, vec![Effect::End, Effect::Begin(Fact::Deleting)])
}

fn delete_answered(state: State, step: &Operation, answer: &Removal) -> Transition {
    match answer.state {
        CloudState::Absent => (State::Removed, vec![]),
        CloudState::Deleting | CloudState::Pending => {
            let next = NextPass::After(answer.retry_after.unwrap_or(RETRY_DELAY));
            let mut effects = vec![Effect::Progress { budget: answer.budget.clone() }];
            effects.extend(answer.failure.clone().map(|it| Effect::WriteFailed(step.clone(), it)));
            effects.extend([Effect::ShowWait(answer.why.clone()), Effect::Next(next)]);
            (state, effects)
        }
        CloudState::Error | CloudState::Active | CloudState::Degraded | CloudState::Unknown => {
            let why = tail(&answer.why);
            let text = format!("the load balancer is {} and was not deleted{why}", answer.state);
            (state, vec![Effect::Problem(step.clone(), text), Effect::Next(NextPass::Backoff)])
        }
    }
}

/// After this event, the next failure is reported at once.
fn in_sync(state: State, as_requested: bool) -> Transition {
    let degraded = state.confirmed().is_some_and(Confirmed::is_degraded);
    let requested = as_requested.then_some([Topic::Wish, Topic::Refused]).into_iter().flatten();
    let work = (!degraded).then_some(Topic::Work);
    let resolved = work.into_iter().chain([Topic::Hosts]).chain(requested).map(Effect::Resolve).collect();
    let state = if matches!(state, State::Orphaned(_)) { State::Unknown } else { state };
    (state, resolved)
}

/// Returns the effects of a finished deletion: the load balancer is gone, and the controller has nothing left to do for the Service.
fn gone() -> Vec<Effect> {
    vec![Effect::Reset, Effect::Emit(Fact::Deleted)]
}

fn tail(why: &str) -> String {
    if why.is_empty() { String::new() } else { format!(": {why}") }
}

#[cfg(test)]
mod tests;
