//! Tests of vendors that refuse, fail or cannot be reached, or whose responses are lost.

use std::time::Duration;

use adapter_sim::simcloud::Operation;
use cloud_api_proto::Reason;
use serde_json::json;
use tonic::{Code, Status};

use crate::{
    conditions::program::Program,
    conditions::reported::{Reported, Retry},
    conditions::world::{UNLIMITED, World, cloud, look_up},
    support::until,
};

/// The time for which the circuit breaker stays open for a failing vendor.
const BREAKER_OPEN: Duration = Duration::from_secs(40);
/// A duration longer than any call here takes.
const CALL_TIMEOUT: Duration = Duration::from_secs(20);

fn respond(status: u16) -> serde_json::Value {
    json!({ "respond": { "status": status } })
}

async fn create_answered(status: u16) -> Status {
    let world = World::start().await;
    world.always("CreateLoadBalancer", respond(status)).await;
    let request = world.web("web").await;
    let refused = world.settled(&request).await.expect_err("refused");
    let reported = Reported::read(&refused);
    reported.quotes_the_vendor("injected");
    assert!(reported.message.contains("create load balancer"), "the failed step: {reported:?}");
    refused
}

pub(crate) async fn unauthorized() -> Status {
    create_answered(401).await
}

pub(crate) async fn forbidden() -> Status {
    create_answered(403).await
}

pub(crate) async fn unauthorized_from_the_start() -> Status {
    let cloud = cloud().await;
    cloud.fault(json!({ "match": { "operation": "GetProject" }, "action": respond(401) })).await;
    let adapter = Program::start(&cloud.url, UNLIMITED, &[]).await;
    let mut reported = None;
    until("the rejection", async || {
        let status = look_up(&adapter, CALL_TIMEOUT).await.expect_err("all calls fail");
        let is_it = Reported::read(&status).metadata.contains_key("vendor_code");
        reported = Some(status);
        is_it
    })
    .await;
    let status = reported.expect("reported");
    Reported::read(&status).quotes_the_vendor("injected");
    status
}

pub(crate) async fn quota() -> Status {
    let world = World::start().await;
    world.cloud.settings(json!({ "quotas": { "load_balancers": 0 } })).await;
    let request = world.web("web").await;
    let status = world.settled(&request).await.expect_err("refused");
    Reported::read(&status).quotes_the_vendor("quota_exceeded");
    status
}

pub(crate) async fn server_error() -> Status {
    let world = World::start().await;
    world.always("*Instances", respond(503)).await;
    let status = world.look_up(CALL_TIMEOUT).await.expect_err("all calls fail");
    Reported::read(&status).quotes_the_vendor("injected");
    status
}

pub(crate) async fn connection_refused() -> Status {
    let world = World::start().await;
    // The open connection is closed, and no new connection can be opened.
    world.always("*", json!("close_before")).await;
    let World { cloud, adapter } = world;
    drop(cloud);
    let mut reported = None;
    until("an unreachable cloud", async || {
        reported = look_up(&adapter, CALL_TIMEOUT).await.err();
        reported.as_ref().is_some_and(|status| status.message().contains("refused"))
    })
    .await;
    reported.expect("reported")
}

pub(crate) async fn breaker_open() -> Status {
    let rest = format!("limits: {{breaker: {{minCalls: 3, open: {}s}}, ", BREAKER_OPEN.as_secs());
    let world = World::configured(&UNLIMITED.replace("limits: {", &rest)).await;
    world.always("*Instances", respond(503)).await;
    for _ in 0..3 {
        world.look_up(CALL_TIMEOUT).await.expect_err("all calls fail");
    }
    let sent = world.cloud.counts().total;
    let status = world.look_up(CALL_TIMEOUT).await.expect_err("the breaker is open");
    assert_eq!(world.cloud.counts().total, sent, "the adapter sends no call");
    let reported = Reported::read(&status);
    reported.is(Reason::VendorUnavailable, Code::Unavailable, Retry::After(BREAKER_OPEN / 2));
    assert!(reported.message.contains("compute"), "{reported:?}");
    world.settled(&world.web("web").await).await.expect("load balancers belong to another family");
    status
}

pub(crate) async fn nonsense() -> Status {
    let world = World::start().await;
    world.always("*Instances", respond(404)).await;
    world.look_up(CALL_TIMEOUT).await.expect_err("the response does not come from the API of this cloud")
}

pub(crate) async fn lost_answers() -> Status {
    let world = World::start().await;
    world.always("CreateLoadBalancer", json!("close_before")).await;
    let request = world.web("web").await;
    let status = world.settled(&request).await.expect_err("the outcome is unknown");
    assert!(world.cloud.count(Operation::CreateLoadBalancer) > 1, "the write was repeated after a read");
    world.cloud.admin(reqwest::Method::DELETE, "faults", serde_json::Value::Null).await;
    world.settled(&request).await.expect("the same request determines the outcome and completes");
    assert_eq!(world.cloud.balancer().await["listeners"].as_array().map(Vec::len), Some(1));
    status
}
