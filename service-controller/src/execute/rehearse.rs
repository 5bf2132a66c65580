//! Calls the adapter in dry-run mode, with the same requests as an execution, at the lowest priority. Nothing is written.

use cloud_api_proto::v1alpha1::{
    DeleteLoadBalancerRequest, DeleteLoadBalancerResponse, EnsureLoadBalancerRequest,
    EnsureLoadBalancerResponse, Priority,
};
use controller_core::adapter::Call;

use super::{Executor, Job};
use crate::{
    error::Error,
    plan::{Ask, Operation, service::ServiceId, spec::Takeover},
};

/// Creates a call with the lowest priority, because no traffic waits for a dry run.
fn call() -> Call {
    Call::with_priority(Priority::Background)
}

impl Executor {
    /// Returns what an ensure would do. The backend set is uploaded first, as in an execution.
    pub(crate) async fn try_ensure(
        &self,
        job: &Job<'_>,
        ask: &Ask,
    ) -> Result<EnsureLoadBalancerResponse, Error> {
        let request = EnsureLoadBalancerRequest { dry_run: true, ..self.request(job, ask) };
        self.send(job, ask, call(), request).await
    }

    pub(crate) async fn try_delete(
        &self,
        id: &ServiceId,
        takeover: &Takeover,
        step: &Operation,
    ) -> Result<DeleteLoadBalancerResponse, Error> {
        let request = DeleteLoadBalancerRequest { dry_run: true, ..self.removal(id, takeover) };
        let answer = self.adapter.delete_load_balancer(call(), request).await;
        answer.map_err(|source| Error::Adapter {
            call: "DeleteLoadBalancer",
            step: step.clone(),
            source,
            origins: Box::default(),
        })
    }
}
