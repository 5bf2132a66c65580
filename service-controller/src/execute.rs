//! Executes a plan: calls the adapter, then patches the Service, then emits Events.

mod backends;
mod job;
pub(crate) mod patch;
mod reads;
mod rehearse;
mod verbs;
mod writes;

use cloud_api_proto::v1alpha1::LoadBalancerKey;
use controller_core::{
    Clock, adapter::Adapter, events::Recorder, explain::Ledger, leadership::Shards, start::Process,
};
use kube::Client;

use self::backends::Backends;
pub(crate) use self::{job::Job, verbs::Deletion};
use crate::{
    error::Error,
    events,
    metrics::Metrics,
    plan::{
        Action, Fact, Operation,
        memory::{Event, NextPass},
        service::ServiceId,
    },
};

/// Executes plans.
pub(crate) struct Executor {
    adapter: Adapter,
    client: Client,
    recorder: Recorder,
    metrics: Metrics,
    backends: Backends,
    clock: Clock,
    pub(crate) shards: Shards,
    /// What is out of sync, as shown on the status page.
    pub(crate) ledger: Ledger,
}

pub(crate) struct Failed {
    pub(crate) error: Box<Error>,
    /// Whether to plan again at once, because other settings are in force now.
    pub(crate) falls_back: bool,
}

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        Self { error: Box::new(error), falls_back: false }
    }
}

impl Executor {
    pub(crate) fn new(process: &Process, metrics: Metrics, ledger: Ledger) -> Self {
        Self {
            adapter: process.adapter.clone(),
            client: process.kube.clone(),
            recorder: process.recorder.clone(),
            metrics,
            backends: Backends::default(),
            clock: process.clock,
            shards: process.shards.clone(),
            ledger,
        }
    }

    /// Executes the actions in sequence. Stops at the first action that fails or must wait.
    pub(crate) async fn execute(&self, job: &mut Job<'_>, actions: &[Action]) -> Result<NextPass, Failed> {
        for action in actions {
            let next = match action {
                Action::AddFinalizer => self.add_finalizer(job).await?,
                Action::Ensure(ask) => self.ensure(job, ask).await?,
                Action::WriteStatus(ingress) => self.write_status(job, ingress).await?,
                Action::Delete(takeover) => {
                    let (id, step, now) = (&job.service.id, &Operation::Sync, job.now);
                    self.delete(job.memory, &Deletion { id, takeover, step, now }).await?
                }
                Action::Release => self.release(job).await?,
                Action::Forget => {
                    let event = Event::Forgotten { seen: job.seen.as_deref(), now: job.now };
                    self.emit(&job.service.id, &job.memory.on(event).facts);
                    NextPass::Now
                }
            };
            if next != NextPass::Now {
                return Ok(next);
            }
            self.ledger.record_done(&job.service.id.object(), action);
        }
        Ok(NextPass::Now)
    }

    /// Emits Events, and logs the same texts.
    pub(crate) fn emit<'a>(&self, id: &ServiceId, facts: impl IntoIterator<Item = &'a Fact>) {
        for fact in facts {
            self.recorder.emit(&events::about(id), events::notice(fact, Some(id)));
        }
    }

    /// Emits an Event about the whole cluster, and logs the same text.
    pub(crate) fn emit_for_cluster(&self, fact: &Fact) {
        self.recorder.emit(&self.shards.regarding(), events::notice(fact, None));
    }

    /// Whether a refusal of this call is to be reported to users, because the refusal lasts or the adapter's scope is not ready.
    pub(crate) fn is_refused(&self, call: &str) -> bool {
        self.adapter.call_health().is_refused(call) || self.adapter.scope().readiness().is_err()
    }

    fn key(&self, id: &ServiceId) -> LoadBalancerKey {
        LoadBalancerKey { cluster_id: self.adapter.cluster_id().to_owned(), owner_uid: id.uid.clone() }
    }
}
