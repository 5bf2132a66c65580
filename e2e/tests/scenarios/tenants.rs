//! A user of one namespace who knows the IDs and addresses of all others.

use std::collections::BTreeSet;

use adapter_sim::simcloud::{
    Operation,
    model::{LoadBalancer, ProvisioningStatus},
};
use anyhow::{Context, ensure};
use e2e::{Bed, WITHIN, address, eventually, service};
use http::Method;
use k8s_openapi::api::core::v1::{Namespace, Service, ServicePort};
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, from_value, json};

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

/// The API server gives a node port to the next Service that asks for it, while the Service that gave it up is refused.
#[tokio::test]
async fn a_node_port_that_a_refused_service_gives_up_leads_into_no_other_namespace() {
    let bed = Bed::start().await.unwrap();
    bed.join("a", None).await.unwrap();
    let namespaces: Api<Namespace> = Api::all(bed.client());
    let evil: Namespace = from_value(json!({ "metadata": { "name": "evil" } })).unwrap();
    namespaces.create(&PostParams::default(), &evil).await.unwrap();
    service("spy").namespace("evil").port(80).port(81).create(&bed.client()).await.unwrap();
    let services: Api<Service> = Api::namespaced(bed.client(), "evil");
    let seen = bed.until_cloud("it has a member for each port", |state| {
        let spy = state.balancer("spy")?;
        ensure!(spy.status == ProvisioningStatus::Active && members(spy).len() == 2, "{spy:?}");
        Ok(())
    });
    seen.await.unwrap();
    let change = async |ports: [u16; 2], annotation: Value| {
        let port = |at: u16, node_port: u16| json!({ "name": format!("tcp-{at}"), "port": at, "nodePort": node_port });
        let ports = json!([port(80, ports[0]), port(81, ports[1])]);
        let annotations = json!({ format!("{PREFIX}/intrenal"): annotation });
        let patch = json!({ "metadata": { "annotations": annotations }, "spec": { "ports": ports } });
        services.patch("spy", &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    };
    let leads_to = async |what: &str, want: &[u16]| {
        bed.until_cloud(what, |state| {
            let spy = state.balancer("spy")?;
            ensure!(members(spy) == want && !spy.listeners.is_empty(), "{spy:?}");
            Ok(())
        })
        .await
        .unwrap();
    };

    let spy = services.get("spy").await.unwrap();
    let own = |it: &ServicePort| u16::try_from(it.node_port.unwrap()).unwrap();
    let own: Vec<u16> = spy.spec.unwrap().ports.unwrap().iter().map(own).collect();
    let [first, second] = own[..] else { panic!("{own:?}") };
    change([30_070, second], json!("true")).await;
    let mut shop = service("shop").port(80).build().unwrap();
    shop.spec.as_mut().unwrap().ports.as_mut().unwrap()[0].node_port = Some(first.into());
    bed.services().create(&PostParams::default(), &shop).await.expect("the node port is free");
    leads_to("the first one is not led to", &[second]).await;
    change([30_070, 30_071], json!("true")).await;
    leads_to("none of them is led to", &[]).await;
    let told = bed.told("Service", "spy", "UnAvailableLoadBalancer").await.unwrap();
    assert!(told.contains("none of the node ports"), "{told}");
    change([30_070, 30_071], Value::Null).await;
    leads_to("it is repaired", &[30_070, 30_071]).await;
    bed.address("shop").await.unwrap();
}

/// The ports of the node to which it leads, in their order.
fn members(balancer: &LoadBalancer) -> Vec<u16> {
    let members = balancer.pools.iter().flat_map(|pool| &pool.members);
    let ports: BTreeSet<u16> = members.map(|member| member.port).collect();
    ports.into_iter().collect()
}
