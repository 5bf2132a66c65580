//! Tests of Services of type LoadBalancer, from creation to deletion, and of invalid Services.

use std::collections::BTreeSet;

use adapter_sim::simcloud::model::{Listener, LoadBalancer, Pool};
use anyhow::{Context, ensure};
use e2e::{Bed, State, address, service};
use k8s_openapi::api::core::v1::{Event, Node, Service};
use serde_json::json;

const FINALIZER: &str = "service.kubernetes.io/load-balancer-cleanup";
const EXCLUDED: &str = "node.kubernetes.io/exclude-from-external-load-balancers";
const READY: &str = "cloudadapter.dev/Ready";

/// The life of one Service, with all kinds of changes.
// Behaviour: S1, S7, S8, S18, SN1, SN7, SN8
#[tokio::test]
async fn a_service_has_a_load_balancer_while_its_type_requires_one() {
    let mut bed = Bed::start().await.unwrap();
    let (a, b) = (bed.join("a", None).await.unwrap(), bed.join("b", None).await.unwrap());
    bed.targets(2).await.unwrap();

    service("web").port(80).port_of("UDP", 53).create(&bed.client()).await.unwrap();
    let first = bed.address("web").await.unwrap();
    let made = bed.services().get("web").await.unwrap();
    assert_eq!(made.metadata.finalizers.clone().unwrap_or_default(), [FINALIZER]);
    let balancer = serving(&bed, &made, &[&a, &b]).await;
    assert!(matches!(balancer.vips.as_slice(), [vip] if vip.to_string() == first), "{balancer:?}");
    bed.wait_for_event("Service", "web", "EnsuredLoadBalancer").await.unwrap();
    let reasons: Vec<_> =
        bed.events("Service", "web").await.unwrap().into_iter().filter_map(|it| it.reason).collect();
    assert_eq!(reasons, ["EnsuringLoadBalancer", "EnsuredLoadBalancer"]);

    let ports = json!([
        { "name": "tls", "port": 443, "protocol": "TCP", "targetPort": 443 },
        { "name": "udp-53", "port": 53, "protocol": "UDP", "$retainKeys": ["name", "port", "protocol"] },
        { "port": 80, "protocol": "TCP", "$patch": "delete" },
    ]);
    let changed = bed.patch_service("web", &json!({ "spec": { "ports": ports } })).await.unwrap();
    let after = serving(&bed, &changed, &[&a, &b]).await;
    assert_eq!(after.id, balancer.id);
    assert_eq!(bed.address("web").await.unwrap(), first, "the address must not change");

    let c = bed.join("c", None).await.unwrap();
    serving(&bed, &changed, &[&a, &b, &c]).await;
    bed.wait_for_event("Service", "web", "UpdatedLoadBalancer").await.unwrap();
    bed.patch_node("b", &json!({ "metadata": { "labels": { EXCLUDED: "" } } })).await.unwrap();
    serving(&bed, &changed, &[&a, &c]).await;
    e2e::delete_node(&bed.client(), "c").await.unwrap();
    serving(&bed, &changed, &[&a]).await;

    bed.patch_service("web", &json!({ "spec": { "type": "ClusterIP" } })).await.unwrap();
    nothing_left(&bed).await;
    let released = bed.wait_service("web", "is released", |service| {
        service.metadata.finalizers.is_none() && address(service).is_none()
    });
    released.await.unwrap();
    let again = bed.patch_service("web", &json!({ "spec": { "type": "LoadBalancer" } })).await.unwrap();
    bed.address("web").await.unwrap();
    let balancer = serving(&bed, &again, &[&a]).await;
    let balancer = recreated(&bed, &balancer, &a).await;
    an_empty_node_list(&mut bed, &["a", "b"], &balancer).await;

    bed.delete_service("web").await.unwrap();
    // The finalizer stayed until the load balancer was deleted.
    assert!(bed.cluster.cloud.state().await.unwrap().load_balancers.is_empty());
    bed.quiet("service-controller").await.unwrap();
}

/// A user removes the finalizer of a deleted Service and creates a Service of the same name at once. The new Service gets its own load
/// balancer, and the former load balancer is deleted.
async fn recreated(bed: &Bed, first: &LoadBalancer, node: &Node) -> LoadBalancer {
    bed.patch_service("web", &json!({ "metadata": { "finalizers": null } })).await.unwrap();
    bed.delete_service("web").await.unwrap();
    bed.expose("web", 80).await.unwrap();
    bed.wait_cloud("the former load balancer is deleted", |state| {
        state.load_balancers.iter().all(|it| it.id != first.id)
    })
    .await
    .unwrap();
    let again = bed.services().get("web").await.unwrap();
    serving(bed, &again, &[node]).await
}

/// The controller does not trust an empty list of nodes, so the load balancer keeps its backends.
async fn an_empty_node_list(bed: &mut Bed, nodes: &[&str], balancer: &LoadBalancer) {
    bed.quiet("service-controller").await.unwrap();
    bed.cluster.pods.get("service-controller").unwrap().terminate().await.unwrap();
    for name in nodes {
        e2e::delete_node(&bed.client(), name).await.unwrap();
    }
    bed.cluster.pods.get("service-controller").unwrap().start().unwrap();
    bed.wait_for_event("Service", "web", "NoNodesListed").await.unwrap();
    bed.quiet("service-controller").await.unwrap();
    assert_eq!(&bed.cluster.cloud.state().await.unwrap().load_balancers, std::slice::from_ref(balancer));
}

/// An invalid Service gets one Event that names the field, and no part of a load balancer is created.
// Behaviour: SF3, SF5, SF8, SF10
#[tokio::test]
async fn an_invalid_service_gets_one_event_and_costs_nothing() {
    let mut bed = Bed::start().await.unwrap();
    bed.join("a", None).await.unwrap();
    let before = bed.cluster.cloud.reset_counts().await.unwrap();
    assert_eq!(before.writes, 0, "{before:?}");
    let client = bed.client();

    let value = service("value").port(80).annotation("lb.cloudadapter.dev/internal", "yes");
    let key = service("key").port(80).annotation("lb.cloudadapter.dev/intrenal", "true");
    let range = service("range").port(80).annotation("lb.cloudadapter.dev/port.80.idle-timeout", "1 day");
    let node_ports = service("node-ports").port(80).spec("allocateLoadBalancerNodePorts", json!(false));
    let keep = service("keep").port(80).annotation("lb.cloudadapter.dev/on-delete", "keep-address");
    let address = service("address").port(80).spec("loadBalancerIP", json!("not-an-ip"));
    let family = service("family").port(80).spec("loadBalancerIP", json!("2001:db8::7"));
    for service in [value, key, range, node_ports, keep, address, family] {
        service.create(&client).await.unwrap();
    }
    // This Service is created last. When it is ready, the others have been reconciled.
    service("good").port(80).create(&client).await.unwrap();
    bed.address("good").await.unwrap();
    bed.quiet("service-controller").await.unwrap();

    let cases: [(&str, &[&str]); 7] = [
        ("value", &["lb.cloudadapter.dev/internal", "\"yes\"", "true or false"]),
        ("key", &["lb.cloudadapter.dev/intrenal", "did you mean 'lb.cloudadapter.dev/internal'"]),
        ("range", &["lb.cloudadapter.dev/port.80.idle-timeout", "\"1 day\"", "90s"]),
        ("node-ports", &["spec.allocateLoadBalancerNodePorts", "set it to true"]),
        ("keep", &["lb.cloudadapter.dev/on-delete", "no capability lb.keep-address"]),
        ("address", &["spec.loadBalancerIP", "\"not-an-ip\"", "192.0.2.7"]),
        ("family", &["spec.loadBalancerIP", "2001:db8::7 is IPv6", "spec.ipFamilies contains only IPv4"]),
    ];
    for (name, named) in cases {
        bed.wait_for_event("Service", name, "SyncLoadBalancerFailed").await.unwrap();
        let events = bed.events("Service", name).await.unwrap();
        let [event] = events.as_slice() else {
            panic!("{name} does not have exactly one Event: {events:#?}")
        };
        assert_eq!(event.type_.as_deref(), Some("Warning"), "{name}");
        assert_eq!(times(event), 1, "{name}");
        let message = event.message.as_deref().unwrap_or_default();
        assert!(named.iter().all(|word| message.contains(word)), "{name}: {message}");
    }
    let of_others: Vec<_> = balancers(&bed.cluster.cloud.state().await.unwrap()).collect();
    assert_eq!(of_others, ["good"]);

    let annotations = json!({ "lb.cloudadapter.dev/intrenal": null, "lb.cloudadapter.dev/internal": "true" });
    bed.patch_service("key", &json!({ "metadata": { "annotations": annotations } })).await.unwrap();
    bed.patch_service("node-ports", &json!({ "spec": { "allocateLoadBalancerNodePorts": true } }))
        .await
        .unwrap();
    bed.address("key").await.unwrap();
    bed.address("node-ports").await.unwrap();
    let now: BTreeSet<_> = balancers(&bed.cluster.cloud.state().await.unwrap()).collect();
    assert_eq!(now, ["good", "key", "node-ports"].map(str::to_owned).into());
}

// Behaviour: SF10
#[tokio::test]
async fn annotations_and_defaults_set_up_the_load_balancer() {
    let defaults =
        json!({ "serviceController": { "serviceDefaults": { "idle-timeout": "2m", "internal": true } } });
    let mut bed = Bed::start_with(&defaults).await.unwrap();
    let a = bed.join("a", None).await.unwrap();
    bed.join("b", None).await.unwrap();
    bed.patch_node("a", &json!({ "metadata": { "labels": { "tier": "edge" } } })).await.unwrap();
    bed.targets(2).await.unwrap();

    let wanted = [
        ("internal", "false"),
        ("node-selector", "tier=edge"),
        ("hostname", "shop.example.com"),
        ("size", "large"),
        ("tags", "team=shop"),
        ("algorithm", "least-connections"),
        ("port.443.algorithm", "source-ip"),
    ];
    let web = service("web").port(80).port(443);
    let web = wanted
        .iter()
        .fold(web, |web, (key, value)| web.annotation(&format!("lb.cloudadapter.dev/{key}"), value));
    web.create(&bed.client()).await.unwrap();
    let named = bed.until_service("web", "shows its name", |service| {
        let status = service.status.as_ref().and_then(|status| status.load_balancer.as_ref());
        let ingress = status.and_then(|status| status.ingress.clone()).unwrap_or_default();
        let names: Vec<_> = ingress.iter().map(|it| (it.hostname.as_deref(), it.ip.as_deref())).collect();
        ensure!(names == [(Some("shop.example.com"), None)], "{names:?}");
        Ok(service.clone())
    });
    let made = named.await.unwrap();
    let balancer = serving(&bed, &made, &[&a]).await;
    assert_eq!(json!(balancer.scheme), "internet");
    assert_eq!(balancer.placement.size.as_deref(), Some("large"));
    assert_eq!(balancer.tags.get("team").map(String::as_str), Some("shop"));
    let timeouts: BTreeSet<u32> = balancer.listeners.iter().map(|listener| listener.idle_timeout).collect();
    assert_eq!(timeouts, [120].into(), "the cluster's default");
    let algorithms: Vec<_> =
        balancer.listeners.iter().map(|it| (it.port, json!(pool(&balancer, it).algorithm))).collect();
    assert_eq!(algorithms, [(80, json!("least_connections")), (443, json!("source_ip"))]);

    // A setting that the cloud cannot change is refused with the annotation's name, and nothing is recreated.
    let larger = json!({ "metadata": { "annotations": { "lb.cloudadapter.dev/size": "huge" } } });
    bed.patch_service("web", &larger).await.unwrap();
    let message = bed.wait_for_event("Service", "web", "SyncLoadBalancerFailed").await.unwrap();
    assert!(message.contains("annotation lb.cloudadapter.dev/size: "), "{message}");
    let back = json!({ "metadata": { "annotations": {
        "lb.cloudadapter.dev/size": "large", "lb.cloudadapter.dev/algorithm": null, "example.com/unrelated": "x" } } });
    bed.patch_service("web", &back).await.unwrap();
    let restored = bed.until_cloud("without the annotation, the vendor's default is in effect", |state| {
        let [balancer] = state.load_balancers.as_slice() else {
            anyhow::bail!("not exactly one load balancer")
        };
        let listener = balancer.listeners.first().context("no listener")?;
        ensure!(json!(pool(balancer, listener).algorithm) == "round_robin", "{balancer:?}");
        Ok(balancer.id.clone())
    });
    assert_eq!(restored.await.unwrap(), balancer.id);
    bed.quiet("service-controller").await.unwrap();
}

fn pool<'a>(balancer: &'a LoadBalancer, listener: &Listener) -> &'a Pool {
    balancer.pools.iter().find(|pool| Some(&pool.id) == listener.pool_id.as_ref()).unwrap()
}

/// Waits until the cloud contains exactly one load balancer, which is active and has the Service's ports, with these nodes as backends of
/// each port.
async fn serving(bed: &Bed, service: &Service, nodes: &[&Node]) -> LoadBalancer {
    let ports = service.spec.as_ref().and_then(|spec| spec.ports.clone()).unwrap_or_default();
    let wanted: BTreeSet<_> = ports
        .iter()
        .flat_map(|port| {
            nodes.iter().map(move |node| (port.port, internal_ip(node), port.node_port.unwrap_or_default()))
        })
        .collect();
    let seen = bed.until_cloud("the load balancer serves the Service's ports from its nodes", |state| {
        let [balancer] = state.load_balancers.as_slice() else {
            anyhow::bail!("{} load balancers", state.load_balancers.len())
        };
        ensure!(json!(balancer.status) == "ACTIVE", "the status is {:?}", balancer.status);
        let there = members(balancer)?;
        ensure!(there == wanted, "found {there:?}, expected {wanted:?}");
        Ok(balancer.clone())
    });
    seen.await.unwrap()
}

/// Returns the listener port, the backend address and the backend port of each backend.
fn members(balancer: &LoadBalancer) -> anyhow::Result<BTreeSet<(i32, String, i32)>> {
    let mut members = BTreeSet::new();
    for listener in &balancer.listeners {
        let pool = balancer.pools.iter().find(|pool| Some(&pool.id) == listener.pool_id.as_ref());
        let pool = pool.with_context(|| format!("listener {} has no pool", listener.name))?;
        members.extend(
            pool.members.iter().map(|it| (listener.port.into(), it.address.to_string(), it.port.into())),
        );
    }
    Ok(members)
}

async fn nothing_left(bed: &Bed) {
    let gone = bed.wait_cloud("no load balancer is left", |state| state.load_balancers.is_empty());
    gone.await.unwrap();
}

/// Names of the Services that have a load balancer.
fn balancers(state: &State) -> impl Iterator<Item = String> {
    state.load_balancers.iter().filter_map(|it| it.tags.get("cloudadapter.dev/owner-name").cloned())
}

fn internal_ip(node: &Node) -> String {
    let addresses = node.status.iter().flat_map(|status| status.addresses.iter().flatten());
    addresses.filter(|it| it.type_ == "InternalIP").map(|it| it.address.clone()).next().unwrap()
}

fn times(event: &Event) -> i32 {
    event.series.as_ref().and_then(|series| series.count).or(event.count).unwrap_or(1).max(1)
}

/// Users wait for the condition with kubectl. The API server merges the conditions of several writers by type. `metadata.managedFields`
/// records which conditions this controller removes.
// Behaviour: S30, S32
#[tokio::test]
async fn a_condition_of_a_service_can_be_waited_for() {
    let mut bed = Bed::start().await.unwrap();
    bed.join("a", None).await.unwrap();
    service("web").port(80).create(&bed.client()).await.unwrap();
    let wrong = service("wrong").port(80).annotation("lb.cloudadapter.dev/internal", "yes");
    wrong.create(&bed.client()).await.unwrap();
    another_condition(&bed, "example.com/Before").await;
    for (name, value) in [("web", "true"), ("wrong", "false")] {
        let (condition, name) = (format!("--for=condition={READY}={value}"), format!("service/{name}"));
        let wait = ["wait", "--namespace", "default", &condition, &name, "--timeout=60s"];
        bed.cluster.control_plane.kubectl(&wait).await.unwrap();
    }
    another_condition(&bed, "example.com/After").await;
    bed.patch_service("web", &json!({ "spec": { "externalTrafficPolicy": "Local" } })).await.unwrap();
    bed.quiet("service-controller").await.unwrap();

    let web = bed.services().get("web").await.unwrap();
    assert_eq!(types(&web), [READY, "example.com/After", "example.com/Before"], "{web:?}");
    // The API server sets no generation on Services; docs/gitops.md says so.
    let ready = web.status.iter().flat_map(|it| it.conditions.iter().flatten()).find(|it| it.type_ == READY);
    assert_eq!((web.metadata.generation, ready.unwrap().observed_generation), (None, None), "{web:?}");
    assert_eq!(writers(&web, READY), ["service-controller"], "{web:?}");

    for name in ["web", "wrong"] {
        bed.patch_service(name, &json!({ "spec": { "type": "ClusterIP" } })).await.unwrap();
        let removed = bed.wait_service(name, "has no condition of this controller", |service| {
            !types(service).iter().any(|it| it == READY)
        });
        removed.await.unwrap();
    }
    let web = bed.services().get("web").await.unwrap();
    assert_eq!((types(&web).len(), &web.metadata.finalizers), (2, &None), "{web:?}");
    bed.quiet("service-controller").await.unwrap();
}

async fn another_condition(bed: &Bed, name: &str) {
    let condition = json!({ "type": name, "status": "True", "reason": "Known", "message": "",
        "lastTransitionTime": "2024-01-01T00:00:00Z" });
    let patch = json!({ "status": { "conditions": [condition] } });
    let (params, strategic) = (kube::api::PatchParams::default(), kube::api::Patch::Strategic(&patch));
    bed.services().patch_status("web", &params, &strategic).await.unwrap();
}

fn types(service: &Service) -> Vec<String> {
    let conditions = service.status.iter().flat_map(|it| it.conditions.iter().flatten());
    let types: BTreeSet<String> = conditions.map(|it| it.type_.clone()).collect();
    types.into_iter().collect()
}

/// The field managers that wrote the condition, through the status subresource.
fn writers(service: &Service, name: &str) -> Vec<String> {
    let key = format!("k:{{\"type\":\"{name}\"}}");
    let entries = service.metadata.managed_fields.iter().flatten();
    let wrote = entries.filter(|entry| {
        let status = entry.fields_v1.as_ref().and_then(|it| it.0.get("f:status"));
        let written = status.and_then(|it| it.get("f:conditions")).and_then(|it| it.get(&key));
        written.is_some() && entry.subresource.as_deref() == Some("status")
    });
    wrote.filter_map(|entry| entry.manager.clone()).collect()
}
