//! The vendor calls in each row of the table "Cost" in the route-controller's README, counted by the simulated cloud.
//!
//! Nodes are created as the node-controller leaves them, but it does not run: all calls are made for routes.

#![expect(clippy::indexing_slicing, reason = "clippy recognises tests, but not their helpers")]

use std::collections::BTreeMap;
use std::time::Duration;

use adapter_sim::simcloud::Operation;
use adapter_sim::simcloud::counts::Counts;
use adapter_sim::simcloud::model::Instance;
use anyhow::{Context, ensure};
use e2e::{ADAPTER, Bed, Pod, State, WITHIN, eventually, node, service};
use http::Method;
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use serde_json::{from_value, json};
use tokio::time::Instant;

/// More routes than one call takes.
const MANY: usize = 210;
/// Maximum number of routes in one call.
const BATCH: usize = 200;
/// Routes per page of a listing, and the interval of listings.
const PAGE: usize = 50;
const PERIOD: Duration = Duration::from_secs(3);

// Behaviour: P34
#[tokio::test]
async fn vendor_calls_match_the_rows_of_the_readme() {
    let mut bed = Bed::install_with(&json!({
        "routeController": {
            "clusterCidr": "10.244.0.0/16,fd00:10:244::/56",
            "reconciliationPeriod": "1s",
            "removal": { "grace": "1s" },
        },
        "adapter": { "cache": { "routes": { "maxAge": "3s", "pageSize": PAGE } } },
        "nodeController": { "enabled": false },
        "serviceController": { "enabled": false },
    }))
    .await
    .unwrap();
    bed.start_pods().await.unwrap();
    a_node_joins(&bed).await;
    a_node_gets_another_address(&bed).await;
    its_route_is_removed(&bed).await;
    its_condition_is_overwritten(&bed).await;
    changes_unrelated_to_routes(&bed).await;
    a_route_of_another_owner(&bed).await;
    a_route_is_refused(&bed).await;
    one_goes(&bed).await;

    let machines = many_join(&mut bed).await;
    steady_state(&bed).await;
    restarts(&mut bed).await;
    many_go(&mut bed, &machines).await;
}

/// One call for the routes of both families.
async fn a_node_joins(bed: &Bed) {
    let order = json!({ "name": "dual", "addresses": internal(["10.9.0.1", "fd00::9:1"]) });
    let machine = bed.cluster.cloud.create_instances(&order).await.unwrap().remove(0);
    let meter = Meter::start(bed).await;
    join(bed, &machine, &["10.244.1.0/24", "fd00:10:244:1::/64"]).await;
    until_created(bed, &["dual"]).await;
    settled(bed).await;
    assert_eq!(meter.writes(bed).await, 1, "a node joins");
}

async fn a_node_gets_another_address(bed: &Bed) {
    let meter = Meter::start(bed).await;
    let change = json!({ "addresses": internal(["10.9.0.2", "fd00::9:1"]) });
    bed.cluster.cloud.change_instance(&bed.instance("dual").await.unwrap(), &change).await.unwrap();
    let addresses = ["10.9.0.2", "fd00::9:1"].map(|it| json!({ "type": "InternalIP", "address": it }));
    let patch = Patch::Merge(json!({ "status": { "addresses": addresses } }));
    bed.nodes().patch_status("dual", &PatchParams::default(), &patch).await.unwrap();
    let moved = bed.wait_cloud("the route uses the new address", |state| {
        let mut via = state.routes.iter().filter_map(|route| route.next_hop_address);
        via.any(|it| it.to_string() == "10.9.0.2")
    });
    moved.await.unwrap();
    settled(bed).await;
    assert_eq!(meter.writes(bed).await, 1, "a node with another address");
}

async fn its_route_is_removed(bed: &Bed) {
    let meter = Meter::start(bed).await;
    let old = route_to(&bed.cluster.cloud.state().await.unwrap(), "10.244.1.0/24").unwrap();
    by_hand(bed, &json!({ "remove": [old] })).await;
    let laid = bed.until_cloud("another route exists", |state| {
        ensure!(route_to(state, "10.244.1.0/24")? != old, "{:?}", state.routes);
        Ok(())
    });
    laid.await.unwrap();
    settled(bed).await;
    assert_eq!(meter.writes(bed).await, 1 + 1, "the other write removed the route");
}

async fn its_condition_is_overwritten(bed: &Bed) {
    let meter = Meter::start(bed).await;
    let other = json!({ "type": "NetworkUnavailable", "status": "False", "reason": "CalicoIsUp" });
    let patch = Patch::Strategic(json!({ "status": { "conditions": [other] } }));
    bed.nodes().patch_status("dual", &PatchParams::default(), &patch).await.unwrap();
    until_created(bed, &["dual"]).await;
    settled(bed).await;
    assert_eq!(meter.writes(bed).await, 0, "a condition that another writer changes");
}

/// Heartbeats, labels, annotations, and Services.
async fn changes_unrelated_to_routes(bed: &Bed) {
    let meter = Meter::start(bed).await;
    for number in 0..10 {
        let time = format!("2026-01-02T03:04:{number:02}Z");
        let beat = json!({ "type": "Ready", "status": "True", "lastHeartbeatTime": time });
        let beat = Patch::Strategic(json!({ "status": { "conditions": [beat] } }));
        bed.nodes().patch_status("dual", &PatchParams::default(), &beat).await.unwrap();
        let number = number.to_string();
        let theirs = json!({ "labels": { "team": number }, "annotations": { "example.com/of": number } });
        bed.patch_node("dual", &json!({ "metadata": theirs })).await.unwrap();
        service(&format!("web-{number}")).port(80).create(&bed.client()).await.unwrap();
    }
    settled(bed).await;
    assert_eq!(meter.writes(bed).await, 0, "changes that do not concern routes");
}

async fn a_route_of_another_owner(bed: &Bed) {
    let meter = Meter::start(bed).await;
    bed.cluster.cloud.lay_route("10.244.200.0/24", &bed.instance("dual").await.unwrap()).await.unwrap();
    until_foreign(bed, 1.0).await;
    let theirs = route_to(&bed.cluster.cloud.state().await.unwrap(), "10.244.200.0/24").unwrap();
    by_hand(bed, &json!({ "remove": [theirs] })).await;
    until_foreign(bed, 0.0).await;
    settled(bed).await;
    assert_eq!(meter.writes(bed).await, 2, "another owner's writes only");
}

/// One call per attempt, at intervals that grow from 1 s. The controller requests a listing to find the conflicting route, since no listing
/// has shown it.
async fn a_route_is_refused(bed: &Bed) {
    const N_REFUSED: usize = 2;
    let refusal = json!({ "code": "route_exists", "message": "not this time", "details": null });
    let answer = json!({ "status": 200, "body": { "added": [{ "error": refusal }], "removed": [] } });
    let fault = json!({
        "match": { "operation": "BatchRoutes" }, "when": { "next": N_REFUSED }, "action": { "respond": answer },
    });
    bed.cluster.cloud.add_fault(&from_value(fault).unwrap()).await.unwrap();
    let machine = bed.cluster.cloud.create_instance("refused").await.unwrap();
    let meter = Meter { besides: N_REFUSED.try_into().unwrap(), ..Meter::start(bed).await };
    join(bed, &machine, &["10.244.2.0/24"]).await;
    until_created(bed, &["refused"]).await;
    settled(bed).await;
    let log = bed.cluster.cloud.requests().await.unwrap();
    let tries: Vec<_> = log.iter().filter(|it| it.operation == Operation::BatchRoutes).collect();
    assert_eq!(tries.iter().filter(|it| it.fault).count(), N_REFUSED, "{tries:?}");
    let pauses: Vec<u64> = tries.windows(2).map(|pair| (pair[1].at_ms - pair[0].at_ms) / 1000).collect();
    assert!(pauses[0] >= 1 && pauses[1] >= 2, "{pauses:?}");
    assert_eq!(meter.writes(bed).await, 1 + u64::try_from(N_REFUSED).unwrap(), "a refused route");
}

async fn one_goes(bed: &Bed) {
    let meter = Meter::start(bed).await;
    e2e::delete_node(&bed.client(), "refused").await.unwrap();
    until_routes(bed, 2).await;
    settled(bed).await;
    assert_eq!(meter.writes(bed).await, 1, "a deleted node");
}

/// The controller sees all nodes in its first pass.
async fn many_join(bed: &mut Bed) -> Vec<Instance> {
    bed.cluster.pods.get("route-controller").unwrap().terminate().await.unwrap();
    let machines = bed.cluster.cloud.create_numbered("n{n}", MANY).await.unwrap();
    let here = &*bed;
    let all = machines.iter().enumerate().map(|(number, machine)| async move {
        join(here, machine, &[&format!("10.244.{}.{}/26", 10 + number / 4, number % 4 * 64)]).await;
    });
    futures::future::join_all(all).await;
    let meter = Meter::start(bed).await;
    bed.cluster.pods.get("route-controller").unwrap().start().unwrap();
    let names: Vec<&str> = machines.iter().map(|it| &*it.name).collect();
    until_created(bed, &names).await;
    settled(bed).await;
    assert_eq!(meter.writes(bed).await, u64::try_from(MANY.div_ceil(BATCH)).unwrap(), "many nodes that join");
    machines
}

/// One page per [`PAGE`] routes and period, however often the controller compares the routes.
async fn steady_state(bed: &Bed) {
    let adapter = bed.cluster.pods.look_at(ADAPTER).unwrap();
    let before = refreshes(adapter).await;
    let listed = eventually("the routes were listed", WITHIN, || async {
        ensure!(refreshes(adapter).await > before, "no listing yet");
        Ok(())
    });
    listed.await.unwrap();
    // The next listing is now a period away.
    let (meter, before) = (Meter::start(bed).await, refreshes(adapter).await);
    let listed = eventually("each listing has as many pages as it needs", WITHIN, || async {
        let (counts, now) = (bed.cluster.cloud.counts().await?, refreshes(adapter).await);
        let (done, pages) = (now - before, counts.of(Operation::ListRoutes));
        ensure!(done >= 2 && pages == done * meter.pages, "{pages} pages in {done} listings");
        Ok(())
    });
    listed.await.unwrap();
    settled(bed).await;
    assert_eq!(meter.writes(bed).await, 0, "the steady state");
}

/// The controller makes no call after a restart. The adapter lists once and checks its project.
async fn restarts(bed: &mut Bed) {
    let meter = Meter::start(bed).await;
    let controller = bed.cluster.pods.get("route-controller").unwrap();
    controller.terminate().await.unwrap();
    controller.start().unwrap();
    bed.quiet("route-controller").await.unwrap();
    settled(bed).await;
    assert_eq!(meter.writes(bed).await, 0, "a restart of the controller");

    bed.cluster.pods.get(ADAPTER).unwrap().terminate().await.unwrap();
    let meter = Meter::start(bed).await;
    bed.cluster.pods.get(ADAPTER).unwrap().start().unwrap();
    bed.ready().await.unwrap();
    settled(bed).await;
    let counts = meter.counts(bed).await;
    assert_eq!((counts.writes, counts.of(Operation::GetProject)), (0, 1), "a restart of the adapter");
}

/// Nodes are deleted with their instances, so that there is no limit on removals. The controller sees it in its first pass.
async fn many_go(bed: &mut Bed, machines: &[Instance]) {
    bed.cluster.pods.get("route-controller").unwrap().terminate().await.unwrap();
    let here = &*bed;
    let all = machines.iter().map(|machine| async move {
        here.cluster.cloud.delete_instance(&machine.id).await.unwrap();
        e2e::delete_node(&here.client(), &machine.name).await.unwrap();
    });
    futures::future::join_all(all).await;
    // After a restart, the adapter lists on the first request, since nothing watches it.
    let adapter = bed.cluster.pods.get(ADAPTER).unwrap();
    adapter.terminate().await.unwrap();
    adapter.start().unwrap();
    adapter.wait_ready(WITHIN).await.unwrap();
    let meter = Meter::start(bed).await;
    bed.cluster.pods.get("route-controller").unwrap().start().unwrap();
    until_routes(bed, 2).await;
    settled(bed).await;
    // The adapter may check its project in addition.
    let counts = meter.counts(bed).await;
    let calls = u64::try_from(MANY.div_ceil(BATCH)).unwrap();
    assert_eq!((counts.of(Operation::BatchRoutes), counts.writes), (calls, calls), "many deleted nodes");
}

/// Counts calls from its creation on.
struct Meter {
    began: Instant,
    /// Pages of a listing at that time.
    pages: u64,
    /// Listings that are requested in addition to the periodic ones.
    besides: u64,
}

impl Meter {
    async fn start(bed: &Bed) -> Self {
        let (began, pages) = (Instant::now(), pages(bed).await);
        bed.cluster.cloud.reset_counts().await.unwrap();
        Self { began, pages, besides: 0 }
    }

    /// Counts of calls. There must be no more listings than one per [`PERIOD`].
    async fn counts(&self, bed: &Bed) -> Counts {
        let counts = bed.cluster.cloud.counts().await.unwrap();
        // The rest of a listing that was in progress is counted, too.
        let listings = self.began.elapsed().as_secs() / PERIOD.as_secs() + 2 + self.besides;
        let most = listings * self.pages.max(pages(bed).await);
        assert!(counts.of(Operation::ListRoutes) <= most, "{most}: {counts:?}");
        counts
    }

    /// Number of route changes. There must be no other calls, except for listings and the adapter's own check of its project.
    async fn writes(&self, bed: &Bed) -> u64 {
        let counts = self.counts(bed).await;
        let known = counts.of(Operation::ListRoutes) + counts.of(Operation::GetProject);
        assert_eq!(counts.reads, known, "unexpected reads: {counts:?}");
        assert_eq!(counts.writes, counts.of(Operation::BatchRoutes), "unexpected writes: {counts:?}");
        counts.writes
    }
}

/// Number of pages of a listing now, at least one.
async fn pages(bed: &Bed) -> u64 {
    let routes = bed.cluster.cloud.state().await.unwrap().routes.len();
    routes.div_ceil(PAGE).max(1).try_into().unwrap()
}

/// Number of complete listings of routes by the adapter.
async fn refreshes(adapter: &Pod) -> u64 {
    let counts = adapter.counted("cloud_adapter_snapshot_refresh_total", "collection").await.unwrap();
    let refreshes = counts.get("routes").copied().unwrap_or_default();
    format!("{refreshes:.0}").parse().unwrap()
}

/// Waits for two more comparisons of all nodes and routes: all work is done then.
async fn settled(bed: &Bed) {
    let before = eventually("the controller compares routes", WITHIN, || passes(bed)).await.unwrap();
    let settled = eventually("all nodes and routes are compared twice", WITHIN, || async {
        let more = passes(bed).await? - before;
        ensure!(more >= 2.0, "{more} times");
        Ok(())
    });
    settled.await.unwrap();
}

/// Number of passes that compared all nodes with all routes.
async fn passes(bed: &Bed) -> anyhow::Result<f64> {
    let pod = bed.cluster.pods.look_at("route-controller")?;
    let passes = pod.counted("route_controller_route_sync_total", "").await?;
    passes.values().copied().reduce(|a, b| a + b).context("no pass yet")
}

/// Registers a node as the node-controller leaves it.
async fn join(bed: &Bed, machine: &Instance, pods: &[&str]) {
    let id = format!("sim://{}/{}", machine.region, machine.id);
    let kubelet = pods.iter().fold(node(&machine.name).provider_id(&id), |it, pods| it.pods(pods));
    let mut node = kubelet.build().unwrap();
    node.spec.as_mut().unwrap().taints = None;
    let addresses: Vec<_> = machine
        .addresses
        .iter()
        .map(|it| from_value(json!({ "type": "InternalIP", "address": it.address })).unwrap())
        .collect();
    node.status.as_mut().unwrap().addresses = Some(addresses);
    bed.nodes().create(&PostParams::default(), &node).await.unwrap();
}

fn internal(addresses: [&str; 2]) -> serde_json::Value {
    addresses.map(|it| json!({ "kind": "internal", "address": it })).as_slice().into()
}

/// The ID of the route to a CIDR.
fn route_to(state: &State, network: &str) -> anyhow::Result<String> {
    let mut routes = state.routes.iter().filter(|route| route.destination.to_string() == network);
    Ok(routes.next().context("no such route")?.id.clone())
}

/// A change of routes by another writer, which is counted, too.
async fn by_hand(bed: &Bed, change: &serde_json::Value) {
    bed.cluster.cloud.by_hand(Method::POST, "/v1/routes:batch", Some(change)).await.unwrap();
}

async fn until_routes(bed: &Bed, number: usize) {
    bed.wait_cloud(&format!("there are {number} routes"), |state| state.routes.len() == number)
        .await
        .unwrap();
}

/// Waits until the controller has counted this number of routes with another owner.
async fn until_foreign(bed: &Bed, number: f64) {
    let pod = bed.cluster.pods.look_at("route-controller").unwrap();
    let told = eventually("routes of others are counted", WITHIN, || async {
        let counted = pod.counted("cloud_controller_routes_foreign", "owner").await?;
        let sum: f64 = counted.values().sum();
        ensure!((sum - number).abs() < 0.5, "{counted:?}");
        Ok(())
    });
    told.await.unwrap();
}

/// Waits until the conditions of these nodes say that their routes exist.
async fn until_created(bed: &Bed, names: &[&str]) {
    let created = eventually("the routes of these nodes exist", WITHIN, || async {
        let all = bed.nodes().list(&ListParams::default()).await?.items;
        let all: BTreeMap<String, Node> = all.into_iter().map(|node| (node.name_any(), node)).collect();
        let left = names.iter().filter(|name| !all.get(**name).is_some_and(is_created)).count();
        ensure!(left == 0, "{left} of {} have no routes", names.len());
        Ok(())
    });
    created.await.unwrap();
}

fn is_created(node: &Node) -> bool {
    let mut conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.any(|it| it.type_ == "NetworkUnavailable" && it.reason.as_deref() == Some("RouteCreated"))
}
