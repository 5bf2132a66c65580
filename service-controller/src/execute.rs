//! Executes a plan: calls the adapter, then patches the Service, then emits Events.

mod backends;
pub(crate) mod patch;
mod rehearse;

use std::{sync::Arc, time::Duration};

use cloud_api_proto::{
    AdapterError, Reason,
    v1alpha1::{
        DeleteLoadBalancerRequest, EnsureLoadBalancerRequest, EnsureLoadBalancerResponse, Known,
        LoadBalancerKey, Owner, Priority, VendorIds,
    },
};
use controller_core::{
    adapter::{Adapter, Call},
    events::Recorder,
    explain::Ledger,
    kube_api::within,
    leadership::Shards,
};
use k8s_openapi::api::core::v1::Service as KubeService;
use kube::{
    Api, Client,
    api::{ListParams, Patch, PatchParams},
};
use serde_json::Value;
use tokio::time::Instant;
use tracing::{debug, info};

use self::backends::Backends;
use crate::{
    error::{Error, places::of_ports},
    events, explain,
    metrics::Metrics,
    mirror::{Reading, kubernetes::service as to_service},
    plan::{
        Action, Ask, Fact, Operation, Why,
        cloud::{Balancer, EnsureResult, Removal},
        families::family_of,
        features::Features,
        left_over::Standing,
        memory::{LAG, Memory, NextPass, Settled},
        service::{Class, Ingress, Role, Service, ServiceId, manager},
        spec::Takeover,
        stale_id::noted,
        targets::Targets,
    },
};

/// Page size for listing all Services.
const PAGE: u32 = 500;

/// Executes plans.
pub(crate) struct Executor {
    adapter: Adapter,
    client: Client,
    recorder: Recorder,
    metrics: Metrics,
    backends: Backends,
    pub(crate) shards: Shards,
    /// What is out of sync, for the status page.
    pub(crate) ledger: Ledger,
}

/// A Service to reconcile, with the inputs of its plan.
#[derive(Debug)]
pub(crate) struct Job<'a> {
    pub(crate) service: Service,
    pub(crate) memory: &'a mut Memory,
    pub(crate) targets: Arc<Targets>,
    /// Time at which these nodes became the targets.
    pub(crate) targets_since: Instant,
    /// Capabilities of the adapter.
    pub(crate) features: Option<Arc<Features>>,
    pub(crate) seen: Option<Vec<Balancer>>,
    /// Time since the start of the process.
    pub(crate) now: Duration,
}

impl Executor {
    pub(crate) fn new(
        adapter: Adapter,
        client: Client,
        recorder: Recorder,
        metrics: Metrics,
        (shards, ledger): (Shards, Ledger),
    ) -> Self {
        Self { adapter, client, recorder, metrics, backends: Backends::default(), shards, ledger }
    }

    /// Executes the actions in order. The first action that fails or must wait ends the execution.
    pub(crate) async fn carry_out(&self, job: &mut Job<'_>, actions: &[Action]) -> Result<NextPass, Error> {
        for action in actions {
            let next = match action {
                Action::AddFinalizer => self.add_finalizer(job).await?,
                Action::Ensure(ask) => self.ensure(job, ask).await?,
                Action::WriteStatus(ingress) => self.write_status(job, ingress).await?,
                Action::Delete(takeover) => {
                    let id = job.service.id.clone();
                    self.delete(&id, (job.memory, job.now), takeover, &Operation::Sync).await?
                }
                Action::Release => self.release(job).await?,
                Action::Forget => {
                    self.tell(&job.service.id, &job.memory.forgotten(job.seen.as_deref(), job.now));
                    NextPass::Now
                }
            };
            if next != NextPass::Now {
                return Ok(next);
            }
        }
        Ok(NextPass::Now)
    }

    /// Emits Events, and logs the same texts.
    pub(crate) fn tell(&self, id: &ServiceId, news: &[Fact]) {
        for news in news {
            self.recorder.emit(&events::about(id), events::notice(news));
        }
    }

    /// Emits an Event about the whole cluster, and logs the same text.
    pub(crate) fn tell_all(&self, news: &Fact) {
        self.recorder.emit(&self.shards.regarding(), events::notice(news));
    }

    /// Whether the adapter has refused this call for all Services for so long that another part of the controller reports it.
    pub(crate) fn is_refused(&self, call: &str) -> bool {
        self.adapter.call_health().is_refused(call) || self.adapter.scope().readiness().is_err()
    }

    async fn ensure(&self, job: &mut Job<'_>, ask: &Ask) -> Result<NextPass, Error> {
        let id = job.service.id.clone();
        self.tell(&id, &job.memory.asking(ask));
        let called = Instant::now();
        let answer = match self.ask(job, ask).await {
            Ok(answer) => answer,
            Err(error) => {
                if ask.why == Why::Hosts {
                    self.metrics.hosts_failed();
                }
                let refused = error.refuses_the_wish() && !ask.stands_in;
                if refused && Self::asks_for_less(job, ask, &error) {
                    return Ok(NextPass::Now);
                }
                if refused {
                    job.memory.refuse(ask);
                }
                // The refusal of the requested settings was reported already. These settings were the controller's own guess.
                if error.refuses_the_wish() && ask.stands_in && job.memory.guessed_wrong() {
                    info!(service = %id, error = %error.text(), "Cannot adapt the settings to the existing load balancer");
                    self.ledger.keep_last_wait(&id.object());
                    return Ok(NextPass::After(LAG));
                }
                return Err(error);
            }
        };
        debug!(service = %id, why = %ask.why, ?answer, "Called EnsureLoadBalancer");
        let outcome = job.memory.answered(ask, answer, job.seen.as_deref());
        if outcome.hosts_failed {
            self.metrics.hosts_failed();
        }
        if let Some(earlier) = outcome.hosts_updated {
            self.metrics.hosts_updated(job.targets_since.elapsed(), earlier + called.elapsed());
        }
        self.tell(&id, &outcome.news);
        explain::note(&self.ledger, &id, &outcome);
        Ok(outcome.next)
    }

    /// Whether the controller requests fewer settings from now on.
    pub(crate) fn asks_for_less(job: &mut Job<'_>, ask: &Ask, error: &Error) -> bool {
        Self::narrows(job, ask, error) || Self::drops_the_id(job, error)
    }

    /// Whether the controller requests only one address family from now on, because the existing load balancer cannot get the preferred
    /// second one.
    fn narrows(job: &mut Job<'_>, ask: &Ask, error: &Error) -> bool {
        let Some(features) = job.features.as_deref().filter(|_| error.fixes_the_families()) else {
            return false;
        };
        let family = family_of(&job.service, job.seen.as_deref());
        let narrows = job.memory.narrow(ask, family, (&job.service, features));
        if narrows {
            info!(service = %job.service.id, error = %error.text(), "Keeping the single address \
                                                                     family of the load balancer");
        }
        narrows
    }

    /// Whether the controller ignores the ID recorded by another controller from now on, because the Service cannot have that load
    /// balancer.
    fn drops_the_id(job: &mut Job<'_>, error: &Error) -> bool {
        let Some(id) = noted(&job.service).filter(|_| error.denies_the_id()) else { return false };
        info!(service = %job.service.id, id, error = %error.text(), "Ignoring the load balancer ID \
                                                                     recorded by another controller");
        job.memory.gone_id = Some(id.to_owned());
        true
    }

    async fn ask(&self, job: &Job<'_>, ask: &Ask) -> Result<EnsureResult, Error> {
        let call = Call::with_priority(priority(&ask.why));
        self.send((job, ask), call, self.request(job, ask)).await.map(EnsureResult::from)
    }

    /// Calls `EnsureLoadBalancer`, after uploading the backend set if the adapter does not have it.
    async fn send(
        &self,
        (job, ask): (&Job<'_>, &Ask),
        call: Call,
        request: EnsureLoadBalancerRequest,
    ) -> Result<EnsureLoadBalancerResponse, Error> {
        for attempt in 0..2 {
            let put = self.backends.put(&self.adapter, call, &job.targets).await;
            put.map_err(|source| Error::Adapter { call: "PutBackendSet", step: ask.step(), source })?;
            match Box::pin(self.adapter.ensure_load_balancer(call, request.clone())).await {
                Ok(answer) => return Ok(answer),
                Err(error) if error.reason == Reason::BackendSetUnknown && attempt == 0 => {
                    self.backends.forget(&job.targets).await;
                }
                Err(source) => {
                    let source = of_ports(source, &ask.spec.listeners, &job.service.ports);
                    return Err(Error::Adapter { call: "EnsureLoadBalancer", step: ask.step(), source });
                }
            }
        }
        let text = "the adapter dropped the backend set right after the upload";
        Err(Error::Adapter {
            call: "EnsureLoadBalancer",
            step: ask.step(),
            source: AdapterError::new(Reason::OperationConflict, text),
        })
    }

    fn request(&self, job: &Job<'_>, ask: &Ask) -> EnsureLoadBalancerRequest {
        EnsureLoadBalancerRequest {
            context: None,
            key: Some(self.key(&job.service.id)),
            owner: Some(owner(&job.service.id)),
            fence: Some(self.shards.fence()),
            spec: Some(ask.spec.clone()),
            known: known(job.memory.settled.as_ref(), ask.wanted.shape.takeover.id()),
            adoption: ask.wanted.shape.takeover.adoption().into(),
            recreate: ask.recreate.into(),
            dry_run: false,
        }
    }

    /// Calls `DeleteLoadBalancer` for a Service.
    pub(crate) async fn delete(
        &self,
        id: &ServiceId,
        (memory, now): (&mut Memory, Duration),
        takeover: &Takeover,
        step: &Operation,
    ) -> Result<NextPass, Error> {
        self.tell(id, &memory.removing(now));
        let call = Call::with_priority(Priority::Interactive);
        let answer = self.adapter.delete_load_balancer(call, self.removal(id, takeover)).await;
        let failed = |source| Error::Adapter { call: "DeleteLoadBalancer", step: step.clone(), source };
        let outcome = memory.removal(step, &Removal::from(answer.map_err(failed)?), now);
        self.tell(id, &outcome.news);
        explain::note(&self.ledger, id, &outcome);
        Ok(outcome.next)
    }

    fn removal(&self, id: &ServiceId, takeover: &Takeover) -> DeleteLoadBalancerRequest {
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

    /// Gets the state of a Service from the API server, not from the cache.
    pub(crate) async fn standing(&self, id: &ServiceId, reading: &Reading) -> Result<Standing, Error> {
        let services: Api<KubeService> = Api::namespaced(self.client.clone(), &id.namespace);
        let found = match within(services.get(&id.name)).await {
            Err(error) if error.is_not_found() => None,
            found => Some(found.map_err(|source| Error::ApiServer { call: "get the Service", source })?),
        };
        let service = found.and_then(|it| to_service(&it, reading)).filter(|it| it.id.uid == id.uid);
        Ok(match service {
            None => Standing::Gone,
            Some(service) => match (service.role(), &service.class) {
                (Role::Wanted | Role::Cleanup, _) => Standing::Ours,
                (Role::Ignored, Class::Others) => Standing::Others,
                (Role::Ignored, Class::Ours(_) | Class::Lost) => Standing::WantsNone,
            },
        })
    }

    /// Whether a Service with this UID exists under any name. The name is not compared, because names in tags may be truncated.
    ///
    /// Cost: one call per 500 Services.
    pub(crate) async fn knows(&self, uid: &str) -> Result<bool, Error> {
        let services: Api<KubeService> = Api::all(self.client.clone());
        let mut params = ListParams::default().limit(PAGE);
        loop {
            let page = within(services.list_metadata(&params)).await;
            let page = page.map_err(|source| Error::ApiServer { call: "list Services", source })?;
            if page.items.iter().any(|it| it.metadata.uid.as_deref() == Some(uid)) {
                return Ok(true);
            }
            match page.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => params = params.continue_token(&token),
                None => return Ok(false),
            }
        }
    }

    async fn add_finalizer(&self, job: &mut Job<'_>) -> Result<NextPass, Error> {
        let id = &job.service.id;
        self.patch(&job.service, "add the finalizer", patch::add_finalizer(id)).await?;
        info!(service = %id, "Added the finalizer");
        job.service.finalizer = true;
        job.memory.wrote_finalizer(&job.service, job.now);
        Ok(NextPass::Now)
    }

    async fn write_status(&self, job: &mut Job<'_>, ingress: &[Ingress]) -> Result<NextPass, Error> {
        let id = &job.service.id;
        self.patch(&job.service, "write the status", patch::status(id, ingress)).await?;
        info!(service = %id, addresses = %addresses(ingress), "Updated the status");
        job.service.ingress = ingress.to_vec();
        job.memory.wrote_status(&job.service, job.now);
        Ok(NextPass::Now)
    }

    async fn release(&self, job: &mut Job<'_>) -> Result<NextPass, Error> {
        let id = job.service.id.clone();
        match self.patch(&job.service, "remove the finalizer", patch::release(&id)).await {
            // The Service is already gone, and nothing is left in the cloud.
            Err(Error::ApiServer { source, .. }) if source.is_not_found() => (),
            patched => patched?,
        }
        job.service.finalizer = false;
        job.service.ingress.clear();
        job.memory.wrote_release(&job.service, job.now);
        self.tell(&id, &job.memory.released());
        Ok(NextPass::Now)
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

    fn key(&self, id: &ServiceId) -> LoadBalancerKey {
        LoadBalancerKey { cluster_id: self.adapter.cluster_id().to_owned(), owner_uid: id.uid.clone() }
    }
}

fn known(settled: Option<&Settled>, id: Option<&str>) -> Option<Known> {
    let ids = id.map(|id| VendorIds { ids: [("loadbalancer".to_owned(), id.to_owned())].into() });
    let applied_hash = settled.map(|settled| settled.applied_hash.clone());
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

/// Users wait for changed settings, and traffic waits for nodes; comparisons can wait.
fn priority(why: &Why) -> Priority {
    match why {
        Why::Missing | Why::Changed => Priority::Interactive,
        Why::Hosts => Priority::Traffic,
        Why::FirstLook | Why::Drift(_) => Priority::Background,
    }
}

fn addresses(ingress: &[Ingress]) -> String {
    ingress.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
}
