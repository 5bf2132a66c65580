//! The environment of a scenario: a [`Cluster`], the actions of the cluster's users, and checks of the results.
//!
//! Every check waits for a condition, with the same deadline. The deadline only ends failed tests; it is not a performance target.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Event, Namespace, Node, NodeCondition, Service};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::{Api, Client};
use serde_json::{Value, json};

use crate::audit::{AuditWrite, Mark};
use crate::cluster::Cluster;
use crate::control_plane::ControlPlane;
use crate::eventually::{WITHIN, eventually};
use crate::helm::{Release, Values, merge};
use crate::metrics::sum;
use crate::objects::{UNINITIALIZED, node};
use crate::openstack::{self, OpenStack, Project};
use crate::pods::{Pods, token};
use crate::quiet::quiet;
use crate::simcloud::{Simcloud, State};
use crate::tools;

/// The Deployment of the adapter.
pub const ADAPTER: &str = "cloud-adapter";
/// The Deployments of the controllers.
pub const CONTROLLERS: [&str; 3] = ["node-controller", "route-controller", "service-controller"];

/// The component names under which the controllers report Events. They are the names of Kubernetes' own controllers.
const REPORTERS: [&str; 4] =
    ["cloud-node-controller", "cloud-node-lifecycle-controller", "route_controller", "service-controller"];

/// A cluster for one scenario.
#[derive(Debug)]
pub struct Bed<Cloud = Simcloud> {
    /// The cluster, with all its processes.
    pub cluster: Cluster<Cloud>,
    /// The deadline of every check.
    pub within: Duration,
}

impl Bed {
    /// Installs the chart and waits until all pods are ready.
    pub async fn start() -> anyhow::Result<Self> {
        Self::start_with(&json!({})).await
    }

    /// Installs the chart with additional values, and waits until all pods are ready.
    pub async fn start_with(values: &Value) -> anyhow::Result<Self> {
        let mut this = Self::install_with(values).await?;
        this.start_pods().await?;
        Ok(this)
    }

    /// Installs the chart without starting its pods.
    pub async fn install() -> anyhow::Result<Self> {
        Self::install_with(&json!({})).await
    }

    /// Installs the chart with additional values, without starting its pods.
    pub async fn install_with(values: &Value) -> anyhow::Result<Self> {
        Self::install_on(ControlPlane::shared(&tools()?).await?, values).await
    }

    /// Same as [`Self::install_with`], on this control plane.
    pub async fn install_on(control_plane: ControlPlane, values: &Value) -> anyhow::Result<Self> {
        let cluster = Cluster::install_on(control_plane, |all| merge(all, values)).await?;
        Ok(Self { cluster, within: WITHIN })
    }

    /// Creates an instance and registers its node, as a kubelet does, with a pod network if one is given. Waits until the node is
    /// initialised.
    pub async fn join(&self, name: &str, pods: Option<&str>) -> anyhow::Result<Node> {
        self.cluster.cloud.create_instance(name).await?;
        let node = pods.into_iter().fold(node(name), |node, cidr| node.pods(cidr));
        node.register(&self.client()).await?;
        self.initialised(name).await
    }

    /// Waits until `look` returns a value for the state of the whole cloud.
    pub async fn until_cloud<T>(
        &self,
        what: &str,
        look: impl Fn(&State) -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        let (cloud, look) = (&self.cluster.cloud, &look);
        eventually(what, WITHIN, || async { look(&cloud.state().await?) }).await
    }

    /// Waits until the state of the whole cloud meets a condition.
    pub async fn wait_cloud(&self, what: &str, is: impl Fn(&State) -> bool) -> anyhow::Result<()> {
        self.until_cloud(what, |state| {
            ensure!(is(state), "{state:#?}");
            Ok(())
        })
        .await
    }
}

impl Bed<OpenStack> {
    /// Installs the chart with real OpenStack services as its cloud, and waits until all pods are ready.
    pub async fn on_openstack(project: Arc<Project>) -> anyhow::Result<Self> {
        Self::on_openstack_with(project, &json!({})).await
    }

    /// Same as [`Self::on_openstack`], with additional values of the chart.
    pub async fn on_openstack_with(project: Arc<Project>, more: &Value) -> anyhow::Result<Self> {
        let control_plane = ControlPlane::shared(&tools()?).await?;
        let cloud = OpenStack::start(&control_plane, project).await?;
        let mut values = Values::new()?.render();
        merge(&mut values, &cloud.values());
        // The intervals are short, so that tests soon see changes that other clients made in the cloud.
        let often = ["instances", "loadBalancers", "routes"].map(|it| (it, json!({ "maxAge": "10s" })));
        merge(&mut values, &json!({ "adapter": { "cache": BTreeMap::from(often) } }));
        merge(&mut values, more);
        let release = Release::install(&control_plane, &values).await?;
        let pods = Pods::from_release(&control_plane, &release).await?;
        let cluster = Cluster { pods, cloud, release, control_plane };
        let mut this = Self { cluster, within: openstack::DONE_WITHIN };
        this.cluster.pods.start()?;
        this.ready().await?;
        Ok(this)
    }

    /// Replaces these keys of `auth` in the adapter's clouds.yaml.
    pub async fn give(&self, keys: &Value) -> anyhow::Result<()> {
        self.cluster.cloud.give(&self.client(), keys).await?;
        self.cluster.pods.refresh_volumes(&self.cluster.control_plane).await
    }

    /// Creates an instance and registers its node, as a kubelet does, with a pod network if one is given. Waits until the node is
    /// initialised.
    pub async fn join(&self, name: &str, pods: Option<&str>) -> anyhow::Result<Node> {
        self.cluster.cloud.project.create_servers(name, 1).await?;
        let node = pods.into_iter().fold(node(name), |node, cidr| node.pods(cidr));
        node.register(&self.client()).await?;
        self.initialised(name).await
    }

    /// Waits until `look` returns a value for the state of the whole project.
    pub async fn until_cloud<T>(
        &self,
        what: &str,
        look: impl Fn(&openstack::State) -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        let (project, look) = (&self.cluster.cloud.project, &look);
        eventually(what, self.within, || async { look(&project.state().await?) }).await
    }

    /// Waits until the state of the whole project meets a condition.
    pub async fn wait_cloud(&self, what: &str, is: impl Fn(&openstack::State) -> bool) -> anyhow::Result<()> {
        self.until_cloud(what, |state| {
            ensure!(is(state), "{state:#?}");
            Ok(())
        })
        .await
    }
}

impl<Cloud> Bed<Cloud> {
    /// The ID of a node's instance.
    pub async fn instance(&self, node: &str) -> anyhow::Result<String> {
        let id = self.nodes().get(node).await?.spec.and_then(|spec| spec.provider_id);
        let id = id.with_context(|| format!("{node} has no provider ID"))?;
        Ok(id.rsplit('/').next().unwrap_or_default().to_owned())
    }

    /// The UID of the namespace kube-system, which identifies the cluster.
    pub async fn cluster_id(&self) -> anyhow::Result<String> {
        let namespace = Api::<Namespace>::all(self.client()).get("kube-system").await?;
        namespace.metadata.uid.context("kube-system has no UID")
    }

    /// Starts all pods and waits until they are ready.
    pub async fn start_pods(&mut self) -> anyhow::Result<()> {
        self.cluster.pods.start()?;
        self.ready().await
    }

    /// Waits until all pods are ready.
    pub async fn ready(&mut self) -> anyhow::Result<()> {
        self.cluster.pods.wait_ready(self.within).await
    }

    /// Writes into the status of the Deployments whether their pods run, as the deployment controller does.
    pub async fn report_deployments(&mut self) -> anyhow::Result<()> {
        let deployments: Api<Deployment> = Api::namespaced(self.client(), &self.cluster.release.namespace);
        for name in self.cluster.pods.names() {
            let running = i32::from(self.cluster.pods.get(&name)?.is_running());
            let status = json!({ "replicas": 1, "updatedReplicas": 1, "readyReplicas": running, "availableReplicas": running });
            let patch = Patch::Merge(json!({ "status": status }));
            deployments.patch_status(&name, &PatchParams::default(), &patch).await.context(name)?;
        }
        Ok(())
    }

    /// Returns a client with administrator rights.
    pub fn client(&self) -> Client {
        self.cluster.control_plane.client()
    }

    /// The API of nodes.
    pub fn nodes(&self) -> Api<Node> {
        Api::all(self.client())
    }

    /// The API of Services in the namespace `default`.
    pub fn services(&self) -> Api<Service> {
        Api::default_namespaced(self.client())
    }

    /// Waits until a node has lost the `uninitialized` taint.
    pub async fn initialised(&self, name: &str) -> anyhow::Result<Node> {
        self.until_node(name, "is initialised", |node| {
            ensure!(!is_uninitialised(node), "the node has the taint");
            Ok(node.clone())
        })
        .await
    }

    /// Changes a Service, as `kubectl patch` does.
    pub async fn patch_service(&self, name: &str, patch: &Value) -> anyhow::Result<Service> {
        let patched = self.services().patch(name, &PatchParams::default(), &Patch::Strategic(patch)).await;
        patched.with_context(|| format!("cannot change Service {name}"))
    }

    /// Changes a node, as `kubectl patch` does.
    pub async fn patch_node(&self, name: &str, patch: &Value) -> anyhow::Result<Node> {
        let patched = self.nodes().patch(name, &PatchParams::default(), &Patch::Strategic(patch)).await;
        patched.with_context(|| format!("cannot change node {name}"))
    }

    /// Deletes a Service and waits until its object is gone.
    pub async fn delete_service(&self, name: &str) -> anyhow::Result<()> {
        let services = self.services();
        services.delete(name, &DeleteParams::default()).await.context("cannot delete the Service")?;
        eventually(&format!("Service {name} is gone"), self.within, || async {
            let left = services.get_opt(name).await?;
            ensure!(left.is_none(), "finalizers {:?}", left.and_then(|it| it.metadata.finalizers));
            Ok(())
        })
        .await
    }

    /// Waits until `look` returns a value for a node.
    pub async fn until_node<T>(
        &self,
        name: &str,
        what: &str,
        look: impl Fn(&Node) -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        let (nodes, look) = (self.nodes(), &look);
        let what = format!("node {name} {what}");
        let seen = eventually(&what, self.within, || async { look(&nodes.get(name).await?) }).await;
        self.explain(seen, "Node", name).await
    }

    /// Waits until a node meets a condition.
    pub async fn wait_node(&self, name: &str, what: &str, is: impl Fn(&Node) -> bool) -> anyhow::Result<()> {
        self.until_node(name, what, |it| {
            ensure!(is(it), "{:?} {:#?} {:#?}", it.metadata, it.spec, it.status);
            Ok(())
        })
        .await
    }

    /// Waits until a node is deleted.
    pub async fn node_gone(&self, name: &str) -> anyhow::Result<()> {
        eventually(&format!("node {name} is deleted"), self.within, || async {
            let left = self.nodes().get_opt(name).await?;
            ensure!(left.is_none(), "it still exists: {:?}", self.events("Node", name).await?);
            Ok(())
        })
        .await
    }

    /// Waits until `look` returns a value for a Service.
    pub async fn until_service<T>(
        &self,
        name: &str,
        what: &str,
        look: impl Fn(&Service) -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        let (services, look) = (self.services(), &look);
        let what = format!("Service {name} {what}");
        let seen = eventually(&what, self.within, || async { look(&services.get(name).await?) }).await;
        self.explain(seen, "Service", name).await
    }

    /// Waits until a Service meets a condition.
    pub async fn wait_service(
        &self,
        name: &str,
        what: &str,
        is: impl Fn(&Service) -> bool,
    ) -> anyhow::Result<()> {
        self.until_service(name, what, |it| {
            ensure!(is(it), "{:?} {:#?} {:#?}", it.metadata, it.spec, it.status);
            Ok(())
        })
        .await
    }

    /// Creates a Service with one port, waits until it has its address, and returns it.
    pub async fn expose(&self, service: &str, port: u16) -> anyhow::Result<String> {
        crate::service(service).port(port).create(&self.client()).await?;
        self.address(service).await
    }

    /// Waits until a Service has its address, and returns it.
    pub async fn address(&self, service: &str) -> anyhow::Result<String> {
        self.until_service(service, "has an address", |it| address(it).context("the Service has no address"))
            .await
    }

    /// The Events of the controllers on an object, oldest first. Leaves out Events of the API server, which may report just after its start
    /// that a new Service has no address.
    pub async fn events(&self, kind: &str, name: &str) -> anyhow::Result<Vec<Event>> {
        let events: Api<Event> = Api::all(self.client());
        let fields = format!("involvedObject.kind={kind},involvedObject.name={name}");
        let mut events = events.list(&ListParams::default().fields(&fields)).await?.items;
        events.retain(is_ours);
        events.sort_by(|a, b| a.event_time.cmp(&b.event_time));
        Ok(events)
    }

    /// Waits until an object has an Event with this reason, and returns the message of the last such Event.
    pub async fn wait_for_event(&self, kind: &str, name: &str, reason: &str) -> anyhow::Result<String> {
        eventually(&format!("{kind} {name} has an Event {reason}"), self.within, || async {
            let events = self.events(kind, name).await?;
            let event = events.iter().rfind(|event| event.reason.as_deref() == Some(reason));
            let event = event.with_context(|| format!("Events: {:#?}", lines(&events)))?;
            Ok(event.message.clone().unwrap_or_default())
        })
        .await
    }

    /// The number of Events with this reason on an object, including repetitions that the API server or a controller counted up.
    pub async fn times(&self, kind: &str, name: &str, reason: &str) -> anyhow::Result<i32> {
        let times = |event: &Event| event.count.unwrap_or(1).max(1);
        let events = self.events(kind, name).await?;
        Ok(events.iter().filter(|it| it.reason.as_deref() == Some(reason)).map(times).sum())
    }

    /// Waits until a controller is ready and its queue is empty.
    pub async fn quiet(&mut self, controller: &str) -> anyhow::Result<()> {
        let pod = self.cluster.pods.get(controller)?;
        pod.wait_ready(self.within).await?;
        let pod = &*pod;
        let what = format!("{controller} has done all its work");
        eventually(&what, self.within, || async { quiet(&pod.metrics().await?) })
            .await
            .with_context(|| pod.tail())
    }

    /// Waits until all controllers are ready and their queues are empty.
    pub async fn all_quiet(&mut self) -> anyhow::Result<()> {
        for controller in CONTROLLERS {
            self.quiet(controller).await?;
        }
        Ok(())
    }

    /// Waits until the service-controller uses this number of nodes as backends. This takes a moment after nodes have joined.
    pub async fn targets(&mut self, nodes: u32) -> anyhow::Result<()> {
        let pod = &*self.cluster.pods.get("service-controller")?;
        eventually(&format!("load balancers have {nodes} nodes as backends"), self.within, || async {
            let there = sum(&pod.metrics().await?, "cloud_controller_load_balancer_targets");
            ensure!((there - f64::from(nodes)).abs() < 0.5, "they have {there} nodes");
            Ok(())
        })
        .await
    }

    /// The number of the controllers' calls to the adapter for each result. A result is `OK` or the reason of the error.
    pub async fn adapter_calls(&mut self) -> anyhow::Result<BTreeMap<String, f64>> {
        let mut all = BTreeMap::new();
        for controller in CONTROLLERS {
            let pod = self.cluster.pods.get(controller)?;
            let counted = pod.counted("cloud_controller_adapter_calls_total", "outcome").await?;
            for (outcome, calls) in counted {
                *all.entry(outcome).or_default() += calls;
            }
        }
        Ok(all)
    }

    /// The Warning Events of the controllers, each with its object.
    pub async fn warnings(&self) -> anyhow::Result<Vec<String>> {
        let events: Api<Event> = Api::all(self.client());
        let warnings = events.list(&ListParams::default().fields("type=Warning")).await?.items;
        let named = |event: &Event| {
            let object = &event.involved_object;
            let (kind, name) = (object.kind.as_deref(), object.name.as_deref());
            let (kind, name) = (kind.unwrap_or_default(), name.unwrap_or_default());
            format!("{kind} {name}: {}", lines(std::slice::from_ref(event)).join(""))
        };
        Ok(warnings.iter().filter(|event| is_ours(event)).map(named).collect())
    }

    /// Writes a file with a token of a ServiceAccount in the release's namespace for these audiences. Without audiences, the token is for
    /// the API server.
    pub async fn token(&self, account: &str, audiences: &[&str]) -> anyhow::Result<PathBuf> {
        let accounts = Api::namespaced(self.client(), &self.cluster.release.namespace);
        let token = token(&accounts, account, audiences).await?;
        let name = format!("{account}-{}.token", audiences.join("-").replace('/', "-"));
        let file = self.cluster.control_plane.dir().join(name);
        fs::write(&file, token).with_context(|| format!("cannot write {}", file.display()))?;
        Ok(file)
    }

    /// Waits until a controller reports that it is not ready, for this reason.
    pub async fn unready(&mut self, controller: &str, why: &str) -> anyhow::Result<()> {
        let pod = self.cluster.pods.get(controller)?;
        let what = format!("{controller} is not ready and reports {why:?}");
        let looked = eventually(&what, self.within, || async {
            let Err(error) = pod.look_ready().await else { bail!("the controller is ready") };
            let text = format!("{error:#}");
            ensure!(text.contains(why), "{text}");
            Ok(())
        });
        looked.await?;
        ensure!(pod.is_running(), "{controller} has ended; {}", pod.tail());
        Ok(())
    }

    /// The writes of a pod to the API server since the mark. Leaves out writes to the pod's Lease, and writes to the object named `except`
    /// and its Events, whose names begin with the object's name.
    pub fn writes_of(&mut self, pod: &str, since: Mark, except: &str) -> anyhow::Result<Vec<AuditWrite>> {
        let user = self.cluster.pods.get(pod)?.user().to_owned();
        let writes = self.cluster.control_plane.audit_log().writes_since(since, &user)?;
        let event = format!("{except}.");
        let counts =
            |it: &AuditWrite| !it.keeps_a_lease() && it.name != except && !it.name.starts_with(&event);
        Ok(writes.into_iter().filter(counts).collect())
    }

    /// Adds the object's Events to an error.
    async fn explain<T>(&self, seen: anyhow::Result<T>, kind: &str, name: &str) -> anyhow::Result<T> {
        let Err(error) = seen else { return seen };
        let events = self.events(kind, name).await.unwrap_or_default();
        Err(error.context(format!("Events on {kind} {name}: {:#?}", lines(&events))))
    }
}

/// The condition that the route-controller writes.
pub fn network_unavailable(node: &Node) -> Option<&NodeCondition> {
    let mut conditions = node.status.as_ref()?.conditions.as_ref()?.iter();
    conditions.find(|it| it.type_ == "NetworkUnavailable")
}

/// Whether the node still has the `uninitialized` taint.
pub fn is_uninitialised(node: &Node) -> bool {
    let mut taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
    taints.any(|taint| taint.key == UNINITIALIZED)
}

/// The address of a Service's load balancer in its status.
pub fn address(service: &Service) -> Option<String> {
    let ingress = service.status.as_ref()?.load_balancer.as_ref()?.ingress.as_ref()?.first()?;
    ingress.ip.clone().or_else(|| ingress.hostname.clone())
}

fn is_ours(event: &Event) -> bool {
    REPORTERS.contains(&event.reporting_component.as_deref().unwrap_or_default())
}

fn lines(events: &[Event]) -> Vec<String> {
    let line = |event: &Event| {
        let text = |field: &Option<String>| field.clone().unwrap_or_default();
        format!("{} {}: {}", text(&event.type_), text(&event.reason), text(&event.message))
    };
    events.iter().map(line).collect()
}
