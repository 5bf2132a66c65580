//! What load balancers are called at the cloud: by the cluster's template, and by what a Service says of its own.

use anyhow::{Context, ensure};
use e2e::{Bed, service};
use serde_json::json;

#[tokio::test]
async fn load_balancers_are_called_as_the_template_says_and_another_name_makes_none_anew() {
    let values = json!({ "clusterName": "prod", "serviceController": {
        "loadBalancerNameTemplate": "{cluster}_{namespace}_{service}" } });
    let mut bed = Bed::install_with(&values).await.unwrap();
    bed.cluster.pods.start().unwrap();
    bed.ready().await.unwrap();
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

    // Two may have one name: whose each is, its tags tell.
    let called = |name: &str| json!({ "metadata": { "annotations": { "lb.cloudadapter.dev/name": name } } });
    bed.patch_service("web", &called("prod_default_api")).await.unwrap();
    let renamed = bed.until_cloud("the name of the annotation is there", |state| {
        let there = state.load_balancers.iter().find(|it| Some(&it.id) == web.as_ref());
        let there = there.context("it is gone")?;
        ensure!(there.name == "prod_default_api", "{}", there.name);
        Ok(state.load_balancers.len())
    });
    assert_eq!(renamed.await.unwrap(), 2);
    assert_eq!(bed.address("web").await.unwrap(), address);

    bed.patch_service("web", &called("of/nobody")).await.unwrap();
    let told = bed.told("Service", "web", "SyncLoadBalancerFailed").await.unwrap();
    assert!(told.contains("annotation lb.cloudadapter.dev/name: \"of/nobody\" is not a name"), "{told}");

    bed.delete_service("web").await.unwrap();
    let left = bed.until_cloud("its load balancer goes and the other one stays", |state| {
        let ids: Vec<_> = state.load_balancers.iter().map(|it| it.id.clone()).collect();
        ensure!(ids.len() == 1, "{ids:?}");
        Ok(ids)
    });
    assert_ne!(left.await.unwrap().first(), web.as_ref());
}
