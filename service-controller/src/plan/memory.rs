//! What the controller remembers about a Service between two reconciles: the [`State`] of its load balancer, and facts beside that state.
//! Each part has a pure `step` for events. This memory may be lost at any time, because after a restart the controller calls the adapter
//! once per Service. The adapter then answers without vendor calls.

mod confirmed;
mod ownership;
mod pacing;
mod reported;
mod settings;
mod state;

use std::time::Duration;

pub(crate) use self::{confirmed::Confirmed, pacing::Write, reported::Topic, state::Event};
use self::{
    ownership::Ownership,
    pacing::{Pacing, rest},
    reported::Reported,
    settings::Settings,
    state::{CacheView, Effect, Orphan, State},
};
use super::{
    Action, Ask, Fact,
    cloud::Balancer,
    conditions::Readiness,
    features::Features,
    service::{Family, Service},
    spec::Shape,
    wanted::Wanted,
};

/// How long a difference between the cache and the adapter's answer counts as a lag of the cache.
pub(crate) const LAG: Duration = Duration::from_mins(5);

/// How long the cache may still show a load balancer that was just deleted, especially after a restart of the adapter.
const ORPHAN_AFTER: Duration = Duration::from_mins(1);

/// Like `ORPHAN_AFTER`, but for a load balancer that this process created. A lag of the cache does not matter here. The delay only lets the
/// deletion brake count many Services that disappear together.
const CREATED_ORPHAN_AFTER: Duration = Duration::from_secs(5);

/// Delay before the next reconcile if the adapter's answer contains no delay.
const RETRY_DELAY: Duration = Duration::from_secs(2);

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Memory {
    state: State,
    pub(crate) owned: Ownership,
    pub(crate) settings: Settings,
    pub(crate) reported: Reported,
    pub(crate) pacing: Pacing,
    /// What the reconcile in progress found out for the Service's conditions.
    pub(crate) readiness: Option<Readiness>,
}

/// What the executor must do after an event.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Outcome {
    /// Events to emit, in order.
    pub(crate) facts: Vec<Fact>,
    pub(crate) next: NextPass,
    /// Time from the first to the last request for a node update that is now complete. `None`: no node update was completed.
    pub(crate) hosts_updated: Option<Duration>,
    /// Whether the update of the nodes failed, and no load balancer serves traffic.
    pub(crate) hosts_failed: bool,
    /// The current problem, even if it was reported before.
    pub(crate) problem: Option<Fact>,
    /// What the adapter waits for, in the adapter's words. Usually empty.
    pub(crate) waits: String,
}

/// When to plan for the Service again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum NextPass {
    /// At once, because more work may be due.
    #[default]
    Now,
    /// After a delay, because the adapter is working.
    After(Duration),
    /// With backoff, because a call failed.
    Backoff,
}

impl Memory {
    pub(crate) fn on(&mut self, event: Event<'_>) -> Outcome {
        let (memory, outcome) = std::mem::take(self).step(&event);
        *self = memory;
        outcome
    }

    fn step(self, event: &Event<'_>) -> (Self, Outcome) {
        let (state, effects) = self.state.step(event);
        let owned = self.owned.step(event, &state);
        let (settings, pacing) = (self.settings.step(event), self.pacing.step(event));
        let (mut memory, mut outcome) = (Self { state, owned, settings, pacing, ..self }, Outcome::default());
        effects.into_iter().for_each(|effect| memory.apply(effect, &mut outcome, event.now()));
        (memory, outcome)
    }

    fn apply(&mut self, effect: Effect, outcome: &mut Outcome, now: Duration) {
        match effect {
            Effect::Emit(fact) => outcome.facts.push(fact),
            Effect::Begin(fact) => outcome.facts.extend(self.reported.begin(fact, now)),
            Effect::Progress { budget } => outcome.facts.extend(self.reported.progress(budget, now)),
            Effect::End => self.reported.end(),
            Effect::Problem(step, text) => {
                outcome.facts.extend(self.reported.report_failure(&step, &text, now));
                outcome.problem = Some(Fact::Failed(step, text));
            }
            Effect::WriteFailed(step, failure) => {
                outcome.facts.extend(self.reported.report_write(&step, &failure, now));
                outcome.problem = Some(Fact::WriteFailed(step, failure));
            }
            Effect::Resolve(topic) => self.reported.resolve(topic),
            Effect::CountUpdate(since) => outcome.hosts_updated = Some(since),
            Effect::CountFailure => outcome.hosts_failed = true,
            Effect::ShowWait(text) => outcome.waits = text,
            Effect::Reset => {
                let (state, pacing) = (std::mem::take(&mut self.state), std::mem::take(&mut self.pacing));
                *self = Self { state, pacing: pacing.reset(), ..Self::default() };
            }
            Effect::Next(next) => outcome.next = next,
        }
    }

    /// Begins a reconcile. `reminded` contains the times at which Events of lasting conditions were re-emitted since the last reconcile.
    pub(crate) fn begin_round(&mut self, reminded: impl Iterator<Item = Duration>) {
        self.reported.begin_round(reminded, self.is_degraded());
    }

    pub(crate) fn observe(&mut self, service: &Service, cloud: Option<&[Balancer]>, now: Duration) {
        self.on(Event::Observed { service, cloud, now });
    }

    /// Whether a load balancer that belongs to this controller may still exist.
    pub(crate) fn may_own(&self, cloud: Option<&[Balancer]>) -> bool {
        self.owned.may_own(&self.state, cloud)
    }

    pub(crate) fn ensure_called(&mut self, ask: &Ask) -> Outcome {
        let retry = self.settings.were_refused(&ask.wanted.shape);
        self.on(Event::EnsureCalled { ask, retry })
    }

    /// Records that the adapter refused these settings. They are retried when they change, or after a delay.
    pub(crate) fn refuse(&mut self, ask: &Ask) {
        self.settings.refuse(ask);
        self.fall_back();
    }

    /// Requests only the family of the existing load balancer from now on, because the adapter cannot add the preferred second family.
    /// Returns whether that restriction is possible.
    pub(crate) fn narrow(
        &mut self,
        ask: &Ask,
        family: Option<Family>,
        service: &Service,
        features: &Features,
    ) -> bool {
        let Some(family) = family.filter(|_| ask.wanted.may_narrow) else { return false };
        self.settings.narrow(family, service, features);
        self.fall_back();
        true
    }

    /// Replaces the refused settings. Each replacement is tried once. Returns whether the replacement is tried now.
    pub(crate) fn replace(
        &mut self,
        refused: &Shape,
        replacement: impl FnOnce(&Self) -> Option<Wanted>,
    ) -> bool {
        if !self.settings.may_replace(refused) {
            return false;
        }
        let replacement = replacement(self).filter(|it| it.shape.digest != refused.digest);
        let Some(replacement) = replacement else { return false };
        self.settings.replace(refused, replacement);
        self.fall_back();
        true
    }

    fn fall_back(&mut self) {
        if self.settings.accepted.is_some() {
            self.on(Event::FellBack);
        }
    }

    /// The memory as it will be after the next call to the adapter. It is published before the call, for other workers that count load
    /// balancers.
    pub(crate) fn with_created(&self) -> Self {
        Self { owned: Ownership { created: true, ..self.owned }, ..self.clone() }
    }

    pub(crate) fn confirmed(&self) -> Option<&Confirmed> {
        self.state.confirmed()
    }

    /// Whether the adapter is creating or changing the load balancer, not only its backends.
    pub(crate) fn is_building(&self) -> bool {
        self.state.task() == Some(state::Task::Build)
    }

    pub(crate) fn is_removing(&self) -> bool {
        matches!(self.state, State::Removing { .. })
    }

    pub(crate) fn is_removed(&self) -> bool {
        self.state == State::Removed
    }

    pub(crate) fn is_gone(&self, balancer: &Balancer) -> bool {
        self.state.is_gone(balancer)
    }

    /// Whether the load balancer serves traffic but some parts of the load balancer do not work.
    pub(crate) fn is_degraded(&self) -> bool {
        self.confirmed().is_some_and(Confirmed::is_degraded)
    }

    fn missing_since(&self) -> Option<Duration> {
        let State::Removing { missing_since } = self.state else { return self.orphan().map(|it| it.since) };
        missing_since
    }

    fn orphan(&self) -> Option<&Orphan> {
        if let State::Orphaned(orphan) = &self.state { Some(orphan) } else { None }
    }

    /// Remaining time in which the cache may lag behind, or more Services may disappear. `None`: the load balancer is an orphan.
    pub(crate) fn orphan_doubt(&self, now: Duration) -> Option<Duration> {
        let doubt = if self.owned.created { CREATED_ORPHAN_AFTER } else { ORPHAN_AFTER };
        self.missing_since().and_then(|since| rest(since + doubt, now))
    }

    /// How long the load balancer has had no Service.
    pub(crate) fn orphan_for(&self, now: Duration) -> Duration {
        self.missing_since().map_or(Duration::ZERO, |since| now.saturating_sub(since))
    }

    /// Whether the orphan disappeared from the cache, which means that another client deleted it.
    pub(crate) fn has_vanished(&self) -> bool {
        self.orphan().is_some_and(|orphan| orphan.cache_view == CacheView::Vanished)
    }

    pub(crate) fn is_orphan_reported(&self) -> bool {
        self.orphan().is_some_and(|orphan| orphan.reported)
    }

    /// Whether the memory is kept after a reconcile. A Service without a finalizer, status or load balancer needs none. `exists`: whether the
    /// Service is in the cache.
    pub(crate) fn is_kept(&self, exists: bool, now: Duration) -> bool {
        *self != Self::default() && (exists || self.outlives_its_service(now))
    }

    fn outlives_its_service(&self, now: Duration) -> bool {
        let lasts = self.orphan().is_some() || self.owned.created || self.is_removing();
        lasts || self.pacing.release_lasts(now).is_some()
    }

    /// Returns the actions that are due now, and how long the other actions must wait.
    pub(crate) fn due(
        &self,
        service: &Service,
        actions: Vec<Action>,
        now: Duration,
    ) -> (Vec<Action>, Option<Duration>) {
        let (mut due, mut wait) = (Vec::new(), None);
        for action in actions {
            match self.pacing.delay(&action, service, now) {
                None => due.push(action),
                // An action that must wait also blocks the later actions, because nothing may be created before the finalizer is set. If
                // the load balancer is confirmed, only this action waits, so that the nodes behind the load balancer are still updated.
                Some(rest)
                    if matches!(action, Action::AddFinalizer | Action::WriteStatus(_))
                        && self.confirmed().is_some() =>
                {
                    wait = Some(rest);
                }
                Some(rest) => return (due, Some(rest)),
            }
        }
        (due, wait)
    }
}

#[cfg(test)]
mod tests;
