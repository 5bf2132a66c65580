//! The adapter's verbs as dry runs: the very requests that carry a plan out, at the lowest priority. Nothing is written.

use cloud_api_proto::v1alpha1::{
    DeleteLoadBalancerRequest, DeleteLoadBalancerResponse, EnsureLoadBalancerRequest,
    EnsureLoadBalancerResponse, Priority,
};
use controller_core::adapter::Call;

use super::{Executor, Job};
use crate::{
    plan::{Ask, Step, service::ServiceId, spec::Takeover},
    requeue::Error,
};

/// Nobody's packets wait for it.
fn call() -> Call {
    Call::with_priority(Priority::Background)
}

impl Executor {
    /// What an ensure would do. The set of backends is put first, as ever.
    ///
    /// # Errors
    /// Those that an ensure would have.
    pub(crate) async fn try_ensure(
        &self,
        job: &Job<'_>,
        ask: &Ask,
    ) -> Result<EnsureLoadBalancerResponse, Error> {
        let request = EnsureLoadBalancerRequest { dry_run: true, ..self.request(job, ask) };
        self.send((job, ask), call(), request).await
    }

    /// What a deletion would do.
    ///
    /// # Errors
    /// Those that a deletion would have; `step` is what would fail.
    pub(crate) async fn try_delete(
        &self,
        id: &ServiceId,
        takeover: &Takeover,
        step: &Step,
    ) -> Result<DeleteLoadBalancerResponse, Error> {
        let request = DeleteLoadBalancerRequest { dry_run: true, ..self.removal(id, takeover) };
        let answer = self.adapter.delete_load_balancer(call(), request).await;
        answer.map_err(|source| Error::Adapter { call: "DeleteLoadBalancer", step: step.clone(), source })
    }
}
