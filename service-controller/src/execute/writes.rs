//! Writes the finalizer, the status and the conditions of a Service to the API server. The bodies are in [`patch`].

use controller_core::kube_api::within;
use k8s_openapi::api::core::v1::Service as KubeService;
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use serde_json::Value;
use tracing::info;

use super::{Executor, Job, patch};
use crate::{
    error::Error,
    plan::{
        conditions::{Conditions, Readiness},
        memory::{Event, NextPass, Write},
        readiness,
        service::{Class, Ingress, Service, manager},
    },
};

impl Executor {
    pub(super) async fn add_finalizer(&self, job: &mut Job<'_>) -> Result<NextPass, Error> {
        let id = job.service.id.clone();
        let pending = job.memory.confirmed().is_none().then_some(Readiness::Pending);
        let conditions = readiness::conditions(&job.service, pending.as_ref());
        let patch = patch::add_finalizer(&id);
        self.patch_with(&mut job.service, "add the finalizer", patch, conditions).await?;
        info!(service = %id, "Added the finalizer");
        job.service.finalizer = true;
        job.memory.pacing.wrote(Write::Finalizer, &job.service, job.now);
        Ok(NextPass::Now)
    }

    pub(super) async fn write_status(
        &self,
        job: &mut Job<'_>,
        ingress: &[Ingress],
    ) -> Result<NextPass, Error> {
        let id = job.service.id.clone();
        let readiness = job.as_requested().or_else(|| job.memory.readiness.clone());
        let service = Service { ingress: ingress.to_vec(), ..job.service.clone() };
        let conditions = readiness::conditions(&service, readiness.as_ref());
        let patch = patch::status(&id, ingress);
        self.patch_with(&mut job.service, "write the status", patch, conditions).await?;
        info!(service = %id, addresses = %addresses(ingress), "Updated the status");
        job.service.ingress = ingress.to_vec();
        job.memory.pacing.wrote(Write::Status, &job.service, job.now);
        Ok(NextPass::Now)
    }

    pub(super) async fn release(&self, job: &mut Job<'_>) -> Result<NextPass, Error> {
        let id = job.service.id.clone();
        let patch = patch::release(&id);
        let patched = self.patch_with(&mut job.service, "remove the finalizer", patch, Conditions::default());
        match patched.await {
            // The Service is already gone, and nothing is left in the cloud.
            Err(Error::ApiServer { source, .. }) if source.is_not_found() => (),
            patched => patched?,
        }
        job.service.finalizer = false;
        job.service.ingress.clear();
        job.memory.pacing.wrote(Write::Release, &job.service, job.now);
        self.emit(&id, &job.memory.on(Event::Released).facts);
        Ok(NextPass::Now)
    }

    pub(crate) async fn write_conditions(
        &self,
        service: &mut Service,
        conditions: Conditions,
    ) -> Result<(), Error> {
        let patch = patch::only_conditions(&service.id);
        self.patch_with(service, "write the conditions", patch, conditions).await
    }

    async fn patch_with(
        &self,
        service: &mut Service,
        what: &'static str,
        patch: Value,
        conditions: Conditions,
    ) -> Result<(), Error> {
        let patch = patch::with_conditions(patch, &service.conditions, &conditions, self.clock.now());
        self.patch(service, what, patch).await?;
        service.conditions = conditions;
        Ok(())
    }

    async fn patch(&self, service: &Service, what: &'static str, patch: Value) -> Result<(), Error> {
        let id = &service.id;
        let services: Api<KubeService> = Api::namespaced(self.client.clone(), &id.namespace);
        let class = match &service.class {
            Class::Ours(class) => class.as_deref(),
            Class::Others | Class::Lost => None,
        };
        let params = PatchParams { field_manager: Some(manager(class)), ..PatchParams::default() };
        let patched = within(services.patch_status(&id.name, &params, &Patch::Strategic(patch))).await;
        patched.map(drop).map_err(|source| Error::ApiServer { call: what, source })
    }
}

fn addresses(ingress: &[Ingress]) -> String {
    ingress.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
}
