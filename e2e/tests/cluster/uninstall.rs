//! Tests what an uninstall leaves: nothing in the cluster, and in the cloud what the chart values request.

use std::collections::BTreeSet;

use adapter_sim::simcloud::Operation;
use anyhow::{bail, ensure};
use e2e::{eventually, service};
use serde_json::json;

use crate::bed::{Bed, NAMESPACE, RELEASE, WITHIN, scenario};

/// Kinds that the cluster itself writes at any time.
const IN_MOTION: [&str; 3] = ["events", "events.events.k8s.io", "componentstatuses"];

#[test]
fn uninstall_leaves_only_load_balancers_for_a_reinstall() {
    scenario(1, async |bed| {
        service("web").port(80).create(&bed.client).await?;
        has_endpoints(bed, "web").await?;
        let before = objects(bed).await?;
        // All options of the chart that need no CRDs are set.
        let all = |enabled: bool, shards: u8| {
            json!({
                "monitoring": { "dashboard": true },
                "admissionPolicy": { "enabled": true },
                "nodeController": { "enabled": enabled, "shards": shards },
            })
        };
        bed.install(&all(true, 3)).await?;
        bed.until_initialised().await?;
        let address = bed.address("web").await?;
        let routed = |state: &e2e::State| {
            ensure!(state.routes.len() == 1, "{:?}", state.routes);
            Ok(())
        };
        bed.until_cloud("the node has its route", routed).await?;

        // Objects of former shards and of a disabled controller are removed, too.
        bed.upgrade(&all(true, 2)).await?;
        bed.upgrade(&all(false, 2)).await?;
        bed.helm(&["uninstall", RELEASE]).await?;
        nothing_left(bed, &before).await?;
        let state = bed.cloud.state().await?;
        ensure!(state.load_balancers.len() == 1 && state.routes.len() == 1, "{state:?}");
        ensure!(bed.address("web").await? == address, "the address has changed");

        // A new installation continues with the existing objects.
        bed.install(&all(true, 1)).await?;
        service("more").port(80).create(&bed.client).await?;
        bed.address("more").await?;
        ensure!(bed.address("web").await? == address, "the address has changed");
        let counts = bed.cloud.counts().await?;
        let (made, removed) =
            (counts.of(Operation::CreateLoadBalancer), counts.of(Operation::DeleteLoadBalancer));
        ensure!((made, removed) == (2, 0), "{counts:?}");
        bed.kubectl(&["delete", "service", "web", "more", "--timeout=60s"]).await?;
        no_load_balancer(bed).await
    });
}

#[test]
fn uninstall_deletes_load_balancers_on_request() {
    scenario(1, async |bed| {
        for name in ["web", "api"] {
            service(name).port(80).create(&bed.client).await?;
            has_endpoints(bed, name).await?;
        }
        let before = objects(bed).await?;
        bed.install(&json!({ "serviceController": { "onUninstall": "delete", "shards": 2 } })).await?;
        bed.until_initialised().await?;
        for name in ["web", "api"] {
            bed.address(name).await?;
        }

        // The uninstall waits as long as load balancers cannot be deleted.
        let broken = json!({
            "match": { "operation": "DeleteLoadBalancer" },
            "action": { "respond": { "status": 500 } },
        });
        let fault = bed.cloud.add_fault(&serde_json::from_value(broken)?).await?;
        let refused = bed.helm(&["uninstall", RELEASE, "--wait", "--timeout", "20s"]).await;
        let Err(refused) = refused else { bail!("the uninstall succeeded") };
        bed.step(&format!("helm uninstall says: {refused:#}"));
        ensure!(bed.cloud.state().await?.load_balancers.len() == 2, "a load balancer was deleted");
        ensure!(bed.cloud.counts().await?.of(Operation::DeleteLoadBalancer) > 0, "no deletion was attempted");
        bed.kubectl(&["get", "deployment", "node-controller", "--namespace", NAMESPACE]).await?;

        // After the operator's rollback, the removal that was given up must not continue.
        bed.helm(&["rollback", RELEASE, "1", "--wait", "--timeout", "2m"]).await?;
        bed.step("helm rollback returned");
        let jobs = bed.kubectl(&["get", "jobs,pods", "--namespace", NAMESPACE, "--output=name"]).await?;
        ensure!(!jobs.contains("removal"), "{jobs}");
        bed.cloud.remove_fault(&fault).await?;
        service("more").port(80).create(&bed.client).await?;
        bed.address("more").await?;
        ensure!(bed.cloud.state().await?.load_balancers.len() == 3, "a load balancer was deleted");
        bed.kubectl(&["delete", "service", "more", "--timeout=60s"]).await?;

        bed.helm(&["uninstall", RELEASE, "--wait", "--timeout", "2m"]).await?;
        bed.step("helm uninstall returned");
        no_load_balancer(bed).await?;
        nothing_left(bed, &before).await?;
        let path = "jsonpath={range .items[*]}{.metadata.name} {.spec.type} {.metadata.finalizers}{.status.loadBalancer.ingress} {end}";
        let left = bed.kubectl(&["get", "services", "web", "api", "--output", path]).await?;
        ensure!(left.trim() == "web LoadBalancer  api LoadBalancer", "{left}");
        bed.kubectl(&["delete", "service", "web", "api", "--timeout=10s"]).await.map(drop)
    });
}

/// Waits for the objects that Kubernetes itself creates for a Service.
async fn has_endpoints(bed: &Bed, service: &str) -> anyhow::Result<()> {
    let slices = [
        "get",
        "endpointslices",
        "--output=name",
        "--selector",
        &format!("kubernetes.io/service-name={service}"),
    ];
    bed.until(&format!("{service} has an endpoint slice"), &slices, |names| !names.is_empty()).await?;
    let endpoints =
        ["get", "endpoints", "--output=name", "--field-selector", &format!("metadata.name={service}")];
    bed.until(&format!("{service} has endpoints"), &endpoints, |names| !names.is_empty()).await.map(drop)
}

async fn no_load_balancer(bed: &Bed) -> anyhow::Result<()> {
    bed.until_cloud("no load balancer is left", |state| {
        ensure!(state.load_balancers.is_empty(), "{:?}", state.load_balancers);
        Ok(())
    })
    .await
}

async fn nothing_left(bed: &Bed, before: &BTreeSet<String>) -> anyhow::Result<()> {
    eventually("nothing of the release is left", WITHIN, || async {
        let now = objects(bed).await?;
        let left: Vec<_> = now.difference(before).collect();
        ensure!(left.is_empty(), "{left:#?}");
        let gone: Vec<_> = before.difference(&now).collect();
        ensure!(gone.is_empty(), "objects from before are missing: {gone:#?}");
        Ok(())
    })
    .await?;
    bed.step("nothing of the release is left in the cluster");
    Ok(())
}

/// All objects of every kind that the API server can list.
async fn objects(bed: &Bed) -> anyhow::Result<BTreeSet<String>> {
    let kinds = bed.kubectl(&["api-resources", "--verbs=list", "--output=name"]).await?;
    let kinds: Vec<_> = kinds.lines().filter(|kind| !IN_MOTION.contains(kind)).collect();
    let path = r#"jsonpath={range .items[*]}{.kind} {.metadata.namespace}/{.metadata.name}{"\n"}{end}"#;
    let listed = bed.kubectl(&["get", &kinds.join(","), "--all-namespaces", "--output", path]).await?;
    // The Lease of a node may be created by its kubelet at any time.
    Ok(listed.lines().filter(|it| !it.contains(" kube-node-lease/")).map(str::to_owned).collect())
}
