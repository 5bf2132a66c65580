//! Reconciles one Service: observes, plans, and executes the verdict about the plan. The pure modules of `plan` make the decisions.

mod describe;
mod left_over;
mod memories;
mod observe;
mod rehearse;

use std::{sync::Mutex, time::Duration};

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

use self::{left_over::Sweep, memories::Memories, observe::Purpose};
use crate::{
    error::Error,
    events,
    execute::{Executor, Job},
    explain,
    mirror::Mirrors,
    plan::{
        Action, Fact, Plan,
        conditions::Readiness,
        left_over::Orphans,
        memory::{Memory, NextPass, Write},
        readiness,
        report::{Report, Reporting, report},
        service::ServiceId,
        verdict::{InSync, Shared, Verdict},
        waiting::{Blocked, Waiting},
    },
};

/// Maximum number of rounds (plan and execute) per reconcile. A Service usually needs three. The first sets the finalizer and ensures the
/// load balancer, the second writes the status, and the third finds nothing left to do.
const ROUNDS: usize = 5;
/// Delay after the last round of a reconcile, so that workers can reconcile other Services first.
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
    pub(crate) reminders: Reminders,
    memories: Memories,
    orphans: Orphans,
    /// Deletion brake for load balancers that no Service uses any more.
    sweep: Mutex<Sweep>,
    /// Whether the controller only observes and plans, and changes nothing.
    dry_run: bool,
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

    /// Reconciles one Service until nothing is left to do or the Service must wait.
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
        let is_kept = memory.is_kept(exists, self.started.elapsed());
        self.memories.store(id, pass, is_kept.then_some(memory));
        again
    }

    /// Writes the findings of the reconcile to the conditions of the Service, unless they are already there. Returns when to try again if
    /// the write failed.
    ///
    /// Cost: one patch per change. Most changes were already written with the patches of the finalizer and of the addresses.
    async fn settle_conditions(&self, id: &ServiceId, memory: &mut Memory) -> Option<Again> {
        let found = memory.readiness.take();
        let mut service = memory.pacing.overlay(self.mirrors.service(id).filter(|_| !self.dry_run)?);
        let due = readiness::due(&service, memory, found.as_ref(), self.mirrors.features().as_deref())?;
        if let Err(error) = self.executor.write_conditions(&mut service, due).await {
            warn!(service = %id, error = %error.text(), "Cannot write the conditions");
            return error.again_for_conditions();
        }
        memory.pacing.wrote(Write::Conditions, &service, self.started.elapsed());
        None
    }

    fn remind(&self, id: &ServiceId, object: &Object, memory: &Memory, again: Again) {
        let lasting = memory.reported.to_remind(again);
        let lasting = lasting.map(|(fact, at)| (self.started + at, events::notice(fact, Some(id)))).collect();
        self.reminders.set(object, events::about(id), lasting);
    }

    /// Called at the start, and when this process has acquired shards.
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

    /// Runs one round: plans, and executes the plan. `None`: nothing is left to do.
    async fn round(&self, id: &ServiceId, memory: &mut Memory) -> Result<Option<NextPass>, Error> {
        let Some(service) = self.mirrors.service(id) else {
            return self.left_over(id, memory).await;
        };
        if self.mirrors.address_was_freed(id) {
            memory.settings.retry();
        }
        let mut job = self.observe(service, memory, Purpose::Execute);
        let plan = job.plan();
        let facts = job.informational_facts(plan.builds());
        self.executor.emit(id, &facts);
        let verdict = Verdict::of(&plan, self.dry_run);
        if verdict != Verdict::InSync {
            self.executor.ledger.record_plan(&id.object(), &plan);
            debug!(plan = %plan.to_string().trim_end().replace('\n', "; "), "Executing plan");
        }
        match verdict {
            Verdict::InSync => self.in_sync(&mut job),
            Verdict::Wait(wait) => match Waiting::of(wait, &job.service, job.memory, job.now) {
                Waiting::Fail(blocked) => return Err(self.blocked(blocked)),
                Waiting::Record => {
                    let away = self.blocked(Blocked::AdapterAway);
                    self.executor.ledger.record_wait(&id.object(), &explain::failing(&away, false));
                }
                Waiting::Report(fact) => self.report_wait(id, job.memory, &fact),
                Waiting::Later(rest) => return Ok(Some(NextPass::After(rest))),
            },
            Verdict::Refuse => return Err(Error::Refused(plan.refusals)),
            Verdict::ReportClaimed => {
                self.report_refusals(&mut job, &plan);
                self.report_wait(id, job.memory, &Fact::OfAnother(plan.claimed.join(", ")));
            }
            Verdict::RecordOnly => self.executor.ledger.record_dry_run(&id.object()),
            Verdict::ReportRefusals => self.report_refusals(&mut job, &plan),
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

    fn in_sync(&self, job: &mut Job<'_>) {
        let (ledger, object) = (&self.executor.ledger, job.service.id.object());
        let without = job.without_nodes();
        match InSync::of(&job.service, job.memory, &job.validated, without) {
            InSync::Settled => ledger.mark_settled(&object),
            InSync::WithoutNodes(why) => {
                ledger.record_wait(&object, &explain::waiting(&Fact::NoTargets(why), false));
            }
            InSync::StillWaits => ledger.keep_last_wait(&object),
        }
    }

    fn blocked(&self, blocked: Blocked) -> Error {
        Error::blocked(blocked, self.mirrors.adapter_link())
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

    /// Updates the shared memories before the actions run, for other workers that count load balancers.
    fn count(&self, id: &ServiceId, memory: &Memory, actions: &[Action]) {
        match Shared::before(actions) {
            Shared::Forget => self.memories.forget(id),
            Shared::Publish => self.memories.publish(id, memory.with_created()),
            Shared::Keep => (),
        }
    }

    /// Reports an error at its beginning and then at intervals, and returns when to reconcile again.
    fn report(&self, id: &ServiceId, memory: &mut Memory, error: &Error) -> Again {
        let now = self.started.elapsed();
        let lasts = memory.pacing.failed(error.failed_call(), error.hold(), now);
        let reporting = error.reporting(lasts, self.clock.now(), |call| self.executor.is_refused(call));
        let Report { event, is_current, again } = report(memory, reporting, error.failure(id), now);
        match reporting {
            Reporting::Stop => {
                if !self.stop.is_cancelled() {
                    error!(error = %error.text(), "Stopping this replica");
                    self.stop.cancel();
                }
                return again;
            }
            Reporting::Elsewhere => {
                debug!(service = %id, error = %error.text(), "Reconcile failed; retrying");
            }
            Reporting::Log => warn!(service = %id, error = %error.text(), "Reconcile failed; retrying"),
            Reporting::Quiet | Reporting::Event => (),
        }
        self.executor.ledger.record_wait(&id.object(), &explain::failing(error, is_current));
        self.executor.emit(id, &event);
        again
    }

    #[cfg(test)]
    pub(crate) fn remembered(&self) -> usize {
        self.memories.len()
    }
}
