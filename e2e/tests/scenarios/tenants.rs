//! Tests with an attacker: a user of one namespace who knows the IDs and addresses of all other namespaces.

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
/// A load balancer without an owner, such as that of the API server.
const BY_HAND: &str = "made-by-hand";

#[tokio::test]
#[expect(clippy::too_many_lines, reason = "the steps depend on each other")]
async fn a_hostile_namespace_takes_nothing_and_adoption_is_reversible() {
    let values = json!({ "adapter": {
        "grants": ["trusted:adopt=*"],
        "cache": { "loadBalancers": { "maxAge": "2s" } },
    } });
    let mut bed = Bed::start_with(&values).await.unwrap();
    bed.join("a", None).await.unwrap();
    bed.targets(1).await.unwrap();
    for name in ["evil", "trusted"] {
        let namespace: Namespace = from_value(json!({ "metadata": { "name": name } })).unwrap();
        let namespaces: Api<Namespace> = Api::all(bed.client());
        namespaces.create(&PostParams::default(), &namespace).await.unwrap();
    }
    let taken = bed.expose("web", 80).await.unwrap();
    let new =
        json!({ "name": BY_HAND, "scheme": "internet", "families": ["ipv4"], "tags": { "team": "ops" } });
    bed.cluster.cloud.by_hand(Method::POST, "/v1/load-balancers", Some(&new)).await.unwrap();
    let others = bed.until_cloud("the load balancer without an owner exists", |state| {
        let there = state.load_balancers.iter().find(|it| it.name == BY_HAND).context("it does not exist")?;
        ensure!(there.status == ProvisioningStatus::Active, "{:?}", there.status);
        let web = state.balancer("web").context("web has no load balancer")?;
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
        ("takes-a-services", "belongs to another owner, and is left unchanged"),
        ("takes-a-persons", "namespace evil may not take it over"),
        ("takes-an-address", taken.as_str()),
    ] {
        let message = bed.wait_for_event("Service", name, "SyncLoadBalancerFailed").await.unwrap();
        assert!(message.contains(says), "{name}: {message}");
    }
    let services: Api<Service> = Api::namespaced(bed.client(), "evil");
    for name in ["takes-a-services", "takes-a-persons", "takes-an-address"] {
        services.delete(name, &DeleteParams::default()).await.unwrap();
        eventually(&format!("{name} is deleted"), WITHIN, || async {
            ensure!(services.get_opt(name).await?.is_none(), "it still exists");
            Ok(())
        })
        .await
        .unwrap();
    }
    let after = bed.cluster.cloud.state().await.unwrap().load_balancers;
    assert_eq!(json!(after), json!(before), "no load balancer of others has changed");

    // A Service of a trusted namespace adopts the load balancer and later releases it.
    let gateway = adopts("gateway", &by_hand).namespace("trusted");
    gateway.create(&bed.client()).await.unwrap();
    let services: Api<Service> = Api::namespaced(bed.client(), "trusted");
    eventually("the gateway has an address", WITHIN, || async {
        address(&services.get("gateway").await?).context("no address")
    })
    .await
    .unwrap();
    services.delete("gateway", &DeleteParams::default()).await.unwrap();
    bed.until_cloud("it has no owner again", |state| {
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

/// The Event names the missing grant: the operator's permission for the namespace. The backends of an existing load balancer still follow
/// the nodes. This holds even if the controller has just started and does not know the last valid settings.
#[tokio::test]
async fn a_missing_grant_is_reported_and_nodes_are_followed() {
    const GRANT: &str = "add default:subnet=s-1 to adapter.grants";
    let mut bed = Bed::install().await.unwrap();
    bed.start_pods().await.unwrap();
    bed.join("a", None).await.unwrap();
    bed.targets(1).await.unwrap();
    let subnet = format!("{PREFIX}/subnet");
    service("new").port(80).annotation(&subnet, "s-1").create(&bed.client()).await.unwrap();
    let message = bed.wait_for_event("Service", "new", "SyncLoadBalancerFailed").await.unwrap();
    assert!(message.contains(GRANT), "{message}");

    bed.expose("web", 80).await.unwrap();
    let asks = json!({ "metadata": { "annotations": { subnet: "s-1" } } });
    bed.patch_service("web", &asks).await.unwrap();
    let message = bed.wait_for_event("Service", "web", "SyncLoadBalancerFailed").await.unwrap();
    assert!(message.contains(GRANT), "{message}");
    follows(&bed, "b", 2).await.unwrap();
    bed.cluster.pods.get("service-controller").unwrap().restart().await.unwrap();
    bed.ready().await.unwrap();
    follows(&bed, "c", 3).await.unwrap();
    let state = bed.cluster.cloud.state().await.unwrap();
    assert_eq!(state.load_balancers.len(), 1, "no load balancer was created for the refused Service");
}

async fn follows(bed: &Bed, node: &str, members: usize) -> anyhow::Result<()> {
    bed.join(node, None).await?;
    bed.until_cloud(&format!("{node} is a backend"), |state| {
        let pools = &state.balancer("web").context("web has no load balancer")?.pools;
        let all: Vec<usize> = pools.iter().map(|pool| pool.members.len()).collect();
        ensure!(all == [members], "{all:?}");
        Ok(())
    })
    .await
}

/// The API server allocates a released node port to the next Service that requests the port, while this controller still refuses the former
/// Service.
#[tokio::test]
async fn node_port_of_a_refused_service_reaches_no_other_namespace() {
    let bed = Bed::start().await.unwrap();
    bed.join("a", None).await.unwrap();
    let namespaces: Api<Namespace> = Api::all(bed.client());
    let evil: Namespace = from_value(json!({ "metadata": { "name": "evil" } })).unwrap();
    namespaces.create(&PostParams::default(), &evil).await.unwrap();
    service("spy").namespace("evil").port(80).port(81).create(&bed.client()).await.unwrap();
    let services: Api<Service> = Api::namespaced(bed.client(), "evil");
    let seen = bed.until_cloud("it has a backend for each port", |state| {
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
    leads_to("the first port has no backend", &[second]).await;
    change([30_070, 30_071], json!("true")).await;
    leads_to("no port has a backend", &[]).await;
    let message = bed.wait_for_event("Service", "spy", "UnAvailableLoadBalancer").await.unwrap();
    assert!(message.contains("node ports removed from the Service"), "{message}");
    change([30_070, 30_071], Value::Null).await;
    leads_to("the ports have backends again", &[30_070, 30_071]).await;
    bed.address("shop").await.unwrap();
}

fn members(balancer: &LoadBalancer) -> Vec<u16> {
    let members = balancer.pools.iter().flat_map(|pool| &pool.members);
    let ports: BTreeSet<u16> = members.map(|member| member.port).collect();
    ports.into_iter().collect()
}
