//! Reconciles one Service: observes, plans, and executes the verdict about the plan. The pure modules of `plan` make the decisions.

mod describe;
mod left_over;
mod memories;
mod rehearse;

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use controller_core::{
    Again, Clock,
    events::{Notice, Reminders},
    explain::{Brakes, Object},
    leadership::{ShardPass, Shards},
    start::Process,
};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{debug, error, warn};

use self::{left_over::Sweep, memories::Memories};
use crate::{
    error::{Error, Reporting},
    events,
    execute::{Executor, Job},
    explain,
    mirror::Mirrors,
    plan::{
        Action, Fact, Plan, Wait,
        conditions::Conditions,
        left_over::Orphans,
        members::Present,
        memory::{Event, Memory, NextPass, Write},
        readiness::{self, Readiness},
        service::{Role, Service, ServiceId},
        stale_id::without,
        targets::Targets,
        validated::Validated,
        verdict::Verdict,
    },
};

/// Maximum number of rounds per reconcile. A Service needs fewer: one to set the finalizer and ensure the load balancer, one to write the
/// status, and one that finds nothing to do.
const ROUNDS: usize = 5;
/// Delay after the last round, so that workers can reconcile other Services first.
const RETRY_DELAY: Duration = Duration::from_secs(1);

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
    memories: Memories,
    orphans: Orphans,
    /// Deletion brake for load balancers that no Service uses any more.
    sweep: Mutex<Sweep>,
    /// Observe and plan, but change nothing.
    dry_run: bool,
}

/// Purpose of one observation of a Service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Purpose {
    /// The plan will be executed. From then on, changes of the selected nodes requeue the Service.
    Execute,
    /// The observation only reports what the plan would do, and changes no state.
    Rehearse,
}

impl Reconciler {
    pub(crate) fn new(mirrors: Mirrors, executor: Executor, orphans: Orphans, process: &Process) -> Self {
        let (started, shards) = (Instant::now(), executor.shards.clone());
        let sweep = Mutex::new(Sweep::new(orphans, started));
        let (clock, stop, brakes) = (process.clock, process.stop.clone(), process.explain.brakes());
        let (memories, dry_run) = (Memories::default(), process.dry_run);
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
            Ok(pass) => Box::pin(pass.run(self.run(id, &pass))).await,
            Err(again) => again,
        }
    }

    async fn run(&self, id: &ServiceId, pass: &ShardPass) -> Again {
        let (ledger, object) = (&self.executor.ledger, id.object());
        if self.memories.enter(pass) {
            ledger.forget_where(|uid| pass.is_for(uid));
        }
        let mut memory = self.memories.of(id);
        ledger.begin_pass(&object);
        let reminded = self.reminders.emitted_at(&object);
        memory.begin_round(reminded.into_iter().map(|at| at.saturating_duration_since(self.started)));
        let again = match self.rounds(id, &mut memory).await {
            Ok(again) => again,
            Err(error) => self.report(id, &mut memory, &error),
        };
        ledger.end_pass(&object);
        let again = self.settle_conditions(id, &mut memory).await.unwrap_or(again);
        let exists = self.mirrors.service(id).is_some();
        if exists {
            ledger.mark_seen(&object);
        } else {
            ledger.forget_seen(&object);
        }
        self.remind(id, &object, &memory, again);
        // A Service without a finalizer, status or load balancer needs no memory.
        let is_kept =
            memory != Memory::default() && (exists || memory.outlives_its_service(self.started.elapsed()));
        self.memories.store(id, pass, is_kept.then_some(memory));
        again
    }

    /// Writes what the reconcile found out to the conditions of the Service, unless they already say so. Returns when to try again if the
    /// write failed.
    ///
    /// Cost: a patch per change. The patches of finalizer and addresses have written the usual changes already.
    async fn settle_conditions(&self, id: &ServiceId, memory: &mut Memory) -> Option<Again> {
        let readiness = memory.readiness.take();
        let mut service = memory.pacing.overlay(self.mirrors.service(id).filter(|_| !self.dry_run)?);
        let is_known = self.mirrors.features().is_some() || service.conditions.ready.is_some();
        let conditions = match service.role() {
            Role::Wanted if is_known => readiness::conditions(&service, Some(&readiness?)),
            Role::Ignored if service.conditions.are_ours && !memory.other_class.serving => {
                Conditions::default()
            }
            Role::Wanted | Role::Cleanup | Role::Ignored => return None,
        };
        if conditions.same_as(&service.conditions) {
            return None;
        }
        let Err(error) = self.executor.write_conditions(&mut service, conditions).await else {
            memory.pacing.wrote(Write::Conditions, &service, self.started.elapsed());
            return None;
        };
        warn!(service = %id, error = %error.text(), "Cannot write the conditions");
        (error.again() != Again::OnChange).then_some(Again::Backoff)
    }

    /// Re-emits Events for conditions that nothing else re-triggers. The retry path emits its own.
    fn remind(&self, id: &ServiceId, object: &Object, memory: &Memory, again: Again) {
        let rests = matches!(again, Again::Done | Again::OnChange);
        let lasting = memory.reported.problems().filter(|_| rests);
        let lasting = lasting.map(|(fact, at)| (self.started + at, events::notice(fact, Some(id)))).collect();
        self.reminders.set(object, events::about(id), lasting);
    }

    /// Called when this process acquired or lost shards.
    pub(crate) fn on_shards_acquired(&self) {
        self.begin_sweep(Instant::now());
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
            return self.left_over(id, memory).await;
        };
        if self.mirrors.address_was_freed(id) {
            memory.settings.retry();
        }
        let mut job = self.observe(service, memory, Purpose::Execute);
        let plan = job.plan();
        self.emit_informational_events(&mut job, plan.builds());
        let verdict = Verdict::of(&plan, self.dry_run);
        if verdict != Verdict::InSync {
            self.executor.ledger.record_plan(&id.object(), &plan);
            debug!(plan = %plan.to_string().trim_end().replace('\n', "; "), "Executing plan");
        }
        match verdict {
            Verdict::InSync => self.in_sync(&mut job),
            Verdict::Wait(wait) => return self.blocked(wait).map_or(Ok(self.wait(wait, &mut job)), Err),
            Verdict::Refuse => return Err(Error::Refused(plan.refusals)),
            Verdict::ReportClaimed => {
                self.report_refusals(&mut job, &plan);
                self.report_wait(id, job.memory, &Fact::OfAnother(plan.claimed.join(", ")));
            }
            Verdict::RecordOnly if plan.refusals.is_empty() => {
                self.executor.ledger.record_dry_run(&id.object());
            }
            Verdict::RecordOnly => self.report_refusals(&mut job, &plan),
            Verdict::Execute => {
                self.report_refusals(&mut job, &plan);
                return self.execute(&mut job, plan).await;
            }
        }
        Ok(None)
    }

    /// Reports settings that cannot be applied, while the last valid settings remain in force.
    fn report_refusals(&self, job: &mut Job<'_>, plan: &Plan) {
        if !plan.refusals.is_empty() {
            self.report(&job.service.id, job.memory, &Error::Refused(plan.refusals.clone()));
        }
    }

    /// Observes one Service. Cost: no calls.
    fn observe<'a>(&'a self, service: Service, memory: &'a mut Memory, purpose: Purpose) -> Job<'a> {
        let seen = self.mirrors.balancers(&service.id.uid);
        let ignored = memory.settings.ignored_id.clone();
        let service = without(memory.pacing.overlay(service), ignored.as_deref(), seen.as_deref());
        let now = self.started.elapsed();
        let defaults = &self.mirrors.reading.defaults;
        memory.observe(&service, seen.as_deref(), now);
        let features = self.mirrors.features();
        memory.settings.widen(&service, features.as_deref());
        let targets_of = |validated: &Validated| match purpose {
            Purpose::Execute => self.mirrors.targets_of(&service.id, validated.selector()),
            Purpose::Rehearse => self.mirrors.targets(validated.selector()),
        };
        let validated = Validated::of(&service, memory, defaults, features.as_deref(), now);
        let (selector, mut targets) = (validated.selector().cloned(), targets_of(&validated));
        let (nodes, accepted) = (targets.0.len(), memory.settings.accepted.as_ref());
        let present = Present { nodes, accepted, seen: seen.as_deref() };
        let validated = validated.bounded(&service, defaults, &present);
        if validated.selector() != selector.as_ref() {
            targets = targets_of(&validated);
        }
        let (targets, targets_since): (Arc<Targets>, Instant) = targets;
        Job { service, memory, validated, targets, targets_since, defaults, features, seen, now }
    }

    /// Executes the actions of a plan that are due.
    async fn execute(&self, job: &mut Job<'_>, plan: Plan) -> Result<Option<NextPass>, Error> {
        let id = job.service.id.clone();
        let (due, wait) = job.memory.due(&job.service, plan.actions, job.now);
        if due.is_empty() {
            self.executor.ledger.keep_last_wait(&id.object());
            return Ok(wait.map(NextPass::After));
        }
        self.count(&id, job.memory, &due);
        match self.executor.execute(job, &due).await {
            Ok(next) => Ok(Some(next)),
            Err(failed) if failed.falls_back => {
                self.report(&id, job.memory, &failed.error);
                Ok(Some(NextPass::Now))
            }
            Err(failed) => Err(*failed.error),
        }
    }

    /// Records that nothing is left to do.
    fn in_sync(&self, job: &mut Job<'_>) {
        let (object, as_requested) = (job.service.id.object(), !job.validated.stands_in);
        job.memory.on(Event::InSync { as_requested });
        if job.is_ready() {
            job.memory.readiness = Some(Readiness::Ready);
        }
        // Replaced settings are in sync, but they are not those that the Service requests.
        if as_requested && !job.memory.is_degraded() {
            self.executor.ledger.mark_settled(&object);
        } else {
            self.executor.ledger.keep_last_wait(&object);
        }
    }

    /// The error that blocks the whole plan, if that error must be reported.
    fn blocked(&self, wait: Wait) -> Option<Error> {
        match wait {
            Wait::Reported => Some(Error::AdapterAway(self.mirrors.adapter_link())),
            Wait::ForBalancers => Some(Error::WithoutLoadBalancers),
            Wait::Unreported | Wait::ForNodes | Wait::ForAnother => None,
        }
    }

    /// Waits for a condition that changes without this controller, and reports it if it lasts.
    fn wait(&self, wait: Wait, job: &mut Job<'_>) -> Option<NextPass> {
        let id = &job.service.id;
        match wait {
            Wait::Reported | Wait::ForBalancers => (),
            Wait::Unreported => {
                let away = Error::AdapterAway(self.mirrors.adapter_link());
                self.executor.ledger.record_wait(&id.object(), &explain::failing(&away, false));
            }
            Wait::ForNodes => self.report_wait(id, job.memory, &Fact::NoNodes),
            // The other controller gets some time before the wait is reported.
            Wait::ForAnother => match job.memory.pacing.grace_period(job.now) {
                Some(rest) => return Some(NextPass::After(rest)),
                None => {
                    self.report_wait(id, job.memory, &Fact::HeldByAnother(job.service.holder.others()));
                }
            },
        }
        None
    }

    /// Reports a condition that only a user, an operator or another controller can change, and records it for the status page.
    fn report_wait(&self, id: &ServiceId, memory: &mut Memory, fact: &Fact) {
        let emitted = memory.reported.report_wait(fact.clone(), self.started.elapsed());
        let Notice { reason, note, .. } = events::notice(fact, Some(id));
        memory.readiness = Some(Readiness::failing(reason, &note));
        self.waits(id, fact, emitted.as_ref());
    }

    /// Records a condition for the status page, and emits its Event if it is due.
    fn waits(&self, id: &ServiceId, fact: &Fact, due: Option<&Fact>) {
        self.executor.ledger.record_wait(&id.object(), &explain::waiting(fact, due.is_some()));
        self.executor.emit(id, due);
    }

    /// Emits the informational Events of a Service that this adapter serves.
    fn emit_informational_events(&self, job: &mut Job<'_>, builds: bool) {
        if job.service.role() == Role::Wanted && self.mirrors.has_load_balancers() == Some(true) {
            let reported = &mut job.memory.reported;
            let unnamed = job.validated.wanted.as_ref().map(|wanted| wanted.unnamed);
            let mut facts = reported.informational_facts(&job.service.foreign, unnamed, builds);
            facts.extend(reported.report_members(job.validated.grown, job.now));
            self.executor.emit(&job.service.id, &facts);
        }
    }

    /// Updates the shared memories before the actions run, for other workers that count load balancers.
    fn count(&self, id: &ServiceId, memory: &Memory, actions: &[Action]) {
        if actions.iter().any(|it| matches!(it, Action::Delete(_))) {
            self.memories.forget(id);
        } else if actions.iter().any(|it| matches!(it, Action::Ensure(_))) {
            self.memories.publish(id, memory.with_created());
        }
    }

    /// Reports an error when it begins and at intervals, and returns when to reconcile again.
    fn report(&self, id: &ServiceId, memory: &mut Memory, error: &Error) -> Again {
        let (ledger, object, now) = (&self.executor.ledger, id.object(), self.started.elapsed());
        if let Some(delay) = error.hold() {
            memory.pacing.hold(now, delay);
        }
        let lasts = error.failed_call().is_some_and(|call| memory.pacing.lasts(call));
        let mut emitted = None;
        match error.reporting(lasts, self.clock.now(), |call| self.executor.is_refused(call)) {
            Reporting::Stop => {
                if !self.stop.is_cancelled() {
                    error!(error = %error.text(), "Stopping this replica");
                    self.stop.cancel();
                }
                return error.again();
            }
            Reporting::Quiet => {
                ledger.record_wait(&object, &explain::failing(error, false));
                return Again::After(RETRY_DELAY);
            }
            Reporting::Elsewhere => {
                debug!(service = %id, error = %error.text(), "Reconcile failed; retrying");
            }
            Reporting::Log => warn!(service = %id, error = %error.text(), "Reconcile failed; retrying"),
            Reporting::Event => {
                emitted = memory.reported.report(error.topic(), &error.name(), error.fact(), now);
                let (reason, note) = (error.condition(), events::notice(&error.fact(), Some(id)).note);
                memory.readiness =
                    reason.map(|it| Readiness::failing(it, events::cause(&note))).or(memory.readiness.take());
            }
        }
        // If a reminder is due, the emitted Event repeats the text of an earlier Event.
        ledger.record_wait(&object, &explain::failing(error, emitted == Some(error.fact())));
        self.executor.emit(id, &emitted);
        error.again()
    }

    /// Number of Services with a memory.
    #[cfg(test)]
    pub(crate) fn remembered(&self) -> usize {
        self.memories.len()
    }
}
