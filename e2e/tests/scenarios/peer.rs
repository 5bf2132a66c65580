//! Tests of the Go peer, a cloud controller manager that the benchmarks compare with. They check its behaviour, its vendor calls, and the
//! takeover of what it created.

use std::collections::BTreeMap;

use adapter_sim::simcloud::Operation;
use adapter_sim::simcloud::model::{LoadBalancer, ProvisioningStatus};
use anyhow::{Context, ensure};
use e2e::{
    Bed, CONTROLLERS, ControlPlane, Peer, PeerController, PeerFlags, Simcloud, State, WITHIN, delete_node,
    eventually, is_uninitialised, node, service, tools,
};
use k8s_openapi::api::core::v1::{Node, Service};
use kube::Api;
use kube::api::{ListParams, Patch, PatchParams};
use serde_json::json;

/// Users migrate without an interruption: nothing in the cloud is recreated, and no address changes.
// Behaviour: SF13
#[tokio::test]
async fn controllers_take_over_what_the_peer_created() {
    // With this setting, the controller adopts a load balancer without this project's tags if the load balancer has no owner.
    let values = json!({ "serviceController": { "serviceDefaults": { "adopt": "owned" } } });
    let mut bed = Bed::install_with(&values).await.unwrap();
    let cluster = &mut bed.cluster;
    let mut peer = Peer::run(&cluster.control_plane, &cluster.cloud, &PeerFlags::default()).await.unwrap();
    nodes_join_the_peer(&bed).await;
    the_peer_makes_a_load_balancer(&bed).await;
    peer.ensure_running().unwrap();
    let address = bed.address("web").await.unwrap();
    let before = bed.cluster.cloud.state().await.unwrap();
    peer.stop().await.unwrap();

    bed.cluster.cloud.reset_counts().await.unwrap();
    let mark = bed.cluster.control_plane.audit_log().mark().unwrap();
    bed.start_pods().await.unwrap();
    all_is_as_it_was(&mut bed, &before).await;
    assert_eq!(bed.address("web").await.unwrap(), address);
    let has_condition = |service: &Service| {
        let mut conditions = service.status.iter().flat_map(|it| it.conditions.iter().flatten());
        conditions.any(|it| it.type_ == "cloudadapter.dev/Ready" && it.status == "True")
    };
    bed.wait_service("web", "the Service has its condition", has_condition).await.unwrap();
    for controller in CONTROLLERS {
        let mut writes = bed.writes_of(controller, mark, "").unwrap();
        writes.retain(|it| it.resource != "events");
        let resources: Vec<&str> = writes.iter().map(|it| it.resource.as_str()).collect();
        // The peer writes no condition; everything else is already in sync.
        let expected = if controller == "service-controller" { &["services/status"][..] } else { &[] };
        assert_eq!(resources, expected, "{writes:?}");
    }

    // From here on this cluster owns the load balancer. The routes work, but they have no owner because they lack this project's tags, so
    // the controller does not delete them.
    delete_node(&bed.client(), "b").await.unwrap();
    bed.quiet("route-controller").await.unwrap();
    bed.until_cloud("node b is no backend any more", |state| {
        let balancer = state.balancer("web")?;
        ensure!(balancer.pools.iter().all(|pool| pool.members.len() == 1), "{:?}", balancer.pools);
        Ok(())
    })
    .await
    .unwrap();
    assert_eq!(bed.cluster.cloud.state().await.unwrap().routes.len(), 2);
    bed.delete_service("web").await.unwrap();
    bed.wait_cloud("the load balancer is deleted", |state| state.load_balancers.is_empty()).await.unwrap();
}

async fn nodes_join_the_peer(bed: &Bed) {
    for (n, id) in [(1, "i-0001"), (2, "i-0002")] {
        let name = if n == 1 { "a" } else { "b" };
        let node = bed.join(name, Some(&format!("10.244.{n}.0/24"))).await.unwrap();
        let provider_id = node.spec.unwrap().provider_id;
        assert_eq!(provider_id, Some(format!("sim://sim-1/{id}")));
    }
    for name in ["a", "b"] {
        bed.until_node(name, "has its network", has_network).await.unwrap();
    }
    // One call per node, or two if the node changes; one write per route.
    let counts = bed.cluster.cloud.reset_counts().await.unwrap();
    assert!((2..=4).contains(&counts.of(Operation::FindInstances)), "{counts:?}");
    assert_eq!((counts.of(Operation::BatchRoutes), counts.writes), (2, 2), "{counts:?}");
}

async fn the_peer_makes_a_load_balancer(bed: &Bed) {
    let web = service("web").port(80).port(443).create(&bed.client()).await.unwrap();
    bed.address("web").await.unwrap();
    let counts = bed.cluster.cloud.counts().await.unwrap();
    let writes = [Operation::CreateLoadBalancer, Operation::CreatePool, Operation::CreateListener];
    assert_eq!((writes.map(|one| counts.of(one)), counts.writes), ([1, 2, 2], 5), "{counts:?}");
    // The peer polls the load balancer until each write is complete.
    assert!(counts.of(Operation::GetLoadBalancer) >= 5, "{counts:?}");

    let state = bed.cluster.cloud.state().await.unwrap();
    let made = state.load_balancers.first().unwrap();
    let uid = web.metadata.uid.unwrap().replace('-', "");
    assert_eq!(made.name, format!("a{uid}").chars().take(32).collect::<String>());
    assert_eq!(made.tags.get("kubernetes.io/service-name").map(String::as_str), Some("default/web"));
    assert!(made.pools.iter().all(|pool| pool.members.len() == 2), "{made:?}");
}

/// Checks that this cluster owns the load balancer, and that taking it over changed only its tags.
async fn all_is_as_it_was(bed: &mut Bed, before: &State) {
    let taken = bed
        .until_cloud("this cluster owns the load balancer", |state| {
            let balancer = state.balancer("web")?;
            ensure!(balancer.tags.contains_key("cloudadapter.dev/hash"), "no hash tag");
            ensure!(balancer.status == ProvisioningStatus::Active, "{:?}", balancer.status);
            Ok(balancer.clone())
        })
        .await
        .unwrap();
    bed.all_quiet().await.unwrap();
    let counts = bed.cluster.cloud.counts().await.unwrap();
    assert_eq!((counts.writes, counts.of(Operation::UpdateLoadBalancer)), (1, 1), "tags: {counts:?}");
    let made = before.load_balancers.first().unwrap();
    assert!(made.tags.iter().all(|(key, value)| taken.tags.get(key) == Some(value)), "{taken:?}");
    assert_eq!(apart_from_tags(taken), apart_from_tags(made.clone()));
    let after = bed.cluster.cloud.state().await.unwrap();
    assert_eq!((after.load_balancers.len(), &after.routes), (1, &before.routes));
}

/// The flag `--concurrent-node-syncs` has the same effect as in other programs with `k8s.io/cloud-provider`, and only the selected
/// controllers run.
#[tokio::test]
async fn the_peer_honours_concurrent_node_syncs() {
    let control_plane = ControlPlane::shared(&tools().unwrap()).await.unwrap();
    let cloud = Simcloud::start(&control_plane).await.unwrap();
    let client = control_plane.client();
    cloud.configure(&json!({ "latency": { "default_ms": 500 } })).await.unwrap();
    cloud.create_numbered("node-{n}", 10).await.unwrap();
    for n in 1..=10 {
        node(&format!("node-{n}")).pods(&format!("10.244.{n}.0/24")).register(&client).await.unwrap();
    }
    service("web").port(80).create(&client).await.unwrap();

    let flags = PeerFlags { controllers: vec![PeerController::Node], ..PeerFlags::concurrent(10) };
    let mut peer = Peer::run(&control_plane, &cloud, &flags).await.unwrap();
    let nodes: Api<Node> = Api::all(client);
    eventually("all nodes are initialised", WITHIN, || async {
        let waiting = nodes.list(&ListParams::default()).await?.items;
        let waiting = waiting.iter().filter(|node| is_uninitialised(node)).count();
        ensure!(waiting == 0, "{waiting} are not initialised");
        Ok(())
    })
    .await
    .unwrap();

    let asked: Vec<u64> = cloud
        .requests()
        .await
        .unwrap()
        .iter()
        .filter(|one| one.operation == Operation::FindInstances)
        .map(|one| one.at_ms)
        .collect();
    // The calls before the first answer. On a busy host, some of the parallel calls start only later.
    let first = asked.iter().min().copied().unwrap();
    let at_once = asked.iter().filter(|at| **at < first + 500).count();
    assert!(at_once >= 5, "{asked:?}");
    let counts = cloud.counts().await.unwrap();
    let others: BTreeMap<_, _> = counts
        .by_operation
        .iter()
        .filter(|(one, _)| !matches!(one, Operation::FindInstances | Operation::GetInstance))
        .collect();
    assert!(others.is_empty(), "only the node controller runs: {others:?}");
    peer.stop().await.unwrap();
}

/// Like other programs with `k8s.io/cloud-provider`, the peer reacts to a provider ID, but not to an address that is set later. Therefore
/// the benchmark may find nodes of the peer that no load balancer uses. Only the peer runs here.
#[tokio::test]
async fn the_peer_leaves_out_a_node_whose_address_comes_late() {
    let control_plane = ControlPlane::shared(&tools().unwrap()).await.unwrap();
    let cloud = Simcloud::start(&control_plane).await.unwrap();
    let client = control_plane.client();
    let flags = PeerFlags { controllers: vec![PeerController::Service], ..PeerFlags::default() };
    let mut peer = Peer::run(&control_plane, &cloud, &flags).await.unwrap();
    service("early").port(80).create(&client).await.unwrap();
    members(&cloud, "early", &[]).await;

    // Sets what the node controller of `k8s.io/cloud-provider` sets: first the provider ID, and then the address.
    for name in ["a", "b"] {
        cloud.create_instance(name).await.unwrap();
    }
    cloud.reset_counts().await.unwrap();
    node("a").provider_id("sim://sim-1/i-0001").register(&client).await.unwrap();
    eventually("the peer reads the load balancer", WITHIN, || async {
        let counts = cloud.counts().await?;
        ensure!(counts.of(Operation::ListLoadBalancers) > 0, "{counts:?}");
        Ok(())
    })
    .await
    .unwrap();
    let nodes: Api<Node> = Api::all(client.clone());
    let address = json!({ "status": { "addresses": [{ "type": "InternalIP", "address": "10.0.0.1" }] } });
    nodes.patch_status("a", &PatchParams::default(), &Patch::Strategic(&address)).await.unwrap();

    // A Service that is reconciled now sees the address; earlier Services are not reconciled again.
    service("late").port(80).create(&client).await.unwrap();
    members(&cloud, "late", &["i-0001"]).await;
    members(&cloud, "early", &[]).await;
    assert_eq!(cloud.counts().await.unwrap().of(Operation::SetMembers), 0);

    node("b").register(&client).await.unwrap();
    members(&cloud, "early", &["i-0001"]).await;
    peer.stop().await.unwrap();
}

async fn members(cloud: &Simcloud, service: &str, wanted: &[&str]) {
    let tag = format!("default/{service}");
    eventually(&format!("{service} has {wanted:?}"), WITHIN, || async {
        let state = cloud.state().await?;
        let mut all = state.load_balancers.iter();
        let balancer = all.find(|it| it.tags.get("kubernetes.io/service-name") == Some(&tag));
        let balancer = balancer.context("no load balancer")?;
        ensure!(
            balancer.status == ProvisioningStatus::Active && !balancer.listeners.is_empty(),
            "{balancer:?}"
        );
        let there = balancer.pools.iter().flat_map(|pool| &pool.members);
        let there: Vec<_> = there.filter_map(|it| it.instance_id.as_deref()).collect();
        ensure!(there == wanted, "{there:?}");
        Ok(())
    })
    .await
    .unwrap();
}

fn has_network(node: &Node) -> anyhow::Result<()> {
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_ref());
    let network = conditions.into_iter().flatten().find(|it| it.type_ == "NetworkUnavailable");
    let network = network.context("no such condition")?;
    ensure!(network.status == "False", "{network:?}");
    Ok(())
}

fn apart_from_tags(balancer: LoadBalancer) -> LoadBalancer {
    LoadBalancer { tags: BTreeMap::new(), updated_at: balancer.created_at, ..balancer }
}
