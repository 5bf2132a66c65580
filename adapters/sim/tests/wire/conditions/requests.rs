//! Tests of requests that are invalid, come at the wrong time or come from the wrong writer.

use std::time::Duration;

use adapter_sim::simcloud::Operation;
use cloud_api_proto::v1alpha1::{
    Adoption, ApplyRoutesRequest, BackendDelta, EnsureLoadBalancerRequest, Fence, Known, LoadBalancerSpec,
    LoadBalancerState, PutBackendSetRequest, RouteDelete, VendorIds,
    load_balancer_spec::{AddressRetention, Scheme},
    put_backend_set_request::Content,
};
use serde_json::json;
use tonic::{Code, Status};

use crate::{
    conditions::reported::Reported,
    conditions::world::World,
    support::routes::routes,
    support::until,
    support::wanted::{backend, tcp},
    support::{context, fence},
};

/// A duration longer than a test takes.
const FOREVER_MS: u64 = 600_000;

fn spec_of(request: &mut EnsureLoadBalancerRequest) -> &mut LoadBalancerSpec {
    request.spec.as_mut().expect("set")
}

async fn refusal(world: &World, change: impl FnOnce(&mut EnsureLoadBalancerRequest)) -> Status {
    let mut request = world.web("web").await;
    change(&mut request);
    world.settled(&request).await.expect_err("refused")
}

pub(crate) async fn wrong_field() -> Status {
    let world = World::start().await;
    let status = refusal(&world, |request| spec_of(request).listeners[0].port = 70_000).await;
    assert_eq!(Reported::read(&status).fields, ["spec.listeners[0].port"]);
    assert_eq!(world.cloud.counts().total, 0, "no vendor call");
    status
}

pub(crate) async fn missing_field() -> Status {
    let world = World::start().await;
    let status = refusal(&world, |request| request.context = None).await;
    assert_eq!(Reported::read(&status).fields, ["context"]);
    status
}

pub(crate) async fn too_many_items() -> Status {
    let world = World::start().await;
    let request = ApplyRoutesRequest { deletes: vec![RouteDelete::default(); 201], ..routes() };
    let status = world.apply(request).await.expect_err("refused");
    assert_eq!(Reported::read(&status).fields, ["upserts"]);
    status
}

pub(crate) async fn unsupported_feature() -> Status {
    let world = World::start().await;
    refusal(&world, |request| spec_of(request).set_address_retention(AddressRetention::Keep)).await
}

pub(crate) async fn unknown_parameter() -> Status {
    let world = World::start().await;
    let add = |request: &mut EnsureLoadBalancerRequest| {
        spec_of(request).parameters.insert("algoritm".into(), "round-robin".into());
    };
    let status = refusal(&world, add).await;
    assert_eq!(Reported::read(&status).metadata["nearest"], "algorithm");
    status
}

fn adopt(request: &mut EnsureLoadBalancerRequest, id: &str) {
    let ids = [("loadbalancer".to_owned(), id.to_owned())].into();
    request.known = Some(Known { vendor_ids: Some(VendorIds { ids }), ..Known::default() });
    request.adoption = Adoption::ById.into();
}

pub(crate) async fn id_that_does_not_exist() -> Status {
    let world = World::start().await;
    refusal(&world, |request| adopt(request, "lb-4711")).await
}

pub(crate) async fn owned_by_another() -> Status {
    let world = World::start().await;
    let tags = json!({ "cloudadapter.dev/cluster-id": "c-2", "cloudadapter.dev/owner-uid": "theirs" });
    let made = json!({ "name": "theirs", "scheme": "internet", "tags": tags });
    let made = world.cloud.vendor(reqwest::Method::POST, "load-balancers", made).await;
    let id = made["id"].as_str().expect("an ID").to_owned();
    let status = refusal(&world, |request| adopt(request, &id)).await;
    assert_eq!(world.cloud.balancer().await["tags"], tags, "the load balancer is not changed");
    status
}

/// Starts a cloud and an adapter. Returns them with a request for a load balancer whose creation never completes.
async fn busy() -> (World, EnsureLoadBalancerRequest) {
    let world = World::start().await;
    world.cloud.settings(json!({ "provisioning": { "create_ms": FOREVER_MS } })).await;
    let request = world.web("web").await;
    assert_eq!(world.ensure(&request).await.expect("joined").state(), LoadBalancerState::Pending);
    (world, request)
}

#[tokio::test]
async fn the_same_content_in_progress_is_joined() {
    let (world, request) = busy().await;
    let (one, other) = tokio::join!(world.ensure(&request), world.ensure(&request));
    for answer in [one, other] {
        let answer = answer.expect("no error");
        assert_eq!(answer.state(), LoadBalancerState::Pending);
        let again = answer.retry_after.expect("has a retry delay");
        assert!(again.seconds > 0 || again.nanos > 0);
    }
    assert_eq!(world.cloud.count(Operation::CreateLoadBalancer), 1);
}

pub(crate) async fn another_operation_in_progress() -> Status {
    let (world, mut request) = busy().await;
    request.fence = Some(Fence { scope: "service-controller/1".into(), epoch: 1, sequence: 1 });
    spec_of(&mut request).listeners.push(tcp(443));
    world.ensure(&request).await.expect_err("refused")
}

pub(crate) async fn newer_state_took_over() -> Status {
    let (world, request) = busy().await;
    // The test cannot observe whether the older request already waits when the newer one arrives, so it repeats both until this happens.
    for pair in 1..=50 {
        let (mut older, mut newer) = (request.clone(), request.clone());
        older.fence = Some(fence(1, 2 * pair));
        newer.fence = Some(fence(1, 2 * pair + 1));
        spec_of(&mut newer).listeners.push(tcp(443));
        let later = async {
            tokio::time::sleep(Duration::from_millis(10) * u32::try_from(pair).expect("few")).await;
            world.ensure(&newer).await
        };
        let (older, newer) = tokio::join!(world.ensure(&older), later);
        assert_eq!(newer.expect("accepted").state(), LoadBalancerState::Pending);
        if let Err(status) = older
            && status.code() != Code::FailedPrecondition
        {
            return status;
        }
    }
    panic!("the newer request never took over")
}

pub(crate) async fn replaced_writer() -> Status {
    let world = World::start().await;
    let mut request = world.web("web").await;
    request.fence = Some(fence(2, 1));
    world.settled(&request).await.expect("made");
    world.cloud.count_from_here();
    let deleted = world.delete("web", fence(1, 9)).await.expect_err("refused");
    assert_eq!(deleted.code(), Code::FailedPrecondition);
    request.fence = Some(fence(1, 9));
    spec_of(&mut request).listeners.push(tcp(443));
    let status = world.ensure(&request).await.expect_err("refused");
    assert_eq!(world.cloud.counts().writes, 0);
    status
}

pub(crate) async fn replaced_route_writer() -> Status {
    let world = World::start().await;
    let by = |epoch| Some(Fence { scope: "route-controller/0".into(), epoch, sequence: 1 });
    world.apply(ApplyRoutesRequest { fence: by(2), ..routes() }).await.expect("no change");
    world.apply(ApplyRoutesRequest { fence: by(1), ..routes() }).await.expect_err("refused")
}

pub(crate) async fn immutable_field() -> Status {
    let world = World::start().await;
    let request = world.web("web").await;
    world.settled(&request).await.expect("made");
    let change = |request: &mut EnsureLoadBalancerRequest| {
        spec_of(request).scheme = Scheme::Internal.into();
    };
    let status = refusal(&world, change).await;
    assert_eq!(Reported::read(&status).metadata["fields"], "spec.scheme");
    assert_eq!(world.cloud.balancer().await["scheme"], "internet");
    status
}

pub(crate) async fn unknown_backend_set() -> Status {
    let world = World::start().await;
    refusal(&world, |request| spec_of(request).backend_set_id = "unheard-of".into()).await
}

pub(crate) async fn delta_of_an_unknown_set() -> Status {
    let world = World::start().await;
    let delta = BackendDelta { base_id: "unheard-of".into(), add: vec![backend(1)], remove: vec![] };
    let content = Some(Content::Delta(delta));
    let request = PutBackendSetRequest { context: Some(context()), id: "two".into(), content };
    world.balancers().put_backend_set(request).await.expect_err("refused")
}

/// For a message above gRPC's own size limit, the error has no reason and no retry delay. Such a message is a defect of the sender.
#[tokio::test]
async fn too_large_message_is_refused_by_grpc() {
    const LIMIT: usize = 4 * 1024 * 1024;
    let world = World::start().await;
    world.put(&"x".repeat(LIMIT - 1024)).await.expect("a message just below the limit");
    let status = world.put(&"x".repeat(LIMIT + 1)).await.expect_err("a message above the limit");
    Reported::read(&status).is_grpcs_own(Code::ResourceExhausted);
    until("the adapter keeps running", async || world.put("small").await.is_ok()).await;
}
