//! Which Services this controller manages, and what happens to load balancers without a Service.

use std::{collections::BTreeMap, time::Duration};

use adapter_sim::simcloud::{Access, Operation};
use anyhow::ensure;
use e2e::{Bed, WITHIN, address, eventually, service};
use k8s_openapi::{
    api::core::v1::{ConfigMap, Service},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{from_value, json};
use telemetry::report::{ControllerStatus, Orphan};

const FINALIZER: &str = "service.kubernetes.io/load-balancer-cleanup";
const RELEASES: &str = "cloud-controllers-orphans";
/// The cache may show a deleted Service for up to a minute. Only then its load balancer is reported as an orphan.
const ORPHANED_WITHIN: Duration = Duration::from_mins(2);

// Behaviour: S2, S3, S4, S17, S22, S26, W15, W16
#[tokio::test]
async fn only_proven_orphans_are_deleted() {
    let values = json!({ "serviceController": {
        "loadBalancerClass": "example.com/ours", "orphans": "delete", "orphanMinimumAge": "5s",
    } });
    let mut bed = Bed::start_with(&values).await.unwrap();
    bed.join("a", None).await.unwrap();
    for name in ["orphan", "stripped", "type"] {
        bed.expose(name, 80).await.unwrap();
    }
    bed.quiet("service-controller").await.unwrap();

    // While the controller is down, one Service is deleted without its finalizer, and one changes its type.
    bed.cluster.pods.get("service-controller").unwrap().terminate().await.unwrap();
    strip(&bed, "orphan").await;
    bed.services().delete("orphan", &DeleteParams::default()).await.unwrap();
    let orphan = bed.cluster.cloud.state().await.unwrap().balancer("orphan").unwrap().id.clone();
    let asked = writes_to(&bed, &orphan).await.len();
    strip(&bed, "type").await;
    bed.patch_service("type", &json!({ "spec": { "type": "ClusterIP" } })).await.unwrap();
    bed.cluster.pods.get("service-controller").unwrap().start().unwrap();
    bed.ready().await.unwrap();
    let restarted = tokio::time::Instant::now();

    classes(&bed).await;

    // While it runs, one is deleted in the same way: this process knows that it has created the load balancer.
    bed.quiet("service-controller").await.unwrap();
    cannot_be_removed_at_first(&bed, "stripped").await;
    let stripped = json!({ "metadata": { "finalizers": null }, "spec": { "type": "ClusterIP" } });
    bed.services().patch("stripped", &PatchParams::default(), &Patch::Merge(stripped)).await.unwrap();
    bed.services().delete("stripped", &DeleteParams::default()).await.unwrap();
    gone(&bed, "stripped", WITHIN).await;
    let told = bed.told("Service", "stripped", "DeleteLoadBalancerFailed").await.unwrap();
    assert!(told.starts_with("Error deleting load balancer: "), "{told}");

    gone(&bed, "type", ORPHANED_WITHIN).await;
    bed.told("Service", "type", "DeletedLoadBalancer").await.unwrap();
    gone(&bed, "orphan", ORPHANED_WITHIN).await;
    assert!(restarted.elapsed() > Duration::from_mins(1), "an orphan is only deleted after a minute");
    bed.told("Service", "orphan", "OrphanedLoadBalancer").await.unwrap();
    bed.told("Service", "orphan", "DeletedLoadBalancer").await.unwrap();
    bed.quiet("service-controller").await.unwrap();
    let asked = writes_to(&bed, &orphan).await.split_off(asked);
    assert_eq!(asked, [Operation::DeleteLoadBalancer], "reporting an orphan needs no vendor write");
}

/// Services without a class belong to another controller here. Orphans are reported and stay, until a user releases them.
// Behaviour: S2, S17, S22, S23, W15, W16
#[tokio::test]
async fn other_classes_are_ignored_and_orphans_are_reported() {
    let values = json!({ "serviceController": {
        "loadBalancerClass": "example.com/ours", "defaultLoadBalancer": false,
    } });
    let mut bed = Bed::start_with(&values).await.unwrap();
    bed.join("a", None).await.unwrap();
    let client = bed.client();
    let mark = bed.cluster.control_plane.audit_log().mark().unwrap();
    let unclassed = ["unclassed", "unclassed-type", "unclassed-deleted"];
    for name in unclassed {
        service(name).port(80).create(&client).await.unwrap();
        let theirs = json!({ "metadata": { "finalizers": [FINALIZER] } });
        bed.patch_service(name, &theirs).await.unwrap();
    }
    bed.patch_service("unclassed-type", &json!({ "spec": { "type": "ClusterIP" } })).await.unwrap();
    bed.services().delete("unclassed-deleted", &DeleteParams::default()).await.unwrap();
    let ours = ["orphan", "one", "two", "three", "stays"];
    for name in ours {
        let classed = service(name).port(80).spec("loadBalancerClass", json!("example.com/ours"));
        classed.create(&client).await.unwrap();
    }
    for name in ours {
        bed.address(name).await.unwrap();
    }
    bed.quiet("service-controller").await.unwrap();
    let writes = bed.writes_of("service-controller", mark, "-").unwrap();
    assert!(writes.iter().all(|write| !write.name.starts_with("unclassed")), "{writes:?}");
    for name in unclassed {
        assert_eq!(
            bed.services().get(name).await.unwrap().metadata.finalizers.unwrap_or_default(),
            [FINALIZER]
        );
    }

    bed.cluster.pods.get("service-controller").unwrap().terminate().await.unwrap();
    strip(&bed, "orphan").await;
    bed.services().delete("orphan", &DeleteParams::default()).await.unwrap();
    bed.cluster.pods.get("service-controller").unwrap().start().unwrap();
    bed.ready().await.unwrap();
    bed.quiet("service-controller").await.unwrap();
    bed.cluster.cloud.reset_counts().await.unwrap();
    many_vanish(&mut bed, &["one", "two", "three"]).await;

    eventually("the orphan is reported", ORPHANED_WITHIN, || async {
        let times = bed.times("Service", "orphan", "OrphanedLoadBalancer").await?;
        ensure!(times == 1, "{times} times");
        Ok(())
    })
    .await
    .unwrap();
    let told = bed.told("Service", "orphan", "OrphanedLoadBalancer").await.unwrap();
    assert!(told.contains("--orphans=delete"), "{told}");
    let orphans = bed.cluster.pods.get("service-controller").unwrap();
    let orphans = orphans.counted("cloud_controller_load_balancer_orphans", "controller").await.unwrap();
    assert_eq!(orphans.values().sum::<f64>().to_string(), "4", "{orphans:?}");
    let counts = bed.cluster.cloud.counts().await.unwrap();
    assert_eq!((counts.writes, counts.of(Operation::GetLoadBalancer)), (0, 0), "{counts:?}");
    let left = bed.cluster.cloud.state().await.unwrap();
    assert!(ours.iter().all(|name| left.balancer(name).is_ok()), "{:?}", left.load_balancers);
    a_person_releases_two(&mut bed, &told).await;
}

/// Releases an orphan that was reported with this text, and one that the brake holds.
async fn a_person_releases_two(bed: &mut Bed, told: &str) {
    let shown = orphans(bed).await;
    let all = ["default/one", "default/orphan", "default/three", "default/two"];
    assert_eq!(shown.keys().collect::<Vec<_>>(), all);
    assert!(shown.values().all(|it| !it.released && it.waits_for.is_some()), "{shown:#?}");
    assert_eq!(waits_for(&shown, "default/orphan").as_deref(), Some(told));
    let uid = |name: &str| shown.get(&of_default(name)).unwrap().uid.clone();
    let release = |entries: [(&str, &str); 3]| {
        let entries = entries.map(|(name, as_)| (uid(name), of_default(as_)));
        ConfigMap {
            metadata: ObjectMeta { name: Some(RELEASES.to_owned()), ..ObjectMeta::default() },
            data: Some(entries.into()),
            ..ConfigMap::default()
        }
    };
    let maps: Api<ConfigMap> = Api::namespaced(bed.client(), &bed.cluster.release.namespace);
    let map = release([("orphan", "orphan"), ("two", "two"), ("three", "one")]);
    maps.create(&PostParams::default(), &map).await.unwrap();
    gone(bed, "orphan", WITHIN).await;
    gone(bed, "two", WITHIN).await;
    for name in ["orphan", "two"] {
        let told = bed.told("Service", name, "OrphanReleased").await.unwrap();
        assert!(told.ends_with("ConfigMap cloud-controllers-orphans permits its deletion"), "{told}");
        bed.told("Service", name, "DeletedLoadBalancer").await.unwrap();
    }
    let refused = bed.told("Service", "three", "ReleaseRefused").await.unwrap();
    bed.quiet("service-controller").await.unwrap();
    let shown = orphans(bed).await;
    assert_eq!(shown.keys().collect::<Vec<_>>(), ["default/one", "default/three"]);
    assert_eq!(waits_for(&shown, "default/three"), Some(refused));
    let left = bed.cluster.cloud.state().await.unwrap();
    assert!(["one", "three", "stays"].iter().all(|name| left.balancer(name).is_ok()), "{left:?}");
}

fn of_default(name: &str) -> String {
    format!("default/{name}")
}

fn waits_for(shown: &BTreeMap<String, Orphan>, key: &str) -> Option<String> {
    shown.get(key).unwrap().waits_for.clone()
}

/// Orphans on the service-controller's status page, by the keys of their former Services.
async fn orphans(bed: &mut Bed) -> BTreeMap<String, Orphan> {
    let page = bed.cluster.pods.get("service-controller").unwrap().page("/status").await.unwrap();
    let status: ControllerStatus = serde_json::from_str(&page).unwrap();
    status.orphans.into_iter().map(|it| (it.key.clone(), it)).collect()
}

/// Many missing Services look like a restored backup: none of the load balancers is deleted, and each gets an Event.
async fn many_vanish(bed: &mut Bed, names: &[&str]) {
    // Suspended, so that the controller sees no intermediate states.
    let controller = bed.cluster.pods.get("service-controller").unwrap().id().unwrap();
    let controller = Pid::from_raw(controller.try_into().unwrap()).unwrap();
    kill_process(controller, Signal::STOP).unwrap();
    for name in names {
        strip(bed, name).await;
        bed.services().delete(name, &DeleteParams::default()).await.unwrap();
    }
    kill_process(controller, Signal::CONT).unwrap();
    for name in names {
        let told = bed.told("Service", name, "OrphanHeld").await.unwrap();
        assert!(told.contains("3 of 5 load balancers have no Service. The limit is"), "{told}");
    }
}

/// The deletion of the load balancer fails once.
async fn cannot_be_removed_at_first(bed: &Bed, service: &str) {
    let state = bed.cluster.cloud.state().await.unwrap();
    let of_it = json!({ "operation": "DeleteLoadBalancer", "object": state.balancer(service).unwrap().id });
    let fault = json!({ "match": of_it, "when": { "next": 1 }, "action": { "respond": { "status": 404 } } });
    bed.cluster.cloud.add_fault(&from_value(fault).unwrap()).await.unwrap();
}

/// Services of this controller's class are served; others are left alone, even if their class is removed.
async fn classes(bed: &Bed) {
    let client = bed.client();
    let classed = |name: &str, class: &str| service(name).port(80).spec("loadBalancerClass", json!(class));
    classed("theirs", "example.com/theirs").create(&client).await.unwrap();
    let add = json!({ "metadata": { "finalizers": [FINALIZER] } });
    bed.patch_service("theirs", &add).await.unwrap();
    classed("ours", "example.com/ours").create(&client).await.unwrap();
    bed.address("ours").await.unwrap();

    let cluster_ip = json!({ "spec": { "type": "ClusterIP", "loadBalancerClass": null } });
    for name in ["theirs", "ours"] {
        bed.services().patch(name, &PatchParams::default(), &Patch::Merge(&cluster_ip)).await.unwrap();
    }
    bed.wait_service("ours", "is released", |service| {
        service.metadata.finalizers.is_none() && address(service).is_none()
    })
    .await
    .unwrap();
    gone(bed, "ours", WITHIN).await;
    let theirs: Service = bed.services().get("theirs").await.unwrap();
    assert_eq!(theirs.metadata.finalizers.unwrap_or_default(), [FINALIZER]);
    assert!(bed.events("Service", "theirs").await.unwrap().is_empty());

    // No controller added this finalizer: according to the API server, the client that created the Service did.
    service("manifest").port(80).spec("type", json!("ClusterIP")).create(&client).await.unwrap();
    bed.patch_service("manifest", &add).await.unwrap();
    bed.services().delete("manifest", &DeleteParams::default()).await.unwrap();
    bed.told("Service", "manifest", "DeletedLoadBalancer").await.unwrap();
    assert!(bed.services().get_opt("manifest").await.unwrap().is_none());
}

/// Vendor writes to one load balancer, oldest first.
async fn writes_to(bed: &Bed, id: &str) -> Vec<Operation> {
    let log = bed.cluster.cloud.requests().await.unwrap();
    let writes = log.iter().filter(|it| it.access == Access::Write && it.object.as_deref() == Some(id));
    writes.map(|it| it.operation).collect()
}

/// Removes all finalizers.
async fn strip(bed: &Bed, name: &str) {
    let none = json!({ "metadata": { "finalizers": null } });
    bed.services().patch(name, &PatchParams::default(), &Patch::Merge(none)).await.unwrap();
}

/// Waits until a Service has no load balancer any more.
async fn gone(bed: &Bed, service: &str, within: Duration) {
    eventually(&format!("the load balancer of {service} is deleted"), within, || async {
        let state = bed.cluster.cloud.state().await?;
        let owner = |tags: &BTreeMap<String, String>| tags.get("cloudadapter.dev/owner-name").cloned();
        let owners: Vec<_> = state.load_balancers.iter().filter_map(|it| owner(&it.tags)).collect();
        ensure!(!owners.iter().any(|owner| owner == service), "{owners:?}");
        Ok(())
    })
    .await
    .unwrap();
}
