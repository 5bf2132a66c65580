//! Tests with a cloud that throttles, fails, loses answers, lags behind, rejects the credentials or is replaced by another cloud. Each
//! request is carried out exactly once.

use adapter_sim::simcloud::Operation;
use adapter_sim::simcloud::faults::FaultRule;
use adapter_sim::simcloud::model::LoadBalancer;
use anyhow::{Context, ensure};
use e2e::{ADAPTER, Bed, CONTROLLERS, Ready, WITHIN, eventually, node, service};
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, from_value, json};

/// Each object is created exactly once in spite of throttling, bursts of errors, and a write whose answer is lost.
#[tokio::test]
async fn faulty_cloud_gets_each_object_exactly_once() {
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
    assert_eq!(struck, 8, "not every fault occurred: {log:#?}");
    bed.delete_service("web").await.unwrap();
    assert!(bed.cluster.cloud.state().await.unwrap().load_balancers.is_empty());
}

/// The cloud does not create the load balancer, and the adapter does not know whether the load balancer was created.
// Behaviour: S33
#[tokio::test]
async fn failing_create_is_reported_at_the_service() {
    // Because of this horizon, the second try comes after the report of the first try.
    let horizon = json!({ "adapter": { "extraArgs": ["--create-horizon-ms=20000"] } });
    let bed = Bed::start_with(&horizon).await.unwrap();
    bed.join("a", None).await.unwrap();
    let unavailable = json!({ "respond": { "status": 503 } });
    bed.cluster.cloud.add_fault(&rule("CreateLoadBalancer", &json!("always"), &unavailable)).await.unwrap();
    service("web").port(80).create(&bed.client()).await.unwrap();
    let event = bed.wait_for_event("Service", "web", "SyncLoadBalancerFailed").await.unwrap();
    assert!(event.contains(" failed (503, OUTCOME_UNKNOWN): "), "{event}");
    assert!(event.contains("; next try in about "), "{event}");
    let failed = bed.wait_service("web", "the condition has the cause", |service| {
        let conditions = service.status.iter().flat_map(|it| it.conditions.iter().flatten());
        conditions.into_iter().any(|it| {
            it.type_ == "cloudadapter.dev/Ready" && it.status == "False" && event.ends_with(&it.message)
        })
    });
    failed.await.unwrap();
    bed.cluster.cloud.clear_faults().await.unwrap();
    bed.address("web").await.unwrap();
    assert_eq!(bed.times("Service", "web", "SyncLoadBalancerFailed").await.unwrap(), 1);
}

/// Rejected credentials prove nothing about the state of the cloud.
#[tokio::test]
async fn rejected_credentials_delete_nothing_and_are_reported() {
    let mut bed = Bed::start().await.unwrap();
    bed.join("a", Some("10.244.1.0/24")).await.unwrap();
    bed.expose("web", 80).await.unwrap();
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
    let message = bed.wait_for_event("Node", "b", "CloudProviderFailed").await.unwrap();
    assert!(message.contains("VENDOR_AUTH"), "{message}");
    let message = bed.wait_for_event("Service", "more", "SyncLoadBalancerFailed").await.unwrap();
    assert!(message.contains("credentials"), "{message}");
    // By now the adapter has stopped calling the cloud. Controllers still call the adapter, and the adapter says why nothing works.
    let adapter = &*bed.cluster.pods.get(ADAPTER).unwrap();
    let knows = eventually("the adapter sends nothing with these credentials", WITHIN, || async {
        let states = adapter.counted("cloud_adapter_breaker_state", "family").await?;
        ensure!(states.get("credentials").is_some_and(|&state| state > 0.0), "{states:?}");
        Ok(())
    });
    knows.await.unwrap();
    let refused = async |bed: &mut Bed| bed.adapter_calls().await.unwrap().remove("VENDOR_AUTH");
    let before_it_knew = refused(&mut bed).await;
    bed.cluster.cloud.create_instance("c").await.unwrap();
    node("c").register(&client).await.unwrap();
    service("later").port(80).create(&client).await.unwrap();
    let message = bed.wait_for_event("Node", "c", "CloudProviderFailed").await.unwrap();
    assert!(message.contains("VENDOR_AUTH"), "{message}");
    let message = bed.wait_for_event("Service", "later", "SyncLoadBalancerFailed").await.unwrap();
    assert!(message.contains("credentials"), "{message}");
    assert!(refused(&mut bed).await > before_it_knew, "{before_it_knew:?}");
    assert!(bed.nodes().get_opt("a").await.unwrap().is_some());
    let during = bed.cluster.cloud.state().await.unwrap();
    assert_eq!((during.load_balancers, during.routes), (before.load_balancers, before.routes));

    bed.cluster.cloud.clear_faults().await.unwrap();
    for node in ["b", "c"] {
        bed.initialised(node).await.unwrap();
    }
    for service in ["more", "later"] {
        bed.address(service).await.unwrap();
    }
    assert!(bed.nodes().get_opt("a").await.unwrap().is_some());
}

/// The controllers recreate nothing that is missing in another project, and delete no node because of a deletion there. A restart of the
/// controllers does not change this.
// Behaviour: P12
#[tokio::test]
async fn a_move_to_another_cloud_needs_confirmation() {
    let mut bed = Bed::install_with(&json!({
        "adapter": { "cache": { "instances": { "maxAge": "2s" } } },
        "nodeController": { "deletion": { "monitorPeriod": "500ms", "confirmAfter": "1s" } },
    }))
    .await
    .unwrap();
    bed.start_pods().await.unwrap();
    let a = bed.join("a", Some("10.244.1.0/24")).await.unwrap();
    bed.expose("web", 80).await.unwrap();
    bed.all_quiet().await.unwrap();

    let cluster = &mut bed.cluster;
    cluster.cloud.give_way_to("other", &cluster.control_plane).await.unwrap();
    let adapter = bed.cluster.pods.get(ADAPTER).unwrap();
    adapter.terminate().await.unwrap();
    adapter.start().unwrap();
    bed.unready("service-controller", "The cloud adapter now uses").await.unwrap();
    service("more").port(80).create(&bed.client()).await.unwrap();
    // The adapter observes the deletion of an instance with the same ID. In the same project, this would be enough to delete the node.
    let machine = bed.cluster.cloud.create_instance("a").await.unwrap();
    let id = a.spec.and_then(|spec| spec.provider_id).unwrap();
    assert!(id.ends_with(&machine.id), "{id}, {machine:?}");
    listed_again(&bed).await;
    bed.cluster.cloud.delete_instance(&machine.id).await.unwrap();
    e2e::set_ready(&bed.client(), "a", Ready::Unknown).await.unwrap();
    nothing_is_changed(&mut bed).await;
    for name in CONTROLLERS {
        let controller = bed.cluster.pods.get(name).unwrap();
        controller.terminate().await.unwrap();
        controller.start().unwrap();
    }
    nothing_is_changed(&mut bed).await;

    let leases: Api<Lease> = Api::namespaced(bed.client(), &bed.cluster.release.namespace);
    let meant = Patch::Merge(json!({ "metadata": { "annotations": { "cloudadapter.dev/scope": null } } }));
    for name in CONTROLLERS {
        leases.patch(&format!("cloud-{name}"), &PatchParams::default(), &meant).await.unwrap();
    }
    bed.ready().await.unwrap();
    for service in ["web", "more"] {
        bed.until_cloud("both have a load balancer", |state| state.balancer(service).map(drop))
            .await
            .unwrap();
    }
    let nodes = bed.nodes();
    let gone = eventually("node a, which has no instance, is deleted", WITHIN, || async {
        ensure!(nodes.get_opt("a").await?.is_none(), "it still exists");
        Ok(())
    });
    gone.await.unwrap();
}

/// Checks that each controller says why it waits. Nothing is written in the cloud, although the controllers have had the time to write.
async fn nothing_is_changed(bed: &mut Bed) {
    for name in CONTROLLERS {
        bed.unready(name, "The cloud adapter now uses ").await.unwrap();
        let message = bed.wait_for_event("Lease", &format!("cloud-{name}"), "CloudMoved").await.unwrap();
        assert!(
            message.contains(" other, not ") && message.ends_with("cloudadapter.dev/scope-"),
            "{message}"
        );
    }
    let message = bed.wait_for_event("Service", "more", "SyncLoadBalancerFailed").await.unwrap();
    assert!(message.contains("project other"), "{message}");
    listed_again(bed).await;
    assert!(bed.nodes().get_opt("a").await.unwrap().is_some());
    assert_eq!(bed.cluster.cloud.counts().await.unwrap().writes, 0);
}

/// Waits until the adapter has listed the instances three more times.
async fn listed_again(bed: &Bed) {
    let cloud = &bed.cluster.cloud;
    let before = cloud.counts().await.unwrap().of(Operation::ListInstances);
    let listed = eventually("the instances are listed three more times", WITHIN, || async {
        let now = cloud.counts().await?.of(Operation::ListInstances);
        ensure!(now >= before + 3, "{now} times, {before} before");
        Ok(())
    });
    listed.await.unwrap();
}

/// New objects are not listed for a while. The controllers do not take the objects for absent.
#[tokio::test]
async fn a_lagging_cloud_gets_nothing_twice() {
    let bed = Bed::start().await.unwrap();
    let cloud = &bed.cluster.cloud;
    cloud.configure(&json!({ "consistency_ms": 1500, "latency": { "default_ms": 20 } })).await.unwrap();
    cloud.create_instance("a").await.unwrap();
    node("a").pods("10.244.1.0/24").register(&bed.client()).await.unwrap();
    bed.initialised("a").await.unwrap();
    service("web").port(80).port(443).create(&bed.client()).await.unwrap();
    bed.address("web").await.unwrap();
    complete(&bed, 2).await;
    bed.wait_node("a", "has its route", |node| {
        let conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
        let mut reasons = conditions.filter_map(|it| it.reason.as_deref());
        reasons.any(|reason| reason == "RouteCreated")
    })
    .await
    .unwrap();
    let counts = cloud.counts().await.unwrap();
    let made = [Operation::CreateLoadBalancer, Operation::BatchRoutes];
    assert_eq!(made.map(|operation| counts.of(operation)), [1, 1], "{counts:?}");
    // A load balancer that is listed as ready may still be busy. In that case the cloud refuses the request, and nothing is created.
    let refused = counts.by_status.get("409").copied().unwrap_or_default();
    assert_eq!(counts.of(Operation::CreateListener) - refused, 2, "{counts:?}");

    bed.delete_service("web").await.unwrap();
    assert!(cloud.state().await.unwrap().load_balancers.is_empty());
    assert_eq!(cloud.counts().await.unwrap().of(Operation::DeleteLoadBalancer), 1);
}

/// The next listing repairs what was deleted in the cloud.
// Behaviour: S20
#[tokio::test]
async fn a_load_balancer_deleted_in_the_cloud_is_recreated() {
    let bed = Bed::start().await.unwrap();
    bed.join("a", None).await.unwrap();
    bed.expose("web", 80).await.unwrap();
    let lost = complete(&bed, 1).await;
    bed.cluster.cloud.delete_load_balancer(&lost.id).await.unwrap();

    // Work for another Service triggers a listing, which otherwise happens once a minute.
    service("other").port(80).create(&bed.client()).await.unwrap();
    let made = bed.until_cloud("web has another load balancer", |state| {
        let of_web =
            |it: &&LoadBalancer| it.tags.get("cloudadapter.dev/owner-name").is_some_and(|it| it == "web");
        let balancer = state.load_balancers.iter().find(of_web).context("no load balancer")?;
        let vip = balancer.vips.first().context("it has no address yet")?;
        Ok((balancer.id.clone(), vip.to_string()))
    });
    let (id, vip) = made.await.unwrap();
    assert_ne!(id, lost.id);
    bed.wait_service("web", "has the new address", |it| {
        e2e::address(it).is_some_and(|address| address == vip)
    })
    .await
    .unwrap();
}

async fn complete(bed: &Bed, listeners: usize) -> LoadBalancer {
    let seen = bed.until_cloud("the only load balancer is complete", |state| {
        let [balancer] = state.load_balancers.as_slice() else { anyhow::bail!("{:?}", state.load_balancers) };
        ensure!(json!(balancer.status) == "ACTIVE" && balancer.listeners.len() == listeners, "{balancer:?}");
        Ok(balancer.clone())
    });
    seen.await.unwrap()
}

fn rule(operation: &str, when: &Value, action: &Value) -> FaultRule {
    from_value(json!({ "match": { "operation": operation }, "when": when, "action": action })).unwrap()
}
