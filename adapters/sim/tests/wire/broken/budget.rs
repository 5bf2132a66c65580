//! Faults in vendor calls and in the reported cost.

use std::time::Duration;

use adapter_sim::simcloud::Operation;
use cloud_api_proto::{
    Reason,
    v1alpha1::{BatchGetInstancesRequest, InstanceRef},
};
use serde_json::{Value, json};
use tonic::{Code, Request};

use crate::{
    adapter::bench::live,
    broken::world::{World, id},
};

fn throttled(seconds: &str) -> Value {
    json!({ "respond": { "status": 429, "headers": { "retry-after": seconds } } })
}

/// The gRPC code of a live request with this deadline.
async fn asked(world: &World, patience: Duration) -> Code {
    let one = InstanceRef { r#ref: Some(id(1)), ..InstanceRef::default() };
    let mut request = Request::new(BatchGetInstancesRequest { context: Some(live()), refs: vec![one] });
    request.set_timeout(patience);
    let answer = world.adapter.instances().batch_get_instances(request).await;
    answer.map_or_else(|status| status.code(), |_| Code::Ok)
}

pub(crate) async fn spends_freely(world: World) -> bool {
    let world = world.with_limit("{rate: 0.1, burst: 2}").await;
    world.cloud.machines(1).await;
    for _ in 0..4 {
        asked(&world, Duration::from_secs(1)).await;
    }
    world.cloud.counts().total >= 4
}

pub(crate) async fn comes_back_early(world: World) -> bool {
    world.cloud.machines(1).await;
    world.spoil("*", json!("always"), throttled("60")).await;
    let error = world.look_up([id(1)]).await.expect_err("throttled");
    assert_eq!(error.reason, Reason::VendorThrottled);
    error.retry_after < Some(Duration::from_secs(30))
}

pub(crate) async fn one_by_one(world: World) -> bool {
    world.cloud.machines(3).await;
    world.spoil("BatchGetInstances", json!({ "next": 1 }), throttled("1")).await;
    world.look_up([id(1), id(2), id(3)]).await.expect("in the end");
    world.cloud.count(Operation::BatchGetInstances) > 2
}

pub(crate) async fn throttle_is_outage(world: World) -> bool {
    world.cloud.machines(1).await;
    world.spoil("*", json!("always"), throttled("60")).await;
    let answer = world.look_up([id(1)]).await;
    answer.map_or_else(
        |error| error.reason,
        |answer| answer.results[0].error.as_ref().expect("an error").reason(),
    ) == Reason::VendorUnavailable
}

pub(crate) async fn free(world: World) -> bool {
    world.cloud.machines(1).await;
    world.look_up([id(1)]).await.expect("there").cost.expect("told").vendor_calls == 0
}

pub(crate) async fn cheap(world: World) -> bool {
    let told = world.adapter.ensure(&world.web().await).await.expect("possible").cost.expect("told");
    u64::from(told.vendor_calls) < world.cloud.counts().writes
}

pub(crate) async fn waits_in_vain(world: World) -> bool {
    let world = world.with_limit("{rate: 0.1, burst: 1}").await;
    world.cloud.machines(1).await;
    asked(&world, Duration::from_secs(1)).await;
    matches!(asked(&world, Duration::from_secs(1)).await, Code::DeadlineExceeded | Code::Cancelled)
}
