//! What goes wrong on the way to a load balancer and back, what others undo, and what nothing costs.

#![expect(clippy::unwrap_used, reason = "clippy knows tests, and not their helpers")]

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
const RIGHTS: &str = "cloud-controllers:service-controller";
const FINALIZER: &str = "service.kubernetes.io/load-balancer-cleanup";
/// Longer than the first pause that a controller makes by itself.
const RETRY_AFTER_MS: u64 = 6000;

#[tokio::test]
async fn services_are_kept_as_they_are_wished() {
    let values = json!({
        "adapter": {
            "limits": { "buckets": { "loadbalancer": { "rate": 500, "burst": 500 } } },
            // What others do at the cloud is seen soon.
            "cache": { "loadBalancers": { "maxAge": "2s" } },
        },
    });
    let mut bed = Bed::install_with(&values).await.unwrap();
    bed.cluster.pods.start().unwrap();
    bed.ready().await.unwrap();
    for name in ["a", "b"] {
        bed.join(name, None).await.unwrap();
    }
    bed.targets(2).await.unwrap();

    a_new_one_costs_two_writes(&mut bed).await;
    service("kept").port(80).create(&bed.client()).await.unwrap();
    bed.address("kept").await.unwrap();
    tokio::join!(one_that_cannot_be_made_yet(&bed), one_that_cannot_be_removed_yet(&bed));
    nothing_is_seen_and_it_is_removed_all_the_same(&mut bed).await;
    others_undo_what_is_ours(&mut bed).await;
    others_work_at_the_cloud(&bed).await;
    many_wishes_at_once_meet_one_worker(&bed).await;
    what_is_spoken_on_a_port_arrives(&mut bed).await;
    what_is_not_ours_to_read_costs_nothing(&mut bed).await;
    what_happens_while_nobody_watches(&mut bed).await;
    what_the_api_server_refuses(&mut bed).await;
}

/// It takes a while, is asked for again and again, and told once.
async fn a_new_one_costs_two_writes(bed: &mut Bed) {
    bed.cluster.cloud.configure(&json!({ "provisioning": { "create_ms": 1500 } })).await.unwrap();
    bed.cluster.cloud.reset_counts().await.unwrap();
    let mark = bed.cluster.control_plane.audit_log().mark().unwrap();
    let asked = calls(bed, "EnsureLoadBalancer").await;
    service("web").port(80).create(&bed.client()).await.unwrap();
    bed.address("web").await.unwrap();
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
    assert!(calls(bed, "EnsureLoadBalancer").await - asked > 1.5, "it was not asked for again");
    let counts = bed.cluster.cloud.counts().await.unwrap();
    assert_eq!((counts.of(Operation::CreateLoadBalancer), counts.of(Operation::CreateListener)), (1, 1));
    // The API server fills in how packets arrive, which the cloud does not say.
    let modes: Vec<_> =
        ingress(&bed.services().get("web").await.unwrap()).into_iter().map(|it| it.ip_mode).collect();
    assert_eq!(modes, [Some("VIP".to_owned())]);
    bed.cluster.cloud.configure(&json!({ "provisioning": null })).await.unwrap();
}

/// The finalizer comes first, what is wrong is told once, and the work goes on when it can.
async fn one_that_cannot_be_made_yet(bed: &Bed) {
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

/// The Service hangs rather than leaks, and the cloud is left alone for as long as it asks for.
async fn one_that_cannot_be_removed_yet(bed: &Bed) {
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
    assert!(address(&kept).is_some(), "the status is true for as long as it serves");

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

/// Parts of a half-built load balancer may be left where nothing is seen.
async fn nothing_is_seen_and_it_is_removed_all_the_same(bed: &mut Bed) {
    let asked = calls(bed, "DeleteLoadBalancer").await;
    let mark = bed.cluster.control_plane.audit_log().mark().unwrap();
    fault(bed, &json!({ "operation": "CreateLoadBalancer" }), &json!({ "next": 1 }), &nonsense()).await;
    service("never").port(80).create(&bed.client()).await.unwrap();
    bed.told("Service", "never", "SyncLoadBalancerFailed").await.unwrap();
    // Before it is tried again.
    bed.delete_service("never").await.unwrap();
    assert!(calls(bed, "DeleteLoadBalancer").await > asked);
    let mut writes = bed.writes_of(CONTROLLER, mark, "-").unwrap();
    writes.retain(|it| it.name == "never");
    assert_eq!(writes.len(), 2, "finalizer, and its end with the status in one patch: {writes:?}");
}

/// A finalizer that somebody strips, and a status that somebody clears: one write each, and no call.
async fn others_undo_what_is_ours(bed: &mut Bed) {
    bed.quiet(CONTROLLER).await.unwrap();
    let first = bed.address("web").await.unwrap();
    let (asked, mark) = (all_calls(bed).await, bed.cluster.control_plane.audit_log().mark().unwrap());
    let stripped = Patch::Merge(json!({ "metadata": { "finalizers": null } }));
    bed.services().patch("web", &PatchParams::default(), &stripped).await.unwrap();
    bed.until_service("web", "has its finalizer again", |it| {
        ensure!(it.metadata.finalizers.as_deref() == Some(&[FINALIZER.to_owned()][..]), "it has none");
        Ok(())
    })
    .await
    .unwrap();
    let cleared = Patch::Merge(json!({ "status": { "loadBalancer": null } }));
    bed.services().patch_status("web", &PatchParams::default(), &cleared).await.unwrap();
    assert_eq!(bed.address("web").await.unwrap(), first);
    bed.quiet(CONTROLLER).await.unwrap();
    let writes = bed.writes_of(CONTROLLER, mark, "-").unwrap();
    assert_eq!(writes.len(), 2, "{writes:?}");
    assert!((all_calls(bed).await - asked).abs() < 0.5, "the adapter was asked");
}

/// Who removes a listener, the members or all of it finds it back.
async fn others_work_at_the_cloud(bed: &Bed) {
    for name in ["listener", "members", "whole"] {
        service(name).port(80).port(443).create(&bed.client()).await.unwrap();
    }
    for name in ["listener", "members", "whole"] {
        bed.address(name).await.unwrap();
    }
    // What was just written is shown by a listing that began afterwards.
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

    bed.until_cloud("all is as it was", |state| {
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
        assert_eq!(before, after, "{name} was made anew");
    }
    assert_ne!(ids("whole").1, whole);
    let vip = after.balancer("whole").unwrap().vips.first().unwrap().to_string();
    bed.until_service("whole", "has the new address", |it| {
        ensure!(address(it) == Some(vip.clone()), "{:?}", it.status);
        Ok(())
    })
    .await
    .unwrap();
}

/// Ports and nodes change all the time: the cloud never hears of two changes of one load balancer at once, which it would refuse.
async fn many_wishes_at_once_meet_one_worker(bed: &Bed) {
    bed.cluster.cloud.configure(&json!({ "provisioning": { "update_ms": 400 } })).await.unwrap();
    service("busy").port(80).create(&bed.client()).await.unwrap();
    bed.address("busy").await.unwrap();
    bed.cluster.cloud.reset_counts().await.unwrap();
    for round in 0..6 {
        let excluded = if round % 2 == 0 { json!("true") } else { Value::Null };
        let label = json!({ "node.kubernetes.io/exclude-from-external-load-balancers": excluded });
        bed.patch_node("b", &json!({ "metadata": { "labels": label } })).await.unwrap();
        let port = json!([{ "name": "tcp-80", "port": 8000 + round, "protocol": "TCP" }]);
        let ports = Patch::Merge(json!({ "spec": { "ports": port } }));
        bed.services().patch("busy", &PatchParams::default(), &ports).await.unwrap();
        bed.until_cloud("some of it arrived", |state| {
            let there = state.balancer("busy")?.listeners.first().context("no listener")?.port;
            ensure!(there > 80, "it listens on {there}");
            Ok(())
        })
        .await
        .unwrap();
    }
    bed.until_cloud("the last wish is fulfilled", |state| {
        let busy = state.balancer("busy")?;
        let ports: Vec<_> = busy.listeners.iter().map(|it| it.port).collect();
        ensure!(ports == [8005], "it listens on {ports:?}");
        ensure!(busy.pools.iter().all(|it| it.members.len() == 2), "{:?}", busy.pools);
        ensure!(!busy.status.is_pending(), "it is {:?}", busy.status);
        Ok(())
    })
    .await
    .unwrap();
    let counts = bed.cluster.cloud.counts().await.unwrap();
    assert_eq!(counts.by_status.get("409"), None, "two were at work: {counts:?}");
    assert!(counts.writes > 6, "{counts:?}");
    bed.cluster.cloud.configure(&json!({ "provisioning": null })).await.unwrap();
}

/// As the user wrote it, with one call; this cloud notes it at the listener. Without it all is as before.
async fn what_is_spoken_on_a_port_arrives(bed: &mut Bed) {
    for said in [Some("kubernetes.io/h2c"), None] {
        bed.quiet(CONTROLLER).await.unwrap();
        bed.cluster.cloud.reset_counts().await.unwrap();
        let asked = all_calls(bed).await;
        let ports = json!([{ "port": 80, "protocol": "TCP", "appProtocol": said }]);
        bed.patch_service("web", &json!({ "spec": { "ports": ports } })).await.unwrap();
        bed.until_cloud("it stands at the listener", |state| {
            let web = state.balancer("web")?;
            let noted: Vec<_> = web.listeners.iter().map(|it| it.traffic.app_protocol.as_deref()).collect();
            ensure!(noted == [said] && !web.status.is_pending(), "{noted:?}");
            Ok(())
        })
        .await
        .unwrap();
        bed.quiet(CONTROLLER).await.unwrap();
        assert!(all_calls(bed).await - asked >= 1.0, "it was not asked for");
        let counts = bed.cluster.cloud.counts().await.unwrap();
        let writes = (counts.of(Operation::UpdateListener), counts.of(Operation::UpdateLoadBalancer));
        assert_eq!((writes, counts.writes), ((1, 1), 2), "the listener, and the tag that says what was done");
    }
}

/// Nobody is asked and nothing is written for what a load balancer does not depend on.
async fn what_is_not_ours_to_read_costs_nothing(bed: &mut Bed) {
    service("plain").port(80).spec("type", json!("ClusterIP")).create(&bed.client()).await.unwrap();
    // Of our name, and put there by somebody else.
    let theirs = json!({ "metadata": { "finalizers": [FINALIZER] } });
    bed.patch_service("plain", &theirs).await.unwrap();
    // Whoever wrote the Service wrote it along: it goes, and the last word of that is written a moment later.
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
    // Who has told this has seen what came before it.
    let canary = service("canary").port(80).spec("loadBalancerIP", json!("none"));
    canary.create(&bed.client()).await.unwrap();
    bed.told("Service", "canary", "SyncLoadBalancerFailed").await.unwrap();
    bed.quiet(CONTROLLER).await.unwrap();
    assert!((all_calls(bed).await - asked).abs() < 0.5, "the adapter was asked");
    assert_eq!(bed.writes_of(CONTROLLER, mark, "canary").unwrap(), []);
    assert_eq!(bed.cluster.cloud.counts().await.unwrap().writes, 0);
    bed.delete_service("canary").await.unwrap();
}

/// All of it is done when it is back.
async fn what_happens_while_nobody_watches(bed: &mut Bed) {
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
    bed.until_service("type", "is released", |it| {
        ensure!(it.metadata.finalizers.is_none() && address(it).is_none(), "{it:?}");
        Ok(())
    })
    .await
    .unwrap();
    bed.until_cloud("it serves the other port", |state| {
        let port = state.balancer("port")?.listeners.first().context("no listener")?.port;
        ensure!(port == 8080, "it listens on {port}");
        Ok(())
    })
    .await
    .unwrap();
    assert_eq!(bed.address("cleared").await.unwrap(), was);
    let left = bed.cluster.cloud.state().await.unwrap();
    for name in ["deleted", "type"] {
        assert!(left.balancer(name).is_err(), "{name} has its load balancer");
    }
}

/// A right that somebody took away is told once, however often it is tried, and not missed any more when it is back.
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
    assert!(told.contains("API server refused to add the finalizer: "), "{told}");
    let user = bed.cluster.pods.get(CONTROLLER).unwrap().user().to_owned();
    let log = bed.cluster.control_plane.audit_log();
    let refused = e2e::eventually("it is tried again", e2e::WITHIN, || async {
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

/// Waits until a Service that is being deleted is no more.
async fn is_gone(bed: &Bed, name: &str) {
    let services = bed.services();
    e2e::eventually(&format!("{name} is gone"), e2e::WITHIN, || async {
        let left = services.get_opt(name).await?;
        ensure!(left.is_none(), "finalizers {:?}", left.and_then(|it| it.metadata.finalizers));
        Ok(())
    })
    .await
    .unwrap();
}

/// As of a proxy that answers for the cloud and is none. An adapter does not try that again by itself.
fn nonsense() -> Value {
    json!({ "status": 404 })
}

/// Orders answers of this status.
async fn fault(bed: &Bed, matches: &Value, when: &Value, respond: &Value) {
    let rule = json!({ "match": matches, "when": when, "action": { "respond": respond } });
    let rule: FaultRule = from_value(rule).unwrap();
    bed.cluster.cloud.add_fault(&rule).await.unwrap();
}

/// How often the controller made this call to the adapter.
async fn calls(bed: &mut Bed, call: &str) -> f64 {
    let pod = bed.cluster.pods.get(CONTROLLER).unwrap();
    let calls = pod.counted("cloud_controller_adapter_calls_total", "call").await.unwrap();
    calls.get(call).copied().unwrap_or_default()
}

/// What it asked for: what it is told by watches is no question.
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
