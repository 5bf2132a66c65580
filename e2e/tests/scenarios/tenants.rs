//! A user of one namespace who knows the IDs and addresses of all others.

use adapter_sim::simcloud::{Operation, model::ProvisioningStatus};
use anyhow::{Context, ensure};
use e2e::{Bed, WITHIN, address, eventually, service};
use http::Method;
use k8s_openapi::api::core::v1::{Namespace, Service};
use kube::{
    Api,
    api::{DeleteParams, PostParams},
};
use serde_json::{from_value, json};

const PREFIX: &str = "lb.cloudadapter.dev";
/// A load balancer that a person made, such as that of the API server.
const BY_HAND: &str = "made-by-hand";

#[tokio::test]
#[expect(clippy::too_many_lines, reason = "one story")]
async fn a_hostile_namespace_takes_nothing_and_what_is_adopted_is_released() {
    let values = json!({ "adapter": {
        "grants": ["trusted:adopt=*"],
        "cache": { "loadBalancers": { "maxAge": "2s" } },
    } });
    let mut bed = Bed::install_with(&values).await.unwrap();
    bed.cluster.pods.start().unwrap();
    bed.ready().await.unwrap();
    bed.join("a", None).await.unwrap();
    bed.targets(1).await.unwrap();
    for name in ["evil", "trusted"] {
        let namespace: Namespace = from_value(json!({ "metadata": { "name": name } })).unwrap();
        let namespaces: Api<Namespace> = Api::all(bed.client());
        namespaces.create(&PostParams::default(), &namespace).await.unwrap();
    }
    service("web").port(80).create(&bed.client()).await.unwrap();
    let taken = bed.address("web").await.unwrap();
    let new =
        json!({ "name": BY_HAND, "scheme": "internet", "families": ["ipv4"], "tags": { "team": "ops" } });
    bed.cluster.cloud.by_hand(Method::POST, "/v1/load-balancers", Some(&new)).await.unwrap();
    let others = bed.until_cloud("the one that was made by hand is there", |state| {
        let there = state.load_balancers.iter().find(|it| it.name == BY_HAND).context("it is not")?;
        ensure!(there.status == ProvisioningStatus::Active, "{:?}", there.status);
        let web = state.balancer("web").context("it is not")?;
        Ok((there.id.clone(), web.id.clone()))
    });
    let (by_hand, web) = others.await.unwrap();
    let before = bed.cluster.cloud.state().await.unwrap().load_balancers;
    bed.cluster.cloud.reset_counts().await.unwrap();

    let adopts = |name: &str, id: &str| {
        let named = service(name).namespace("evil").port(80).annotation(&format!("{PREFIX}/adopt"), "owned");
        named.annotation(&format!("{PREFIX}/id"), id)
    };
    adopts("takes-a-services", &web).create(&bed.client()).await.unwrap();
    adopts("takes-a-persons", &by_hand).create(&bed.client()).await.unwrap();
    let squats = service("takes-an-address").namespace("evil").port(80);
    squats.annotation(&format!("{PREFIX}/address"), &taken).create(&bed.client()).await.unwrap();
    for (name, says) in [
        ("takes-a-services", "belongs to Service default/web"),
        ("takes-a-persons", "namespace evil may not take it over"),
        ("takes-an-address", taken.as_str()),
    ] {
        let told = bed.told("Service", name, "SyncLoadBalancerFailed").await.unwrap();
        assert!(told.contains(says), "{name}: {told}");
    }
    let services: Api<Service> = Api::namespaced(bed.client(), "evil");
    for name in ["takes-a-services", "takes-a-persons", "takes-an-address"] {
        services.delete(name, &DeleteParams::default()).await.unwrap();
        eventually(&format!("{name} is gone"), WITHIN, || async {
            ensure!(services.get_opt(name).await?.is_none(), "it is there");
            Ok(())
        })
        .await
        .unwrap();
    }
    let after = bed.cluster.cloud.state().await.unwrap().load_balancers;
    assert_eq!(json!(after), json!(before), "nothing of others changes");

    // A namespace that the operator trusts takes it over, and gives it back.
    let gateway = adopts("gateway", &by_hand).namespace("trusted");
    gateway.create(&bed.client()).await.unwrap();
    let services: Api<Service> = Api::namespaced(bed.client(), "trusted");
    eventually("the gateway has an address", WITHIN, || async {
        address(&services.get("gateway").await?).context("it has none")
    })
    .await
    .unwrap();
    services.delete("gateway", &DeleteParams::default()).await.unwrap();
    bed.until_cloud("it is nobody's again", |state| {
        let there = state.load_balancers.iter().find(|it| it.id == by_hand).context("it was deleted")?;
        ensure!(there.tags.len() == 1 && there.listeners.is_empty(), "{there:?}");
        Ok(())
    })
    .await
    .unwrap();
    let deletions = bed.cluster.cloud.requests().await.unwrap();
    let deletions: Vec<_> =
        deletions.iter().filter(|it| it.operation == Operation::DeleteLoadBalancer).collect();
    assert!(deletions.is_empty(), "{deletions:?}");
    assert_eq!(bed.address("web").await.unwrap(), taken);
}

/// It is refused by its name, with the grant that opens it; a load balancer that is there follows its nodes, also for a process that has just
/// started and does not know what was asked for before.
#[tokio::test]
async fn what_needs_a_grant_is_told_and_nodes_are_followed_all_the_same() {
    const GRANT: &str = "--grant default:subnet=s-1";
    let mut bed = Bed::install().await.unwrap();
    bed.cluster.pods.start().unwrap();
    bed.ready().await.unwrap();
    bed.join("a", None).await.unwrap();
    bed.targets(1).await.unwrap();
    let subnet = format!("{PREFIX}/subnet");
    service("new").port(80).annotation(&subnet, "s-1").create(&bed.client()).await.unwrap();
    let told = bed.told("Service", "new", "SyncLoadBalancerFailed").await.unwrap();
    assert!(told.contains(GRANT), "{told}");

    service("web").port(80).create(&bed.client()).await.unwrap();
    bed.address("web").await.unwrap();
    let asks = json!({ "metadata": { "annotations": { subnet: "s-1" } } });
    bed.patch_service("web", &asks).await.unwrap();
    let told = bed.told("Service", "web", "SyncLoadBalancerFailed").await.unwrap();
    assert!(told.contains(GRANT), "{told}");
    follows(&bed, "b", 2).await.unwrap();
    bed.cluster.pods.get("service-controller").unwrap().restart().await.unwrap();
    bed.ready().await.unwrap();
    follows(&bed, "c", 3).await.unwrap();
    let state = bed.cluster.cloud.state().await.unwrap();
    assert_eq!(state.load_balancers.len(), 1, "nothing was made for the new one");
}

/// A node joins, and is behind the load balancer of `web`.
async fn follows(bed: &Bed, node: &str, members: usize) -> anyhow::Result<()> {
    bed.join(node, None).await?;
    bed.until_cloud(&format!("{node} is behind it"), |state| {
        let pools = &state.balancer("web").context("it is not there")?.pools;
        let all: Vec<usize> = pools.iter().map(|pool| pool.members.len()).collect();
        ensure!(all == [members], "{all:?}");
        Ok(())
    })
    .await
}
