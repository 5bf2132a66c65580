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
    Clock,
    adapter::{Adapter, Call},
    events::Recorder,
    explain::Ledger,
    kube_api::within,
    leadership::Shards,
    start::Process,
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
        Action, Ask, Fact, Facts, Operation, Plan, Why,
        annotations::settings::Defaults,
        cloud::{Balancer, EnsureResult, Removal, State},
        conditions::{Conditions, Readiness},
        features::Features,
        judged::Judged,
        left_over::Standing,
        memory::{Confirmed, Event, LAG, Memory, NextPass, Outcome, Write},
        plan,
        refused::{Reaction, react},
        service::{Class, Ingress, Role, Service, ServiceId, manager},
        spec::Takeover,
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
    clock: Clock,
    pub(crate) shards: Shards,
    /// What is out of sync, for the status page.
    pub(crate) ledger: Ledger,
}

/// A Service to reconcile, with the inputs of its plan.
#[derive(Debug)]
pub(crate) struct Job<'a> {
    pub(crate) service: Service,
    pub(crate) memory: &'a mut Memory,
    pub(crate) judged: Judged,
    pub(crate) targets: Arc<Targets>,
    /// Time at which these nodes became the targets.
    pub(crate) targets_since: Instant,
    pub(crate) defaults: &'a Defaults,
    /// Capabilities of the adapter.
    pub(crate) features: Option<Arc<Features>>,
    pub(crate) seen: Option<Vec<Balancer>>,
    /// Time since the start of the process.
    pub(crate) now: Duration,
}

impl Job<'_> {
    pub(crate) fn plan(&self) -> Plan {
        plan(&self.service, self.memory, &self.facts())
    }

    /// Notes what an answer means for the conditions. Replacement settings hide neither a refusal nor the wait for it.
    fn note(&mut self, ask: &Ask, state: State, outcome: &Outcome) {
        let budget = outcome.facts.iter().find_map(|fact| {
            let Fact::WaitsForBudget(words) = fact else { return None };
            Some(words)
        });
        let reason = match state {
            State::Degraded => "LoadBalancerDegraded",
            State::Unknown
            | State::Pending
            | State::Active
            | State::Error
            | State::Deleting
            | State::Absent => "LoadBalancerFailed",
        };
        if let Some(Fact::Failed(_, why)) = &outcome.problem {
            self.memory.readiness = Some(Readiness::failing(reason, why));
        } else if let Some(words) = budget {
            self.memory.readiness = Some(Readiness::failing("WaitingForBudget", words));
        } else if !ask.stands_in && self.memory.is_building() {
            self.memory.readiness = Some(Readiness::Pending);
        }
    }

    /// Decides how to continue after this error of an ensure.
    pub(crate) fn react(&mut self, ask: &Ask, error: &Error) -> Reaction {
        let Some(refused) = error.refused() else { return Reaction::Report };
        let mut memory = std::mem::take(self.memory);
        let reaction = react(&self.service, &mut memory, &self.facts(), ask, &refused);
        *self.memory = memory;
        reaction
    }

    /// Whether the load balancer serves with the settings that the Service requests.
    pub(crate) fn is_ready(&self) -> bool {
        let Judged { stands_in, refusals, .. } = &self.judged;
        let serves = self.memory.confirmed().is_some_and(|it| !it.is_degraded());
        self.service.role() == Role::Wanted && serves && !stands_in && refusals.is_empty()
    }

    fn facts(&self) -> Facts<'_> {
        Facts {
            judged: &self.judged,
            targets: &self.targets,
            defaults: self.defaults,
            features: self.features.as_deref(),
            cloud: self.seen.as_deref(),
            now: self.now,
        }
    }
}

/// A call of `DeleteLoadBalancer` for a Service.
#[derive(Debug)]
pub(crate) struct Deletion<'a> {
    pub(crate) id: &'a ServiceId,
    pub(crate) takeover: &'a Takeover,
    /// The step that fails if the call fails.
    pub(crate) step: &'a Operation,
    /// Time since the start of the process.
    pub(crate) now: Duration,
}

/// An action that failed.
pub(crate) struct Failed {
    pub(crate) error: Box<Error>,
    /// Other settings are in force now, so the next round runs at once.
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

    /// Executes the actions in order. The first action that fails or must wait ends the execution.
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

    /// Whether the adapter has refused this call for all Services, which another part of the controller reports.
    pub(crate) fn is_refused(&self, call: &str) -> bool {
        self.adapter.call_health().is_refused(call) || self.adapter.scope().readiness().is_err()
    }

    async fn ensure(&self, job: &mut Job<'_>, ask: &Ask) -> Result<NextPass, Failed> {
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

    /// Executes what follows from an answer of the adapter, and returns when the next round runs.
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
    async fn send(
        &self,
        job: &Job<'_>,
        ask: &Ask,
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
        let failed = |source| Error::Adapter { call: "DeleteLoadBalancer", step: step.clone(), source };
        let answer = Removal::from(answer.map_err(failed)?);
        Ok(self.apply(id, &memory.on(Event::DeleteAnswered { step, answer: &answer, now })))
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
        let id = job.service.id.clone();
        let pending = job.memory.confirmed().is_none().then_some(Readiness::Pending);
        let conditions = Conditions::wanted(&job.service, pending.as_ref());
        let patch = patch::add_finalizer(&id);
        self.patch_with(&mut job.service, "add the finalizer", patch, conditions).await?;
        info!(service = %id, "Added the finalizer");
        job.service.finalizer = true;
        job.memory.pacing.wrote(Write::Finalizer, &job.service, job.now);
        Ok(NextPass::Now)
    }

    async fn write_status(&self, job: &mut Job<'_>, ingress: &[Ingress]) -> Result<NextPass, Error> {
        let id = job.service.id.clone();
        let readiness = if job.is_ready() { Some(Readiness::Ready) } else { job.memory.readiness.clone() };
        let service = Service { ingress: ingress.to_vec(), ..job.service.clone() };
        let conditions = Conditions::wanted(&service, readiness.as_ref());
        let patch = patch::status(&id, ingress);
        self.patch_with(&mut job.service, "write the status", patch, conditions).await?;
        info!(service = %id, addresses = %addresses(ingress), "Updated the status");
        job.service.ingress = ingress.to_vec();
        job.memory.pacing.wrote(Write::Status, &job.service, job.now);
        Ok(NextPass::Now)
    }

    async fn release(&self, job: &mut Job<'_>) -> Result<NextPass, Error> {
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

    /// Writes the conditions of a Service, unless they are already there.
    pub(crate) async fn write_conditions(
        &self,
        service: &mut Service,
        conditions: Conditions,
    ) -> Result<(), Error> {
        let patch = patch::only_conditions(&service.id);
        self.patch_with(service, "write the conditions", patch, conditions).await
    }

    /// Sends a patch that also writes these conditions.
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

    fn key(&self, id: &ServiceId) -> LoadBalancerKey {
        LoadBalancerKey { cluster_id: self.adapter.cluster_id().to_owned(), owner_uid: id.uid.clone() }
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

/// Users wait for changed settings, and traffic waits for nodes. All other calls only compare states and can wait.
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
