//! Adapters with fewer abilities than the adapter of the simulated cloud: they lack capabilities, are half upgraded, or one of their calls
//! hangs. Also an adapter with unknown fields in its answers.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use adapter_sim::simcloud::Operation;
use anyhow::{Context, ensure};
use e2e::{
    ADAPTER, AdapterProxy, Bed, Order, WITHIN, eventually, is_uninitialised, network_unavailable, node,
    service,
};
use http::Method;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::json;

const SERVICES: &str = "service-controller";
const ROUTES: &str = "route-controller";
/// Keeps a node out of the load balancers, so that no call about its backends is among the held ones.
const EXCLUDED: &str = "node.kubernetes.io/exclude-from-external-load-balancers";
const FINALIZER: &str = "service.kubernetes.io/load-balancer-cleanup";

/// The controllers do not write what the adapter does not support, and use another way where there is one.
// Behaviour: S29, R13, R15
#[tokio::test]
async fn unsupported_capabilities_are_not_used() {
    let values = json!({
        "routeController": { "removal": { "grace": "1s" } },
        "adapter": { "cache": { "routes": { "maxAge": "2s" } } },
    });
    let (mut bed, proxy) = Bed::install_behind_proxy(&values).await.unwrap();
    proxy.hide(&["loadbalancers", "routes"]);
    bed.cluster.pods.start().unwrap();
    for name in [ADAPTER, "node-controller", SERVICES] {
        bed.cluster.pods.get(name).unwrap().wait_ready(WITHIN).await.unwrap();
    }
    for (name, pods) in [("a", "10.244.1.0/24"), ("b", "10.244.2.0/24")] {
        bed.join(name, Some(pods)).await.unwrap();
    }
    no_load_balancers(&mut bed, &proxy).await;
    no_routes(&mut bed, &proxy).await;

    lay_by_hand(&bed).await;
    proxy.hide(&["routes.ownership-tags"]);
    let controller = bed.cluster.pods.get(SERVICES).unwrap();
    controller.terminate().await.unwrap();
    controller.start().unwrap();
    bed.ready().await.unwrap();
    bed.address("web").await.unwrap();
    no_marks_on_routes(&mut bed).await;
}

/// Services belong to another controller, which has put its finalizer on some of them, under the name that all controllers use.
async fn no_load_balancers(bed: &mut Bed, proxy: &AdapterProxy) {
    let controller = &*bed.cluster.pods.get(SERVICES).unwrap();
    let log = controller.log();
    let told = eventually("the log reports it", WITHIN, || async {
        let text = fs::read_to_string(&log)?;
        ensure!(text.contains("The cloud adapter does not support load balancers"), "{}", controller.tail());
        Ok(())
    });
    told.await.unwrap();
    for name in ["web", "goes", "changes"] {
        service(name).port(80).create(&bed.client()).await.unwrap();
    }
    let theirs = json!({ "metadata": { "finalizers": [FINALIZER] } });
    for name in ["goes", "changes"] {
        bed.patch_service(name, &theirs).await.unwrap();
    }
    bed.quiet(SERVICES).await.unwrap();
    let before = turns(bed).await;
    bed.services().delete("goes", &DeleteParams::default()).await.unwrap();
    bed.patch_service("changes", &json!({ "spec": { "type": "ClusterIP" } })).await.unwrap();
    let controller = &*bed.cluster.pods.get(SERVICES).unwrap();
    let seen = eventually("both were reconciled", WITHIN, || async {
        let turns = controller.counted("workqueue_work_duration_seconds_count", "name").await?;
        let turns: f64 = turns.values().sum();
        ensure!(turns >= before + 2.0, "{turns} reconciles, {before} before");
        Ok(())
    });
    seen.await.unwrap();
    bed.quiet(SERVICES).await.unwrap();

    for name in ["goes", "changes"] {
        let finalizers = bed.services().get(name).await.unwrap().metadata.finalizers;
        assert_eq!(finalizers, Some(vec![FINALIZER.to_owned()]), "{name}");
    }
    for name in ["web", "goes", "changes"] {
        assert_eq!(bed.events("Service", name).await.unwrap(), [], "{name}");
    }
    assert_eq!(bed.writes_of(SERVICES, <_>::default(), "").unwrap(), []);
    assert_eq!(["EnsureLoadBalancer", "DeleteLoadBalancer"].map(|call| proxy.calls(call)), [0, 0]);
    // Their own controller has finished with them.
    let none = Patch::Merge(json!({ "metadata": { "finalizers": null } }));
    for name in ["goes", "changes"] {
        bed.services().patch(name, &PatchParams::default(), &none).await.unwrap();
    }
}

/// Number of keys that have been reconciled.
async fn turns(bed: &mut Bed) -> f64 {
    let controller = bed.cluster.pods.get(SERVICES).unwrap();
    let turns = controller.counted("workqueue_work_duration_seconds_count", "name").await.unwrap();
    turns.values().sum()
}

/// Passes run every 10 s. The second one would report nodes that wait.
async fn no_routes(bed: &mut Bed, proxy: &AdapterProxy) {
    bed.unready(ROUTES, "does not support routes (no capability `routes`)").await.unwrap();
    let controller = &*bed.cluster.pods.get(ROUTES).unwrap();
    let passes = async || {
        let counted = controller.counted("route_controller_route_sync_total", "controller").await?;
        Ok::<f64, anyhow::Error>(counted.values().sum())
    };
    let before = passes().await.unwrap();
    let passed = eventually("three passes have run", WITHIN, async || {
        let now = passes().await?;
        ensure!(now >= before + 3.0, "{now}, {before} before");
        Ok(())
    });
    passed.await.unwrap();
    for name in ["a", "b"] {
        assert_eq!(network_unavailable(&bed.nodes().get(name).await.unwrap()), None, "{name}");
    }
    assert_eq!(bed.writes_of(ROUTES, <_>::default(), "").unwrap(), []);
    assert_eq!(proxy.calls("ApplyRoutes"), 0);
    assert_eq!(bed.cluster.cloud.state().await.unwrap().routes, []);
}

/// Routes of a cloud without tags: one to the instance of each node, and one that serves no node.
async fn lay_by_hand(bed: &Bed) {
    let machines = bed.cluster.cloud.state().await.unwrap().instances;
    let add = [("10.244.1.0/24", "a"), ("10.244.2.0/24", "b"), ("10.244.9.0/24", "a")].map(|(to, name)| {
        let machine = machines.iter().find(|it| it.name == name).unwrap();
        let address = &machine.addresses.first().unwrap().address;
        json!({ "destination": to, "next_hop_instance": machine.id, "next_hop_address": address })
    });
    let add = json!({ "add": add });
    bed.cluster.cloud.by_hand(Method::POST, "/v1/routes:batch", Some(&add)).await.unwrap();
    bed.cluster.cloud.reset_counts().await.unwrap();
}

/// A route that was seen to serve a node is removed with it, even if the controller was not running. A route that never did stays, whatever
/// it looks like.
async fn no_marks_on_routes(bed: &mut Bed) {
    for name in ["a", "b"] {
        served(bed, name).await;
    }
    let laid = bed.cluster.cloud.state().await.unwrap().routes;
    let id = |to: &str| laid.iter().find(|it| it.destination.to_string() == to).unwrap().id.clone();
    let mut record = BTreeMap::new();
    for (name, to) in [("a", "10.244.1.0/24"), ("b", "10.244.2.0/24")] {
        record.insert(id(to), bed.nodes().get(name).await.unwrap().metadata.uid.unwrap());
    }
    recorded(bed, &record).await;
    assert_eq!(bed.cluster.cloud.counts().await.unwrap().of(Operation::BatchRoutes), 0);

    bed.quiet(ROUTES).await.unwrap();
    bed.cluster.pods.get(ROUTES).unwrap().terminate().await.unwrap();
    e2e::delete_node(&bed.client(), "a").await.unwrap();
    bed.cluster.pods.get(ROUTES).unwrap().start().unwrap();
    bed.wait_cloud("the route of the deleted node is removed", |state| {
        let left: BTreeSet<_> = state.routes.iter().map(|it| it.destination.to_string()).collect();
        left == ["10.244.2.0/24", "10.244.9.0/24"].map(str::to_owned).into()
    })
    .await
    .unwrap();
    record.remove(&id("10.244.1.0/24"));
    recorded(bed, &record).await;
}

/// Waits until the ConfigMap has these entries: routes, and the UIDs of their nodes.
async fn recorded(bed: &Bed, wanted: &BTreeMap<String, String>) {
    let maps: Api<ConfigMap> = Api::namespaced(bed.client(), &bed.cluster.release.namespace);
    let kept = eventually("the record is complete", WITHIN, || async {
        let map = maps.get_opt("route-controller-routes").await?.context("no record")?;
        let entries = map.data.unwrap_or_default();
        ensure!(entries == *wanted, "{entries:?}, not {wanted:?}");
        Ok(())
    });
    kept.await.unwrap();
}

/// An adapter lacks each of three RPCs that nodes and Services need, or one of them hangs for one object.
// Behaviour: P29, W2, W5
#[tokio::test]
async fn missing_and_hanging_calls_are_waited_for() {
    let values = json!({
        "adapter": {
            "limits": { "buckets": { "loadbalancer": { "rate": 500, "burst": 500 } } },
            // Instances that are created later are not in the listing.
            "cache": { "instances": { "maxAge": "720h" } },
        },
    });
    let (mut bed, proxy) = Bed::install_behind_proxy(&values).await.unwrap();
    for name in ["old", "listed"] {
        bed.cluster.cloud.create_instance(name).await.unwrap();
    }
    bed.start_pods().await.unwrap();
    node("old").register(&bed.client()).await.unwrap();
    bed.initialised("old").await.unwrap();
    half_upgraded(&mut bed, &proxy).await;
    one_call_that_hangs(&bed, &proxy).await;
    many_at_once(&bed, &proxy).await;
    bed.ready().await.unwrap();
}

/// The controllers emit Events and make few calls, but change nothing. As soon as the upgrade is complete, everything becomes ready.
async fn half_upgraded(bed: &mut Bed, proxy: &AdapterProxy) {
    const LACKS: [&str; 3] = ["BatchGetInstances", "EnsureLoadBalancer", "ApplyRoutes"];
    proxy.order(Order::Lacks(&LACKS));
    bed.cluster.cloud.reset_counts().await.unwrap();
    let client = bed.client();
    bed.cluster.cloud.create_instance("late").await.unwrap();
    node("late").label(EXCLUDED, "").register(&client).await.unwrap();
    service("web").port(80).create(&client).await.unwrap();
    let pods = json!({ "spec": { "podCIDR": "10.244.1.0/24", "podCIDRs": ["10.244.1.0/24"] } });
    bed.patch_node("old", &pods).await.unwrap();

    let why = "as the test requested";
    for (kind, name, reason) in [
        ("Node", "late", "CloudProviderFailed"),
        ("Service", "web", "SyncLoadBalancerFailed"),
        ("Node", "old", "WaitsForCloud"),
    ] {
        let told = bed.told(kind, name, reason).await.unwrap();
        assert!(told.contains(why), "{kind} {name}: {told}");
    }
    assert!(is_uninitialised(&bed.nodes().get("late").await.unwrap()));
    assert!(e2e::address(&bed.services().get("web").await.unwrap()).is_none());
    assert_eq!(network_unavailable(&bed.nodes().get("old").await.unwrap()), None);
    assert_eq!(bed.cluster.cloud.counts().await.unwrap().writes, 0);
    for call in LACKS {
        // It takes 10 s until the last of the Events is emitted.
        let calls = proxy.calls(call);
        assert!((1..40).contains(&calls), "{call}: {calls} times");
    }

    proxy.heal();
    bed.initialised("late").await.unwrap();
    bed.address("web").await.unwrap();
    served(bed, "old").await;
}

/// Only the node and the Service whose call hangs have to wait.
async fn one_call_that_hangs(bed: &Bed, proxy: &AdapterProxy) {
    let client = bed.client();
    proxy.order(Order::Holds("BatchGetInstances", 1));
    bed.cluster.cloud.create_instance("asked-for").await.unwrap();
    node("asked-for").label(EXCLUDED, "").register(&client).await.unwrap();
    proxy.holds(1).await.unwrap();
    // Its ID is in the listing, however old the listing is.
    let state = bed.cluster.cloud.state().await.unwrap();
    let listed = state.instances.iter().find(|it| it.name == "listed").unwrap();
    let id = format!("sim://sim-1/{}", listed.id);
    node("listed").label(EXCLUDED, "").provider_id(&id).register(&client).await.unwrap();
    bed.initialised("listed").await.unwrap();
    assert!(is_uninitialised(&bed.nodes().get("asked-for").await.unwrap()));
    proxy.heal();
    bed.initialised("asked-for").await.unwrap();

    proxy.order(Order::Holds("EnsureLoadBalancer", 1));
    service("stuck").port(80).create(&client).await.unwrap();
    proxy.holds(1).await.unwrap();
    service("free").port(80).create(&client).await.unwrap();
    bed.address("free").await.unwrap();
    assert!(e2e::address(&bed.services().get("stuck").await.unwrap()).is_none());
    proxy.heal();
    bed.address("stuck").await.unwrap();
}

/// The controller reconciles as many Services at once as it has workers.
async fn many_at_once(bed: &Bed, proxy: &AdapterProxy) {
    let names: Vec<String> = (1..=10).map(|number| format!("crowd-{number}")).collect();
    proxy.order(Order::Holds("EnsureLoadBalancer", names.len()));
    for name in &names {
        service(name).port(80).create(&bed.client()).await.unwrap();
    }
    proxy.holds(names.len()).await.unwrap();
    proxy.heal();
    for name in &names {
        bed.address(name).await.unwrap();
    }
}

/// Controllers ignore unknown fields of a newer adapter, in each answer and each stream.
#[tokio::test]
async fn unknown_fields_of_a_newer_adapter_are_ignored() {
    let (mut bed, proxy) = Bed::install_behind_proxy(&json!({})).await.unwrap();
    proxy.say_more();
    bed.start_pods().await.unwrap();
    bed.join("a", Some("10.244.1.0/24")).await.unwrap();
    bed.targets(1).await.unwrap();
    bed.expose("web", 80).await.unwrap();
    served(&bed, "a").await;
    for call in ["GetInfo", "WatchInstances", "EnsureLoadBalancer", "ApplyRoutes"] {
        assert!(proxy.calls(call) > 0, "{call}");
    }
    assert_eq!(bed.warnings().await.unwrap(), [""; 0]);
}

/// Waits until the condition of a node says that its routes exist.
async fn served(bed: &Bed, name: &str) {
    bed.until_node(name, "has its route", |node| {
        let found = network_unavailable(node).context("no such condition")?;
        let seen = (&*found.status, found.reason.as_deref());
        ensure!(seen == ("False", Some("RouteCreated")), "{seen:?}");
        Ok(())
    })
    .await
    .unwrap();
}
