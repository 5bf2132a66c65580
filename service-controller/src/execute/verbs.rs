//! Calls the adapter, and passes its answers to the memory. Writes nothing to the API server.

use std::time::Duration;

use cloud_api_proto::{
    AdapterError, Reason,
    v1alpha1::{
        DeleteLoadBalancerRequest, EnsureLoadBalancerRequest, EnsureLoadBalancerResponse, Known, Owner,
        Priority, VendorIds,
    },
};
use controller_core::adapter::Call;
use tokio::time::Instant;
use tracing::{debug, info};

use super::{Executor, Failed, Job};
use crate::{
    error::{Error, origins::Origins, places::of_ports},
    explain,
    plan::{
        Ask, Operation, Why,
        cloud::{EnsureResult, Removal},
        memory::{Confirmed, Event, LAG, Memory, NextPass, Outcome},
        refused::Reaction,
        service::ServiceId,
        spec::Takeover,
    },
};

#[derive(Debug)]
pub(crate) struct Deletion<'a> {
    pub(crate) id: &'a ServiceId,
    pub(crate) takeover: &'a Takeover,
    /// The step to report if the call fails.
    pub(crate) step: &'a Operation,
    /// Time since the start of the process.
    pub(crate) now: Duration,
}

impl Executor {
    pub(super) async fn ensure(&self, job: &mut Job<'_>, ask: &Ask) -> Result<NextPass, Failed> {
        let id = job.service.id.clone();
        self.emit(&id, &job.memory.ensure_called(ask).facts);
        let called = Instant::now();
        match self.ask(job, ask).await {
            Ok(answer) => {
                debug!(service = %id, why = %ask.why, ?answer, "Called EnsureLoadBalancer");
                let event = Event::EnsureAnswered { ask, answer: &answer, seen: job.seen.as_deref() };
                let outcome = job.memory.on(event);
                job.note(ask, answer.state, &outcome);
                if let Some(earlier) = outcome.hosts_updated {
                    self.metrics.hosts_updated(job.targets_since.elapsed(), earlier + called.elapsed());
                }
                Ok(self.apply(&id, &outcome))
            }
            Err(error) => {
                if ask.why == Why::Hosts {
                    self.metrics.hosts_failed();
                }
                self.react(job, ask, error)
            }
        }
    }

    fn react(&self, job: &mut Job<'_>, ask: &Ask, error: Error) -> Result<NextPass, Failed> {
        let reaction = job.react(ask, &error);
        let (service, text) = (&job.service.id, error.text());
        match reaction {
            Reaction::Narrow => {
                info!(%service, error = text, "Keeping the single address family of the load balancer");
                Ok(NextPass::Now)
            }
            Reaction::IgnoreId(id) => {
                info!(%service, id, error = text, "Ignoring the load balancer ID recorded by another controller");
                Ok(NextPass::Now)
            }
            Reaction::Restore => {
                info!(%service, error = text, "Cannot adapt the settings to the existing load balancer");
                self.ledger.keep_last_wait(&service.object());
                Ok(NextPass::After(LAG))
            }
            Reaction::FallBack => Err(Failed { falls_back: true, ..Failed::from(error) }),
            Reaction::Report => Err(error.into()),
        }
    }

    /// Does what an answer of the adapter requires, and returns when to plan for the Service again.
    fn apply(&self, id: &ServiceId, outcome: &Outcome) -> NextPass {
        if outcome.hosts_failed {
            self.metrics.hosts_failed();
        }
        self.emit(id, &outcome.facts);
        explain::note(&self.ledger, id, outcome);
        outcome.next
    }

    async fn ask(&self, job: &Job<'_>, ask: &Ask) -> Result<EnsureResult, Error> {
        let call = Call::with_priority(priority(&ask.why));
        self.send(job, ask, call, self.request(job, ask)).await.map(EnsureResult::from)
    }

    /// Calls `EnsureLoadBalancer`, after uploading the backend set if the adapter does not have it.
    pub(super) async fn send(
        &self,
        job: &Job<'_>,
        ask: &Ask,
        call: Call,
        request: EnsureLoadBalancerRequest,
    ) -> Result<EnsureLoadBalancerResponse, Error> {
        for attempt in 0..2 {
            let put = self.backends.put(&self.adapter, call, &job.targets).await;
            put.map_err(|source| Error::Adapter {
                call: "PutBackendSet",
                step: ask.step(),
                source,
                origins: Box::default(),
            })?;
            match Box::pin(self.adapter.ensure_load_balancer(call, request.clone())).await {
                Ok(answer) => return Ok(answer),
                Err(error) if error.reason == Reason::BackendSetUnknown && attempt == 0 => {
                    self.backends.forget(&job.targets).await;
                }
                Err(source) => {
                    let source = of_ports(source, &ask.spec.listeners, &job.service.ports);
                    let origins = Origins::of(&job.service, job.defaults).into();
                    return Err(Error::Adapter {
                        call: "EnsureLoadBalancer",
                        step: ask.step(),
                        source,
                        origins,
                    });
                }
            }
        }
        let text = "the adapter dropped the backend set right after the upload";
        Err(Error::Adapter {
            call: "EnsureLoadBalancer",
            step: ask.step(),
            source: AdapterError::new(Reason::OperationConflict, text),
            origins: Box::default(),
        })
    }

    pub(super) fn request(&self, job: &Job<'_>, ask: &Ask) -> EnsureLoadBalancerRequest {
        EnsureLoadBalancerRequest {
            context: None,
            key: Some(self.key(&job.service.id)),
            owner: Some(owner(&job.service.id)),
            fence: Some(self.shards.fence()),
            spec: Some(ask.spec.clone()),
            known: known(job.memory.confirmed(), ask.wanted.shape.takeover.id()),
            adoption: ask.wanted.shape.takeover.adoption().into(),
            recreate: ask.recreate.into(),
            dry_run: false,
        }
    }

    /// Calls `DeleteLoadBalancer`.
    pub(crate) async fn delete(
        &self,
        memory: &mut Memory,
        deletion: &Deletion<'_>,
    ) -> Result<NextPass, Error> {
        let Deletion { id, takeover, step, now } = *deletion;
        self.emit(id, &memory.on(Event::DeleteCalled { now }).facts);
        let call = Call::with_priority(Priority::Interactive);
        let answer = self.adapter.delete_load_balancer(call, self.removal(id, takeover)).await;
        let failed = |source| Error::Adapter {
            call: "DeleteLoadBalancer",
            step: step.clone(),
            source,
            origins: Box::default(),
        };
        let answer = Removal::from(answer.map_err(failed)?);
        Ok(self.apply(id, &memory.on(Event::DeleteAnswered { step, answer: &answer, now })))
    }

    pub(super) fn removal(&self, id: &ServiceId, takeover: &Takeover) -> DeleteLoadBalancerRequest {
        DeleteLoadBalancerRequest {
            context: None,
            key: Some(self.key(id)),
            owner: Some(owner(id)),
            fence: Some(self.shards.fence()),
            known: None,
            dry_run: false,
            adoption: takeover.left_over().into(),
        }
    }
}

fn known(confirmed: Option<&Confirmed>, id: Option<&str>) -> Option<Known> {
    let ids = id.map(|id| VendorIds { ids: [("loadbalancer".to_owned(), id.to_owned())].into() });
    let applied_hash = confirmed.map(|confirmed| confirmed.applied_hash.clone());
    (ids.is_some() || applied_hash.is_some())
        .then(|| Known { vendor_ids: ids, applied_hash: applied_hash.unwrap_or_default() })
}

fn owner(id: &ServiceId) -> Owner {
    Owner {
        kind: "Service".to_owned(),
        namespace: id.namespace.clone(),
        name: id.name.clone(),
        uid: id.uid.clone(),
    }
}

/// Changed settings are urgent for users, and node changes are urgent for traffic. All other calls only compare states and can wait.
fn priority(why: &Why) -> Priority {
    match why {
        Why::Missing | Why::Changed => Priority::Interactive,
        Why::Hosts => Priority::Traffic,
        Why::FirstLook | Why::Drift(_) => Priority::Background,
    }
}
