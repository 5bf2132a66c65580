//! Tests of the effect that each field of a Service has on the load balancer and on the status. Fields of other writers stay unchanged.

use std::collections::BTreeSet;

use adapter_sim::simcloud::model::LoadBalancer;
use anyhow::ensure;
use e2e::{Bed, ServiceBuilder, address, service};
use k8s_openapi::api::core::v1::{LoadBalancerIngress, Service};
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};

const FINALIZER: &str = "service.kubernetes.io/load-balancer-cleanup";
const AUTOSCALER: &str = "ToBeDeletedByClusterAutoscaler";
const RANGES: &str = "service.beta.kubernetes.io/load-balancer-source-ranges";
const OPENSTACK_INTERNAL: &str = "service.beta.kubernetes.io/openstack-internal-load-balancer";

// Behaviour: S15, S27, S28, SF1, SF2, SF3, SF6, SF7, SF8, SF12, SN3, W18
#[tokio::test]
async fn each_service_field_takes_effect_and_foreign_fields_stay() {
    let values = json!({
        "serviceController": { "compat": "openstack" },
        "adapter": { "limits": { "buckets": { "loadbalancer": { "rate": 500, "burst": 500 } } } },
    });
    let mut bed = Bed::start_with(&values).await.unwrap();
    for name in ["a", "b"] {
        bed.join(name, None).await.unwrap();
    }
    bed.targets(2).await.unwrap();
    let client = bed.client();
    each_field_by_itself(&bed).await;
    service("both")
        .port(80)
        .spec("ipFamilyPolicy", json!("RequireDualStack"))
        .spec("ipFamilies", json!(["IPv6", "IPv4"]))
        .create(&client)
        .await
        .unwrap();
    service("local")
        .port(443)
        .spec("externalTrafficPolicy", json!("Local"))
        .spec("loadBalancerSourceRanges", json!(["192.0.2.0/24", "10.0.0.0/8"]))
        .annotation("lb.cloudadapter.dev/ip-mode", "Proxy")
        .create(&client)
        .await
        .unwrap();

    two_families(&bed).await;
    local_traffic(&bed).await;
    another_family_is_refused_and_nodes_are_followed(&bed).await;
    // After a restart, the process does not know the last valid settings of the load balancer.
    bed.cluster.pods.get("service-controller").unwrap().restart().await.unwrap();
    bed.ready().await.unwrap();
    a_draining_node_gets_no_traffic(&bed).await;
    only_known_fields_are_written(&bed).await;
    a_foreign_finalizer_stays(&bed).await;
    bed.quiet("service-controller").await.unwrap();
}

/// The name of the Service, the field that is added to it, the property of its load balancer to check, and the expected value.
type Case = (&'static str, fn(ServiceBuilder) -> ServiceBuilder, fn(&LoadBalancer) -> Value, Value);

async fn each_field_by_itself(bed: &Bed) {
    let cases: [Case; 7] = [
        (
            "ports",
            |it| it.port_of("UDP", 80).port_of("UDP", 9).port_of("SCTP", 9),
            listeners,
            json!(["SCTP 9", "TCP 80", "UDP 80", "UDP 9"]),
        ),
        (
            "cluster",
            |it| it.spec("externalTrafficPolicy", json!("Cluster")),
            probe,
            json!(["TCP", null, null]),
        ),
        ("affinity", affine, stickiness, json!([{ "kind": "source_ip", "timeout": 600 }])),
        ("address", |it| it.spec("loadBalancerIP", json!("198.18.77.7")), vips, json!(["198.18.77.7"])),
        ("ranges", ranged, allowed, json!(["192.0.2.0/24", "2001:db8::/32"])),
        ("everybody", |it| it.spec("ipFamilyPolicy", json!("PreferDualStack")), allowed, json!([])),
        (
            "old-words",
            |it| it.annotation(OPENSTACK_INTERNAL, "true"),
            |it| json!(it.scheme),
            json!("internal"),
        ),
    ];
    for (name, with, ..) in &cases {
        with(service(name).port(80)).create(&bed.client()).await.unwrap();
    }
    for (name, _, look, want) in cases {
        bed.address(name).await.unwrap();
        let state = bed.cluster.cloud.state().await.unwrap();
        assert_eq!(look(state.balancer(name).unwrap()), want, "{name}");
    }
    let message = bed.wait_for_event("Service", "old-words", "CompatibleAnnotations").await.unwrap();
    assert!(
        message.contains(&format!("{OPENSTACK_INTERNAL} (new: lb.cloudadapter.dev/internal: true)")),
        "{message}"
    );
    assert_eq!(bed.times("Service", "old-words", "CompatibleAnnotations").await.unwrap(), 1);
}

fn affine(service: ServiceBuilder) -> ServiceBuilder {
    let ten_minutes = json!({ "clientIP": { "timeoutSeconds": 600 } });
    service.spec("sessionAffinity", json!("ClientIP")).spec("sessionAffinityConfig", ten_minutes)
}

fn ranged(service: ServiceBuilder) -> ServiceBuilder {
    let ranges = "2001:db8::/32 , 192.0.2.0/24,192.0.2.0/24";
    service.spec("ipFamilyPolicy", json!("RequireDualStack")).annotation(RANGES, ranges)
}

fn listeners(balancer: &LoadBalancer) -> Value {
    let words = balancer.listeners.iter().map(|it| format!("{} {}", word(&it.protocol), it.port));
    json!(words.collect::<BTreeSet<_>>())
}

fn probe(balancer: &LoadBalancer) -> Value {
    let monitor = balancer.pools.first().and_then(|pool| pool.health_monitor.as_ref()).unwrap();
    json!([monitor.protocol, monitor.path, monitor.port])
}

fn stickiness(balancer: &LoadBalancer) -> Value {
    json!(balancer.pools.iter().map(|it| it.persistence).collect::<Vec<_>>())
}

fn vips(balancer: &LoadBalancer) -> Value {
    json!(balancer.vips)
}

fn allowed(balancer: &LoadBalancer) -> Value {
    let ranges = balancer.listeners.iter().flat_map(|it| &it.allowed_cidrs);
    json!(ranges.map(ToString::to_string).collect::<BTreeSet<_>>())
}

fn word(value: &impl serde::Serialize) -> String {
    json!(value).as_str().unwrap().to_owned()
}

/// The status has both addresses, in the order of the Service's IP families.
async fn two_families(bed: &Bed) {
    let both = bed.until_service("both", "has two addresses", |service| {
        let ips: Vec<_> = ingress(service).into_iter().filter_map(|it| it.ip).collect();
        ensure!(ips.len() == 2, "{ips:?}");
        Ok(ips)
    });
    let ips = both.await.unwrap();
    let families: Vec<bool> = ips.iter().map(|ip| ip.contains(':')).collect();
    assert_eq!(families, [true, false], "{ips:?}");
    let state = bed.cluster.cloud.state().await.unwrap();
    let balancer = state.balancer("both").unwrap();
    let vips: BTreeSet<_> = balancer.vips.iter().map(ToString::to_string).collect();
    assert_eq!(vips, ips.into_iter().collect());
}

/// Checks the health check of kube-proxy, the allowed clients, and the IP mode.
async fn local_traffic(bed: &Bed) {
    bed.address("local").await.unwrap();
    let local = bed.services().get("local").await.unwrap();
    let modes: Vec<_> = ingress(&local).into_iter().map(|it| it.ip_mode).collect();
    assert_eq!(modes, [Some("Proxy".to_owned())]);
    let port = local.spec.and_then(|spec| spec.health_check_node_port).unwrap();
    let state = bed.cluster.cloud.state().await.unwrap();
    let balancer = state.balancer("local").unwrap();
    let monitor = balancer.pools.first().and_then(|pool| pool.health_monitor.clone()).unwrap();
    assert_eq!(json!(monitor.protocol), "HTTP");
    assert_eq!((monitor.path.as_deref(), monitor.port.map(i32::from)), (Some("/healthz"), Some(port)));
    let allowed: BTreeSet<_> =
        balancer.listeners.iter().flat_map(|it| &it.allowed_cidrs).map(ToString::to_string).collect();
    assert_eq!(allowed, ["10.0.0.0/8", "192.0.2.0/24"].map(str::to_owned).into());
}

/// This cloud cannot change the IP families of a load balancer; a misspelled annotation is an error, too.
async fn another_family_is_refused_and_nodes_are_followed(bed: &Bed) {
    let first = bed.services().get("both").await.unwrap().spec.and_then(|spec| spec.cluster_ip);
    let families = json!({ "ipFamilyPolicy": "SingleStack", "ipFamilies": ["IPv6"], "clusterIPs": [first] });
    let single = json!({ "spec": families });
    let merged = bed.services().patch("both", &PatchParams::default(), &Patch::Merge(single)).await;
    merged.unwrap();
    let message = bed.wait_for_event("Service", "both", "SyncLoadBalancerFailed").await.unwrap();
    assert!(message.contains("spec.ipFamilies"), "{message}");
    let misspelt = json!({ "metadata": { "annotations": { "lb.cloudadapter.dev/intrenal": "true" } } });
    bed.patch_service("local", &misspelt).await.unwrap();
    let message = bed.wait_for_event("Service", "local", "SyncLoadBalancerFailed").await.unwrap();
    assert!(message.contains("did you mean 'lb.cloudadapter.dev/internal'"), "{message}");

    bed.join("c", None).await.unwrap();
    for service in ["both", "local"] {
        members(bed, service, 3).await;
    }
    let right = json!({ "metadata": { "annotations": { "lb.cloudadapter.dev/intrenal": null } } });
    bed.patch_service("local", &right).await.unwrap();
}

/// The autoscaler sets its taint before it removes the node.
async fn a_draining_node_gets_no_traffic(bed: &Bed) {
    let taint = json!({ "key": AUTOSCALER, "value": "1767225600", "effect": "NoSchedule" });
    for (taints, nodes) in [(vec![taint], 2), (vec![], 3)] {
        bed.patch_node("c", &json!({ "spec": { "taints": taints } })).await.unwrap();
        for service in ["both", "local"] {
            members(bed, service, nodes).await;
        }
    }
}

/// The controller writes only a finalizer and the status, under its own field manager.
async fn only_known_fields_are_written(bed: &Bed) {
    for name in ["both", "local"] {
        let service = bed.services().get(name).await.unwrap();
        let managed = service.metadata.managed_fields.unwrap_or_default();
        let ours: Vec<_> =
            managed.into_iter().filter(|it| it.manager.as_deref() == Some("service-controller")).collect();
        assert!(!ours.is_empty(), "{name}");
        for entry in ours {
            assert_eq!(entry.subresource.as_deref(), Some("status"), "{name}");
            let mut written = BTreeSet::new();
            paths(&entry.fields_v1.unwrap().0, String::new(), &mut written);
            let known = [
                "/f:metadata/f:finalizers".to_owned(),
                format!("/f:metadata/f:finalizers/v:\"{FINALIZER}\""),
                "/f:status/f:loadBalancer/f:ingress".to_owned(),
                "/f:status/f:conditions".to_owned(),
            ];
            let condition = "/f:status/f:conditions/k:{\"type\":\"cloudadapter.dev/Ready\"}";
            let is_known = |path: &String| known.contains(path) || path.starts_with(condition);
            assert!(written.iter().all(is_known), "{name}: {written:?}");
        }
    }
}

/// Another client adds its finalizer later. This controller removes only its own finalizer when the load balancer is deleted.
async fn a_foreign_finalizer_stays(bed: &Bed) {
    let theirs = json!({ "metadata": { "finalizers": ["example.com/keep"] } });
    bed.patch_service("local", &theirs).await.unwrap();
    bed.services().delete("local", &DeleteParams::default()).await.unwrap();
    bed.until_service("local", "has only the other finalizer", |service| {
        ensure!(
            service.metadata.finalizers.as_deref() == Some(&["example.com/keep".to_owned()]),
            "{service:?}"
        );
        ensure!(address(service).is_none(), "{service:?}");
        Ok(())
    })
    .await
    .unwrap();
    assert!(bed.cluster.cloud.state().await.unwrap().balancer("local").is_err());
    bed.wait_for_event("Service", "local", "DeletedLoadBalancer").await.unwrap();
    let none = json!({ "metadata": { "$deleteFromPrimitiveList/finalizers": ["example.com/keep"] } });
    bed.patch_service("local", &none).await.unwrap();
}

/// Collects the leaves of a `fieldsV1`.
fn paths(fields: &Value, path: String, found: &mut BTreeSet<String>) {
    let inner = fields.as_object().into_iter().flatten().filter(|(key, _)| *key != ".");
    let mut leaf = true;
    for (key, value) in inner {
        leaf = false;
        paths(value, format!("{path}/{key}"), found);
    }
    if leaf {
        found.insert(path);
    }
}

fn ingress(service: &Service) -> Vec<LoadBalancerIngress> {
    let status = service.status.as_ref().and_then(|status| status.load_balancer.as_ref());
    status.and_then(|status| status.ingress.clone()).unwrap_or_default()
}

async fn members(bed: &Bed, service: &str, n: usize) {
    bed.until_cloud(&format!("{n} nodes are backends of {service}"), |state| {
        let balancer = state.balancer(service)?;
        let hosts = |pool: &adapter_sim::simcloud::model::Pool| pool.members.len();
        let sizes: Vec<usize> = balancer.pools.iter().map(hosts).collect();
        ensure!(!sizes.is_empty() && sizes.iter().all(|size| *size == n), "{sizes:?}");
        Ok(())
    })
    .await
    .unwrap();
}
