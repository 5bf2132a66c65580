//! Faults in the creation of load balancers, and in requests without changes.

use adapter_sim::simcloud::Operation;
use cloud_api_proto::{Reason, v1alpha1::Backend};
use serde_json::json;

use crate::{
    adapter::bench::fence,
    broken::world::World,
    support::wanted::{backend, spec, tcp},
};

/// Whether the load balancer has the tag.
async fn tagged(world: &World, tag: &str) -> bool {
    world.first().await["tags"].get(format!("cloudadapter.dev/{tag}")).is_some()
}

pub(crate) async fn unknown_parameter(world: World) -> bool {
    let mut request = world.web().await;
    request.spec.iter_mut().for_each(|spec| {
        spec.parameters.insert("colour".to_owned(), "blue".to_owned());
    });
    world.adapter.ensure(&request).await.is_ok()
}

pub(crate) async fn port_too_large(world: World) -> bool {
    let request = world.adapter.request("web", spec([tcp(65_536 + 80)]), &[backend(1)]).await;
    world.adapter.ensure(&request).await.is_ok()
}

pub(crate) async fn weight_zero(world: World) -> bool {
    let unweighted = Backend { weight: None, ..backend(1) };
    let request = world.adapter.request("web", spec([tcp(80)]), &[unweighted]).await;
    world.adapter.ensured(&request).await;
    world.first().await["pools"][0]["members"][0]["weight"] == json!(0)
}

pub(crate) async fn no_request_id(world: World) -> bool {
    world.refuse("CreateLoadBalancer", 403).await;
    let refused = world.adapter.ensure(&world.web().await).await.expect_err("refused");
    assert_eq!(refused.reason, Reason::VendorForbidden);
    !refused.metadata.contains_key("vendor_request_id")
}

pub(crate) async fn no_address(world: World) -> bool {
    world.adapter.ensured(&world.web().await).await.addresses.is_empty()
}

pub(crate) async fn writes_on_repeat(world: World) -> bool {
    let request = world.made().await;
    world.adapter.ensured(&request).await;
    world.cloud.counts().writes > 0
}

pub(crate) async fn reads_on_repeat(world: World) -> bool {
    let request = world.made().await;
    world.adapter.ensured(&request).await;
    world.cloud.counts().reads > 0
}

pub(crate) async fn no_hash_tag(world: World) -> bool {
    world.made().await;
    assert!(tagged(&world, "owner-uid").await);
    !tagged(&world, "hash").await
}

pub(crate) async fn no_tags(world: World) -> bool {
    world.made().await;
    !tagged(&world, "owner-uid").await
}

pub(crate) async fn half_built_without_tags(world: World) -> bool {
    world.refuse("CreateListener", 403).await;
    let request = world.web().await;
    world.adapter.ensure(&request).await.expect_err("refused");
    let half_built = tagged(&world, "owner-uid").await;
    world.adapter.ensured(&request).await;
    assert!(tagged(&world, "owner-uid").await, "it becomes ACTIVE in the end");
    !half_built
}

pub(crate) async fn second_refused(world: World) -> bool {
    world.cloud.settings(json!({ "provisioning": { "create_ms": 300 } })).await;
    let request = world.web().await;
    let (one, other) = tokio::join!(world.adapter.ensure(&request), world.adapter.ensure(&request));
    assert_eq!(world.cloud.count(Operation::CreateLoadBalancer), 1);
    [one, other]
        .iter()
        .any(|answer| answer.as_ref().is_err_and(|error| error.reason == Reason::OperationConflict))
}

pub(crate) async fn stale_fence_taken(world: World) -> bool {
    let mut request = world.web().await;
    request.fence = Some(fence(2, 1));
    world.adapter.ensured(&request).await;
    request.fence = Some(fence(1, 9));
    world.adapter.ensure(&request).await.is_ok()
}
