//! The corridor: takes one Service through the four rooms. Decides nothing itself.

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
    start::{Process, Shards, Turn},
};
use jiff::SignedDuration;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{debug, error, warn};

use self::left_over::Sweep;
use crate::{
    events,
    execute::{Executor, Job},
    explain,
    mirror::Mirrors,
    plan::{
        Action, Facts, News, Plan, Wait,
        as_it_is::addresses_of,
        cloud::Balancer,
        features::Features,
        left_over::Orphans,
        memory::{Memory, Next},
        plan,
        service::{Holder, Role, Service, ServiceId},
        stale_id::without,
        targets::Targets,
        wanted::{Judged, Wanted},
    },
    requeue::Error,
};

/// More rounds than any Service needs: finalizer and ensure, status, and a look that finds nothing left.
const ROUNDS: usize = 5;
/// After that, others get their turn.
const BREATH: Duration = Duration::from_secs(1);
/// So long nobody needs to hear that the adapter is away.
const PATIENCE: SignedDuration = SignedDuration::from_secs(10);

/// Takes Services through the four rooms.
pub(crate) struct Reconciler {
    pub(crate) mirrors: Mirrors,
    pub(crate) executor: Executor,
    clock: Clock,
    /// Ends the process when a newer one is at work.
    stop: CancellationToken,
    pub(crate) started: Instant,
    shards: Shards,
    /// What the brake holds, for people who ask.
    brakes: Brakes,
    /// What lasts, for people who come later.
    pub(crate) reminders: Reminders,
    memories: Mutex<Memories>,
    orphans: Orphans,
    /// Over what no Service wants any more.
    sweep: Mutex<Sweep>,
    /// It looks and plans, and carries nothing out.
    dry_run: bool,
}

/// What a look at a Service is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Look {
    /// To carry out what is to be done: the nodes that it selects are followed from then on.
    ToAct,
    /// To say what would be done: nothing that outlives the look changes.
    ToRehearse,
}

/// What one look at a Service finds.
struct Sight {
    service: Service,
    judged: Judged,
    targets: Arc<Targets>,
    /// When these became the targets.
    targets_since: Instant,
    features: Option<Arc<Features>>,
    seen: Option<Vec<Balancer>>,
    now: Duration,
    plan: Plan,
}

impl Sight {
    /// The look without its plan and its judgement, as its plan is carried out.
    fn job(self, memory: &mut Memory) -> (Plan, Judged, Job<'_>) {
        let Self { service, judged, targets, targets_since, features, seen, now, plan } = self;
        (plan, judged, Job { service, memory, targets, targets_since, features, seen, now })
    }
}

/// What is remembered of Services.
#[derive(Default)]
struct Memories {
    /// One worker at a time has a key. It works on a copy, so that whoever counts them sees this one, too.
    by_service: BTreeMap<ServiceId, Memory>,
    /// By shard, since which term: in another one they are worth nothing.
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

    /// Looks at one Service until nothing is left to do, or until it has to wait.
    pub(crate) async fn reconcile(&self, id: &ServiceId) -> Again {
        match self.shards.enter(&id.uid) {
            Ok(turn) => Box::pin(turn.run(self.turn(id, &turn))).await,
            Err(again) => again,
        }
    }

    async fn turn(&self, id: &ServiceId, turn: &Turn) -> Again {
        let mut memory = self.recall(id, turn);
        let (ledger, object) = (&self.executor.ledger, id.object());
        ledger.begins(&object);
        let told = self.reminders.told(&object);
        memory.looks(told.into_iter().map(|at| at.saturating_duration_since(self.started)));
        let again = match self.rounds(id, &mut memory).await {
            Ok(again) => again,
            Err(error) => self.report(id, &mut memory, &error),
        };
        ledger.ends(&object);
        match self.mirrors.service(id) {
            Some(_) => ledger.looked_at(&object),
            None => ledger.overlooks(&object),
        }
        self.keeps_telling(id, &object, &memory, again);
        // What exists nowhere needs no memory.
        let outlives =
            || memory.outlives_its_service() || memory.release_lasts(self.started.elapsed()).is_some();
        let kept = memory != Memory::default() && (self.mirrors.service(id).is_some() || outlives());
        let mut memories = self.memories();
        // What was learnt while the term lapsed is still true if nobody else had one since.
        if kept && memories.since.get(&turn.shard()) == Some(&turn.since()) {
            memories.by_service.insert(id.clone(), memory);
        } else {
            memories.by_service.remove(id);
        }
        again
    }

    /// What lasts until something changes is told again meanwhile. What is tried again is told then.
    fn keeps_telling(&self, id: &ServiceId, object: &Object, memory: &Memory, again: Again) {
        let rests = matches!(again, Again::Done | Again::OnChange);
        let told = memory.troubles().filter(|_| rests);
        let told = told.map(|(news, at)| (self.started + at, events::notice(news))).collect();
        self.reminders.stands(object, events::about(id), told);
    }

    /// This process has other shards than before.
    pub(crate) fn shards_come(&self) {
        self.begin_sweep(Instant::now());
    }

    /// What is remembered of a Service. Nothing that another replica may know better by now.
    fn recall(&self, id: &ServiceId, turn: &Turn) -> Memory {
        let (mut memories, shard) = (self.memories(), turn.shard());
        if memories.since.insert(shard, turn.since()) != Some(turn.since()) {
            memories.by_service.retain(|id, _| !turn.is_for(&id.uid));
            self.executor.ledger.forget(|uid| turn.is_for(uid));
        }
        memories.by_service.get(id).cloned().unwrap_or_default()
    }

    async fn rounds(&self, id: &ServiceId, memory: &mut Memory) -> Result<Again, Error> {
        for _ in 0..ROUNDS {
            match Box::pin(self.round(id, memory)).await? {
                None => return Ok(Again::Done),
                Some(Next::Now) => (),
                Some(Next::After(delay)) => return Ok(Again::After(delay)),
                Some(Next::Backoff) => return Ok(Again::Backoff),
            }
        }
        Ok(Again::After(BREATH))
    }

    /// One look. `None`: nothing is left to do.
    async fn round(&self, id: &ServiceId, memory: &mut Memory) -> Result<Option<Next>, Error> {
        let Some(service) = self.mirrors.service(id) else {
            let seen = self.mirrors.balancers(&id.uid);
            return self.left_over(id, memory, seen.as_deref()).await;
        };
        if self.mirrors.address_was_freed(id) {
            memory.may_be_granted();
        }
        let sight = self.sight(service, memory, Look::ToAct);
        let (plan, service, now) = (&sight.plan, &sight.service, sight.now);
        self.remark(service, memory, &sight.judged, plan.builds());
        if plan.is_empty() {
            self.is_done(id, memory, &sight.judged);
            return Ok(None);
        }
        self.executor.ledger.plans(&id.object(), plan);
        debug!(plan = %plan.to_string().trim_end().replace('\n', "; "), "Carries out");
        if let Some(wait) = plan.waits {
            return self.blocked(wait).map_or(Ok(self.stays(wait, service, memory, now)), Err);
        }
        if !plan.refusals.is_empty() {
            let refused = Error::Refused(plan.refusals.clone());
            if plan.actions.is_empty() {
                return Err(refused);
            }
            // What was good before stays in force meanwhile.
            self.report(id, memory, &refused);
        }
        if !plan.claimed.is_empty() {
            self.waits(id, memory, &News::OfAnother(plan.claimed.join(", ")));
            return Ok(None);
        }
        if self.dry_run {
            if plan.refusals.is_empty() {
                self.executor.ledger.rests(&id.object());
            }
            return Ok(None);
        }
        self.act(id, memory, sight).await
    }

    /// What one look at a Service finds, and what is to be done about it. Cost: no calls.
    fn sight(&self, service: Service, memory: &mut Memory, look: Look) -> Sight {
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
        Sight { service, judged, targets, targets_since, features, seen, now, plan }
    }

    /// What is in force within the bound on members, with the nodes behind it.
    fn bounded(
        &self,
        (judged, look): (Judged, Look),
        service: &Service,
        memory: &Memory,
        seen: Option<&[Balancer]>,
    ) -> (Judged, (Arc<Targets>, Instant)) {
        let targets_of = |judged: &Judged| match look {
            Look::ToAct => self.mirrors.targets_of(&service.id, judged.selector()),
            Look::ToRehearse => self.mirrors.targets(judged.selector()),
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

    /// Does what is due of a plan.
    async fn act(&self, id: &ServiceId, memory: &mut Memory, sight: Sight) -> Result<Option<Next>, Error> {
        let (plan, judged, mut job) = sight.job(memory);
        let (due, wait) = due(&job.service, job.memory, plan.actions, job.now);
        if due.is_empty() {
            self.executor.ledger.stays(&id.object());
            return Ok(wait.map(Next::After));
        }
        self.count(id, job.memory, &due);
        match self.executor.carry_out(&mut job, &due).await {
            Err(error) if self.has_a_stand_in(&mut job, &judged, &error) => {
                self.report(id, job.memory, &error);
                Ok(Some(Next::Now))
            }
            carried => carried.map(Some),
        }
    }

    /// Nothing is left to do.
    fn is_done(&self, id: &ServiceId, memory: &mut Memory, judged: &Judged) {
        memory.calm();
        if !judged.stands_in {
            memory.agree();
        }
        // What stands in for the wish is as it should be, and the wish is not.
        if judged.stands_in || memory.is_degraded() {
            self.executor.ledger.stays(&id.object());
        } else {
            self.executor.ledger.settles(&id.object());
        }
    }

    /// What keeps everything from being done, if people shall hear of it as of an error.
    fn blocked(&self, wait: Wait) -> Option<Error> {
        match wait {
            Wait::Aloud => Some(Error::AdapterAway(self.mirrors.adapter_link())),
            Wait::ForBalancers => Some(Error::WithoutLoadBalancers),
            Wait::Quietly | Wait::ForNodes | Wait::ForAnother => None,
        }
    }

    /// Waits for what comes by itself, and says so where it takes long.
    fn stays(&self, wait: Wait, service: &Service, memory: &mut Memory, now: Duration) -> Option<Next> {
        match wait {
            Wait::Aloud | Wait::ForBalancers => None,
            Wait::Quietly => {
                let away = Error::AdapterAway(self.mirrors.adapter_link());
                self.executor.ledger.waits(&service.id.object(), &explain::failing(&away, false));
                None
            }
            Wait::ForNodes => {
                self.waits(&service.id, memory, &News::NoNodes);
                None
            }
            Wait::ForAnother => self.for_another(service, memory, now),
        }
    }

    /// What only somebody else can help with: told, and kept for who asks.
    fn waits(&self, id: &ServiceId, memory: &mut Memory, news: &News) {
        let said = memory.once(news.clone(), self.started.elapsed());
        self.executor.ledger.waits(&id.object(), &explain::waiting(news, !said.is_empty()));
        self.executor.tell(id, &said);
    }

    /// Whether there is something else to do than what was asked for.
    fn has_a_stand_in(&self, job: &mut Job<'_>, judged: &Judged, error: &Error) -> bool {
        self.guesses(job, judged, error) || falls_back(&*job.memory, judged, error, job.now)
    }

    /// Whether something can stand in for what cannot be reached on the load balancer that is there.
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

    /// Another controller gets its time before people hear that it does not let a Service go.
    fn for_another(&self, service: &Service, memory: &mut Memory, now: Duration) -> Option<Next> {
        let rest = memory.patience(now);
        if rest.is_none() {
            let holders = match &service.holder {
                Holder::Others(holders) => Some(holders.clone()),
                Holder::Unknown | Holder::Author => None,
            };
            self.waits(&service.id, memory, &News::HeldByAnother(holders));
        }
        rest.map(Next::After)
    }

    /// Tells what is no trouble, of a Service that this adapter serves.
    fn remark(&self, service: &Service, memory: &mut Memory, judged: &Judged, builds: bool) {
        if service.role() == Role::Wanted && self.mirrors.has_load_balancers() == Some(true) {
            let mut news = memory.remarks(&service.foreign, judged, builds);
            news.extend(memory.grown(judged.grown, self.started.elapsed()));
            self.executor.tell(&service.id, &news);
        }
    }

    /// Tells whoever counts load balancers what this worker is about to do to one.
    fn count(&self, id: &ServiceId, memory: &Memory, actions: &[Action]) {
        if actions.iter().any(|it| matches!(it, Action::Delete(_))) {
            self.goes(id);
        } else if actions.iter().any(|it| matches!(it, Action::Ensure(_))) {
            self.memories().by_service.insert(id.clone(), memory.begun());
        }
    }

    /// Tells people, when it begins and now and then, and says when to look again.
    fn report(&self, id: &ServiceId, memory: &mut Memory, error: &Error) -> Again {
        if let Error::AdapterAway(link) = error
            && !self.is_long_away(link)
        {
            self.executor.ledger.waits(&id.object(), &explain::failing(error, false));
            return Again::After(BREATH);
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
            debug!(service = %id, error = %error.text(), "Tries again");
        } else if error.is_news() || lasts {
            let (name, now) = (error.name(), self.started.elapsed());
            told = memory.trouble_named(error.topic(), &name, error.news(), now);
        } else {
            warn!(service = %id, error = %error.text(), "Tries again");
        }
        // A reminder repeats earlier words.
        let in_these_words = told.contains(&error.news());
        self.executor.ledger.waits(&id.object(), &explain::failing(error, in_these_words));
        self.executor.tell(id, &told);
        error.again()
    }

    /// An adapter that is away for a moment is being restarted, which is nobody's concern.
    fn is_long_away(&self, link: &Link) -> bool {
        match link {
            Link::Starting | Link::Up => false,
            Link::Down { since, .. } => self.clock.now().duration_since(*since) >= PATIENCE,
        }
    }

    /// A copy of what is remembered of a Service.
    pub(crate) fn remembers(&self, id: &ServiceId) -> Memory {
        self.memories().by_service.get(id).cloned().unwrap_or_default()
    }

    /// Of how many Services anything is remembered.
    #[cfg(test)]
    pub(crate) fn remembered(&self) -> usize {
        self.memories().by_service.len()
    }

    fn memories(&self) -> MutexGuard<'_, Memories> {
        // Every operation on the map is a single one: it is consistent whatever happened.
        self.memories.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether what was good stands in from now on for what was asked for: it, too, may have work to do.
fn falls_back(memory: &Memory, judged: &Judged, error: &Error, now: Duration) -> bool {
    let wanted = judged.wanted.as_ref().filter(|_| error.refuses_the_wish() && !judged.stands_in);
    wanted.is_some_and(|wanted| memory.good.is_some() && memory.is_refused(&wanted.shape, now))
}

/// What is done now, and how long the rest of it waits: for an adapter that asked not to be called, or because somebody else undoes a
/// write each time.
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
            // Whoever puts it back each time costs a deletion, too: the next one comes after the release.
            Action::Release => memory.release_paced(service, now),
            Action::Forget => None,
        };
        match rest {
            None => due.push(action),
            // Nothing is made before the finalizer is there; what is there goes on following the nodes.
            Some(rest) if goes_on(&action) && memory.settled.is_some() => wait = Some(rest),
            Some(rest) => return (due, Some(rest)),
        }
    }
    (due, wait)
}
