//! Reconciles load balancers whose Service is gone or no longer managed by this controller.

use std::{
    collections::BTreeSet,
    sync::{MutexGuard, PoisonError},
    time::Duration,
};

use controller_core::{
    brake::{self, Brake, Limits},
    leadership::{Holdings, Share},
};
use tokio::time::Instant;
use tracing::warn;

use super::{RETRY_DELAY, Reconciler};
use crate::{
    error::Error,
    execute::Deletion,
    explain,
    plan::{
        Fact, Operation,
        left_over::{Check, Orphans, Verdict, check, judge, refused_name, there},
        memory::{Event, Memory, NextPass, Topic},
        service::ServiceId,
        spec::Takeover,
    },
};

/// Maximum percentage of load balancers without a Service that are deleted per window.
const SHARE: usize = 30;
/// Maximum number of load balancers without a Service that are deleted per window.
const NUMBER: usize = 10;
/// Window of the deletion brake if orphans are only reported. In that case, the brake applies to load balancers that this process created.
const WINDOW: Duration = Duration::from_hours(1);
/// Name of this deletion brake on the status page.
const BRAKE: &str = "orphans";
/// Delay before a held deletion is checked again.
const HELD: Duration = Duration::from_mins(5);

/// The deletions of load balancers whose Service is gone, and the brake that limits these deletions.
#[derive(Debug)]
pub(super) struct Sweep {
    brake: Brake,
    /// The shards for which the brake was created.
    holdings: Holdings,
    /// Services whose load balancers wait for the brake.
    waiting: BTreeSet<ServiceId>,
}

impl Sweep {
    /// Returns a brake that holds no deletions. Orphans wait at least as long as the window, so a new brake does not further delay their
    /// deletion.
    pub(super) fn new(orphans: Orphans, now: Instant) -> Self {
        Self {
            brake: Brake::new(limits(orphans), now),
            holdings: Holdings::default(),
            waiting: BTreeSet::new(),
        }
    }
}

fn limits(orphans: Orphans) -> Limits {
    let window = match orphans {
        Orphans::Report => WINDOW,
        Orphans::DeleteAfter(age) => age,
    };
    Limits { share: SHARE, number: NUMBER, window }
}

impl Reconciler {
    /// Decides once about the load balancers of a Service that is not in the cache, and carries out the decision. `None`: nothing is left
    /// to do.
    pub(super) async fn left_over(
        &self,
        id: &ServiceId,
        memory: &mut Memory,
    ) -> Result<Option<NextPass>, Error> {
        let (ledger, object) = (&self.executor.ledger, id.object());
        let (seen, now) = (self.mirrors.balancers(&id.uid), self.started.elapsed());
        let check = check(memory, seen.as_deref(), now);
        if let Check::Done(facts, again) = check {
            ledger.mark_settled(&object);
            self.waits_no_more(id);
            self.executor.emit(id, &facts);
            return Ok(again.map(NextPass::After));
        }
        ledger.record_plan(&object, &"delete the load balancer, if its Service is gone");
        match check {
            Check::Wait(doubt) => return Ok(Some(NextPass::After(doubt))),
            Check::Hold(rest) => {
                ledger.keep_last_wait(&object);
                return Ok(Some(NextPass::After(rest)));
            }
            Check::Verify | Check::Done(..) => (),
        }
        let standing = self.executor.standing(id, &self.mirrors.reading).await?;
        let release = self.mirrors.release(id);
        let verdict = judge(standing, memory, self.orphans, &release, now);
        let there = there(seen.as_deref().unwrap_or_default());
        let next = self.apply(id, memory, &there, verdict).await?;
        if let Some(name) = refused_name(release, standing, memory) {
            self.refuse(id, memory, name);
        }
        Ok(next)
    }

    async fn apply(
        &self,
        id: &ServiceId,
        memory: &mut Memory,
        there: &[String],
        verdict: Verdict,
    ) -> Result<Option<NextPass>, Error> {
        let (ledger, object) = (&self.executor.ledger, id.object());
        match verdict {
            _removal if self.dry_run && verdict.removes() => {
                ledger.record_dry_run(&object);
                Ok(Some(NextPass::After(HELD)))
            }
            Verdict::Leave => {
                ledger.mark_settled(&object);
                self.waits_no_more(id);
                *memory = Memory::default();
                Ok(None)
            }
            Verdict::Wait => Ok(Some(NextPass::After(RETRY_DELAY))),
            Verdict::Report(again) => {
                let ids = there.join(", ");
                let facts = memory.on(Event::OrphanKept(&ids)).facts;
                ledger.record_wait(&object, &explain::waiting(&Fact::Orphaned(ids), !facts.is_empty()));
                self.executor.emit(id, &facts);
                if again.is_some() {
                    self.sweep().waiting.insert(id.clone());
                }
                Ok(again.map(NextPass::After))
            }
            Verdict::Remove { step, braked } => self.remove(id, memory, &step, braked).await.map(Some),
            Verdict::RemoveOrphan | Verdict::RemoveReleased if self.executor.knows(&id.uid).await? => {
                let why = "The load balancer is not deleted: the UID in its owner tags belongs to a Service with another name";
                self.report_wait(id, memory, &Fact::OrphanHeld(why.to_owned()));
                Ok(Some(NextPass::After(HELD)))
            }
            Verdict::RemoveOrphan => self.remove(id, memory, &Operation::LeftOver, true).await.map(Some),
            Verdict::RemoveReleased => {
                // The load balancer may exist although the cache does not show it.
                if !there.is_empty() {
                    self.executor.emit(id, &[Fact::OrphanReleased(there.join(", "))]);
                }
                self.remove(id, memory, &Operation::LeftOver, false).await.map(Some)
            }
        }
    }

    /// Reports a release whose name does not match the tags. This report replaces the report about the reason for which the load balancer
    /// is kept.
    fn refuse(&self, id: &ServiceId, memory: &mut Memory, given: String) {
        let (name, now) = (given.clone(), self.started.elapsed());
        let refused = Fact::ReleaseRefused(given, id.clone());
        let emitted = memory.reported.report(Topic::Release, &name, refused.clone(), now);
        self.waits(id, &refused, emitted.as_ref());
    }

    async fn remove(
        &self,
        id: &ServiceId,
        memory: &mut Memory,
        step: &Operation,
        braked: bool,
    ) -> Result<NextPass, Error> {
        if braked && let Some(rest) = self.brake(id, memory) {
            return Ok(NextPass::After(rest));
        }
        self.waits_no_more(id);
        // The brake no longer counts a load balancer that is about to be deleted.
        self.memories.forget(id);
        warn!(service = %id, uid = %id.uid, "Deleting a load balancer that no Service uses");
        let now = self.started.elapsed();
        self.executor.delete(memory, &Deletion { id, takeover: &Takeover::None, step, now }).await
    }

    /// Returns how long the brake delays the deletion, if the brake delays it.
    fn brake(&self, id: &ServiceId, memory: &mut Memory) -> Option<Duration> {
        self.begin_sweep(Instant::now());
        let (now, all) = (Instant::now(), self.mirrors.n_balancers(|uid| self.shards.has(uid)));
        let vanished = self.memories.vanished(&self.shards, |id| self.mirrors.service(id).is_none());
        let mut sweep = self.sweep();
        sweep.waiting.insert(id.clone());
        sweep.waiting.extend(vanished);
        sweep.waiting.retain(|id| self.mirrors.service(id).is_none() && self.shards.has(&id.uid));
        let wanted = sweep.waiting.len();
        let verdict = sweep.brake.ask(now, all.max(wanted), wanted);
        if !matches!(verdict, brake::Verdict::Tripped { .. }) {
            self.brakes.holds(BRAKE, Vec::new());
        }
        match verdict {
            brake::Verdict::Tripped { allowance } => {
                drop(sweep);
                let why = format!(
                    "{wanted} of {all} load balancers have no Service. The limit is {allowance} \
                     deletions at once, so none is deleted. Delete the unneeded load balancers in the cloud"
                );
                self.hold(id, memory, why);
                return Some(HELD);
            }
            // A new brake allows deletions only gradually, since an earlier process may have deleted some. This does not apply to load
            // balancers that this process created.
            brake::Verdict::Later { after } if !memory.owned.created => return Some(after),
            brake::Verdict::Later { .. } | brake::Verdict::Go => (),
        }
        sweep.waiting.remove(id);
        sweep.brake.went(now);
        None
    }

    /// Removes a Service from those that wait for the brake. If no Service is left, the brake no longer holds any deletion.
    fn waits_no_more(&self, id: &ServiceId) {
        let mut sweep = self.sweep();
        if sweep.waiting.remove(id) && sweep.waiting.is_empty() {
            drop(sweep);
            self.brakes.holds(BRAKE, Vec::new());
        }
    }

    /// Starts the brake again when this replica acquires a shard, because another replica may have deleted load balancers of that shard.
    /// With a single shard, the brake is kept until the process ends.
    pub(super) fn begin_sweep(&self, now: Instant) {
        let (mut sweep, shards) = (self.sweep(), &self.shards);
        let limits = limits(self.orphans).of_share(shards.held(), shards.count());
        match sweep.holdings.update(shards) {
            Share::Regained if shards.count() > 1 => sweep.brake = Brake::new(limits, now),
            Share::Regained | Share::Other => sweep.brake.limit(limits),
            Share::Same => (),
        }
    }

    /// Reports a held deletion on the Service and once for the cluster.
    fn hold(&self, id: &ServiceId, memory: &mut Memory, why: String) {
        self.brakes.holds(BRAKE, vec![why.clone()]);
        let held = Fact::OrphanHeld(why);
        let emitted = memory.reported.report_wait(held.clone(), self.started.elapsed());
        emitted.iter().for_each(|fact| self.executor.emit_for_cluster(fact));
        self.waits(id, &held, emitted.as_ref());
    }

    fn sweep(&self) -> MutexGuard<'_, Sweep> {
        // Each operation on the value is atomic, so a poisoned lock leaves the value consistent.
        self.sweep.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
