//! Tests the migration from a former cloud controller manager to this project: at once, or controller by controller.

use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::process::Command;

use adapter_sim::simcloud::Operation;
use adapter_sim::simcloud::counts::Counts;
use anyhow::{Context, ensure};
use e2e::{Peer, PeerController, PeerFlags, PeerSite, State, delete_node, eventually, merge, node, service};
use k8s_openapi::api::core::v1::Service;
use kube::Api;
use kube::api::DeleteParams;
use kube::config::Kubeconfig;
use reqwest::Method;
use serde_json::{Value, json};

use crate::bed::{Bed, RELEASE, WITHIN, scenario};
use crate::picture::Picture;

/// The port of the peer's pages, on the loopback address of the cluster's network.
const PEER_PORT: u16 = 10258;
/// A tag on all objects that the former cloud controller manager creates.
const GO_TAG: &str = "kubernetes.io/cluster/kubernetes";
/// A tag on all objects that this project creates or adopts.
const OUR_TAG: &str = "cloudadapter.dev/cluster-id";

/// The chart values of docs/migrate.md. Without this project's tags, an object is adopted only if it has no owner, and only with this
/// setting.
fn values(change: &Value) -> Value {
    let mut values = json!({
        "serviceController": { "serviceDefaults": { "adopt": "owned" } },
        // Because of the short intervals, the adapter soon sees changes by hand.
        "adapter": { "cache": { "instances": { "maxAge": "2s" }, "routes": { "maxAge": "2s" } } },
    });
    merge(&mut values, change);
    values
}

#[test]
fn migration_and_rollback_recreate_nothing() {
    build_the_peer();
    scenario(2, async |bed| {
        let mut peer = peer(bed, &PeerController::ALL).await?;
        bed.until_initialised().await?;
        until_ready(bed).await?;
        for name in ["web", "api"] {
            service(name).port(80).port(443).create(&bed.client).await?;
            bed.address(name).await?;
        }
        let pods = two_pods(bed).await?;
        pods_reach_each_other(bed, &pods).await?;
        peer.ensure_running()?;
        peer.stop().await?;
        let before = Picture::take(bed).await?;
        ensure!(
            before.balancers.len() == 2 && before.routes.len() == 2,
            "the former cloud \
             controller manager created {before:#?}"
        );
        bed.cloud.reset_counts().await?;

        bed.install(&values(&json!({}))).await?;
        bed.until_cloud("this cluster owns both load balancers", |state| {
            for name in ["web", "api"] {
                ensure!(
                    state.balancer(name)?.tags.contains_key("cloudadapter.dev/hash"),
                    "{name} has no hash tag"
                );
            }
            Ok(())
        })
        .await?;
        // When the second listing begins, the controllers have seen the first one. They would already have made any planned changes.
        let (routes, instances) = (Operation::ListRoutes, Operation::ListInstances);
        let counts = asked(bed, &bed.cloud.counts().await?, &[(routes, 2), (instances, 2)]).await?;
        ensure!(
            (counts.writes, counts.of(Operation::UpdateLoadBalancer)) == (2, 2),
            "only tags are written: {counts:?}"
        );
        before.is_still_so(bed).await?;
        pods_reach_each_other(bed, &pods).await?;

        // The controllers work. New objects do not affect existing ones.
        service("new").port(80).create(&bed.client).await?;
        bed.address("new").await?;
        before.is_still_so(bed).await?;
        lays_routes_again(bed, &pods).await?;
        goes_with_its_service(bed, "api").await?;
        ensure!(bed.cloud.state().await?.load_balancers.len() == 2, "web and new are left");
        and_back_again(bed, &mut peer, &pods).await
    });
}

/// The former cloud controller manager takes over its objects again, as in docs/migrate.md.
async fn and_back_again(bed: &Bed, peer: &mut Peer, pods: &[Pod; 2]) -> anyhow::Result<()> {
    // The former controller does not know the objects that this project created.
    bed.kubectl(&["delete", "service", "new", "--timeout=60s"]).await?;
    let before = Picture::take(bed).await?;
    ensure!(
        before.balancers.len() == 1 && before.routes.len() == 2,
        "web and the routes of two nodes: {before:#?}"
    );
    bed.cloud.reset_counts().await?;
    bed.helm(&["uninstall", RELEASE, "--wait", "--timeout", "2m"]).await?;
    let gone = bed.cloud.counts().await?;
    ensure!(gone.writes == 0, "an uninstall changes nothing: {gone:?}");
    before.is_still_so(bed).await?;

    release_the_lease(bed).await?;
    peer.start().await?;
    bed.step("the former cloud controller manager leads again");
    let looks = [(Operation::ListRoutes, 2), (Operation::ListLoadBalancers, 1), (Operation::GetInstance, 1)];
    let counts = asked(bed, &gone, &looks).await?;
    ensure!(counts.writes == 0, "nothing is recreated: {counts:?}");
    service("last").port(80).create(&bed.client).await?;
    bed.address("last").await?;
    let counts = bed.cloud.counts().await?;
    let (made, routed) = (counts.of(Operation::CreateLoadBalancer), counts.of(Operation::BatchRoutes));
    ensure!((made, routed) == (1, 0), "only the load balancer of last is created: {counts:?}");
    before.is_still_so(bed).await?;
    pods_reach_each_other(bed, pods).await?;
    goes_with_its_service(bed, "web").await?;
    peer.ensure_running()?;
    peer.stop().await
}

/// Waits until the cloud has got this number of additional calls of each operation.
async fn asked(bed: &Bed, before: &Counts, more: &[(Operation, u64)]) -> anyhow::Result<Counts> {
    let counts = eventually(&format!("the cloud has got the calls {more:?}"), WITHIN, || async {
        let now = bed.cloud.counts().await?;
        let all = more.iter().all(|(operation, more)| now.of(*operation) >= before.of(*operation) + more);
        ensure!(all, "{now:?}; before: {before:?}");
        Ok(now)
    })
    .await?;
    bed.step(&format!("the cloud has got the calls {more:?}"));
    Ok(counts)
}

#[test]
fn each_controller_works_alone_beside_the_former_ccm() {
    build_the_peer();
    scenario(1, async |bed| {
        use PeerController::{Node, NodeLifecycle, Route, Service};
        // First part: the node-controller runs, and the former cloud controller manager manages routes and Services.
        let mut go = peer(bed, &[Service, Route]).await?;
        bed.install(&values(&only("nodeController"))).await?;
        runs_alone(bed, "node-controller").await?;
        bed.until_initialised().await?;
        until_ready(bed).await?;
        service("one").port(80).create(&bed.client).await?;
        let one = bed.address("one").await?;
        let state = until_routed(bed, GO_TAG).await?;
        made_by_go(&state, "one")?;

        // Second part: the route-controller runs.
        next(bed, &mut go).await?;
        bed.upgrade(&values(&only("routeController"))).await?;
        runs_alone(bed, "route-controller").await?;
        go = peer(bed, &[Node, NodeLifecycle, Service]).await?;
        bed.cloud.by_hand(Method::POST, "/v1/routes:batch", Some(&without_routes(&state))).await?;
        until_routed(bed, OUR_TAG).await?;
        service("two").port(80).create(&bed.client).await?;
        let two = bed.address("two").await?;
        made_by_go(&bed.cloud.state().await?, "two")?;
        joins(bed, "second").await?;

        // Third part: the service-controller runs.
        next(bed, &mut go).await?;
        bed.upgrade(&values(&only("serviceController"))).await?;
        runs_alone(bed, "service-controller").await?;
        go = peer(bed, &[Node, NodeLifecycle, Route]).await?;
        service("three").port(80).create(&bed.client).await?;
        bed.address("three").await?;
        bed.until_cloud("there are three load balancers, all owned by this cluster", |state| {
            ensure!(state.load_balancers.len() == 3, "{:?}", state.load_balancers);
            ["one", "two", "three"].iter().try_for_each(|name| state.balancer(name).map(drop))
        })
        .await?;
        let now = (bed.address("one").await?, bed.address("two").await?);
        ensure!(now == (one.clone(), two.clone()), "the addresses were {one} and {two}, and are {now:?}");
        joins(bed, "third").await?;
        go.ensure_running()?;
        go.stop().await
    });
}

/// Builds the peer outside the cluster's network, which has no Internet access.
fn build_the_peer() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(Peer::build()).unwrap();
}

/// Starts the former cloud controller manager with these controllers, and waits until it leads.
async fn peer(bed: &Bed, controllers: &[PeerController]) -> anyhow::Result<Peer> {
    let layout = bed.layout();
    let admin = Kubeconfig::read_from(layout.kubeconfig())?;
    let cluster = admin.clusters.into_iter().find_map(|it| it.cluster).context("no cluster")?;
    let site = PeerSite {
        api_server: cluster.server.context("no server")?,
        authority: cluster.certificate_authority.context("no authority")?.into(),
        dir: layout.home.clone(),
        log_dir: layout.logs(),
        port: PEER_PORT,
    };
    let flags = PeerFlags { controllers: controllers.to_vec(), ..PeerFlags::default() };
    let mut peer = Peer::install_at(bed.client.clone(), site, &bed.cloud, &flags).await?;
    peer.start().await?;
    bed.step(&format!("the former cloud controller manager leads, with {controllers:?}"));
    Ok(peer)
}

/// Stops the former cloud controller manager, and deletes its Lease, which would otherwise delay its next start by 15 s.
async fn next(bed: &Bed, peer: &mut Peer) -> anyhow::Result<()> {
    peer.stop().await?;
    release_the_lease(bed).await
}

/// Deletes the Lease of the former cloud controller manager, which does not release it on exit.
async fn release_the_lease(bed: &Bed) -> anyhow::Result<()> {
    let lease = ["delete", "lease", "--namespace", "kube-system", "cloud-controller-manager"];
    bed.kubectl(&lease).await.map(drop)
}

/// Values that enable a single controller.
fn only(one: &str) -> Value {
    let all = ["nodeController", "routeController", "serviceController"];
    all.iter().map(|name| ((*name).to_owned(), json!({ "enabled": *name == one }))).collect()
}

async fn runs_alone(bed: &Bed, controller: &str) -> anyhow::Result<()> {
    let names = "jsonpath={.items[*].metadata.name}";
    let listed = bed.kubectl(&["get", "deployments", "--all-namespaces", "--output", names]).await?;
    ensure!(listed == format!("cloud-adapter {controller}"), "{listed}");
    Ok(())
}

async fn until_ready(bed: &Bed) -> anyhow::Result<()> {
    let ready = "jsonpath={.items[*].status.conditions[?(@.type==\"Ready\")].status}";
    let args = ["get", "nodes", "--output", ready];
    bed.until("all nodes are ready", &args, |all| !all.contains("False") && !all.contains("Unknown")).await?;
    let network = "jsonpath={.items[*].status.conditions[?(@.type==\"NetworkUnavailable\")].status}";
    let args = ["get", "nodes", "--output", network];
    let none = |all: &str| !all.contains("True") && !all.contains("Unknown");
    bed.until("no node is without a network", &args, none).await?;
    let taints = ["get", "nodes", "--output", "jsonpath={.items[*].spec.taints}"];
    bed.until("no node is tainted", &taints, str::is_empty).await.map(drop)
}

/// Creates an instance and its node without a kubelet, and checks that the node gets the provider ID of the instance.
async fn joins(bed: &Bed, name: &str) -> anyhow::Result<()> {
    let machine = bed.cloud.create_instance(name).await?;
    node(name).register(&bed.client).await?;
    let args = ["get", "node", name, "--output", "jsonpath={.spec.providerID}"];
    let wanted = format!("sim://sim-1/{}", machine.id);
    bed.until(&format!("node {name} has its provider ID"), &args, |id| id == wanted).await?;
    delete_node(&bed.client, name).await
}

async fn until_routed(bed: &Bed, tag: &str) -> anyhow::Result<State> {
    bed.until_cloud(&format!("there are routes with the tag {tag}"), |state| {
        let all = state.routes.iter().all(|route| route.tags.contains_key(tag));
        ensure!(all && !state.routes.is_empty(), "{:?}", state.routes);
        Ok(state.clone())
    })
    .await
}

fn without_routes(state: &State) -> Value {
    json!({ "remove": state.routes.iter().map(|route| &route.id).collect::<Vec<_>>() })
}

fn made_by_go(state: &State, service: &str) -> anyhow::Result<()> {
    let wanted = format!("default/{service}");
    let mut all = state.load_balancers.iter();
    let made = all.find(|it| it.tags.get("kubernetes.io/service-name") == Some(&wanted));
    let made = made.with_context(|| format!("{service} has no load balancer"))?;
    ensure!(!made.tags.contains_key(OUR_TAG), "it has our tag: {made:?}");
    Ok(())
}

/// Removes all routes in the cloud, and waits until the route-controller has created them again.
async fn lays_routes_again(bed: &Bed, pods: &[Pod; 2]) -> anyhow::Result<()> {
    let state = bed.cloud.state().await?;
    bed.cloud.by_hand(Method::POST, "/v1/routes:batch", Some(&without_routes(&state))).await?;
    until_routed(bed, OUR_TAG).await?;
    pods_reach_each_other(bed, pods).await
}

async fn goes_with_its_service(bed: &Bed, name: &str) -> anyhow::Result<()> {
    let services: Api<Service> = Api::default_namespaced(bed.client.clone());
    services.delete(name, &DeleteParams::default()).await?;
    let tag = format!("default/{name}");
    bed.until_cloud(&format!("the load balancer of {name} is deleted with it"), |state| {
        let mut all = state.load_balancers.iter();
        ensure!(!all.any(|it| it.tags.get("kubernetes.io/service-name") == Some(&tag)), "it still exists");
        Ok(())
    })
    .await
}

struct Pod {
    address: IpAddr,
    /// ID of a process in the pod's network.
    process: u32,
}

async fn two_pods(bed: &Bed) -> anyhow::Result<[Pod; 2]> {
    Ok([pod(bed, 1).await?, pod(bed, 2).await?])
}

async fn pod(bed: &Bed, node: u8) -> anyhow::Result<Pod> {
    let name = format!("on-{node}");
    let container =
        json!({ "name": "pause", "image": "localhost/pause:cluster", "imagePullPolicy": "Never" });
    let spec = json!({ "nodeName": format!("node-{node}"), "containers": [container] });
    bed.apply(&json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name }, "spec": spec }))
        .await?;
    let args = ["get", "pod", &name, "--output", "jsonpath={.status.phase} {.status.podIP}"];
    let what = format!("pod {name} runs");
    let seen = bed.until(&what, &args, |seen| seen.starts_with("Running 1")).await?;
    let address = seen.trim_start_matches("Running ").parse().context("no address")?;
    Ok(Pod { address, process: process_at(address)? })
}

/// The `pause` process in the network of the pod with this address.
fn process_at(address: IpAddr) -> anyhow::Result<u32> {
    let named = |id: &u32| {
        fs::read_to_string(format!("/proc/{id}/comm")).is_ok_and(|name| name.trim_end() == "pause")
    };
    let ids = fs::read_dir("/proc")?.flatten().filter_map(|it| it.file_name().to_str()?.parse().ok());
    let there = |id: &u32| {
        // The addresses of the process's network.
        let table = fs::read_to_string(format!("/proc/{id}/net/fib_trie")).unwrap_or_default();
        table.lines().any(|line| line.trim_start_matches([' ', '|', '-']) == address.to_string())
    };
    let found = ids.filter(named).find(there);
    found.with_context(|| format!("no process has {address}"))
}

/// Waits until each pod receives packets of the other pod. No process listens on the port, so a pod that receives a packet refuses the
/// connection. Without routes, there is no answer at all.
async fn pods_reach_each_other(bed: &Bed, [one, other]: &[Pod; 2]) -> anyhow::Result<()> {
    for (from, to) in [(one, other), (other, one)] {
        let to = SocketAddr::new(to.address, 9);
        let (from, script) =
            (from.process.to_string(), format!("exec 3<>/dev/tcp/{}/{}", to.ip(), to.port()));
        eventually(&format!("{to} is reached"), WITHIN, || async {
            let mut command = Command::new("timeout");
            command.args(["2", "nsenter", "--target", &from, "--net", "bash", "-c", &script]);
            let output = command.output().context("cannot start nsenter")?;
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            ensure!(said.contains("Connection refused"), "{}: {said}", output.status);
            Ok(())
        })
        .await?;
    }
    bed.step("pods of both nodes reach each other");
    Ok(())
}
