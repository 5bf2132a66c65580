//! Failures while a load balancer is created or deleted, changes by other writers, and changes that cost nothing.

use adapter_sim::simcloud::Operation;
use adapter_sim::simcloud::faults::FaultRule;
use anyhow::{Context, ensure};
use e2e::{Bed, address, service};
use http::Method;
use k8s_openapi::api::core::v1::{LoadBalancerIngress, Service};
use k8s_openapi::api::rbac::v1::ClusterRole;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::{Value, from_value, json};

const CONTROLLER: &str = "service-controller";
const RIGHTS: &str = "cloud-controllers:kube-system:service-controller";
const FINALIZER: &str = "service.kubernetes.io/load-balancer-cleanup";
/// Longer than the controller's own first backoff.
const RETRY_AFTER_MS: u64 = 6000;

// Behaviour: S1, S6, S8, S9, S10, S11, S14, S16, S18, S19, S20, S21, S25, S26, SF4, P34, W10, W11, W12, W17
#[tokio::test]
async fn services_recover_from_failures_and_foreign_changes() {
    let values = json!({
        "adapter": {
            "limits": { "buckets": { "loadbalancer": { "rate": 500, "burst": 500 } } },
            // Changes in the cloud are seen soon.
            "cache": { "loadBalancers": { "maxAge": "2s" } },
        },
    });
    let mut bed = Bed::start_with(&values).await.unwrap();
    for name in ["a", "b"] {
        bed.join(name, None).await.unwrap();
    }
    bed.targets(2).await.unwrap();

    a_new_service_costs_two_writes(&mut bed).await;
    bed.expose("kept", 80).await.unwrap();
    tokio::join!(creation_fails_at_first(&bed), deletion_fails_at_first(&bed));
    an_invisible_load_balancer_is_deleted(&mut bed).await;
    foreign_edits_are_reverted(&mut bed).await;
    deletions_in_the_cloud_are_repaired(&bed).await;
    changes_of_one_service_are_serialised(&bed).await;
    the_app_protocol_is_passed_on(&mut bed).await;
    unrelated_fields_cost_nothing(&mut bed).await;
    changes_while_the_controller_is_down(&mut bed).await;
    what_the_api_server_refuses(&mut bed).await;
}

/// The creation takes a while, is requested again several times, and gets one Event.
async fn a_new_service_costs_two_writes(bed: &mut Bed) {
    bed.cluster.cloud.configure(&json!({ "provisioning": { "create_ms": 1500 } })).await.unwrap();
    bed.cluster.cloud.reset_counts().await.unwrap();
    let mark = bed.cluster.control_plane.audit_log().mark().unwrap();
    let asked = calls(bed, "EnsureLoadBalancer").await;
    bed.expose("web", 80).await.unwrap();
    bed.told("Service", "web", "EnsuredLoadBalancer").await.unwrap();
    bed.quiet(CONTROLLER).await.unwrap();

    let mut writes = bed.writes_of(CONTROLLER, mark, "-").unwrap();
    writes.retain(|write| write.resource != "events");
    let writes: Vec<_> =
        writes.iter().map(|it| (it.verb.as_str(), it.resource.as_str(), it.name.as_str(), it.code)).collect();
    assert_eq!(writes, [("patch", "services/status", "web", 200); 2], "the finalizer, and the status");
    let events = bed.events("Service", "web").await.unwrap();
    let told: Vec<_> = events.iter().map(|it| it.message.as_deref().unwrap_or_default()).collect();
    assert_eq!(told, ["Ensuring load balancer", "Ensured load balancer"]);
    assert!(calls(bed, "EnsureLoadBalancer").await - asked > 1.5, "the request was not repeated");
    let counts = bed.cluster.cloud.counts().await.unwrap();
    assert_eq!((counts.of(Operation::CreateLoadBalancer), counts.of(Operation::CreateListener)), (1, 1));
    // The API server sets the IP mode to its default, since the cloud reports none.
    let modes: Vec<_> =
        ingress(&bed.services().get("web").await.unwrap()).into_iter().map(|it| it.ip_mode).collect();
    assert_eq!(modes, [Some("VIP".to_owned())]);
    bed.cluster.cloud.configure(&json!({ "provisioning": null })).await.unwrap();
}

/// The finalizer is added first, the failure is reported once, and the creation is retried when the cloud allows it.
async fn creation_fails_at_first(bed: &Bed) {
    fault(bed, &json!({ "operation": "CreateLoadBalancer" }), &json!({ "next": 2 }), &nonsense()).await;
    service("refused").port(80).create(&bed.client()).await.unwrap();
    let told = bed.told("Service", "refused", "SyncLoadBalancerFailed").await.unwrap();
    assert!(told.starts_with("Error syncing load balancer: "), "{told}");
    let waiting = bed.services().get("refused").await.unwrap();
    assert_eq!(waiting.metadata.finalizers.as_deref(), Some(&[FINALIZER.to_owned()][..]));
    assert!(address(&waiting).is_none());
    assert!(bed.cluster.cloud.state().await.unwrap().balancer("refused").is_err());
    bed.address("refused").await.unwrap();
    assert_eq!(bed.times("Service", "refused", "SyncLoadBalancerFailed").await.unwrap(), 1);
}

/// The Service stays until its load balancer is deleted, and the cloud gets no calls for as long as it requests.
async fn deletion_fails_at_first(bed: &Bed) {
    let id = bed.cluster.cloud.state().await.unwrap().balancer("kept").unwrap().id.clone();
    let of_kept = json!({ "operation": "DeleteLoadBalancer", "object": id });
    fault(bed, &of_kept, &json!({ "next": 1 }), &nonsense()).await;
    let throttled =
        json!({ "status": 429, "headers": { "retry-after": (RETRY_AFTER_MS / 1000).to_string() } });
    fault(bed, &of_kept, &json!({ "next": 1 }), &throttled).await;
    bed.services().delete("kept", &DeleteParams::default()).await.unwrap();
    bed.told("Service", "kept", "SyncLoadBalancerFailed").await.unwrap();
    let kept = bed.services().get("kept").await.unwrap();
    assert_eq!(kept.metadata.finalizers.as_deref(), Some(&[FINALIZER.to_owned()][..]));
    assert!(address(&kept).is_some(), "the status stays while the load balancer serves");

    is_gone(bed, "kept").await;
    bed.told("Service", "kept", "DeletedLoadBalancer").await.unwrap();
    let events = bed.events("Service", "kept").await.unwrap();
    let told = events.iter().filter(|it| it.type_.as_deref() == Some("Normal"));
    let told: Vec<_> = told.filter_map(|it| it.message.as_deref()).collect();
    let words = [
        "Ensuring load balancer",
        "Ensured load balancer",
        "Deleting load balancer",
        "Deleted load balancer",
    ];
    assert_eq!(told, words);
    assert_eq!(bed.times("Service", "kept", "SyncLoadBalancerFailed").await.unwrap(), 1);
    let log = bed.cluster.cloud.requests().await.unwrap();
    let deletes: Vec<_> = log
        .iter()
        .filter(|it| it.operation == Operation::DeleteLoadBalancer && it.object.as_ref() == Some(&id))
        .map(|it| (it.status, it.at_ms))
        .collect();
    let statuses: Vec<_> = deletes.iter().map(|(status, _)| *status).collect();
    assert_eq!(statuses, [404, 429, 202].map(Some));
    let pauses: Vec<u64> = deletes.iter().zip(deletes.iter().skip(1)).map(|(a, b)| b.1 - a.1).collect();
    assert!(pauses.last().is_some_and(|pause| *pause >= RETRY_AFTER_MS), "{pauses:?}");
}

/// A load balancer that is not visible may still have been created in part.
async fn an_invisible_load_balancer_is_deleted(bed: &mut Bed) {
    let asked = calls(bed, "DeleteLoadBalancer").await;
    let mark = bed.cluster.control_plane.audit_log().mark().unwrap();
    fault(bed, &json!({ "operation": "CreateLoadBalancer" }), &json!({ "next": 1 }), &nonsense()).await;
    service("never").port(80).create(&bed.client()).await.unwrap();
    bed.told("Service", "never", "SyncLoadBalancerFailed").await.unwrap();
    // Before the next attempt.
    bed.delete_service("never").await.unwrap();
    assert!(calls(bed, "DeleteLoadBalancer").await > asked);
    let mut writes = bed.writes_of(CONTROLLER, mark, "-").unwrap();
    writes.retain(|it| it.name == "never");
    assert_eq!(writes.len(), 2, "one write adds the finalizer, one removes it with the status: {writes:?}");
}

/// A removed finalizer and a cleared status are restored with one write each, without calls to the adapter.
async fn foreign_edits_are_reverted(bed: &mut Bed) {
    bed.quiet(CONTROLLER).await.unwrap();
    let first = bed.address("web").await.unwrap();
    let (asked, mark) = (all_calls(bed).await, bed.cluster.control_plane.audit_log().mark().unwrap());
    let stripped = Patch::Merge(json!({ "metadata": { "finalizers": null } }));
    bed.services().patch("web", &PatchParams::default(), &stripped).await.unwrap();
    bed.wait_service("web", "has its finalizer again", |it| {
        it.metadata.finalizers.as_deref() == Some(&[FINALIZER.to_owned()][..])
    })
    .await
    .unwrap();
    let cleared = Patch::Merge(json!({ "status": { "loadBalancer": null } }));
    bed.services().patch_status("web", &PatchParams::default(), &cleared).await.unwrap();
    assert_eq!(bed.address("web").await.unwrap(), first);
    bed.quiet(CONTROLLER).await.unwrap();
    let writes = bed.writes_of(CONTROLLER, mark, "-").unwrap();
    assert_eq!(writes.len(), 2, "{writes:?}");
    assert!((all_calls(bed).await - asked).abs() < 0.5, "the adapter was called");
}

/// A listener, backends or a whole load balancer that are removed in the cloud are created again.
async fn deletions_in_the_cloud_are_repaired(bed: &Bed) {
    for name in ["listener", "members", "whole"] {
        service(name).port(80).port(443).create(&bed.client()).await.unwrap();
    }
    for name in ["listener", "members", "whole"] {
        bed.address(name).await.unwrap();
    }
    // The latest writes are only in a listing that begins after them.
    bed.cluster.cloud.reset_counts().await.unwrap();
    e2e::eventually("the cloud is listed twice", e2e::WITHIN, || async {
        let listed = bed.cluster.cloud.counts().await?.of(Operation::ListLoadBalancers);
        ensure!(listed >= 2, "{listed} times");
        Ok(())
    })
    .await
    .unwrap();
    let before = bed.cluster.cloud.state().await.unwrap();
    let cloud = &bed.cluster.cloud;
    let listener = &before.balancer("listener").unwrap().listeners.first().unwrap().id;
    cloud.by_hand(Method::DELETE, &format!("/v1/listeners/{listener}"), None).await.unwrap();
    let pool = &before.balancer("members").unwrap().pools.first().unwrap().id;
    let none = json!({ "members": [] });
    cloud.by_hand(Method::PUT, &format!("/v1/pools/{pool}/members"), Some(&none)).await.unwrap();
    let whole = before.balancer("whole").unwrap().id.clone();
    cloud.delete_load_balancer(&whole).await.unwrap();

    bed.until_cloud("everything is restored", |state| {
        for name in ["listener", "members", "whole"] {
            let balancer = state.balancer(name)?;
            ensure!(balancer.listeners.len() == 2, "{name}: {:?}", balancer.listeners);
            let whole = balancer.pools.len() == 2 && balancer.pools.iter().all(|it| it.members.len() == 2);
            ensure!(whole, "{name}: {:?}", balancer.pools);
        }
        Ok(())
    })
    .await
    .unwrap();
    let after = bed.cluster.cloud.state().await.unwrap();
    let ids =
        |name: &str| (before.balancer(name).unwrap().id.clone(), after.balancer(name).unwrap().id.clone());
    for name in ["listener", "members"] {
        let (before, after) = ids(name);
        assert_eq!(before, after, "{name} was recreated");
    }
    assert_ne!(ids("whole").1, whole);
    let vip = after.balancer("whole").unwrap().vips.first().unwrap().to_string();
    bed.wait_service("whole", "has the new address", |it| address(it) == Some(vip.clone())).await.unwrap();
}

/// Ports and nodes change constantly: the cloud never gets two concurrent changes of one load balancer, which it would refuse.
async fn changes_of_one_service_are_serialised(bed: &Bed) {
    bed.cluster.cloud.configure(&json!({ "provisioning": { "update_ms": 400 } })).await.unwrap();
    bed.expose("busy", 80).await.unwrap();
    bed.cluster.cloud.reset_counts().await.unwrap();
    for round in 0..6 {
        let excluded = if round % 2 == 0 { json!("true") } else { Value::Null };
        let label = json!({ "node.kubernetes.io/exclude-from-external-load-balancers": excluded });
        bed.patch_node("b", &json!({ "metadata": { "labels": label } })).await.unwrap();
        let port = json!([{ "name": "tcp-80", "port": 8000 + round, "protocol": "TCP" }]);
        let ports = Patch::Merge(json!({ "spec": { "ports": port } }));
        bed.services().patch("busy", &PatchParams::default(), &ports).await.unwrap();
        bed.until_cloud("one of the changes is applied", |state| {
            let there = state.balancer("busy")?.listeners.first().context("no listener")?.port;
            ensure!(there > 80, "it listens on {there}");
            Ok(())
        })
        .await
        .unwrap();
    }
    bed.until_cloud("the last change is applied", |state| {
        let busy = state.balancer("busy")?;
        let ports: Vec<_> = busy.listeners.iter().map(|it| it.port).collect();
        ensure!(ports == [8005], "it listens on {ports:?}");
        ensure!(busy.pools.iter().all(|it| it.members.len() == 2), "{:?}", busy.pools);
        ensure!(!busy.status.is_pending(), "the status is {:?}", busy.status);
        Ok(())
    })
    .await
    .unwrap();
    let counts = bed.cluster.cloud.counts().await.unwrap();
    assert_eq!(counts.by_status.get("409"), None, "concurrent changes: {counts:?}");
    assert!(counts.writes > 6, "{counts:?}");
    bed.cluster.cloud.configure(&json!({ "provisioning": null })).await.unwrap();
}

/// One call passes `appProtocol` as the user wrote it; this cloud stores it in the listener. Without it, the listener is as before.
async fn the_app_protocol_is_passed_on(bed: &mut Bed) {
    for said in [Some("kubernetes.io/h2c"), None] {
        bed.quiet(CONTROLLER).await.unwrap();
        bed.cluster.cloud.reset_counts().await.unwrap();
        let asked = all_calls(bed).await;
        let ports = json!([{ "port": 80, "protocol": "TCP", "appProtocol": said }]);
        bed.patch_service("web", &json!({ "spec": { "ports": ports } })).await.unwrap();
        bed.until_cloud("the listener has the protocol", |state| {
            let web = state.balancer("web")?;
            let noted: Vec<_> = web.listeners.iter().map(|it| it.traffic.app_protocol.as_deref()).collect();
            ensure!(noted == [said] && !web.status.is_pending(), "{noted:?}");
            Ok(())
        })
        .await
        .unwrap();
        bed.quiet(CONTROLLER).await.unwrap();
        assert!(all_calls(bed).await - asked >= 1.0, "the adapter was not called");
        let counts = bed.cluster.cloud.counts().await.unwrap();
        let writes = (counts.of(Operation::UpdateListener), counts.of(Operation::UpdateLoadBalancer));
        assert_eq!((writes, counts.writes), ((1, 1), 2), "the listener, and the tag with the hash");
    }
}

/// Fields that the load balancer does not depend on cause no calls and no writes.
async fn unrelated_fields_cost_nothing(bed: &mut Bed) {
    service("plain").port(80).spec("type", json!("ClusterIP")).create(&bed.client()).await.unwrap();
    // A finalizer with this controller's name, added by another client.
    let theirs = json!({ "metadata": { "finalizers": [FINALIZER] } });
    bed.patch_service("plain", &theirs).await.unwrap();
    // The client that created the Service also added the finalizer: the controller removes it, and its last write comes a moment later.
    bed.told("Service", "plain", "DeletedLoadBalancer").await.unwrap();
    bed.quiet(CONTROLLER).await.unwrap();
    let mark = bed.cluster.control_plane.audit_log().mark().unwrap();
    bed.cluster.cloud.reset_counts().await.unwrap();
    let asked = all_calls(bed).await;
    let external = json!({ "type": "ExternalName", "externalName": "shop.example.com" });
    for (name, patch) in [
        ("web", json!({ "metadata": { "annotations": { "example.com/a": "b" } } })),
        ("web", json!({ "metadata": { "labels": { "example.com/a": "b" } } })),
        ("web", json!({ "spec": { "selector": { "app": "another" } } })),
        ("web", json!({ "spec": { "internalTrafficPolicy": "Local", "publishNotReadyAddresses": true } })),
        ("web", json!({ "metadata": { "annotations": { "lb.cloudadapter.dev/internal": "false" } } })),
        ("plain", json!({ "spec": { "type": "NodePort" } })),
        ("plain", json!({ "spec": external })),
    ] {
        bed.services().patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    }
    // When this Event exists, all earlier changes have been reconciled.
    let canary = service("canary").port(80).spec("loadBalancerIP", json!("none"));
    canary.create(&bed.client()).await.unwrap();
    bed.told("Service", "canary", "SyncLoadBalancerFailed").await.unwrap();
    bed.quiet(CONTROLLER).await.unwrap();
    assert!((all_calls(bed).await - asked).abs() < 0.5, "the adapter was called");
    assert_eq!(bed.writes_of(CONTROLLER, mark, "canary").unwrap(), []);
    assert_eq!(bed.cluster.cloud.counts().await.unwrap().writes, 0);
    bed.delete_service("canary").await.unwrap();
}

/// Changes while the controller is down are applied when it starts again.
async fn changes_while_the_controller_is_down(bed: &mut Bed) {
    let names = ["deleted", "type", "port", "cleared"];
    for name in names {
        service(name).port(80).create(&bed.client()).await.unwrap();
    }
    for name in names {
        bed.address(name).await.unwrap();
    }
    let was = bed.address("cleared").await.unwrap();
    bed.quiet(CONTROLLER).await.unwrap();
    bed.cluster.pods.get(CONTROLLER).unwrap().terminate().await.unwrap();
    bed.services().delete("deleted", &DeleteParams::default()).await.unwrap();
    bed.patch_service("type", &json!({ "spec": { "type": "ClusterIP" } })).await.unwrap();
    let port =
        Patch::Merge(json!({ "spec": { "ports": [{ "name": "tcp-80", "port": 8080, "protocol": "TCP" }] } }));
    bed.services().patch("port", &PatchParams::default(), &port).await.unwrap();
    let cleared = Patch::Merge(json!({ "status": { "loadBalancer": null } }));
    bed.services().patch_status("cleared", &PatchParams::default(), &cleared).await.unwrap();
    bed.cluster.pods.get(CONTROLLER).unwrap().start().unwrap();

    is_gone(bed, "deleted").await;
    bed.wait_service("type", "is released", |it| it.metadata.finalizers.is_none() && address(it).is_none())
        .await
        .unwrap();
    bed.until_cloud("it serves the new port", |state| {
        let port = state.balancer("port")?.listeners.first().context("no listener")?.port;
        ensure!(port == 8080, "it listens on {port}");
        Ok(())
    })
    .await
    .unwrap();
    assert_eq!(bed.address("cleared").await.unwrap(), was);
    let left = bed.cluster.cloud.state().await.unwrap();
    for name in ["deleted", "type"] {
        assert!(left.balancer(name).is_err(), "{name} still has its load balancer");
    }
}

/// A missing permission is reported once, however often the write is retried, and the retry succeeds when it is granted again.
async fn what_the_api_server_refuses(bed: &mut Bed) {
    let rights: Api<ClusterRole> = Api::all(bed.client());
    let role = rights.get(RIGHTS).await.unwrap();
    let may = json!({ "rules": role.rules });
    let (mut rules, all) = (role.rules.clone().unwrap(), role.rules.unwrap().len());
    rules.retain(|rule| rule.resources.as_deref() != Some(&["services/status".to_owned()]));
    assert_eq!(rules.len(), all - 1);
    let may_not = json!({ "rules": rules });
    rights.patch(RIGHTS, &PatchParams::default(), &Patch::Merge(&may_not)).await.unwrap();
    service("forbidden").port(80).create(&bed.client()).await.unwrap();
    let told = bed.told("Service", "forbidden", "SyncLoadBalancerFailed").await.unwrap();
    assert!(told.contains("cannot add the finalizer: "), "{told}");
    let user = bed.cluster.pods.get(CONTROLLER).unwrap().user().to_owned();
    let log = bed.cluster.control_plane.audit_log();
    let refused = e2e::eventually("the write is retried", e2e::WITHIN, || async {
        let writes = log.writes(&user)?;
        let tries = writes.iter().filter(|it| it.name == "forbidden" && it.code == 403).count();
        ensure!(tries >= 2, "{tries} times");
        Ok(())
    });
    refused.await.unwrap();
    assert_eq!(bed.times("Service", "forbidden", "SyncLoadBalancerFailed").await.unwrap(), 1);
    assert!(bed.cluster.cloud.state().await.unwrap().balancer("forbidden").is_err());

    rights.patch(RIGHTS, &PatchParams::default(), &Patch::Merge(&may)).await.unwrap();
    bed.address("forbidden").await.unwrap();
}

/// Waits until a Service is deleted completely.
async fn is_gone(bed: &Bed, name: &str) {
    let services = bed.services();
    e2e::eventually(&format!("{name} is deleted"), e2e::WITHIN, || async {
        let left = services.get_opt(name).await?;
        ensure!(left.is_none(), "finalizers {:?}", left.and_then(|it| it.metadata.finalizers));
        Ok(())
    })
    .await
    .unwrap();
}

/// As from a proxy in front of the cloud. The adapter does not retry it by itself.
fn nonsense() -> Value {
    json!({ "status": 404 })
}

/// Adds a fault rule with this response.
async fn fault(bed: &Bed, matches: &Value, when: &Value, respond: &Value) {
    let rule = json!({ "match": matches, "when": when, "action": { "respond": respond } });
    let rule: FaultRule = from_value(rule).unwrap();
    bed.cluster.cloud.add_fault(&rule).await.unwrap();
}

/// How often the controller has made this call to the adapter.
async fn calls(bed: &mut Bed, call: &str) -> f64 {
    let pod = bed.cluster.pods.get(CONTROLLER).unwrap();
    let calls = pod.counted("cloud_controller_adapter_calls_total", "call").await.unwrap();
    calls.get(call).copied().unwrap_or_default()
}

/// Number of the controller's calls; its watches are not counted.
async fn all_calls(bed: &mut Bed) -> f64 {
    let mut all = 0.0;
    for call in ["EnsureLoadBalancer", "DeleteLoadBalancer", "PutBackendSet"] {
        all += calls(bed, call).await;
    }
    all
}

fn ingress(service: &Service) -> Vec<LoadBalancerIngress> {
    let status = service.status.as_ref().and_then(|status| status.load_balancer.as_ref());
    status.and_then(|status| status.ingress.clone()).unwrap_or_default()
}
