//! Peers that are away, or worse: the adapter, the API server, the cloud. Nothing is lost, nothing is made twice, and who
//! waits says so where people look.

#![expect(clippy::unwrap_used, reason = "clippy knows tests, and not their helpers")]

use adapter_sim::simcloud::Operation;
use adapter_sim::simcloud::faults::FaultRule;
use adapter_sim::simcloud::model::LoadBalancer;
use anyhow::ensure;
use e2e::{ADAPTER, Bed, CONTROLLERS, Ready, State, is_uninitialised, node, service};
use serde_json::{Value, from_value, json};

/// Controllers come first and the adapter last.
#[tokio::test]
async fn controllers_that_start_without_an_adapter_wait_and_say_so() {
    let mut bed = Bed::install().await.unwrap();
    for name in CONTROLLERS {
        bed.cluster.pods.get(name).unwrap().start().unwrap();
    }
    let client = bed.client();
    bed.cluster.cloud.create_instance("a").await.unwrap();
    node("a").pods("10.244.1.0/24").register(&client).await.unwrap();
    service("web").port(80).create(&client).await.unwrap();

    for name in CONTROLLERS {
        bed.unready(name, "not reachable since").await.unwrap();
    }
    let told = bed.told("Node", "a", "CloudProviderUnavailable").await.unwrap();
    assert!(told.contains("Waits for the cloud adapter, which is not reachable since"), "{told}");
    let told = bed.told("Service", "web", "SyncLoadBalancerFailed").await.unwrap();
    assert!(told.contains("adapter") && told.contains("waits until it is there"), "{told}");
    assert!(is_uninitialised(&bed.nodes().get("a").await.unwrap()));
    assert_eq!(bed.cluster.cloud.counts().await.unwrap().total, 0);

    bed.cluster.pods.get(ADAPTER).unwrap().start().unwrap();
    bed.initialised("a").await.unwrap();
    bed.address("web").await.unwrap();
    bed.until_cloud("a has its route", |state| one_route(state, "10.244.1.0/24")).await.unwrap();
    bed.ready().await.unwrap();
}

/// It dies between two steps of a load balancer, and the next one goes on from what it finds.
#[tokio::test]
async fn an_adapter_killed_half_way_leaves_no_second_load_balancer() {
    let mut bed = Bed::start().await.unwrap();
    bed.join("a", None).await.unwrap();
    bed.cluster
        .cloud
        .configure(&json!({ "provisioning": { "create_ms": 500, "update_ms": 500 } }))
        .await
        .unwrap();
    service("web").port(80).port(443).port_of("UDP", 53).create(&bed.client()).await.unwrap();
    bed.until_cloud("the load balancer is half-built", |state| {
        let [balancer] = state.load_balancers.as_slice() else { anyhow::bail!("{state:?}") };
        ensure!((1..3).contains(&balancer.listeners.len()), "{balancer:?}");
        Ok(())
    })
    .await
    .unwrap();

    bed.cluster.pods.get(ADAPTER).unwrap().kill().await.unwrap();
    let told = bed.told("Service", "web", "SyncLoadBalancerFailed").await.unwrap();
    assert!(told.contains("no answer from the cloud adapter"), "{told}");
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

/// While it is away, so are all wishes; what was there before is not touched.
#[tokio::test]
async fn an_api_server_that_restarts_finds_controllers_at_work() {
    let mut bed = Bed::start().await.unwrap();
    bed.join("a", Some("10.244.1.0/24")).await.unwrap();
    service("web").port(80).create(&bed.client()).await.unwrap();
    let address = bed.address("web").await.unwrap();
    for name in CONTROLLERS {
        bed.quiet(name).await.unwrap();
    }
    let before = bed.cluster.cloud.state().await.unwrap();
    bed.cluster.cloud.reset_counts().await.unwrap();

    bed.cluster.control_plane.stop_apiserver().await.unwrap();
    for name in CONTROLLERS {
        bed.unready(name, "not reachable since").await.unwrap();
    }
    bed.cluster.control_plane.start_apiserver().await.unwrap();

    bed.ready().await.unwrap();
    let counts = bed.cluster.cloud.counts().await.unwrap();
    assert_eq!(counts.writes, 0, "{counts:?}");
    let after = bed.cluster.cloud.state().await.unwrap();
    assert_eq!((after.load_balancers, after.routes), (before.load_balancers, before.routes));
    bed.join("b", Some("10.244.2.0/24")).await.unwrap();
    service("more").port(80).create(&bed.client()).await.unwrap();
    bed.address("more").await.unwrap();
    assert_eq!(bed.address("web").await.unwrap(), address);
    bed.until_cloud("b has its route", |state| {
        ensure!(state.routes.len() == 2, "{:?}", state.routes);
        Ok(())
    })
    .await
    .unwrap();
}

/// Throttling, bursts of errors, and a write whose answer is lost.
#[tokio::test]
async fn a_cloud_in_trouble_gets_what_was_asked_for_once() {
    let bed = Bed::start().await.unwrap();
    bed.join("a", None).await.unwrap();
    bed.cluster.cloud.reset_counts().await.unwrap();
    let throttled = json!({ "respond": { "status": 429, "headers": { "retry-after": "1" } } });
    let unavailable = json!({ "respond": { "status": 503 } });
    let faults = [
        ("CreateLoadBalancer", json!({ "next": 1 }), throttled.clone()),
        ("CreateLoadBalancer", json!({ "next": 2 }), unavailable.clone()),
        ("CreateLoadBalancer", json!({ "next": 1 }), json!({ "respond_after": { "status": 504 } })),
        ("CreateListener", json!({ "next": 1 }), throttled),
        ("CreateListener", json!({ "next": 1 }), json!("close_after")),
        ("ListLoadBalancers", json!({ "next": 2 }), unavailable),
    ];
    for (operation, when, action) in faults {
        bed.cluster.cloud.add_fault(&rule(operation, &when, &action)).await.unwrap();
    }
    service("web").port(80).port(443).create(&bed.client()).await.unwrap();
    bed.address("web").await.unwrap();

    complete(&bed, 2).await;
    let log = bed.cluster.cloud.requests().await.unwrap();
    let struck = log.iter().filter(|entry| entry.fault).count();
    assert_eq!(struck, 8, "not every fault came to pass: {log:#?}");
    bed.delete_service("web").await.unwrap();
    assert!(bed.cluster.cloud.state().await.unwrap().load_balancers.is_empty());
}

/// Rejected credentials prove nothing about what is there.
#[tokio::test]
async fn rejected_credentials_delete_nothing_and_are_named() {
    let mut bed = Bed::start().await.unwrap();
    bed.join("a", Some("10.244.1.0/24")).await.unwrap();
    service("web").port(80).create(&bed.client()).await.unwrap();
    bed.address("web").await.unwrap();
    bed.quiet("service-controller").await.unwrap();
    let before = bed.cluster.cloud.state().await.unwrap();
    let unauthorized =
        json!({ "respond": { "status": 401, "body": { "code": "unauthorized", "message": "bad token" } } });
    bed.cluster.cloud.add_fault(&rule("*", &json!("always"), &unauthorized)).await.unwrap();

    let client = bed.client();
    e2e::set_ready(&client, "a", Ready::Unknown).await.unwrap();
    bed.cluster.cloud.create_instance("b").await.unwrap();
    node("b").register(&client).await.unwrap();
    service("more").port(80).create(&client).await.unwrap();
    let told = bed.told("Node", "b", "CloudProviderFailed").await.unwrap();
    assert!(told.contains("VENDOR_AUTH"), "{told}");
    let told = bed.told("Service", "more", "SyncLoadBalancerFailed").await.unwrap();
    assert!(told.contains("credentials"), "{told}");
    assert!(bed.nodes().get_opt("a").await.unwrap().is_some());
    let during = bed.cluster.cloud.state().await.unwrap();
    assert_eq!((during.load_balancers, during.routes), (before.load_balancers, before.routes));

    bed.cluster.cloud.clear_faults().await.unwrap();
    bed.initialised("b").await.unwrap();
    bed.address("more").await.unwrap();
    assert!(bed.nodes().get_opt("a").await.unwrap().is_some());
}

/// Waits until the cloud has exactly one load balancer, active, with so many listeners.
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

fn rule(operation: &str, when: &Value, action: &Value) -> FaultRule {
    from_value(json!({ "match": { "operation": operation }, "when": when, "action": action })).unwrap()
}
