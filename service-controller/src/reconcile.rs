//! Reconciles one Service: observes, plans, executes, and decides when to reconcile again. All decisions are made in the other modules.

mod left_over;
mod rehearse;

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use controller_core::{
    Again, Clock, Link,
    events::Reminders,
    explain::{Brakes, Object},
    leadership::{ShardPass, Shards},
    start::Process,
};
use jiff::SignedDuration;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{debug, error, warn};

use self::left_over::Sweep;
use crate::{
    error::Error,
    events,
    execute::{Executor, Job},
    explain,
    mirror::Mirrors,
    plan::{
        Action, Fact, Facts, Plan, Wait,
        as_it_is::addresses_of,
        cloud::Balancer,
        features::Features,
        left_over::Orphans,
        memory::{Memory, NextPass},
        plan,
        service::{Holder, Role, Service, ServiceId},
        stale_id::without,
        targets::Targets,
        wanted::{Judged, Wanted},
    },
};

/// Maximum number of rounds per reconcile. A Service needs fewer: one to set the finalizer and ensure the load balancer, one to write the
/// status, and one that finds nothing to do.
const ROUNDS: usize = 5;
/// Delay after the last round, so that workers can reconcile other Services first.
const RETRY_DELAY: Duration = Duration::from_secs(1);
/// Grace period before an adapter outage is reported.
const PATIENCE: SignedDuration = SignedDuration::from_secs(10);

/// Reconciles Services.
pub(crate) struct Reconciler {
    pub(crate) mirrors: Mirrors,
    pub(crate) executor: Executor,
    clock: Clock,
    /// Ends the process when another replica has a newer fence.
    stop: CancellationToken,
    pub(crate) started: Instant,
    shards: Shards,
    /// The deletions that the deletion brake holds, for the status page.
    brakes: Brakes,
    /// Re-emits Events of conditions that last.
    pub(crate) reminders: Reminders,
    memories: Mutex<Memories>,
    orphans: Orphans,
    /// Deletion brake for load balancers that no Service uses any more.
    sweep: Mutex<Sweep>,
    /// Observe and plan, but change nothing.
    dry_run: bool,
}

/// Purpose of one observation of a Service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Purpose {
    /// To execute the plan. From then on, changes of the selected nodes requeue the Service.
    ToAct,
    /// To report what the plan would do. Such an observation changes no state.
    ToRehearse,
}

/// Result of one observation of a Service.
struct Observed {
    service: Service,
    judged: Judged,
    targets: Arc<Targets>,
    /// Time at which these nodes became the targets.
    targets_since: Instant,
    features: Option<Arc<Features>>,
    seen: Option<Vec<Balancer>>,
    now: Duration,
    plan: Plan,
}

impl Observed {
    /// Splits the observation into the plan, the verdict on the settings, and the job that executes the plan.
    fn job(self, memory: &mut Memory) -> (Plan, Judged, Job<'_>) {
        let Self { service, judged, targets, targets_since, features, seen, now, plan } = self;
        (plan, judged, Job { service, memory, targets, targets_since, features, seen, now })
    }
}

/// What the controller remembers about Services.
#[derive(Default)]
struct Memories {
    /// A worker has exclusive use of its key and works on a copy, so that others that count load balancers still see this entry.
    by_service: BTreeMap<ServiceId, Memory>,
    /// The term of each shard in which its memories were made. They are void in any other term.
    since: BTreeMap<usize, u64>,
}

impl Reconciler {
    pub(crate) fn new(mirrors: Mirrors, executor: Executor, orphans: Orphans, process: &Process) -> Self {
        let (started, shards) = (Instant::now(), executor.shards.clone());
        let sweep = Mutex::new(Sweep::new(orphans, started));
        let (clock, stop, brakes) = (process.clock, process.stop.clone(), process.explain.brakes());
        let (memories, dry_run) = (Mutex::default(), process.dry_run);
        let reminders = Reminders::new(process.recorder.clone(), shards.clone());
        Self {
            mirrors,
            executor,
            shards,
            brakes,
            reminders,
            clock,
            stop,
            started,
            memories,
            orphans,
            sweep,
            dry_run,
        }
    }

    /// Reconciles one Service until nothing is left to do or it must wait.
    pub(crate) async fn reconcile(&self, id: &ServiceId) -> Again {
        match self.shards.enter(&id.uid) {
            Ok(turn) => Box::pin(turn.run(self.turn(id, &turn))).await,
            Err(again) => again,
        }
    }

    async fn turn(&self, id: &ServiceId, turn: &ShardPass) -> Again {
        let mut memory = self.recall(id, turn);
        let (ledger, object) = (&self.executor.ledger, id.object());
        ledger.begin_pass(&object);
        let told = self.reminders.emitted_at(&object);
        memory.looks(told.into_iter().map(|at| at.saturating_duration_since(self.started)));
        let again = match self.rounds(id, &mut memory).await {
            Ok(again) => again,
            Err(error) => self.report(id, &mut memory, &error),
        };
        ledger.end_pass(&object);
        match self.mirrors.service(id) {
            Some(_) => ledger.mark_seen(&object),
            None => ledger.forget_seen(&object),
        }
        self.keeps_telling(id, &object, &memory, again);
        // A Service without a finalizer, status or load balancer needs no memory.
        let outlives =
            || memory.outlives_its_service() || memory.release_lasts(self.started.elapsed()).is_some();
        let kept = memory != Memory::default() && (self.mirrors.service(id).is_some() || outlives());
        let mut memories = self.memories();
        // If the term ended during the reconcile, the memory remains valid unless another replica has had a term since.
        if kept && memories.since.get(&turn.shard()) == Some(&turn.since()) {
            memories.by_service.insert(id.clone(), memory);
        } else {
            memories.by_service.remove(id);
        }
        again
    }

    /// Re-emits Events for conditions that nothing else re-triggers. The retry path emits its own.
    fn keeps_telling(&self, id: &ServiceId, object: &Object, memory: &Memory, again: Again) {
        let rests = matches!(again, Again::Done | Again::OnChange);
        let told = memory.troubles().filter(|_| rests);
        let told = told.map(|(news, at)| (self.started + at, events::notice(news))).collect();
        self.reminders.set(object, events::about(id), told);
    }

    /// Called when this process acquired or lost shards.
    pub(crate) fn shards_come(&self) {
        self.begin_sweep(Instant::now());
    }

    /// The memory of a Service. Memories of an earlier term are dropped, because another replica may have changed the load balancer.
    fn recall(&self, id: &ServiceId, turn: &ShardPass) -> Memory {
        let (mut memories, shard) = (self.memories(), turn.shard());
        if memories.since.insert(shard, turn.since()) != Some(turn.since()) {
            memories.by_service.retain(|id, _| !turn.is_for(&id.uid));
            self.executor.ledger.forget_where(|uid| turn.is_for(uid));
        }
        memories.by_service.get(id).cloned().unwrap_or_default()
    }

    async fn rounds(&self, id: &ServiceId, memory: &mut Memory) -> Result<Again, Error> {
        for _ in 0..ROUNDS {
            match Box::pin(self.round(id, memory)).await? {
                None => return Ok(Again::Done),
                Some(NextPass::Now) => (),
                Some(NextPass::After(delay)) => return Ok(Again::After(delay)),
                Some(NextPass::Backoff) => return Ok(Again::Backoff),
            }
        }
        Ok(Again::After(RETRY_DELAY))
    }

    /// Runs one round. `None`: nothing is left to do.
    async fn round(&self, id: &ServiceId, memory: &mut Memory) -> Result<Option<NextPass>, Error> {
        let Some(service) = self.mirrors.service(id) else {
            let seen = self.mirrors.balancers(&id.uid);
            return self.left_over(id, memory, seen.as_deref()).await;
        };
        if self.mirrors.address_was_freed(id) {
            memory.may_be_granted();
        }
        let sight = self.sight(service, memory, Purpose::ToAct);
        let (plan, service, now) = (&sight.plan, &sight.service, sight.now);
        self.remark(service, memory, &sight.judged, plan.builds());
        if plan.is_empty() {
            self.is_done(id, memory, &sight.judged);
            return Ok(None);
        }
        self.executor.ledger.record_plan(&id.object(), plan);
        debug!(plan = %plan.to_string().trim_end().replace('\n', "; "), "Executing plan");
        if let Some(wait) = plan.waits {
            return self.blocked(wait).map_or(Ok(self.stays(wait, service, memory, now)), Err);
        }
        if !plan.refusals.is_empty() {
            let refused = Error::Refused(plan.refusals.clone());
            if plan.actions.is_empty() {
                return Err(refused);
            }
            // The last valid settings remain in force.
            self.report(id, memory, &refused);
        }
        if !plan.claimed.is_empty() {
            self.waits(id, memory, &Fact::OfAnother(plan.claimed.join(", ")));
            return Ok(None);
        }
        if self.dry_run {
            if plan.refusals.is_empty() {
                self.executor.ledger.record_dry_run(&id.object());
            }
            return Ok(None);
        }
        self.act(id, memory, sight).await
    }

    /// Observes one Service and plans its actions. Cost: no calls.
    fn sight(&self, service: Service, memory: &mut Memory, look: Purpose) -> Observed {
        let seen = self.mirrors.balancers(&service.id.uid);
        let service = without(memory.overlay(service), memory.gone_id.as_deref(), seen.as_deref());
        let now = self.started.elapsed();
        let defaults = &self.mirrors.reading.defaults;
        memory.observe(&service, seen.as_deref(), now);
        let features = self.mirrors.features();
        memory.widen(&service, features.as_deref());
        let judged = Judged::of(&service, memory, defaults, features.as_deref(), now);
        let (judged, (targets, targets_since)) =
            self.bounded((judged, look), &service, memory, seen.as_deref());
        let facts = Facts {
            judged: &judged,
            targets: &targets,
            defaults,
            features: features.as_deref(),
            cloud: seen.as_deref(),
            now,
        };
        let plan = plan(&service, memory, &facts);
        Observed { service, judged, targets, targets_since, features, seen, now, plan }
    }

    /// Returns the settings in force after applying the limit on members, and the nodes that they select.
    fn bounded(
        &self,
        (judged, look): (Judged, Purpose),
        service: &Service,
        memory: &Memory,
        seen: Option<&[Balancer]>,
    ) -> (Judged, (Arc<Targets>, Instant)) {
        let targets_of = |judged: &Judged| match look {
            Purpose::ToAct => self.mirrors.targets_of(&service.id, judged.selector()),
            Purpose::ToRehearse => self.mirrors.targets(judged.selector()),
        };
        let targets = targets_of(&judged);
        let of = (service, &self.mirrors.reading.defaults);
        let selector = judged.selector().cloned();
        let judged = judged.bounded(of, targets.0.len(), (memory, seen));
        if judged.selector() == selector.as_ref() {
            return (judged, targets);
        }
        let targets = targets_of(&judged);
        (judged, targets)
    }

    /// Executes the actions of a plan that are due.
    async fn act(
        &self,
        id: &ServiceId,
        memory: &mut Memory,
        sight: Observed,
    ) -> Result<Option<NextPass>, Error> {
        let (plan, judged, mut job) = sight.job(memory);
        let (due, wait) = due(&job.service, job.memory, plan.actions, job.now);
        if due.is_empty() {
            self.executor.ledger.keep_last_wait(&id.object());
            return Ok(wait.map(NextPass::After));
        }
        self.count(id, job.memory, &due);
        match self.executor.carry_out(&mut job, &due).await {
            Err(error) if self.has_a_stand_in(&mut job, &judged, &error) => {
                self.report(id, job.memory, &error);
                Ok(Some(NextPass::Now))
            }
            carried => carried.map(Some),
        }
    }

    /// Records that nothing is left to do.
    fn is_done(&self, id: &ServiceId, memory: &mut Memory, judged: &Judged) {
        memory.calm();
        if !judged.stands_in {
            memory.agree();
        }
        // The settings in force are in sync, but they are not those that the Service requests.
        if judged.stands_in || memory.is_degraded() {
            self.executor.ledger.keep_last_wait(&id.object());
        } else {
            self.executor.ledger.mark_settled(&id.object());
        }
    }

    /// The error that blocks the whole plan, if that error must be reported.
    fn blocked(&self, wait: Wait) -> Option<Error> {
        match wait {
            Wait::Aloud => Some(Error::AdapterAway(self.mirrors.adapter_link())),
            Wait::ForBalancers => Some(Error::WithoutLoadBalancers),
            Wait::Quietly | Wait::ForNodes | Wait::ForAnother => None,
        }
    }

    /// Waits for a condition that changes without this controller, and reports it if it lasts.
    fn stays(&self, wait: Wait, service: &Service, memory: &mut Memory, now: Duration) -> Option<NextPass> {
        match wait {
            Wait::Aloud | Wait::ForBalancers => None,
            Wait::Quietly => {
                let away = Error::AdapterAway(self.mirrors.adapter_link());
                self.executor.ledger.record_wait(&service.id.object(), &explain::failing(&away, false));
                None
            }
            Wait::ForNodes => {
                self.waits(&service.id, memory, &Fact::NoNodes);
                None
            }
            Wait::ForAnother => self.for_another(service, memory, now),
        }
    }

    /// Reports a condition that only a user, an operator or another controller can change, and records it for the status page.
    fn waits(&self, id: &ServiceId, memory: &mut Memory, news: &Fact) {
        let said = memory.once(news.clone(), self.started.elapsed());
        self.executor.ledger.record_wait(&id.object(), &explain::waiting(news, !said.is_empty()));
        self.executor.tell(id, &said);
    }

    /// Whether other settings can be tried instead of the refused ones.
    fn has_a_stand_in(&self, job: &mut Job<'_>, judged: &Judged, error: &Error) -> bool {
        self.guesses(job, judged, error) || falls_back(&*job.memory, judged, error, job.now)
    }

    /// Whether the settings can be adapted to the attributes of the existing load balancer that cannot change.
    fn guesses(&self, job: &mut Job<'_>, judged: &Judged, error: &Error) -> bool {
        let (fixed, wanted) = (error.fixed(), judged.wanted.as_ref());
        let (Some(wanted), Some(features)) = (wanted, self.mirrors.features()) else { return false };
        if fixed.is_empty() || judged.stands_in || !job.memory.may_guess(&wanted.shape) {
            return false;
        }
        let there = addresses_of(&job.service, job.seen.as_deref());
        let defaults = &self.mirrors.reading.defaults;
        let stand_in = Wanted::as_it_is(&job.service, defaults, &features, job.memory, (&fixed, &there));
        let stand_in = stand_in.filter(|it| it.shape.digest != wanted.shape.digest);
        stand_in.map(|stand_in| job.memory.guess(&wanted.shape, stand_in)).is_some()
    }

    /// Gives the other controller some time before reporting that its finalizer blocks the deletion.
    fn for_another(&self, service: &Service, memory: &mut Memory, now: Duration) -> Option<NextPass> {
        let rest = memory.patience(now);
        if rest.is_none() {
            let holders = match &service.holder {
                Holder::Others(holders) => Some(holders.clone()),
                Holder::Unknown | Holder::Author => None,
            };
            self.waits(&service.id, memory, &Fact::HeldByAnother(holders));
        }
        rest.map(NextPass::After)
    }

    /// Emits the informational Events of a Service that this adapter serves.
    fn remark(&self, service: &Service, memory: &mut Memory, judged: &Judged, builds: bool) {
        if service.role() == Role::Wanted && self.mirrors.has_load_balancers() == Some(true) {
            let mut news = memory.remarks(&service.foreign, judged, builds);
            news.extend(memory.grown(judged.grown, self.started.elapsed()));
            self.executor.tell(&service.id, &news);
        }
    }

    /// Updates the shared memories before the actions run, for other workers that count load balancers.
    fn count(&self, id: &ServiceId, memory: &Memory, actions: &[Action]) {
        if actions.iter().any(|it| matches!(it, Action::Delete(_))) {
            self.goes(id);
        } else if actions.iter().any(|it| matches!(it, Action::Ensure(_))) {
            self.memories().by_service.insert(id.clone(), memory.begun());
        }
    }

    /// Reports an error when it begins and at intervals, and returns when to reconcile again.
    fn report(&self, id: &ServiceId, memory: &mut Memory, error: &Error) -> Again {
        if let Error::AdapterAway(link) = error
            && !self.is_long_away(link)
        {
            self.executor.ledger.record_wait(&id.object(), &explain::failing(error, false));
            return Again::After(RETRY_DELAY);
        }
        if error.is_superseded() {
            if !self.stop.is_cancelled() {
                error!(error = %error.text(), "Ends");
                self.stop.cancel();
            }
            return error.again();
        }
        if let Some(delay) = error.hold() {
            memory.hold(self.started.elapsed(), delay);
        }
        let lasts = error.not_done().is_some_and(|call| memory.lasts(call));
        let passes = error.refused_altogether().is_some_and(|call| !self.executor.is_refused(call));
        let mut told = Vec::new();
        if passes {
            debug!(service = %id, error = %error.text(), "Reconcile failed, retrying");
        } else if error.is_news() || lasts {
            let (name, now) = (error.name(), self.started.elapsed());
            told = memory.trouble_named(error.topic(), &name, error.news(), now);
        } else {
            warn!(service = %id, error = %error.text(), "Reconcile failed, retrying");
        }
        // A reminder repeats the text of an earlier Event.
        let in_these_words = told.contains(&error.news());
        self.executor.ledger.record_wait(&id.object(), &explain::failing(error, in_these_words));
        self.executor.tell(id, &told);
        error.again()
    }

    /// A short outage of the adapter is usually a restart, and is not reported.
    fn is_long_away(&self, link: &Link) -> bool {
        match link {
            Link::Starting | Link::Up => false,
            Link::Down { since, .. } => self.clock.now().duration_since(*since) >= PATIENCE,
        }
    }

    /// Returns a copy of the memory of a Service.
    pub(crate) fn remembers(&self, id: &ServiceId) -> Memory {
        self.memories().by_service.get(id).cloned().unwrap_or_default()
    }

    /// Number of Services with a memory.
    #[cfg(test)]
    pub(crate) fn remembered(&self) -> usize {
        self.memories().by_service.len()
    }

    fn memories(&self) -> MutexGuard<'_, Memories> {
        // Each operation on the map is atomic, so a poisoned lock leaves it consistent.
        self.memories.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether the last valid settings now replace the refused ones. Those may need actions, too.
fn falls_back(memory: &Memory, judged: &Judged, error: &Error, now: Duration) -> bool {
    let wanted = judged.wanted.as_ref().filter(|_| error.refuses_the_wish() && !judged.stands_in);
    wanted.is_some_and(|wanted| memory.good.is_some() && memory.is_refused(&wanted.shape, now))
}

/// Returns the actions that are due now, and how long the others must wait: because the adapter asked for a delay, or because another
/// client reverts a write each time.
fn due(
    service: &Service,
    memory: &Memory,
    actions: Vec<Action>,
    now: Duration,
) -> (Vec<Action>, Option<Duration>) {
    let goes_on = |action: &_| matches!(action, Action::AddFinalizer | Action::WriteStatus(_));
    let (mut due, mut wait) = (Vec::new(), None);
    for action in actions {
        let rest = match &action {
            Action::AddFinalizer => memory.finalizer_paced(now),
            Action::Ensure(_) | Action::Delete(_) => memory.held(now),
            Action::WriteStatus(ingress) => memory.status_paced(ingress, now),
            // A client that restores the finalizer each time also causes a deletion each time, so the pause must precede the deletion.
            Action::Release => memory.release_paced(service, now),
            Action::Forget => None,
        };
        match rest {
            None => due.push(action),
            // Nothing is created before the finalizer is set. The nodes behind an existing load balancer are still updated.
            Some(rest) if goes_on(&action) && memory.settled.is_some() => wait = Some(rest),
            Some(rest) => return (due, Some(rest)),
        }
    }
    (due, wait)
}
