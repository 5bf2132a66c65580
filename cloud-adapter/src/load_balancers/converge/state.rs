//! The state machine of a task. Pure: [`Task::step`] computes the next task from an event, and the executor does what the state of the next
//! task says.
//!
//! The table of transitions is in `docs/explain/tasks.md`.

#[cfg(test)]
mod tests;

use std::{fmt, mem, sync::Arc, time::Duration};

use cloud_api_proto::{AdapterError, Reason, v1alpha1::Adoption};
use tokio::time::Instant;

use super::{
    super::{
        decide::{Decision, End},
        goal::Goal,
        memory::{self, WriteKind, Written},
    },
    failing::{Failing, Failure, Try},
};
use crate::driver::{Deduplication, Description, Fault, LoadBalancerRecord, Outcome, VendorError};

/// Maximum interval between observations of a task.
const POLL_MAX: Duration = Duration::from_secs(15);
/// Maximum time without progress. After this time the caller gets an error, and may retry.
const STUCK: Duration = Duration::from_mins(15);
/// Number of consecutive unknown outcomes after which the caller gets an error.
const UNKNOWN_MAX: u32 = 3;

pub(super) type History<D, S> = memory::History<S, Arc<LoadBalancerRecord<D>>>;

/// The state of a task, which says what the executor does now.
#[derive(Clone, Debug)]
pub(super) enum State<D, S> {
    /// Observe the key's load balancers, and decide. If `polls` is set, read only the known load balancer, and do not search for others.
    Observing { not_before: Instant, polls: bool },
    /// Make one write. The write is already in the history, so that a panic does not lose it.
    Writing(Write<S>),
    /// Wait until the delay has passed or a newer order arrives. If `pause` is [`Pause::Change`], the executor may use a shorter delay.
    Waiting { delay: Duration, pause: Pause, waits_for: String },
    /// Publish the result, unless there is a newer order.
    Ending { result: Result<End<D>, AdapterError>, not_before: Instant },
    /// Do nothing.
    Ended,
}

/// What a task waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pause {
    /// The cloud is making the last write, which it has accepted.
    Change,
    /// A retry, a proof, or a change by others. The delay grows.
    Backoff,
}

#[derive(Clone, Debug)]
pub(super) struct Write<S> {
    pub(super) step: Arc<S>,
    /// The vendor IDs of the key's load balancers before the write.
    pub(super) vendor_ids: Vec<String>,
    kind: WriteKind,
    /// The last write before this write.
    before: Option<Written<S>>,
}

#[derive(Clone, Debug)]
pub(super) enum Event<D, S> {
    Observed(Observation<D, S>),
    /// The observation may show the state before the last write.
    Outdated,
    Written(Outcome),
    WriteFailed(VendorError),
    /// The delay is over. Observations since this time are acceptable.
    Elapsed(Instant),
    /// A newer order has replaced the order of the last observation.
    Replaced,
    /// The observation or the decision failed, or the term is over.
    Failed(AdapterError),
    Published,
}

#[derive(Clone, Debug)]
pub(super) struct Observation<D, S> {
    pub(super) decision: Decision<D, S>,
    /// The earliest start of an observation that proves absence.
    pub(super) proof: Instant,
    /// Whether this observation proves absence.
    pub(super) fresh: bool,
    pub(super) vendor_ids: Vec<String>,
}

/// The properties of the cloud on which transitions depend.
#[derive(Clone, Debug)]
pub(super) struct Cloud {
    poll: Duration,
    consistency_horizon: Duration,
    create_horizon: Duration,
    deduplication: Deduplication,
}

impl From<Description> for Cloud {
    fn from(cloud: Description) -> Self {
        let Description { poll, consistency_horizon, create_horizon, deduplication, .. } = cloud;
        Self { poll, consistency_horizon, create_horizon, deduplication }
    }
}

#[derive(Clone, Debug)]
pub(super) struct Task<D, S> {
    pub(super) state: State<D, S>,
    pub(super) history: History<D, S>,
    /// The number of writes that the task has made.
    pub(super) done: u32,
    /// The number of writes in the newest plan, including the writes that the task has made.
    pub(super) total: u32,
    /// The ID of the load balancer that this task created, if the vendor returned it.
    pub(super) created: Option<String>,
    cloud: Cloud,
    term_began: Instant,
    started: Instant,
    /// The delay before the next observation.
    delay: Duration,
    /// The last step that failed because its object was busy or not found. The delay grows while the plan starts with this step.
    refused: Option<Arc<S>>,
    unknown: u32,
    /// The failures since the last write that was made.
    failing: Option<Failing<S>>,
}

impl<D, S: PartialEq + fmt::Display> Task<D, S> {
    pub(super) fn new(
        cloud: Cloud,
        history: History<D, S>,
        term_began: Instant,
        not_before: Instant,
        now: Instant,
    ) -> Self {
        Self {
            state: State::Observing { not_before, polls: false },
            history,
            done: 0,
            total: 0,
            created: None,
            delay: cloud.poll,
            cloud,
            term_began,
            started: now,
            refused: None,
            unknown: 0,
            failing: None,
        }
    }

    pub(super) fn failure(&self) -> Option<&Failure> {
        self.failing.as_ref().map(Failing::failure)
    }

    /// The task after an event. An event that cannot occur in the state is a defect, and ends the task.
    #[must_use]
    pub(super) fn step(mut self, event: Event<D, S>, now: Instant) -> Self {
        self.state = match (mem::replace(&mut self.state, State::Ended), event) {
            (State::Observing { not_before, .. }, Event::Observed(observation)) => {
                self.observed(observation, not_before, now)
            }
            (State::Observing { .. }, Event::Outdated) => State::Observing { not_before: now, polls: false },
            (State::Writing(write), Event::Written(outcome)) => self.written(write, outcome, now),
            (State::Writing(write), Event::WriteFailed(error)) => self.write_failed(write, error, now),
            (State::Waiting { delay, .. }, Event::Elapsed(tick)) => {
                self.delay = (delay * 2).min(POLL_MAX);
                State::Observing { not_before: tick, polls: true }
            }
            (State::Waiting { .. }, Event::Replaced) => {
                self.delay = self.cloud.poll;
                State::Observing { not_before: now, polls: true }
            }
            (State::Observing { .. } | State::Waiting { .. }, Event::Failed(error)) => {
                State::Ending { result: Err(error), not_before: now }
            }
            (State::Ending { not_before, .. }, Event::Replaced) => {
                State::Observing { not_before, polls: false }
            }
            (State::Ending { .. }, Event::Published) | (State::Ended, _) => State::Ended,
            (_, _) => {
                let error = AdapterError::new(Reason::Internal, "the task got an event of another state");
                State::Ending { result: Err(error), not_before: now }
            }
        };
        self
    }

    /// Returns the earliest start of an observation that proves absence. Such an observation starts after the task, and late enough to show
    /// the last writes of this process and of the previous leader.
    pub(super) fn proof(&self, goal: &Goal) -> Instant {
        let former = self.former_horizon(goal).map(|horizon| self.term_began + horizon);
        let last = self.history.last.as_ref().filter(|last| last.kind != WriteKind::Remove);
        former.max(last.map(|last| last.shows)).map_or(self.started, |proof| proof.max(self.started))
    }

    /// Returns how long after the start of the term reads may lack the previous leader's writes for the key. This process does not know the
    /// outcome of that leader's last create, which the vendor may still execute. `None`: there is nothing to wait for.
    fn former_horizon(&self, goal: &Goal) -> Option<Duration> {
        let Cloud { consistency_horizon, create_horizon, deduplication, .. } = self.cloud;
        let guarded = deduplication != Deduplication::ListThenCreate;
        match goal {
            Goal::Present(_, terms) if terms.adoption == Adoption::ById => Some(consistency_horizon),
            // The vendor refuses a second create, or answers with the result of the first create.
            Goal::Present(..) if guarded => None,
            // No load balancer is created for a Service that shares a load balancer.
            Goal::Present(desired, _) if desired.shares().is_some() => Some(consistency_horizon),
            // This process removed a load balancer in this term, so the last create of the previous leader is no longer in progress.
            Goal::Present(..) | Goal::Absent { .. }
                if !guarded && self.history.removed.is_some_and(|at| at >= self.term_began) =>
            {
                Some(consistency_horizon)
            }
            Goal::Present(..) | Goal::Absent { .. } => Some(create_horizon.max(consistency_horizon)),
        }
    }

    fn observed(&mut self, seen: Observation<D, S>, not_before: Instant, now: Instant) -> State<D, S> {
        let Observation { decision, proof, fresh, vendor_ids } = seen;
        let (steps, kind) = match decision {
            Decision::End(end) => {
                if matches!(end, End::Absent) {
                    // From now on, other keys may request the addresses of the deleted load balancer.
                    self.history.former = None;
                }
                return State::Ending { result: Ok(end), not_before };
            }
            Decision::Observe if fresh => return no_step(now),
            Decision::Observe if proof > now => {
                return self.wait_unless_stuck(Pause::Backoff, self.sure_reads(), now);
            }
            Decision::Observe => return State::Observing { not_before: proof, polls: false },
            Decision::Wait(waits_for) => {
                self.failing = self.failing.take().and_then(Failing::cloud_works);
                let pause = if self.is_changing() { Pause::Change } else { Pause::Backoff };
                return self.wait_unless_stuck(pause, waits_for, now);
            }
            Decision::Create(steps) => (steps, WriteKind::Create),
            Decision::Write(steps) => (steps, WriteKind::Change),
            Decision::Remove(steps) => (steps, WriteKind::Remove),
            Decision::Replace(record, steps) => {
                self.history.former = Some(record);
                (steps, WriteKind::Remove)
            }
        };
        self.total = self.done.saturating_add(u32::try_from(steps.len()).unwrap_or(u32::MAX));
        let Some(step) = steps.into_iter().next() else { return no_step(now) };
        self.failing = self.failing.take().and_then(|it| it.planned(&step));
        // While reads may not show the last create yet, any other create could produce a duplicate.
        let early = if kind == WriteKind::Create { proof > now } else { self.repeats(&step, now) };
        if early {
            let text = format!("waits until the cloud shows the last change; the next step is: {step}");
            return self.wait(Pause::Backoff, text);
        }
        let step = Arc::new(step);
        let before = self.history.last.take();
        if self.refused.as_ref() != Some(&step) {
            self.delay = self.cloud.poll;
        }
        self.record(&step, kind, now + self.late_horizon(kind), now);
        State::Writing(Write { step, vendor_ids, kind, before })
    }

    fn written(&mut self, write: Write<S>, outcome: Outcome, now: Instant) -> State<D, S> {
        let Write { step, vendor_ids, kind, .. } = write;
        self.created = match (outcome, kind) {
            (Outcome::Created(vendor_id), _) => Some(vendor_id),
            // The known ID may be outdated after this write.
            (_, WriteKind::Create | WriteKind::Remove) => None,
            (_, WriteKind::Change) => self.created.take(),
        };
        self.record(&step, kind, now + self.cloud.consistency_horizon, now);
        match kind {
            WriteKind::Create => self.history.former = None,
            WriteKind::Remove if !vendor_ids.is_empty() => self.history.removed = Some(now),
            WriteKind::Remove | WriteKind::Change => (),
        }
        self.done += 1;
        self.unknown = 0;
        self.failing = None;
        self.refused = None;
        self.delay = self.cloud.poll;
        self.wait(Pause::Change, format!("waits until the cloud shows the change: {step}"))
    }

    fn write_failed(&mut self, write: Write<S>, error: VendorError, now: Instant) -> State<D, S> {
        let Write { step, kind, before, .. } = write;
        let failure = error.of(&*step);
        if error.fault == Fault::OutcomeUnknown {
            self.record(&step, kind, now + self.late_horizon(kind), now);
            self.history.last.iter_mut().for_each(|last| last.failure = Some(failure.as_str().into()));
        } else if error.fault == Fault::Busy && kind == WriteKind::Create {
            // The load balancer exists, but reads do not show it yet. The task waits for the horizon, as after a create.
            self.record(&step, kind, now + self.cloud.consistency_horizon, now);
        } else {
            self.history.last = before;
        }
        self.count(&step, &error, &failure, now);
        self.refused = matches!(error.fault, Fault::Busy | Fault::NotFound).then_some(step);
        let without_former = kind == WriteKind::Create && may_be_due_to_former(error.fault);
        if without_former && self.history.former.take().is_some() {
            let text =
                format!("{failure}; the adapter retries without the properties of the former load balancer");
            return self.wait(Pause::Backoff, text);
        }
        match error.fault {
            // Another change of the object is in progress, or the object has disappeared, so the task observes again.
            Fault::Busy | Fault::NotFound => self.wait_unless_stuck(Pause::Backoff, failure, now),
            // The task checks the outcome first. It repeats the step only when reads are reliable.
            Fault::OutcomeUnknown if self.unknown < UNKNOWN_MAX => {
                self.unknown += 1;
                self.wait(Pause::Backoff, checks_first(&failure))
            }
            Fault::OutcomeUnknown
            | Fault::Budget
            | Fault::QueueFull
            | Fault::NotLeader
            | Fault::Throttled
            | Fault::Auth
            | Fault::Forbidden
            | Fault::Quota
            | Fault::Immutable
            | Fault::Invalid
            | Fault::Unsupported
            | Fault::Unavailable
            | Fault::Nonsense => {
                let error = AdapterError { message: failure, ..AdapterError::from(error) };
                State::Ending { result: Err(error), not_before: now }
            }
        }
    }

    /// Counts a failure, for the report to callers. The next attempt follows the next poll, and reads that show the last write reliably.
    fn count(&mut self, step: &Arc<S>, error: &VendorError, text: &str, now: Instant) {
        let unknown = error.fault == Fault::OutcomeUnknown;
        let shows = self.history.last.as_ref().filter(|last| last.step == *step).map(|last| last.shows);
        let next = shows.map_or(now + self.delay, |shows| shows.max(now + self.delay));
        self.failing = Some(Failing::add(self.failing.take(), step, Try { error: text, unknown, next, now }));
    }

    fn record(&mut self, step: &Arc<S>, kind: WriteKind, shows: Instant, now: Instant) {
        let step = Arc::clone(step);
        self.history.last = Some(Written { step, at: now, shows, kind, failure: None });
    }

    /// Returns the time after which reads reliably show a write that got no answer. The vendor may execute a request after the client has
    /// gone. Only a late create is harmful, because it may produce a duplicate.
    fn late_horizon(&self, kind: WriteKind) -> Duration {
        if kind == WriteKind::Create { self.cloud.create_horizon } else { self.cloud.consistency_horizon }
    }

    /// Returns whether the same step was made so recently that reads may not show it.
    fn repeats(&self, step: &S, now: Instant) -> bool {
        self.history.last.as_ref().is_some_and(|last| *last.step == *step && now < last.shows)
    }

    /// Returns whether the cloud is making a change that this task requested, and no write has failed since.
    pub(super) fn is_changing(&self) -> bool {
        self.done > 0 && self.refused.is_none() && self.failing.is_none() && self.unknown == 0
    }

    fn wait(&self, pause: Pause, waits_for: String) -> State<D, S> {
        State::Waiting { delay: self.delay, pause, waits_for }
    }

    /// Waits, unless there has been no progress for too long.
    fn wait_unless_stuck(&self, pause: Pause, waits_for: String, now: Instant) -> State<D, S> {
        let since = self.history.last.as_ref().map_or(self.started, |last| last.at.max(self.started));
        if now.duration_since(since) <= STUCK {
            return self.wait(pause, waits_for);
        }
        let text = format!("no progress for {} minutes: {waits_for}", STUCK.as_secs() / 60);
        let error = AdapterError::new(Reason::VendorUnavailable, text);
        State::Ending { result: Err(error), not_before: now }
    }

    /// Returns the text for a task that waits for reliable reads. If a failure caused the wait, the text reports the failure instead.
    fn sure_reads(&self) -> String {
        match self.history.last.as_ref().map(|last| last.failure.as_deref()) {
            Some(Some(failure)) => checks_first(failure),
            Some(None) => "waits until reads reliably show the last write".to_owned(),
            None => "waits until reads reliably show what was created before this adapter started".to_owned(),
        }
    }
}

/// Returns whether properties of the former load balancer may have caused the refusal. If so, these properties are not requested again.
fn may_be_due_to_former(fault: Fault) -> bool {
    matches!(fault, Fault::Busy | Fault::NotFound | Fault::Quota | Fault::Immutable | Fault::Invalid)
}

fn no_step<D, S>(now: Instant) -> State<D, S> {
    let error = AdapterError::new(Reason::Internal, "the driver planned no create step");
    State::Ending { result: Err(error), not_before: now }
}

/// Returns the text after a lost answer. Controllers append a similar text to the error.
fn checks_first(failure: &str) -> String {
    format!("{failure}; the adapter first checks whether the write was made")
}
