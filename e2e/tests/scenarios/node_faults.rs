//! Concurrent writes to nodes, ambiguous instance names, and clouds without usable answers.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::SystemTime;

use adapter_sim::simcloud::faults::FaultRule;
use adapter_sim::simcloud::model::Instance;
use anyhow::{Context, ensure};
use cloud_api_proto::v1alpha1::adapter_service_server::{AdapterService, AdapterServiceServer};
use cloud_api_proto::v1alpha1::instance_ref::Ref;
use cloud_api_proto::v1alpha1::instance_service_server::{InstanceService, InstanceServiceServer};
use cloud_api_proto::v1alpha1::watch_instances_response::Event;
use cloud_api_proto::v1alpha1::{self as wire, Existence};
use e2e::{
    ApiProxy, Bed, Mark, Ready, Trouble, UNINITIALIZED, eventually, is_uninitialised, merge, node, set_ready,
};
use futures::StreamExt as _;
use futures::stream::{BoxStream, iter, pending};
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, from_value, json};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;
use tonic::{Request, Response, Status};

/// Number of nodes that wait for instances that never appear.
const LATE: u64 = 20;
/// Number of attempts in which another writer is faster.
const RACES: usize = 5;

/// Only the node-controller runs.
fn nodes_alone() -> Value {
    json!({ "serviceController": { "enabled": false }, "routeController": { "enabled": false } })
}

/// Between the controller's read and its write, another writer changes taints or recreates the node.
// Behaviour: NI14, NI19, P32, W6
#[tokio::test]
async fn concurrent_writers_lose_nothing() {
    let mut bed = Bed::install_with(&nodes_alone()).await.unwrap();
    let proxy = ApiProxy::start(&bed.cluster.control_plane).await.unwrap();
    proxy.before(bed.cluster.pods.get("node-controller").unwrap()).unwrap();
    bed.start_pods().await.unwrap();

    register(&bed, &proxy, "contested", Trouble::Holds("PATCH", "/api/v1/nodes/contested")).await;
    let taints = json!([
        { "key": UNINITIALIZED, "value": "true", "effect": "NoSchedule" },
        { "key": "example.com/meanwhile", "effect": "NoExecute" },
    ]);
    bed.patch_node("contested", &json!({ "spec": { "taints": taints } })).await.unwrap();
    proxy.let_go();
    let contested = bed.initialised("contested").await.unwrap();
    assert!(has_taint(&contested, "example.com/meanwhile"), "{:?}", contested.spec);
    bed.told("Node", "contested", "Synced").await.unwrap();
    let written = writes(&mut bed, <_>::default(), "contested");
    assert_eq!(written, ["patch nodes/status 200", "patch nodes 422", "patch nodes 200"]);

    another_writer_wins_each_race(&mut bed, &proxy).await;

    register(&bed, &proxy, "anew", Trouble::Holds("PATCH", "/api/v1/nodes/anew/status")).await;
    // The controller handles other nodes, and this one stays tainted as long as its addresses are not written.
    bed.join("meanwhile", None).await.unwrap();
    assert!(is_uninitialised(&bed.nodes().get("anew").await.unwrap()));
    e2e::delete_node(&bed.client(), "anew").await.unwrap();
    let uid = node("anew").register(&bed.client()).await.unwrap().uid();
    proxy.let_go();
    assert_eq!(bed.initialised("anew").await.unwrap().uid(), uid);
    // The Event follows the last write.
    bed.told("Node", "anew", "Synced").await.unwrap();
    let written = writes(&mut bed, <_>::default(), "anew");
    assert_eq!(written, ["patch nodes/status 422", "patch nodes/status 200", "patch nodes 200"]);
    // No failure is reported for the recreated node.
    assert_eq!(bed.times("Node", "anew", "SyncFailed").await.unwrap(), 0);
    another_uid_is_refused(&bed).await;
}

/// No write of another client is lost, other nodes are not delayed, and this one is initialised when the other writes end.
async fn another_writer_wins_each_race(bed: &mut Bed, proxy: &ApiProxy) {
    register(bed, proxy, "raced", Trouble::Holds("PATCH", "/api/v1/nodes/raced")).await;
    bed.join("beside", None).await.unwrap();
    let mut taints = vec![json!({ "key": UNINITIALIZED, "value": "true", "effect": "NoSchedule" })];
    for race in 0..RACES {
        proxy.holds_one().await.unwrap();
        taints.push(json!({ "key": format!("example.com/other-{race}"), "effect": "NoExecute" }));
        bed.patch_node("raced", &json!({ "spec": { "taints": taints } })).await.unwrap();
        proxy.let_one_go();
    }
    proxy.holds_one().await.unwrap();
    proxy.let_go();
    let raced = bed.initialised("raced").await.unwrap();
    for race in 0..RACES {
        assert!(has_taint(&raced, &format!("example.com/other-{race}")), "{race}: {:?}", raced.spec);
    }
    bed.told("Node", "raced", "Synced").await.unwrap();
    let written = writes(bed, <_>::default(), "raced");
    assert_eq!(written, ["patch nodes/status 200", "patch nodes 422", "patch nodes 200"]);
    assert_eq!(bed.times("Node", "raced", "SyncFailed").await.unwrap(), 0);
}

/// By these answers the controller notices that the name now belongs to another node.
async fn another_uid_is_refused(bed: &Bed) {
    let (nodes, params) = (bed.nodes(), PatchParams::default());
    let guarded = json!({ "metadata": { "uid": "another", "labels": { "v": "1" } } });
    let tested = json!([{ "op": "test", "path": "/metadata/uid", "value": "another" }]);
    let tested = Patch::Json::<()>(from_value(tested).unwrap());
    for (name, answer, fields) in [
        ("merge", nodes.patch("anew", &params, &Patch::Merge(&guarded)).await, ["metadata.uid"].as_slice()),
        (
            "strategic",
            nodes.patch_status("anew", &params, &Patch::Strategic(&guarded)).await,
            &["metadata.uid"],
        ),
        ("JSON", nodes.patch("anew", &params, &tested).await, &[]),
    ] {
        assert!(matches!(answer, Err(kube::Error::Api(_))), "{name}: {answer:?}");
        if let Err(kube::Error::Api(status)) = answer {
            let causes = status.details.iter().flat_map(|details| &details.causes);
            // The API server repeats each cause.
            let mut causes: Vec<_> = causes.map(|cause| cause.field.as_str()).collect();
            causes.dedup();
            let seen = (status.code, status.reason.as_str(), causes.as_slice());
            assert_eq!(seen, (422, "Invalid", fields), "{name}: {status:?}");
        }
    }
}

/// Creates an instance, registers its node, and waits until the controller's write is held.
async fn register(bed: &Bed, proxy: &ApiProxy, name: &str, holds: Trouble) {
    proxy.order(holds);
    bed.cluster.cloud.create_instance(name).await.unwrap();
    node(name).register(&bed.client()).await.unwrap();
    proxy.holds_one().await.unwrap();
}

/// The cloud's answers for a node's name are outdated, ambiguous, from another cloud, or missing.
// Behaviour: NI4, NI5, NI6, NI7, NI8
#[tokio::test]
async fn ambiguous_names_and_failed_lookups_are_waited_for() {
    let mut bed = Bed::install_with(&nodes_alone()).await.unwrap();
    bed.start_pods().await.unwrap();
    let client = bed.client();

    // The controller has seen the old instance of this name when the node of the new instance registers.
    let old = bed.cluster.cloud.create_instance("swapped").await.unwrap();
    bed.join("listed", None).await.unwrap();
    bed.cluster.cloud.delete_instance(&old.id).await.unwrap();
    let new = bed.cluster.cloud.create_instance("swapped").await.unwrap();
    node("swapped").register(&client).await.unwrap();
    assert_eq!(provider_id(&bed.initialised("swapped").await.unwrap()), Some(provider_id_of(&new)));

    let one = bed.cluster.cloud.create_instance("twin").await.unwrap();
    let other = bed.cluster.cloud.create_instance("twin").await.unwrap();
    node("twin").register(&client).await.unwrap();
    has_event_with(&bed, "twin", &[&provider_id_of(&one), &provider_id_of(&other)]).await;
    assert!(provider_id(&bed.nodes().get("twin").await.unwrap()).is_none());
    bed.cluster.cloud.delete_instance(&one.id).await.unwrap();

    node("foreign").provider_id("aws:///zone/i-1").register(&client).await.unwrap();
    bed.told("Node", "foreign", "InstanceForeign").await.unwrap();
    let foreign = bed.nodes().get("foreign").await.unwrap();
    assert!(is_uninitialised(&foreign) && provider_id(&foreign).is_some_and(|id| id == "aws:///zone/i-1"));

    // Nodes that wait are looked up together, at growing intervals.
    bed.cluster.cloud.reset_counts().await.unwrap();
    for number in 0..LATE {
        node(&format!("late-{number}")).register(&client).await.unwrap();
    }
    for number in 0..LATE {
        bed.told("Node", &format!("late-{number}"), "InstanceNotVisible").await.unwrap();
    }
    let counts = bed.cluster.cloud.counts().await.unwrap();
    assert!((1..LATE).contains(&counts.total), "{counts:?}");
    assert_eq!(provider_id(&bed.initialised("twin").await.unwrap()), Some(provider_id_of(&other)));

    let mark = bed.cluster.control_plane.audit_log().mark().unwrap();
    let throttled = json!({
        "match": { "operation": "*" },
        "action": { "respond": { "status": 429, "headers": { "retry-after": "2" } } },
    });
    let throttled: FaultRule = from_value(throttled).unwrap();
    bed.cluster.cloud.reset_counts().await.unwrap();
    bed.cluster.cloud.add_fault(&throttled).await.unwrap();
    bed.cluster.cloud.create_instance("patient").await.unwrap();
    node("patient").register(&client).await.unwrap();
    let told = bed.told("Node", "patient", "CloudProviderFailed").await.unwrap();
    assert!(told.contains("THROTTLED"), "{told}");
    assert_eq!(writes(&mut bed, mark, "patient"), Vec::<String>::new());
    bed.cluster.cloud.clear_faults().await.unwrap();
    bed.initialised("patient").await.unwrap();
}

/// Waits until a node has an Event with all these words.
async fn has_event_with(bed: &Bed, node: &str, words: &[&str]) {
    let what = format!("{node} has an Event with {words:?}");
    let told = eventually(&what, bed.within, || async {
        let events = bed.events("Node", node).await?;
        let mut messages = events.iter().filter_map(|event| event.message.as_deref());
        let all = messages.find(|message| words.iter().all(|word| message.contains(word)));
        all.map(drop).with_context(|| format!("{events:#?}"))
    });
    told.await.unwrap();
}

/// The controller's writes to a node, in order: verb, resource, status. A refused write may be repeated before the change is visible.
fn writes(bed: &mut Bed, since: Mark, node: &str) -> Vec<String> {
    let writes = bed.writes_of("node-controller", since, "").unwrap();
    let of_node = writes.into_iter().filter(|it| it.name == node && it.resource.starts_with("nodes"));
    let mut written: Vec<_> = of_node.map(|it| format!("{} {} {}", it.verb, it.resource, it.code)).collect();
    written.dedup();
    written
}

fn provider_id_of(machine: &Instance) -> String {
    format!("sim://{}/{}", machine.region, machine.id)
}

fn provider_id(node: &Node) -> Option<String> {
    node.spec.as_ref()?.provider_id.clone()
}

fn has_taint(node: &Node, key: &str) -> bool {
    node.spec.iter().flat_map(|spec| spec.taints.iter().flatten()).any(|taint| taint.key == key)
}

/// An empty answer is neither success nor proof of absence, and an instance without an ID cannot belong to a node. No node is initialised
/// or deleted because of them.
// Behaviour: NI5, NI9, W8
#[tokio::test]
async fn empty_answers_initialise_and_delete_no_node() {
    let adapter = Odd::start().await.unwrap();
    let mut values = nodes_alone();
    let often = json!({ "deletion": { "monitorPeriod": "500ms", "confirmAfter": "1s", "window": "1s" } });
    merge(&mut values, &json!({ "adapter": adapter.values(), "nodeController": often }));
    let mut bed = Bed::start_with(&values).await.unwrap();
    let process = bed.cluster.pods.get("node-controller").unwrap().id();

    for (name, odd, reason) in [
        ("nameless", exists(Some(machine("nameless", ""))), "InstanceWithoutProviderID"),
        ("hollow", exists(None), "CloudProviderFailed"),
        ("newer", existence(99), "CloudProviderFailed"),
        ("wordless", wire::InstanceResult::default(), "CloudProviderFailed"),
        ("unproven", existence(Existence::Gone.into()), "InstanceNotVisible"),
    ] {
        adapter.say(name, odd);
        node(name).register(&bed.client()).await.unwrap();
        bed.told("Node", name, reason).await.unwrap();
        let waits = bed.nodes().get(name).await.unwrap();
        assert!(is_uninitialised(&waits) && provider_id(&waits).is_none(), "{name}: {:?}", waits.spec);
    }
    let writes = bed.writes_of("node-controller", Mark::default(), "").unwrap();
    assert!(!writes.iter().any(|it| it.resource.starts_with("nodes")), "{writes:?}");

    // Nodes are initialised when the answers become usable. Then the answers become unusable again, and the nodes are not ready.
    let known = ["hollow", "newer", "wordless", "unproven"];
    let odd: Vec<_> = known.iter().map(|name| adapter.of(name)).collect();
    for name in known {
        adapter.say(name, exists(Some(machine(name, &format!("odd://{name}")))));
    }
    for name in known {
        bed.initialised(name).await.unwrap();
    }
    no_node_is_deleted_for_it(&bed, &adapter, known.into_iter().zip(odd)).await;
    let pod = bed.cluster.pods.get("node-controller").unwrap();
    assert!(pod.is_running() && pod.id() == process, "{}", pod.tail());
}

/// The nodes are not ready, and the adapter's answers are unusable. Only the node that has evidence in the end is deleted.
async fn no_node_is_deleted_for_it(
    bed: &Bed,
    adapter: &Odd,
    said: impl Iterator<Item = (&'static str, wire::InstanceResult)>,
) {
    let mut known = Vec::new();
    for (name, odd) in said {
        known.push(name);
        adapter.say(name, odd);
        set_ready(&bed.client(), name, Ready::Unknown).await.unwrap();
    }
    for name in known {
        let id = format!("odd://{name}");
        let what = format!("{id} is looked up three times");
        let asked = eventually(&what, bed.within, || async {
            let times = adapter.asked(&id);
            ensure!(times >= 3, "{times} times");
            Ok(())
        });
        asked.await.unwrap();
        assert!(bed.nodes().get_opt(name).await.unwrap().is_some(), "{name} is gone");
    }

    // The same answer with evidence is accepted. The node is ready before, so that the controller asks at once.
    let evidence = wire::Evidence {
        method: wire::evidence::Method::DirectGetNotFound.into(),
        ..wire::Evidence::default()
    };
    adapter.say("unproven", wire::InstanceResult { evidence: Some(evidence), ..adapter.of("unproven") });
    for ready in [Ready::True, Ready::Unknown] {
        set_ready(&bed.client(), "unproven", ready).await.unwrap();
    }
    let nodes = bed.nodes();
    let gone = eventually("the node is deleted", bed.within, || async {
        ensure!(nodes.get_opt("unproven").await?.is_none(), "it still exists");
        Ok(())
    });
    gone.await.unwrap();
}

/// An adapter that lists nothing, and gives the answers that the test ordered for each node.
struct Odd {
    url: String,
    state: Arc<Mutex<Said>>,
    _server: JoinSet<()>,
}

#[derive(Default)]
struct Said {
    /// By the name of the node, which is also the end of its provider ID.
    answers: BTreeMap<String, wire::InstanceResult>,
    /// Number of look-ups of each provider ID.
    asked: BTreeMap<String, usize>,
}

impl Odd {
    async fn start() -> anyhow::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let (url, state) = (format!("http://{}", listener.local_addr()?), Arc::<Mutex<Said>>::default());
        let service = Service(Arc::clone(&state));
        let server = Server::builder()
            .add_service(AdapterServiceServer::new(service.clone()))
            .add_service(InstanceServiceServer::new(service));
        let mut task = JoinSet::new();
        task.spawn(async move {
            // The server ends only with the task.
            let _ended = server.serve_with_incoming(TcpIncoming::from(listener)).await.is_ok();
        });
        Ok(Self { url, state, _server: task })
    }

    /// Sets the endpoint of the controllers, as the chart does.
    fn values(&self) -> Value {
        let tls = json!({ "mode": "off" });
        json!({ "kind": "external", "endpoint": self.url, "tls": tls, "authentication": "none" })
    }

    fn say(&self, name: &str, answer: wire::InstanceResult) {
        self.state.lock().unwrap().answers.insert(name.to_owned(), answer);
    }

    fn of(&self, name: &str) -> wire::InstanceResult {
        self.state.lock().unwrap().answers.get(name).cloned().unwrap_or_default()
    }

    fn asked(&self, id: &str) -> usize {
        self.state.lock().unwrap().asked.get(id).copied().unwrap_or_default()
    }
}

#[derive(Clone)]
struct Service(Arc<Mutex<Said>>);

#[tonic::async_trait]
impl AdapterService for Service {
    type WatchStatusStream = BoxStream<'static, Result<wire::WatchStatusResponse, Status>>;

    async fn get_info(
        &self,
        _: Request<wire::GetInfoRequest>,
    ) -> Result<Response<wire::GetInfoResponse>, Status> {
        let (provider, scope) = ("odd".to_owned(), Some(scope()));
        Ok(Response::new(wire::GetInfoResponse { provider, scope, ..wire::GetInfoResponse::default() }))
    }

    async fn watch_status(
        &self,
        _: Request<wire::WatchStatusRequest>,
    ) -> Result<Response<Self::WatchStatusStream>, Status> {
        Err(Status::unimplemented("this adapter has no status"))
    }
}

#[tonic::async_trait]
impl InstanceService for Service {
    type WatchInstancesStream = BoxStream<'static, Result<wire::WatchInstancesResponse, Status>>;

    async fn watch_instances(
        &self,
        _: Request<wire::WatchInstancesRequest>,
    ) -> Result<Response<Self::WatchInstancesStream>, Status> {
        let reset = wire::Reset { scope: Some(scope()) };
        let events = [Event::Reset(reset), Event::Synced(wire::Synced::default())];
        let events = events.map(|event| Ok(wire::WatchInstancesResponse { event: Some(event) }));
        Ok(Response::new(iter(events).chain(pending()).boxed()))
    }

    async fn batch_get_instances(
        &self,
        request: Request<wire::BatchGetInstancesRequest>,
    ) -> Result<Response<wire::BatchGetInstancesResponse>, Status> {
        #[expect(clippy::disallowed_methods, reason = "the adapter's clock is the system's")]
        let now = SystemTime::now();
        let mut said = self.0.lock().unwrap();
        let results = request.into_inner().refs.into_iter().map(|one| {
            let of = match one.r#ref {
                Some(Ref::ProviderId(id)) => {
                    *said.asked.entry(id.clone()).or_default() += 1;
                    id.trim_start_matches("odd://").to_owned()
                }
                Some(Ref::NodeName(name)) => name,
                None => String::new(),
            };
            let mut answer = said.answers.get(&of).cloned().unwrap_or_default();
            if let Some(evidence) = &mut answer.evidence {
                evidence.observed_at = Some(now.into());
            }
            answer
        });
        let results = results.collect();
        Ok(Response::new(wire::BatchGetInstancesResponse { results, ..<_>::default() }))
    }
}

fn scope() -> wire::Scope {
    wire::Scope { project: "odd".to_owned(), fingerprint: "odd".to_owned(), ..wire::Scope::default() }
}

fn existence(existence: i32) -> wire::InstanceResult {
    wire::InstanceResult { existence, ..wire::InstanceResult::default() }
}

fn exists(instance: Option<wire::Instance>) -> wire::InstanceResult {
    wire::InstanceResult { instance, ..existence(Existence::Exists.into()) }
}

fn machine(name: &str, provider_id: &str) -> wire::Instance {
    let address = wire::InstanceAddress {
        r#type: wire::instance_address::Type::InternalIp.into(),
        value: Some(wire::instance_address::Value::Ip("10.0.0.7".to_owned())),
        family: 4,
        ..wire::InstanceAddress::default()
    };
    let (name, provider_id) = (name.to_owned(), provider_id.to_owned());
    wire::Instance { name, provider_id, addresses: vec![address], ..wire::Instance::default() }
}
