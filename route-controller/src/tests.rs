//! Tests the whole controller with a fake API server and a fake cloud, on paused time.

mod conditions;
mod cost;
mod explain;
mod faults;
mod rehearse;
mod removal;
mod shards;

use std::time::Duration;

use cloud_api_proto::v1alpha1::capability::Level;
use cloud_api_proto::v1alpha1::{Capability, NextHop, Route, RouteKey, RouteOwner, RouteState, Scope};
use cloud_api_proto::{AdapterError, Reason};
use controller_core::explain::Explain;
use controller_core::health::Health;
use controller_core::mirror::ObjectName;
use controller_core::testing::{FakeCloud, FakeKube, NodeBuilder, eventually, node, process};
use k8s_openapi::api::core::v1::{ConfigMap, Node};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::config::Config;

struct World {
    kube: FakeKube,
    cloud: FakeCloud,
    stop: CancellationToken,
    health: Health,
    explain: Explain,
    dry_run: bool,
    controller: JoinSet<anyhow::Result<()>>,
}

impl World {
    fn new() -> Self {
        let (kube, cloud) = (FakeKube::new(), FakeCloud::new());
        let (stop, health) = (CancellationToken::new(), Health::default());
        let explain = Explain::default();
        Self { kube, cloud, stop, health, explain, dry_run: false, controller: JoinSet::new() }
    }

    fn put(&self, node: NodeBuilder) {
        self.kube.put::<Node>(node);
    }

    fn start(&mut self) {
        self.start_with(&[]);
    }

    fn start_with(&mut self, more: &[&str]) {
        let config = configured(more);
        let process = process(crate::NAMES, &self.kube, &self.cloud);
        let process = if self.dry_run { process.read_only() } else { process };
        self.stop = process.stop.clone();
        self.health = process.health.clone();
        self.explain = process.explain.clone();
        self.controller.spawn(crate::control(process, config));
    }

    async fn stop(&mut self) {
        self.stop.cancel();
        while let Some(ended) = self.controller.join_next().await {
            ended.expect("no panic").expect("a requested stop");
        }
    }

    /// Adds this many nodes `n0`, `n1`, ..., and waits until each has its route and its condition.
    async fn with_nodes(n: usize) -> Self {
        let mut world = Self::new();
        world.marks_routes();
        (0..n).for_each(|n| world.put(numbered(n)));
        world.start();
        eventually("all conditions are written", || {
            (0..n).all(|n| world.condition(&format!("n{n}")) == SERVED)
        })
        .await;
        world
    }

    fn delete(&self, name: &str) {
        self.kube.delete::<Node>(&ObjectName::cluster(name));
    }

    /// Counts calls that change routes, and writes to the API server other than Events.
    fn spent(&self) -> (u32, usize) {
        (self.cloud.calls("ApplyRoutes"), self.kube.writes().len())
    }

    fn condition(&self, name: &str) -> String {
        let node: Option<Node> = self.kube.get(&ObjectName::cluster(name));
        let conditions = node.and_then(|node| node.status?.conditions).unwrap_or_default();
        let condition = conditions.into_iter().find(|condition| condition.type_ == "NetworkUnavailable");
        condition.map(|it| format!("{} {}", it.status, it.reason.unwrap_or_default())).unwrap_or_default()
    }

    /// Returns the routes as `destination via instance at address`, sorted.
    fn routes(&self) -> Vec<String> {
        let line = |route: &Route| {
            let hop = route.next_hop.clone().unwrap_or_default();
            format!("{} via {} at {}", route.destination, hop.provider_id, hop.address)
        };
        let mut routes: Vec<String> = self.cloud.read(|state| state.routes.values().map(line).collect());
        routes.sort();
        routes
    }
}

fn configured(more: &[&str]) -> Config {
    let cidrs = "--cluster-cidr=10.244.0.0/16,fd00:244::/48";
    let flags = ["route-controller", "--cluster-id=cluster-uid", cidrs, "--kubeconfig="];
    Config::from_arguments(flags.iter().chain(more)).expect("valid flags")
}

fn ready(name: &str, cidr: &str) -> NodeBuilder {
    node(name).provider_id(&format!("sim://north/{name}")).pods(cidr).at("192.0.2.1")
}

const SERVED: &str = "False RouteCreated";

fn numbered(n: usize) -> NodeBuilder {
    ready(&format!("n{n}"), &format!("10.244.{n}.0/24"))
}

fn foreign(destination: &str) -> Route {
    Route {
        vendor_id: "rt-7".to_owned(),
        key: None,
        destination: destination.to_owned(),
        next_hop: Some(NextHop { address: "192.0.2.99".to_owned(), ..NextHop::default() }),
        table: String::new(),
        state: RouteState::Active.into(),
        owner: RouteOwner::Unmanaged.into(),
        fence: None,
    }
}

async fn settle() {
    tokio::time::sleep(Duration::from_mins(20)).await;
}

// Behaviour: R18
#[tokio::test(start_paused = true)]
async fn node_gets_its_route_and_a_restart_writes_nothing() {
    let mut world = World::new();
    world.put(ready("a", "10.244.1.0/24"));
    world.start();
    eventually("the condition is written", || world.condition("a") == "False RouteCreated").await;
    assert_eq!(world.routes(), ["10.244.1.0/24 via sim://north/a at 192.0.2.1"]);
    settle().await;
    world.stop().await;
    assert_eq!((world.cloud.calls("ApplyRoutes"), world.kube.writes().len()), (1, 1));

    world.start();
    settle().await;
    world.stop().await;
    assert_eq!((world.cloud.calls("ApplyRoutes"), world.kube.writes().len()), (1, 1));
    assert_eq!(world.kube.events(), [""; 0]);
}

/// Nodes may have the ID with or without the region, and the adapter lists one of the forms.
#[tokio::test(start_paused = true)]
async fn route_serves_its_node_with_both_forms_of_the_provider_id() {
    for (listed, written) in [("sim:///a", "sim://north/a"), ("sim://north/a", "sim:///a")] {
        let mut world = World::new();
        world.marks_routes();
        let scope = Scope { region: "north".to_owned(), fingerprint: "f".to_owned(), ..Scope::default() };
        let to = "10.244.1.0/24".to_owned();
        let key = RouteKey {
            cluster_id: "cluster-uid".to_owned(),
            node_uid: "uid-a".to_owned(),
            destination: to.clone(),
        };
        let (provider_id, address) = (listed.to_owned(), "192.0.2.1".to_owned());
        let next_hop = Some(NextHop { provider_id, address, ..NextHop::default() });
        let route = Route { key: Some(key), next_hop, owner: RouteOwner::Mine.into(), ..foreign(&to) };
        world.cloud.edit(|state| {
            state.info.scope = Some(scope);
            state.routes.insert(route.vendor_id.clone(), route);
        });
        world.put(ready("a", &to).provider_id(written));
        world.start();
        eventually("the condition is written", || world.condition("a") == SERVED).await;
        settle().await;
        assert_eq!(world.cloud.calls("ApplyRoutes"), 0, "{written}");
        assert_eq!(world.routes(), [format!("{to} via {listed} at 192.0.2.1")]);
        world.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn only_the_network_condition_is_patched() {
    let mut world = World::new();
    let mut a: Node = ready("a", "10.244.1.0/24").into();
    let condition = serde_json::json!([{ "type": "Ready", "status": "True" }]);
    a.status.as_mut().expect("a status").conditions = serde_json::from_value(condition).expect("conditions");
    world.kube.put::<Node>(a);
    world.start();
    eventually("the condition is written", || world.condition("a") == "False RouteCreated").await;

    let a: Node = world.kube.get(&ObjectName::cluster("a")).expect("a node");
    let conditions = a.status.and_then(|status| status.conditions).unwrap_or_default();
    let types: Vec<_> = conditions.iter().map(|condition| condition.type_.as_str()).collect();
    assert_eq!(types, ["Ready", "NetworkUnavailable"]);
    assert_eq!(conditions[1].message.as_deref(), Some("RouteController created a route"));
    let writes = world.kube.writes();
    assert_eq!(writes[0].path, "/api/v1/nodes/a/status");
    world.stop().await;
}

// Behaviour: R17
#[tokio::test(start_paused = true)]
async fn hundred_nodes_that_join_at_once_take_at_most_two_calls() {
    let mut world = World::new();
    world.start();
    settle().await;
    for n in 0..100 {
        world.put(ready(&format!("n{n}"), &format!("10.244.{n}.0/24")));
    }
    eventually("all conditions are written", || {
        (0..100).all(|n| world.condition(&format!("n{n}")) == "False RouteCreated")
    })
    .await;
    assert!(world.cloud.calls("ApplyRoutes") <= 2, "{} calls", world.cloud.calls("ApplyRoutes"));
    assert_eq!(world.kube.writes().len(), 100);
    world.stop().await;
}

// Behaviour: R1
#[tokio::test(start_paused = true)]
async fn uninitialised_node_waits_without_an_event() {
    let mut world = World::new();
    world.put(node("a").uninitialised().pods("10.244.1.0/24"));
    world.start();
    settle().await;
    assert_eq!((world.cloud.calls("ApplyRoutes"), world.kube.writes().len()), (0, 0));
    assert_eq!(world.kube.events(), [""; 0]);

    world.put(ready("a", "10.244.1.0/24"));
    eventually("the condition is written", || world.condition("a") == "False RouteCreated").await;
    world.stop().await;
}

/// A former controller may have run with a `--cluster-cidr` that does not contain the nodes' CIDRs.
// Behaviour: R3
#[tokio::test(start_paused = true)]
async fn outside_cidr_gets_its_route_and_an_event() {
    let mut world = World::new();
    world.marks_routes();
    world.put(ready("a", "10.99.1.0/24"));
    world.start();
    eventually("the condition is written", || world.condition("a") == SERVED).await;
    assert_eq!(world.routes(), ["10.99.1.0/24 via sim://north/a at 192.0.2.1"]);
    let (seen, asked) = world.cloud.read(|state| {
        (state.route_watches[0].cluster_cidrs.clone(), state.route_changes[0].cluster_cidrs.clone())
    });
    assert_eq!(seen, ["0.0.0.0/0", "::/0"], "an adapter shows no other routes");
    assert_eq!(
        asked,
        ["10.244.0.0/16", "fd00:244::/48", "10.99.1.0/24"],
        "an adapter creates no other routes"
    );
    settle().await;
    let events = world.kube.events();
    assert!(events.len() == 1 && events[0].starts_with("Warning PodCIDROutside a: "), "{events:?}");

    world.delete("a");
    settle().await;
    assert_eq!((world.routes().len(), world.spent()), (1, (1, 1)));
    world.stop().await;
}

// Behaviour: R5, W19
#[tokio::test(start_paused = true)]
async fn cidr_spelling_is_ignored_and_one_watch_is_enough() {
    let mut world = World::new();
    world.put(ready("a", "10.244.1.0/24").pods("fd00:244:0:1::/64"));
    for (id, destination) in [("1", "10.244.1.7/24"), ("2", "FD00:244:0:1:0::/64")] {
        world.put_route(Route { owner: RouteOwner::Mine.into(), ..unmarked(id, destination, Some("a")) });
    }
    world.start();
    eventually("the condition is written", || world.condition("a") == SERVED).await;
    tokio::time::sleep(Duration::from_hours(1)).await;
    assert_eq!((world.spent(), world.cloud.calls("WatchRoutes")), ((0, 1), 1));
    world.stop().await;
}

// Behaviour: R11
#[tokio::test(start_paused = true)]
async fn route_is_removed_with_its_node_and_a_foreign_one_stays() {
    let mut world = World::new();
    world.put(ready("a", "10.244.1.0/24"));
    world.cloud.edit(|state| drop(state.routes.insert("rt-7".to_owned(), foreign("10.244.7.0/24"))));
    world.start();
    eventually("the condition is written", || world.condition("a") == "False RouteCreated").await;
    world.kube.delete::<Node>(&ObjectName::cluster("a"));
    eventually("the route is removed", || world.routes().len() == 1).await;
    settle().await;
    assert_eq!(world.routes(), ["10.244.7.0/24 via  at 192.0.2.99"]);
    world.stop().await;
}

/// Returns a route of a cloud without owner tags, via the instance of node `name`, or via an address alone.
fn unmarked(id: &str, destination: &str, machine: Option<&str>) -> Route {
    let provider_id = machine.map(|name| format!("sim://north/{name}")).unwrap_or_default();
    let state = if machine.is_some() { RouteState::Active } else { RouteState::Blackhole };
    let next_hop = Some(NextHop { provider_id, address: "192.0.2.1".to_owned(), ..NextHop::default() });
    Route { vendor_id: id.to_owned(), next_hop, state: state.into(), ..foreign(destination) }
}

impl World {
    /// Lets the cloud store the owner of a route.
    fn marks_routes(&self) {
        let (name, level) = ("routes.ownership-tags".to_owned(), Level::Stable.into());
        let capability = Capability { name, level, ..Capability::default() };
        self.cloud.edit(|state| state.info.capabilities.push(capability));
    }

    fn put_route(&self, route: Route) {
        self.cloud.edit(|state| drop(state.routes.insert(route.vendor_id.clone(), route)));
    }

    fn kept(&self) -> Vec<String> {
        let map: Option<ConfigMap> =
            self.kube.get(&ObjectName::namespaced("default", "route-controller-routes"));
        let entries = map.and_then(|map| map.data).unwrap_or_default();
        entries.into_iter().map(|(key, uid)| format!("{key} {uid}")).collect()
    }
}

// Behaviour: R13
#[tokio::test(start_paused = true)]
async fn untagged_route_is_removed_after_a_restart() {
    let mut world = World::new();
    world.put(ready("a", "10.244.1.0/24"));
    world.put(ready("b", "10.244.2.0/24"));
    world.put_route(unmarked("one", "10.244.1.0/24", Some("a")));
    world.put_route(unmarked("two", "10.244.2.0/24", Some("b")));
    world.put_route(unmarked("operator", "10.244.9.0/24", None));
    world.start();
    eventually("the record is stored", || world.kept().len() == 2).await;
    assert_eq!(world.kept(), ["one uid-a", "two uid-b"]);
    settle().await;
    world.stop().await;
    assert_eq!(world.cloud.calls("ApplyRoutes"), 0);

    world.kube.delete::<Node>(&ObjectName::cluster("a"));
    world.put_route(unmarked("one", "10.244.1.0/24", None));
    world.start();
    eventually("the record drops the entry", || world.kept() == ["two uid-b"]).await;
    assert_eq!(
        world.routes(),
        ["10.244.2.0/24 via sim://north/b at 192.0.2.1", "10.244.9.0/24 via  at 192.0.2.1"]
    );
    settle().await;
    world.stop().await;
    assert_eq!(world.cloud.calls("ApplyRoutes"), 1);
}

// Behaviour: R13
#[tokio::test(start_paused = true)]
async fn deleted_record_is_recreated_completely() {
    let mut world = World::new();
    for (n, name) in ["a", "b"].into_iter().enumerate() {
        let cidr = format!("10.244.{n}.0/24");
        world.put(ready(name, &cidr));
        world.put_route(unmarked(name, &cidr, Some(name)));
    }
    world.start();
    eventually("the record is stored", || world.kept() == ["a uid-a", "b uid-b"]).await;
    world.kube.delete::<ConfigMap>(&ObjectName::namespaced("default", "route-controller-routes"));
    world.put_route(unmarked("c", "10.244.7.0/24", Some("c")));
    world.put(ready("c", "10.244.7.0/24"));
    eventually("another entry", || !world.kept().is_empty()).await;
    assert_eq!(world.kept(), ["a uid-a", "b uid-b", "c uid-c"]);
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn cloud_with_tags_has_no_record_and_untagged_routes_stay() {
    let mut world = World::new();
    world.marks_routes();
    world.put(ready("a", "10.244.1.0/24"));
    world.put_route(unmarked("one", "10.244.1.0/24", Some("a")));
    world.start();
    eventually("the condition is written", || world.condition("a") == "False RouteCreated").await;
    world.kube.delete::<Node>(&ObjectName::cluster("a"));
    settle().await;
    world.stop().await;
    assert_eq!((world.routes().len(), world.kept().len(), world.cloud.calls("ApplyRoutes")), (1, 0, 0));
}

#[tokio::test(start_paused = true)]
async fn unwritable_record_blocks_no_route_and_is_retried() {
    let mut world = World::new();
    world.put(ready("a", "10.244.1.0/24"));
    world.put_route(unmarked("one", "10.244.1.0/24", Some("a")));
    world.start();
    eventually("the condition is written", || world.condition("a") == "False RouteCreated").await;
    eventually("the record is stored", || world.kept() == ["one uid-a"]).await;
    world.kube.refuse_next(403);
    world.kube.delete::<Node>(&ObjectName::cluster("a"));
    eventually("the route is removed", || world.routes().is_empty()).await;
    eventually("the record drops the entry", || world.kept().is_empty()).await;
    world.stop().await;
}

// Behaviour: R7, W19
#[tokio::test(start_paused = true)]
async fn moved_cidr_is_freed_first() {
    let mut world = World::new();
    world.put(ready("a", "10.244.1.0/24"));
    world.start();
    eventually("the condition is written", || world.condition("a") == "False RouteCreated").await;
    world.kube.delete::<Node>(&ObjectName::cluster("a"));
    world.put(ready("b", "10.244.1.0/24"));
    eventually("the condition is written", || world.condition("b") == "False RouteCreated").await;
    assert_eq!(world.routes(), ["10.244.1.0/24 via sim://north/b at 192.0.2.1"]);
    let sizes: Vec<_> = world.cloud.read(|state| {
        state.route_changes.iter().map(|change| (change.upserts.len(), change.deletes.len())).collect()
    });
    assert_eq!(sizes, [(1, 0), (0, 1), (1, 0)]);
    world.stop().await;
}

// Behaviour: R14, W19
#[tokio::test(start_paused = true)]
async fn failed_route_is_reported_and_retried() {
    let mut world = World::new();
    world.put(ready("a", "10.244.1.0/24"));
    world.cloud.fail_next("ApplyRoutes", AdapterError::new(Reason::Internal, "a defect"));
    world.cloud.fail_next("ApplyRoutes", AdapterError::new(Reason::VendorQuota, "50 routes"));
    world.start();
    eventually("the failure is written", || world.condition("a") == "True NoRouteCreated").await;
    eventually("the new condition is written", || world.condition("a") == "False RouteCreated").await;
    settle().await;
    assert_eq!(world.cloud.calls("ApplyRoutes"), 3);
    assert_eq!(world.kube.writes().len(), 2);
    assert_eq!(
        world.kube.events(),
        [
            "Warning FailedToCreateRoute a: Could not create route uid-a 10.244.1.0/24 for node a after 0.0ns: INTERNAL: a defect",
            "Warning FailedToCreateRoute a: Could not create route uid-a 10.244.1.0/24 for node a after 0.0ns: VENDOR_QUOTA: 50 routes",
        ]
    );
    world.stop().await;
}

// Behaviour: R12
#[tokio::test(start_paused = true)]
async fn conflicting_foreign_route_is_reported_and_costs_nothing() {
    let mut world = World::new();
    world.put(ready("a", "10.244.1.0/24"));
    world.cloud.edit(|state| drop(state.routes.insert("rt-7".to_owned(), foreign("10.244.1.0/24"))));
    world.start();
    eventually("the failure is written", || world.condition("a") == "True NoRouteCreated").await;
    settle().await;
    assert_eq!(world.cloud.calls("ApplyRoutes"), 0);
    let events = world.kube.events();
    assert!(events[0].contains("FailedToCreateRoute a: ") && events[0].contains("route rt-7"), "{events:?}");

    world.cloud.edit(|state| drop(state.routes.remove("rt-7")));
    eventually("the new condition is written", || world.condition("a") == "False RouteCreated").await;
    world.stop().await;
}

// Behaviour: R19
#[tokio::test(start_paused = true)]
async fn unavailable_adapter_is_reported_on_the_node() {
    let mut world = World::new();
    world.cloud.away(true);
    world.put(ready("a", "10.244.1.0/24"));
    world.start();
    eventually("the Event is emitted", || !world.kube.events().is_empty()).await;
    settle().await;
    let events = world.kube.events();
    assert_eq!(events.len(), 1, "{events:?}");
    assert!(
        events[0].starts_with("Warning WaitsForCloud a: ") && events[0].contains("refused"),
        "{events:?}"
    );
    assert_eq!(world.condition("a"), "");

    world.cloud.away(false);
    eventually("the condition is written", || world.condition("a") == "False RouteCreated").await;
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn throttling_adapter_is_called_after_its_delay() {
    let mut world = World::new();
    world.put(ready("a", "10.244.1.0/24"));
    let busy = AdapterError::new(Reason::VendorThrottled, "slow down").retry_after(Duration::from_secs(60));
    world.cloud.fail_next("ApplyRoutes", busy);
    world.start();
    eventually("the first call is made", || world.cloud.calls("ApplyRoutes") == 1).await;
    world.put(ready("b", "10.244.2.0/24"));
    tokio::time::sleep(Duration::from_secs(50)).await;
    assert_eq!((world.cloud.calls("ApplyRoutes"), world.condition("a")), (1, String::new()));
    eventually("both conditions are written", || {
        world.condition("a") == "False RouteCreated" && world.condition("b") == "False RouteCreated"
    })
    .await;
    assert_eq!(world.cloud.calls("ApplyRoutes"), 2);
    world.stop().await;
}

// Behaviour: R19
#[tokio::test(start_paused = true)]
async fn unavailable_api_server_removes_nothing() {
    let mut world = World::new();
    world.put(ready("a", "10.244.1.0/24"));
    world.start();
    eventually("the condition is written", || world.condition("a") == "False RouteCreated").await;
    world.stop().await;

    world.kube.away(true);
    world.start();
    settle().await;
    assert_eq!(world.routes().len(), 1);
    world.kube.away(false);
    settle().await;
    assert_eq!((world.routes().len(), world.cloud.calls("ApplyRoutes")), (1, 1));
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn failed_condition_write_is_retried() {
    let mut world = World::new();
    world.put(ready("a", "10.244.1.0/24"));
    world.kube.refuse_next(500);
    world.start();
    eventually("the condition is written", || world.condition("a") == "False RouteCreated").await;
    assert_eq!(world.cloud.calls("ApplyRoutes"), 1);
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn newer_controller_stops_this_one() {
    let mut world = World::new();
    world.put(ready("a", "10.244.1.0/24"));
    world.cloud.fail_next("ApplyRoutes", AdapterError::new(Reason::StaleFence, "epoch 7 was here"));
    world.start();
    let ended = world.controller.join_next().await.expect("a single controller").expect("no panic");
    assert!(ended.is_err(), "the exit code differs from that of a requested stop");
    assert_eq!(world.cloud.calls("ApplyRoutes"), 1);
}
