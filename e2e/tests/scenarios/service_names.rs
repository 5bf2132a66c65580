//! Names of load balancers in the cloud: from the cluster's template or from an annotation of the Service. And adoption by name of load
//! balancers without an owner.

use adapter_sim::simcloud::Operation;
use anyhow::{Context, ensure};
use e2e::{Bed, service};
use http::Method;
use serde_json::json;

// Behaviour: SF9
#[tokio::test]
async fn load_balancers_are_named_by_template_and_renamed_in_place() {
    let values = json!({ "clusterName": "prod", "serviceController": {
        "loadBalancerNameTemplate": "{cluster}_{namespace}_{service}" } });
    let mut bed = Bed::start_with(&values).await.unwrap();
    bed.join("a", None).await.unwrap();
    bed.targets(1).await.unwrap();
    for name in ["web", "api"] {
        service(name).port(80).create(&bed.client()).await.unwrap();
    }
    let address = bed.address("web").await.unwrap();
    bed.address("api").await.unwrap();
    let state = bed.cluster.cloud.state().await.unwrap();
    let mut called: Vec<_> = state.load_balancers.iter().map(|it| it.name.as_str()).collect();
    called.sort_unstable();
    assert_eq!(called, ["prod_default_api", "prod_default_web"]);
    let web = state.load_balancers.iter().find(|it| it.name == "prod_default_web").map(|it| it.id.clone());

    // Two load balancers may have the same name: tags decide the ownership.
    let called = |name: &str| json!({ "metadata": { "annotations": { "lb.cloudadapter.dev/name": name } } });
    bed.patch_service("web", &called("prod_default_api")).await.unwrap();
    let renamed = bed.until_cloud("it has the name in the annotation", |state| {
        let there = state.load_balancers.iter().find(|it| Some(&it.id) == web.as_ref());
        let there = there.context("it does not exist")?;
        ensure!(there.name == "prod_default_api", "{}", there.name);
        Ok(state.load_balancers.len())
    });
    assert_eq!(renamed.await.unwrap(), 2);
    assert_eq!(bed.address("web").await.unwrap(), address);

    bed.patch_service("web", &called("of/another")).await.unwrap();
    let told = bed.told("Service", "web", "SyncLoadBalancerFailed").await.unwrap();
    assert!(told.contains("annotation lb.cloudadapter.dev/name: \"of/another\" is not a name"), "{told}");

    bed.delete_service("web").await.unwrap();
    let left = bed.until_cloud("the load balancer of web is deleted and the other one stays", |state| {
        let ids: Vec<_> = state.load_balancers.iter().map(|it| it.id.clone()).collect();
        ensure!(ids.len() == 1, "{ids:?}");
        Ok(ids)
    });
    assert_ne!(left.await.unwrap().first(), web.as_ref());
}

/// The state after the former cloud controller manager ends: its load balancer has the Service's name and no owner.
// Behaviour: SF12
#[tokio::test]
async fn load_balancer_without_an_owner_is_adopted_and_deleted() {
    let values = json!({
        "serviceController": { "compat": "openstack" },
        // Changes in the cloud are seen at the next listing.
        "adapter": { "cache": { "loadBalancers": { "maxAge": "2s" } } },
    });
    let mut bed = Bed::start_with(&values).await.unwrap();
    bed.join("a", None).await.unwrap();
    bed.targets(1).await.unwrap();
    let address = bed.expose("web", 80).await.unwrap();
    bed.quiet("service-controller").await.unwrap();
    bed.cluster.pods.get("service-controller").unwrap().terminate().await.unwrap();

    let cloud = &bed.cluster.cloud;
    let id = cloud.state().await.unwrap().balancer("web").unwrap().id.clone();
    let nobodys = json!({ "tags": {} });
    cloud.by_hand(Method::PATCH, &format!("/v1/load-balancers/{id}"), Some(&nobodys)).await.unwrap();
    bed.wait_cloud("it has no owner", |state| state.load_balancers.iter().all(|it| it.tags.is_empty()))
        .await
        .unwrap();
    bed.cluster.cloud.reset_counts().await.unwrap();
    bed.cluster.pods.get("service-controller").unwrap().start().unwrap();
    bed.until_cloud("this cluster owns it", |state| {
        let tagged = state.balancer("web").context("no load balancer has the Service's tags")?;
        ensure!(tagged.id == id && state.load_balancers.len() == 1, "{:?}", state.load_balancers);
        Ok(())
    })
    .await
    .unwrap();
    bed.quiet("service-controller").await.unwrap();
    let made = bed.cluster.cloud.counts().await.unwrap().of(Operation::CreateLoadBalancer);
    assert_eq!((made, bed.address("web").await.unwrap()), (0, address));

    bed.delete_service("web").await.unwrap();
    bed.wait_cloud("it is deleted with its Service", |state| state.load_balancers.is_empty()).await.unwrap();
}
