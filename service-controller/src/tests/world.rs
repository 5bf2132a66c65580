//! The test world: a fake API server and a fake adapter, with the controller between them.

use std::{sync::Arc, time::Duration};

use cloud_api_proto::{
    AdapterError, Reason,
    v1alpha1::{Capability, EnsureLoadBalancerRequest, capability::Level},
};
use controller_core::{
    explain::Explain,
    health::Health,
    mirror::ObjectName,
    testing::{FakeCloud, FakeKube, ServiceBuilder, eventually, node, process},
};
use k8s_openapi::api::core::v1::{Node, Service};
use tokio::{task::JoinSet, time::Instant};
use tokio_util::sync::CancellationToken;

use crate::{
    Components, NAMES,
    config::Work,
    mirror::Reading,
    plan::{
        annotations::template::Template, bounds::Bounds, compat::Compat, left_over::Orphans, memory::LAG,
        service::Classes,
    },
    reconcile::Reconciler,
};

/// A duration longer than any delay of the controller except for backoffs and resyncs.
const SETTLE_TIME: Duration = Duration::from_secs(20);

pub(super) fn work() -> Work {
    Work { workers: 4, reading: Reading::default(), orphans: Orphans::Report }
}

pub(super) struct World {
    pub(super) kube: FakeKube,
    pub(super) cloud: FakeCloud,
    pub(super) health: Health,
    pub(super) explain: Explain,
    stop: CancellationToken,
    running: JoinSet<anyhow::Result<()>>,
    work: Work,
    dry_run: bool,
    reconciler: Option<Arc<Reconciler>>,
}

impl World {
    /// Returns a world with both fakes and without a controller.
    pub(super) fn new() -> Self {
        let (kube, cloud) = (FakeKube::new(), FakeCloud::new());
        cloud.edit(|state| state.info.capabilities = capabilities(&["loadbalancers"]));
        let (stop, health, running) = (CancellationToken::new(), Health::default(), JoinSet::new());
        let explain = Explain::default();
        let (work, dry_run, reconciler) = (work(), false, None);
        Self { kube, cloud, health, explain, stop, running, work, dry_run, reconciler }
    }

    pub(super) fn only_looking(mut self, dry_run: bool) -> Self {
        self.dry_run = dry_run;
        self
    }

    /// At its next start, the controller translates the annotations of another controller.
    pub(super) fn compat(mut self, compat: Compat) -> Self {
        self.work.reading.compat = Some(compat);
        self
    }

    /// At its next start, the controller reads only its own annotations.
    pub(super) fn without_compat(mut self) -> Self {
        self.work.reading.compat = None;
        self
    }

    pub(super) fn classes(mut self, classes: Classes) -> Self {
        self.work.reading.classes = classes;
        self
    }

    pub(super) fn names(mut self, template: &str) -> Self {
        let template = Template::read(template, "prod").expect("good");
        self.work.reading.defaults = self.work.reading.defaults.called(Some(template));
        self
    }

    pub(super) fn members(mut self, members: usize) -> Self {
        let defaults = self.work.reading.defaults;
        let bounds = Bounds { members, ..defaults.bounds().clone() };
        self.work.reading.defaults = defaults.within(bounds);
        self
    }

    pub(super) fn orphans(mut self, orphans: Orphans) -> Self {
        self.work.orphans = orphans;
        self
    }

    /// After its next start, the controller deletes all load balancers.
    pub(super) fn without_any(mut self) -> Self {
        self.work.reading.none_wanted = true;
        self
    }

    pub(super) fn workers(mut self, workers: usize) -> Self {
        self.work.workers = workers;
        self
    }

    pub(super) async fn start() -> Self {
        Self::new().started().await
    }

    pub(super) async fn started(mut self) -> Self {
        let process = process(NAMES, &self.kube, &self.cloud);
        let mut process = if self.dry_run { process.read_only() } else { process };
        self.stop = process.stop.clone();
        self.health = process.health.clone();
        self.explain = process.explain.clone();
        let components = Components::build(&mut process, self.work.clone());
        self.reconciler = Some(Arc::clone(&components.reconciler));
        self.running.spawn(components.work(process));
        tokio::task::yield_now().await;
        self
    }

    /// Stops the controller as SIGTERM does.
    pub(super) async fn stop(self) -> Self {
        self.stop.cancel();
        self.ended().await
    }

    /// Waits until the controller has ended with an error, and returns it.
    pub(super) async fn failed(mut self) -> String {
        let ended = self.running.join_next().await.expect("the controller runs").expect("no panic");
        format!("{:#}", ended.expect_err("not complete"))
    }

    /// Asks the controller to stop, and does not wait for the end.
    pub(super) fn end(&self) {
        self.stop.cancel();
    }

    /// Waits until the controller ends by itself.
    pub(super) async fn ended(mut self) -> Self {
        while let Some(ended) = self.running.join_next().await {
            ended.expect("no panic").expect("a stop that was asked for");
        }
        self
    }

    pub(super) async fn restart(self) -> Self {
        self.stop().await.started().await
    }

    pub(super) fn node(&self, name: &str) -> &Self {
        self.kube.put::<Node>(node(name).provider_id(&format!("sim://r1/{name}")).at("10.0.0.1"));
        self
    }

    pub(super) fn service(&self, service: ServiceBuilder) -> &Self {
        self.kube.put::<Service>(service);
        self
    }

    pub(super) fn change(&self, service: &str, change: impl FnOnce(&mut Service)) {
        self.kube.change::<Service>(&name(service), change);
    }

    pub(super) fn get(&self, service: &str) -> Option<Service> {
        self.kube.get(&name(service))
    }

    pub(super) fn finalizers(&self, service: &str) -> Vec<String> {
        self.get(service).and_then(|it| it.metadata.finalizers).unwrap_or_default()
    }

    pub(super) fn ingress(&self, service: &str) -> Vec<String> {
        let status = self.get(service).and_then(|it| it.status).and_then(|it| it.load_balancer);
        let ingress = status.and_then(|it| it.ingress).unwrap_or_default();
        ingress.into_iter().filter_map(|it| it.ip.or(it.hostname)).collect()
    }

    pub(super) fn last_ensure(&self) -> EnsureLoadBalancerRequest {
        self.cloud.read(|state| state.ensures.last().cloned()).expect("an ensure")
    }

    /// Returns the names of the nodes in the last `EnsureLoadBalancer` call.
    pub(super) fn backends(&self) -> Vec<String> {
        let id = self.last_ensure().spec.unwrap_or_default().backend_set_id;
        let set = self.cloud.read(|state| state.backend_sets.get(&id).cloned()).unwrap_or_default();
        let mut names: Vec<String> = set.into_iter().map(|backend| backend.node_name).collect();
        names.sort();
        names
    }

    /// Changes the port of `web` to a port that the adapter refuses. When the function returns, the controller is about to retry.
    pub(super) async fn asks_for_a_port_that_is_refused(&self, change: impl FnOnce(&mut Service)) {
        tokio::time::sleep(Duration::from_mins(1)).await;
        self.refuse_next();
        self.change("web", |service| {
            service.spec.as_mut().unwrap().ports.as_mut().unwrap()[0].port = 8080;
            change(service);
        });
        let reported = |world: &Self| world.events().iter().any(|it| it.contains("SyncLoadBalancerFailed"));
        self.eventually("the settings are refused", reported).await;
        tokio::time::sleep(LAG + Duration::from_secs(10)).await;
    }

    /// Makes the adapter refuse the port again, adds nodes, and checks that the load balancer gets the nodes without waiting for the next
    /// resync.
    pub(super) async fn is_refused_again_and_gets_nodes(&self, come: impl FnOnce(), want: &[&str]) {
        self.refuse_next();
        let begin = Instant::now();
        come();
        self.eventually("the nodes are updated", |world| world.backends() == want).await;
        assert!(begin.elapsed() < Duration::from_mins(1), "{:?}", begin.elapsed());
    }

    fn refuse_next(&self) {
        let error = AdapterError::new(Reason::FieldInvalid, "spec.listeners[0].port: not here");
        self.cloud.fail_next("EnsureLoadBalancer", error);
    }

    pub(super) fn remembered(&self) -> usize {
        self.reconciler.as_ref().map_or(0, |it| it.remembered())
    }

    pub(super) fn events(&self) -> Vec<String> {
        self.kube.events()
    }

    pub(super) async fn eventually(&self, what: &str, condition: impl Fn(&Self) -> bool) {
        eventually(what, || condition(self)).await;
    }

    pub(super) async fn eventually_ingress(&self, service: &str, want: &[&str]) {
        self.eventually(&format!("{service} has {want:?}"), |world| world.ingress(service) == want).await;
    }

    pub(super) async fn eventually_ingress_of(&self, service: &str) {
        self.eventually(&format!("{service} has an address"), |world| !world.ingress(service).is_empty())
            .await;
    }

    pub(super) async fn eventually_events(&self, want: &[&str]) {
        let all = |world: &Self| want.iter().all(|event| world.events().iter().any(|it| it == event));
        self.eventually(&format!("Events {want:?} are emitted"), all).await;
    }

    /// Waits until everything that was triggered is done.
    pub(super) async fn quiet(&self) {
        tokio::time::sleep(SETTLE_TIME).await;
    }
}

pub(super) fn capabilities(names: &[&str]) -> Vec<Capability> {
    let capability = |name: &&str| Capability {
        name: (*name).to_owned(),
        level: Level::Stable.into(),
        ..Capability::default()
    };
    names.iter().map(capability).collect()
}

pub(super) fn name(service: &str) -> ObjectName {
    ObjectName::namespaced("default", service)
}
