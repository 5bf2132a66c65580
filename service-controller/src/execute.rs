//! Room 3: carries a plan out: the adapter's verbs first, then one patch to the API server, then the Events.

mod backends;
pub(crate) mod patch;

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use cloud_api_proto::{
    AdapterError, Reason,
    v1alpha1::{
        DeleteLoadBalancerRequest, EnsureLoadBalancerRequest, Fence, Known, LoadBalancerKey, Owner, Priority,
        VendorIds,
    },
};
use controller_core::{
    Clock,
    adapter::{Adapter, Call},
    events::Recorder,
    kube_api::within,
};
use k8s_openapi::api::core::v1::Service as KubeService;
use kube::{
    Api, Client,
    api::{Patch, PatchParams},
};
use serde_json::Value;
use tokio::time::Instant;
use tracing::{debug, info};

use self::backends::Backends;
use crate::{
    events,
    metrics::Metrics,
    plan::{
        Action, Ask, News, Why,
        cloud::{Answer, Balancer, Removal},
        memory::{Memory, Next, Settled},
        service::{Ingress, Service, ServiceId},
        spec::Takeover,
        targets::Targets,
    },
    requeue::Error,
};

/// The one shard that there is.
const SCOPE: &str = "service-controller/0";

/// Carries plans out.
pub(crate) struct Executor {
    adapter: Adapter,
    client: Client,
    recorder: Recorder,
    metrics: Metrics,
    backends: Backends,
    /// Seconds of the wall clock at the start: grows over restarts as long as there is one replica.
    epoch: u64,
    sequence: AtomicU64,
}

/// One Service that is worked on, with what its plan was made from.
#[derive(Debug)]
pub(crate) struct Job<'a> {
    pub(crate) service: Service,
    pub(crate) memory: &'a mut Memory,
    pub(crate) targets: Arc<Targets>,
    /// When these became the targets.
    pub(crate) targets_since: Instant,
    pub(crate) seen: Option<Vec<Balancer>>,
}

impl Executor {
    pub(crate) fn new(
        adapter: Adapter,
        client: Client,
        recorder: Recorder,
        metrics: Metrics,
        clock: &Clock,
    ) -> Self {
        Self {
            adapter,
            client,
            recorder,
            metrics,
            backends: Backends::default(),
            epoch: u64::try_from(clock.now().as_second()).unwrap_or_default(),
            sequence: AtomicU64::new(0),
        }
    }

    /// Does one thing after the other; the first that fails or takes time ends it.
    ///
    /// # Errors
    /// The step that failed. Everything before it is done.
    pub(crate) async fn carry_out(&self, job: &mut Job<'_>, actions: &[Action]) -> Result<Next, Error> {
        for action in actions {
            let next = match action {
                Action::AddFinalizer => self.add_finalizer(job).await?,
                Action::Ensure(ask) => self.ensure(job, ask).await?,
                Action::WriteStatus(ingress) => self.write_status(job, ingress).await?,
                Action::Delete(takeover) => self.delete(job, takeover).await?,
                Action::Release => self.release(job).await?,
            };
            if next != Next::Now {
                return Ok(next);
            }
        }
        Ok(Next::Now)
    }

    /// Event and log line, with the same words.
    pub(crate) fn tell(&self, id: &ServiceId, news: &[News]) {
        for news in news {
            self.recorder.tell(&events::about(id), events::notice(news));
        }
    }

    /// Whether the adapter refuses this call for every Service, and does so for long enough that people should hear of it.
    pub(crate) fn is_refused(&self, call: &str) -> bool {
        self.adapter.standing().is_refused(call)
    }

    async fn ensure(&self, job: &mut Job<'_>, ask: &Ask) -> Result<Next, Error> {
        let id = job.service.id.clone();
        self.tell(&id, &job.memory.asking(ask));
        let called = Instant::now();
        let answer = self.ask(job, ask).await.inspect_err(|_error| {
            if ask.why == Why::Hosts {
                self.metrics.hosts_failed();
            }
        })?;
        debug!(service = %id, why = %ask.why, ?answer, "Asked for the load balancer");
        let outcome = job.memory.answered(ask, answer, job.seen.as_deref());
        if let Some(earlier) = outcome.hosts_updated {
            self.metrics.hosts_updated(job.targets_since.elapsed(), earlier + called.elapsed());
        }
        self.tell(&id, &outcome.news);
        Ok(outcome.next)
    }

    /// Names the set of backends, and puts it if the adapter does not know it (any more).
    async fn ask(&self, job: &Job<'_>, ask: &Ask) -> Result<Answer, Error> {
        let call = Call::with_priority(priority(&ask.why));
        for attempt in 0..2 {
            let put = self.backends.put(&self.adapter, call, &job.targets).await;
            put.map_err(|source| Error::Adapter { call: "PutBackendSet", source })?;
            match self.adapter.ensure_load_balancer(call, self.request(job, ask)).await {
                Ok(answer) => return Ok(answer.into()),
                Err(error) if error.reason == Reason::BackendSetUnknown && attempt == 0 => {
                    self.backends.forget(&job.targets).await;
                }
                Err(source) => return Err(Error::Adapter { call: "EnsureLoadBalancer", source }),
            }
        }
        let text = "the adapter forgets the set of backends as soon as it is put";
        Err(Error::Adapter {
            call: "EnsureLoadBalancer",
            source: AdapterError::new(Reason::OperationConflict, text),
        })
    }

    fn request(&self, job: &Job<'_>, ask: &Ask) -> EnsureLoadBalancerRequest {
        EnsureLoadBalancerRequest {
            context: None,
            key: Some(self.key(&job.service.id)),
            owner: Some(owner(&job.service.id)),
            fence: Some(self.fence()),
            spec: Some(ask.spec.clone()),
            known: known(job.memory.settled.as_ref(), ask.takeover.id()),
            adoption: ask.takeover.adoption().into(),
            recreate: ask.recreate.into(),
            dry_run: false,
        }
    }

    async fn delete(&self, job: &mut Job<'_>, takeover: &Takeover) -> Result<Next, Error> {
        let id = job.service.id.clone();
        self.tell(&id, &job.memory.removing());
        let request = DeleteLoadBalancerRequest {
            context: None,
            key: Some(self.key(&id)),
            owner: Some(owner(&id)),
            fence: Some(self.fence()),
            known: None,
            dry_run: false,
            adoption: takeover.left_over().into(),
        };
        let call = Call::with_priority(Priority::Interactive);
        let answer = self.adapter.delete_load_balancer(call, request).await;
        let answer = answer.map_err(|source| Error::Adapter { call: "DeleteLoadBalancer", source })?;
        let outcome = job.memory.removal(&Removal::from(answer));
        self.tell(&id, &outcome.news);
        Ok(outcome.next)
    }

    async fn add_finalizer(&self, job: &mut Job<'_>) -> Result<Next, Error> {
        let id = &job.service.id;
        self.patch(id, "add the finalizer", patch::add_finalizer(id)).await?;
        info!(service = %id, "Added the finalizer");
        job.service.finalizer = true;
        job.memory.wrote(&job.service);
        Ok(Next::Now)
    }

    async fn write_status(&self, job: &mut Job<'_>, ingress: &[Ingress]) -> Result<Next, Error> {
        let id = &job.service.id;
        self.patch(id, "write the status", patch::status(id, ingress)).await?;
        info!(service = %id, addresses = %addresses(ingress), "Wrote the status");
        job.service.ingress = ingress.to_vec();
        job.memory.wrote(&job.service);
        Ok(Next::Now)
    }

    async fn release(&self, job: &mut Job<'_>) -> Result<Next, Error> {
        let id = job.service.id.clone();
        match self.patch(&id, "remove the finalizer", patch::release(&id)).await {
            // Somebody was faster, and nothing is left in the cloud: just as well.
            Err(Error::ApiServer { source, .. }) if source.is_not_found() => (),
            patched => patched?,
        }
        job.service.finalizer = false;
        job.service.ingress.clear();
        job.memory.wrote(&job.service);
        self.tell(&id, &job.memory.released());
        Ok(Next::Now)
    }

    async fn patch(&self, id: &ServiceId, what: &'static str, patch: Value) -> Result<(), Error> {
        let services: Api<KubeService> = Api::namespaced(self.client.clone(), &id.namespace);
        let params = PatchParams::default();
        let patched = within(services.patch_status(&id.name, &params, &Patch::Strategic(patch))).await;
        patched.map(drop).map_err(|source| Error::ApiServer { call: what, source })
    }

    fn key(&self, id: &ServiceId) -> LoadBalancerKey {
        LoadBalancerKey { cluster_id: self.adapter.cluster_id().to_owned(), owner_uid: id.uid.clone() }
    }

    fn fence(&self) -> Fence {
        let sequence = self.sequence.fetch_add(1, Ordering::Relaxed);
        Fence { scope: SCOPE.to_owned(), epoch: self.epoch, sequence }
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

/// A user waits for a change; packets wait for nodes; nobody waits for a comparison.
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
