//! The adapter or the API server is down or does not respond. Nothing is lost, nothing is created twice, and objects that wait say so in
//! their Events.

use std::fs;

use adapter_sim::simcloud::Operation;
use adapter_sim::simcloud::model::LoadBalancer;
use anyhow::ensure;
use e2e::{
    ADAPTER, Bed, CONTROLLERS, ControlPlane, State, WITHIN, address, eventually, is_uninitialised, node,
    seconds, service, tools,
};
use kube::api::DeleteParams;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

/// Controllers start first and the adapter last.
// Behaviour: P3, P5, W21
#[tokio::test]
async fn controllers_wait_for_an_adapter_and_say_so() {
    let mut bed = Bed::install().await.unwrap();
    for name in CONTROLLERS {
        bed.cluster.pods.get(name).unwrap().start().unwrap();
    }
    let client = bed.client();
    bed.cluster.cloud.create_instance("a").await.unwrap();
    node("a").pods("10.244.1.0/24").register(&client).await.unwrap();
    service("web").port(80).create(&client).await.unwrap();

    for name in CONTROLLERS {
        bed.unready(name, "unavailable since").await.unwrap();
    }
    let message = bed.wait_for_event("Node", "a", "CloudProviderUnavailable").await.unwrap();
    assert!(message.contains("Waiting for the cloud adapter, unavailable since"), "{message}");
    let message = bed.wait_for_event("Service", "web", "SyncLoadBalancerFailed").await.unwrap();
    assert!(message.contains("the cloud adapter is unavailable since"), "{message}");
    assert!(is_uninitialised(&bed.nodes().get("a").await.unwrap()));
    assert_eq!(bed.cluster.cloud.counts().await.unwrap().total, 0);

    bed.cluster.pods.get(ADAPTER).unwrap().start().unwrap();
    bed.initialised("a").await.unwrap();
    bed.address("web").await.unwrap();
    bed.until_cloud("a has its route", |state| one_route(state, "10.244.1.0/24")).await.unwrap();
    bed.ready().await.unwrap();
}

/// The adapter accepts connections, but does not answer, or refuses the callers.
// Behaviour: P30
#[tokio::test]
async fn an_unresponsive_or_refusing_adapter_is_waited_for() {
    let mut bed = Bed::start().await.unwrap();
    // The controller gives up a call without an answer after half a minute.
    bed.within = seconds(150);
    for (name, pods) in [("goes-1", "10.244.1.0/24"), ("goes-2", "10.244.2.0/24")] {
        bed.join(name, Some(pods)).await.unwrap();
        bed.until_cloud("its route exists", |state| routes(state, pods, true)).await.unwrap();
    }
    bed.expose("web", 80).await.unwrap();
    bed.all_quiet().await.unwrap();
    let adapter = bed.cluster.pods.get(ADAPTER).unwrap().id().unwrap();
    let adapter = Pid::from_raw(adapter.try_into().unwrap()).unwrap();
    kill_process(adapter, Signal::STOP).unwrap();
    all_wait(&mut bed, "1", "").await;
    kill_process(adapter, Signal::CONT).unwrap();
    all_is_done(&mut bed, "1").await;

    for name in CONTROLLERS {
        let token = bed.token(&format!("cloud-{name}"), &["another-adapter"]).await.unwrap();
        let controller = bed.cluster.pods.get(name).unwrap();
        fs::copy(token, controller.flag("--adapter-token-file").unwrap()).unwrap();
        // The adapter does not check open connections again, so the controller is restarted.
        controller.terminate().await.unwrap();
        controller.start().unwrap();
    }
    all_wait(&mut bed, "2", "denies this controller access").await;
    let adapter = bed.cluster.pods.get(ADAPTER).unwrap();
    let refused = adapter.counted("cloud_adapter_calls_refused_total", "reason").await.unwrap();
    let refused: f64 = refused.values().sum();
    assert!((3.0..300.0).contains(&refused), "three controllers called {refused} times");
    bed.cluster.pods.refresh_volumes(&bed.cluster.control_plane).await.unwrap();
    all_is_done(&mut bed, "2").await;
}

/// Checks that a new node and a new Service say why they wait, and that the route of a deleted node stays.
async fn all_wait(bed: &mut Bed, number: &str, why: &str) {
    let client = bed.client();
    let machine = bed.cluster.cloud.create_instance(&format!("new-{number}")).await.unwrap();
    bed.cluster.cloud.reset_counts().await.unwrap();
    e2e::delete_node(&client, &format!("goes-{number}")).await.unwrap();
    let kubelet = node(&machine.name).provider_id(&format!("sim://{}/{}", machine.region, machine.id));
    kubelet.pods(&format!("10.244.1{number}.0/24")).register(&client).await.unwrap();
    service(&format!("web-{number}")).port(80).create(&client).await.unwrap();
    for name in CONTROLLERS {
        bed.unready(name, "unavailable since").await.unwrap();
    }
    for (kind, name, reason) in [
        ("Node", "new", "CloudProviderUnavailable"),
        ("Node", "new", "WaitsForCloud"),
        ("Service", "web", "SyncLoadBalancerFailed"),
    ] {
        let message = bed.wait_for_event(kind, &format!("{name}-{number}"), reason).await.unwrap();
        assert!(message.contains(why), "{reason}: {message}");
    }
    assert!(is_uninitialised(&bed.nodes().get(&machine.name).await.unwrap()));
    let state = bed.cluster.cloud.state().await.unwrap();
    routes(&state, &format!("10.244.{number}.0/24"), true).unwrap();
    assert_eq!(bed.cluster.cloud.counts().await.unwrap().writes, 0);
}

async fn all_is_done(bed: &mut Bed, number: &str) {
    bed.initialised(&format!("new-{number}")).await.unwrap();
    bed.address(&format!("web-{number}")).await.unwrap();
    for (to, there) in [(format!("10.244.1{number}.0/24"), true), (format!("10.244.{number}.0/24"), false)] {
        bed.until_cloud("the routes match the nodes", |state| routes(state, &to, there)).await.unwrap();
    }
    bed.ready().await.unwrap();
}

/// Fails if there is no route to this network although `wanted` is true, or if there is a route although `wanted` is false.
fn routes(state: &State, to: &str, wanted: bool) -> anyhow::Result<()> {
    let there: Vec<_> = state.routes.iter().map(|route| route.destination.to_string()).collect();
    ensure!(there.iter().any(|it| it == to) == wanted, "{there:?}");
    Ok(())
}

/// The adapter dies between two steps for a load balancer, and the next adapter continues from the state of the cloud.
#[tokio::test]
async fn an_adapter_killed_half_way_creates_no_duplicate() {
    let mut bed = Bed::start().await.unwrap();
    bed.join("a", None).await.unwrap();
    bed.cluster
        .cloud
        .configure(&json!({ "provisioning": { "create_ms": 500, "update_ms": 500 } }))
        .await
        .unwrap();
    service("web").port(80).port(443).port_of("UDP", 53).create(&bed.client()).await.unwrap();
    bed.wait_cloud("the load balancer is half-built", |state| {
        let [balancer] = state.load_balancers.as_slice() else { return false };
        (1..3).contains(&balancer.listeners.len())
    })
    .await
    .unwrap();

    bed.cluster.pods.get(ADAPTER).unwrap().kill().await.unwrap();
    let message = bed.wait_for_event("Service", "web", "SyncLoadBalancerFailed").await.unwrap();
    assert!(message.contains("no answer from the cloud adapter"), "{message}");
    let half = bed.cluster.cloud.state().await.unwrap().load_balancers;
    assert!(half[0].listeners.len() < 3, "it was complete before the adapter died: {half:?}");
    bed.cluster.pods.get(ADAPTER).unwrap().start().unwrap();

    bed.address("web").await.unwrap();
    let balancer = complete(&bed, 3).await;
    assert_eq!(balancer.id, half[0].id);
    assert_eq!(bed.cluster.cloud.counts().await.unwrap().of(Operation::CreateLoadBalancer), 1);
    bed.ready().await.unwrap();
    bed.delete_service("web").await.unwrap();
    assert!(bed.cluster.cloud.state().await.unwrap().load_balancers.is_empty());
}

/// Without the API server no new requests arrive, and existing objects are not touched.
// Behaviour: P4
#[tokio::test]
async fn controllers_work_on_after_an_api_server_restart() {
    let control_plane = ControlPlane::start(&tools().unwrap()).await.unwrap();
    let mut bed = Bed::install_on(control_plane, &json!({})).await.unwrap();
    bed.start_pods().await.unwrap();
    bed.join("a", Some("10.244.1.0/24")).await.unwrap();
    let address = bed.expose("web", 80).await.unwrap();
    bed.wait_cloud("a has its route", |state| state.routes.len() == 1).await.unwrap();
    bed.all_quiet().await.unwrap();
    let before = bed.cluster.cloud.state().await.unwrap();
    bed.cluster.cloud.reset_counts().await.unwrap();

    bed.cluster.control_plane.stop_apiserver().await.unwrap();
    for name in CONTROLLERS {
        bed.unready(name, "unavailable since").await.unwrap();
    }
    bed.cluster.control_plane.start_apiserver().await.unwrap();

    bed.ready().await.unwrap();
    let counts = bed.cluster.cloud.counts().await.unwrap();
    assert_eq!(counts.writes, 0, "{counts:?}");
    let after = bed.cluster.cloud.state().await.unwrap();
    assert_eq!((after.load_balancers, after.routes), (before.load_balancers, before.routes));
    bed.join("b", Some("10.244.2.0/24")).await.unwrap();
    bed.expose("more", 80).await.unwrap();
    assert_eq!(bed.address("web").await.unwrap(), address);
    bed.wait_cloud("b has its route", |state| state.routes.len() == 2).await.unwrap();
}

#[tokio::test]
async fn a_service_deleted_during_an_outage_is_released_later() {
    let mut bed = Bed::start().await.unwrap();
    bed.join("a", Some("10.244.1.0/24")).await.unwrap();
    for name in ["web", "more"] {
        service(name).port(80).port(443).create(&bed.client()).await.unwrap();
        bed.address(name).await.unwrap();
    }
    bed.cluster.pods.get(ADAPTER).unwrap().kill().await.unwrap();
    bed.services().delete("web", &DeleteParams::default()).await.unwrap();
    bed.patch_service("more", &json!({ "spec": { "type": "ClusterIP" } })).await.unwrap();
    e2e::delete_node(&bed.client(), "a").await.unwrap();
    for name in ["web", "more"] {
        bed.wait_for_event("Service", name, "SyncLoadBalancerFailed").await.unwrap();
        let finalizers = bed.services().get(name).await.unwrap().metadata.finalizers;
        assert!(finalizers.is_some(), "{name} was released before its load balancer was deleted");
    }
    let left = bed.cluster.cloud.state().await.unwrap();
    assert_eq!((left.load_balancers.len(), left.routes.len()), (2, 1));

    bed.cluster.pods.get(ADAPTER).unwrap().start().unwrap();
    bed.wait_cloud("nothing is left", |state| state.load_balancers.is_empty() && state.routes.is_empty())
        .await
        .unwrap();
    bed.wait_service("more", "is released", |service| {
        service.metadata.finalizers.is_none() && address(service).is_none()
    })
    .await
    .unwrap();
    let services = bed.services();
    let gone = eventually("Service web is deleted", WITHIN, || async {
        ensure!(services.get_opt("web").await?.is_none(), "it still exists");
        Ok(())
    });
    gone.await.unwrap();
}

async fn complete(bed: &Bed, listeners: usize) -> LoadBalancer {
    let seen = bed.until_cloud("the only load balancer is complete", |state| {
        let [balancer] = state.load_balancers.as_slice() else { anyhow::bail!("{:?}", state.load_balancers) };
        ensure!(json!(balancer.status) == "ACTIVE" && balancer.listeners.len() == listeners, "{balancer:?}");
        Ok(balancer.clone())
    });
    seen.await.unwrap()
}

fn one_route(state: &State, to: &str) -> anyhow::Result<()> {
    let there: Vec<_> = state.routes.iter().map(|route| route.destination.to_string()).collect();
    ensure!(there == [to], "{there:?}");
    Ok(())
}
