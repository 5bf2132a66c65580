//! Faults in the change and deletion of load balancers.

use adapter_sim::simcloud::Operation;
use cloud_api_proto::{
    AdapterError, Reason,
    v1alpha1::{
        BackendDelta, DeleteLoadBalancerRequest, DeleteLoadBalancerResponse, EnsureLoadBalancerRequest,
        Known, LoadBalancerState, PutBackendSetRequest, VendorIds, WatchLoadBalancersRequest,
        load_balancer_spec::Scheme, put_backend_set_request::Content, watch_load_balancers_response::Event,
    },
};
use reqwest::Method;
use serde_json::json;

use crate::{
    adapter::bench::{context, fence, live},
    broken::world::{WHILE, World, soon},
    support::until,
    support::wanted::{backend, key, owner, spec, tcp},
};

/// Deletes the load balancer of the Service `shop/web`.
pub(crate) fn deletion() -> DeleteLoadBalancerRequest {
    DeleteLoadBalancerRequest {
        context: Some(context()),
        key: Some(key("web")),
        owner: Some(owner("web")),
        fence: Some(fence(1, 1)),
        ..DeleteLoadBalancerRequest::default()
    }
}

/// Sends a request, and closes the connection as soon as the cloud has accepted the create.
async fn hang_up(world: &World, request: &EnsureLoadBalancerRequest) {
    let made = until("the create", async || world.cloud.count(Operation::CreateLoadBalancer) == 1);
    tokio::select! {
        answer = world.adapter.ensure(request) => panic!("too early: {answer:?}"),
        () = made => (),
    }
}

fn absent(answer: &DeleteLoadBalancerResponse) -> bool {
    answer.state() == LoadBalancerState::Absent
}

pub(crate) async fn nothing_to_delete(world: World) -> bool {
    world.adapter.delete("web").await.is_err()
}

pub(crate) async fn absent_without_an_id(world: World) -> bool {
    world.made().await;
    absent(&world.adapter.delete("web").await.expect("answered")) && world.balancers().await == 1
}

pub(crate) async fn absent_while_made(world: World) -> bool {
    world.cloud.settings(json!({ "provisioning": { "create_ms": 5000 } })).await;
    hang_up(&world, &world.web().await).await;
    absent(&world.adapter.delete("web").await.expect("answered")) && world.balancers().await == 1
}

pub(crate) async fn absent_while_there(world: World) -> bool {
    world.made().await;
    world.cloud.settings(json!({ "provisioning": { "delete_ms": 5000 } })).await;
    absent(&world.adapter.delete("web").await.expect("answered")) && world.balancers().await == 1
}

pub(crate) async fn active_after_delete(world: World) -> bool {
    let request = world.made().await;
    world.adapter.deleted("web").await;
    let told = world.adapter.ensured(&request).await;
    told.state() == LoadBalancerState::Active && world.balancers().await == 0
}

pub(crate) async fn namesake_deleted(world: World) -> bool {
    let mut other = world.made().await;
    other.context.iter_mut().for_each(|context| "c-2".clone_into(&mut context.cluster_id));
    other.key.iter_mut().for_each(|key| "c-2".clone_into(&mut key.cluster_id));
    let set = PutBackendSetRequest {
        context: other.context.clone(),
        id: "c-2".to_owned(),
        content: Some(Content::Full(Default::default())),
    };
    world.adapter.balancers().put_backend_set(set).await.expect("put");
    other.spec.iter_mut().for_each(|spec| "c-2".clone_into(&mut spec.backend_set_id));
    world.adapter.ensured(&other).await;
    world.adapter.deleted("web").await;
    soon(async || world.balancers().await == 0).await
}

pub(crate) async fn foreign_deleted(world: World) -> bool {
    let tags = json!({ "cloudadapter.dev/cluster-id": "c-9", "cloudadapter.dev/owner-uid": "web" });
    let theirs = json!({ "name": "theirs", "scheme": "internet", "tags": tags });
    let made = world.vendor(Method::POST, "load-balancers", theirs).await;
    let ids = [("loadbalancer".to_owned(), made["id"].as_str().expect("an ID").to_owned())].into();
    let mut deletion = deletion();
    deletion.known = Some(Known { vendor_ids: Some(VendorIds { ids }), ..Known::default() });
    // Only the call matters, not its result.
    drop(world.adapter.balancers().delete_load_balancer(deletion).await);
    world.balancers().await == 0
}

pub(crate) async fn adopted(world: World) -> bool {
    let mut request = world.web().await;
    request.dry_run = true;
    let plan = world.adapter.ensure(&request).await.expect("possible").plan;
    let name = plan[0].description.trim_start_matches("create load balancer ");
    world.vendor(Method::POST, "load-balancers", json!({ "name": name, "scheme": "internet" })).await;
    let world = world.restarted().await;
    world.adapter.ensure(&world.web().await).await.is_ok()
}

pub(crate) async fn members_lost(world: World) -> bool {
    let base = world.adapter.put(&[backend(1), backend(2)]).await;
    let delta = BackendDelta { base_id: base, add: vec![backend(3)], remove: Vec::new() };
    let content = Some(Content::Delta(delta));
    let set = PutBackendSetRequest { context: Some(context()), id: "three".to_owned(), content };
    world.adapter.balancers().put_backend_set(set).await.expect("put");
    let mut request = world.web().await;
    request.spec.iter_mut().for_each(|spec| "three".clone_into(&mut spec.backend_set_id));
    world.adapter.ensured(&request).await;
    world.first().await["pools"][0]["members"].as_array().expect("members").len() == 1
}

pub(crate) async fn unknown_set_taken(world: World) -> bool {
    let mut request = world.web().await;
    request.spec.iter_mut().for_each(|spec| "nowhere".clone_into(&mut spec.backend_set_id));
    world.adapter.ensure(&request).await.is_ok()
}

pub(crate) async fn listener_touched(world: World) -> bool {
    world.made().await;
    let two = world.adapter.request("web", spec([tcp(80)]), &[backend(1), backend(2)]).await;
    world.adapter.ensured(&two).await;
    assert_eq!(world.first().await["pools"][0]["members"].as_array().expect("members").len(), 2);
    world.cloud.count(Operation::UpdateListener) > 0
}

pub(crate) async fn recreated_for_a_port(world: World) -> bool {
    world.made().await;
    let first = world.first().await["id"].take();
    let other = world.adapter.request("web", spec([tcp(81)]), &[backend(1)]).await;
    world.adapter.ensured(&other).await;
    world.first().await["id"] != first
}

pub(crate) async fn recreated_unasked(world: World) -> bool {
    let mut request = world.made().await;
    request.spec.iter_mut().for_each(|spec| spec.set_scheme(Scheme::Internal));
    world.adapter.ensure(&request).await.is_ok()
}

pub(crate) async fn orphan_of_a_rename(world: World) -> bool {
    let mut request = world.made().await;
    request.owner.iter_mut().for_each(|owner| "shop".clone_into(&mut owner.name));
    world.adapter.ensured(&request).await;
    world.balancers().await == 2
}

pub(crate) async fn one_for_both(world: World) -> bool {
    let mut request = world.made().await;
    request.key.iter_mut().for_each(|key| "another".clone_into(&mut key.owner_uid));
    request.owner.iter_mut().for_each(|owner| "another".clone_into(&mut owner.uid));
    world.adapter.ensured(&request).await;
    world.balancers().await == 1
}

pub(crate) async fn change_waits_for_a_create(world: World) -> bool {
    const LONGER_MS: u128 = 2 * WHILE.as_millis();
    world.made().await;
    world.spoil("CreateLoadBalancer", json!("always"), json!({ "delay_ms": LONGER_MS })).await;
    let mail = world.adapter.request("mail", spec([tcp(80)]), &[backend(1)]).await;
    let more = world.adapter.request("web", spec([tcp(80), tcp(443)]), &[backend(1)]).await;
    hang_up(&world, &mail).await;
    let written = soon(async || world.cloud.count(Operation::CreateListener) > 0);
    let (_answer, written) = tokio::join!(world.adapter.ensure(&more), written);
    !written
}

pub(crate) async fn given_up(world: World) -> bool {
    let request = world.web().await;
    world.refuse("ListLoadBalancers", 503).await;
    let gone = |error: AdapterError| error.reason == Reason::ResourceGone;
    soon(async || world.adapter.ensure(&request).await.is_err_and(gone)).await
}

pub(crate) async fn error_pending(world: World) -> bool {
    world.spoil("CreateListener", json!({ "next": 1 }), json!("error_state")).await;
    let request = world.web().await;
    !soon(async || {
        world.adapter.ensure(&request).await.expect("answered").state() == LoadBalancerState::Error
    })
    .await
}

pub(crate) async fn conflict_fails(world: World) -> bool {
    let busy = json!({ "respond": { "status": 409, "body": { "code": "immutable", "message": "busy" } } });
    world.spoil("CreateListener", json!({ "next": 1 }), busy).await;
    world.adapter.ensure(&world.web().await).await.is_err()
}

pub(crate) async fn unfinished_hidden(world: World) -> bool {
    world.cloud.settings(json!({ "provisioning": { "create_ms": 5000 } })).await;
    hang_up(&world, &world.web().await).await;
    !soon(async || listed(&world).await == 1).await
}

async fn listed(world: &World) -> usize {
    let request = WatchLoadBalancersRequest {
        context: Some(live()),
        stop_when_synced: true,
        ..WatchLoadBalancersRequest::default()
    };
    let stream = world.adapter.balancers().watch_load_balancers(request).await;
    let mut stream = stream.expect("a stream").into_inner();
    let mut listed = 0;
    while let Some(message) = stream.message().await.expect("no error") {
        if let Some(Event::Items(items)) = message.event {
            listed += items.items.len();
        }
    }
    listed
}

pub(crate) async fn old_hash_rewritten(world: World) -> bool {
    world.made().await;
    let mut tags = world.first().await["tags"].take();
    tags["cloudadapter.dev/hash"] = json!("0-old");
    world.vendor(Method::PATCH, "load-balancers/lb-0001", json!({ "tags": tags })).await;
    let world = world.restarted().await;
    let request = world.web().await;
    assert_eq!(world.adapter.ensured(&request).await.state(), LoadBalancerState::Active);
    world.cloud.counts().writes > 0
}

pub(crate) async fn dry_run_writes(world: World) -> bool {
    let mut request = world.web().await;
    request.dry_run = true;
    world.adapter.ensure(&request).await.expect("possible");
    world.balancers().await == 1
}

pub(crate) async fn open_to_all(world: World) -> bool {
    let mut request = world.web().await;
    request.spec.iter_mut().for_each(|spec| spec.source_ranges = vec!["192.0.2.0/24".to_owned()]);
    world.adapter.ensured(&request).await;
    world.first().await["listeners"][0]["allowed_cidrs"] == json!([])
}

pub(crate) async fn called_otherwise(world: World) -> bool {
    let mut request = world.web().await;
    request.spec.iter_mut().for_each(|spec| "front".clone_into(&mut spec.name));
    world.adapter.ensured(&request).await;
    world.first().await["name"] != json!("front")
}

pub(crate) async fn made_twice(world: World) -> bool {
    world.spoil("CreateLoadBalancer", json!({ "next": 1 }), json!("close_after")).await;
    world.adapter.ensured(&world.web().await).await;
    world.cloud.count(Operation::CreateLoadBalancer) == 2
}

pub(crate) async fn made_again_unseen(world: World) -> bool {
    world.cloud.settings(json!({ "consistency_ms": 700 })).await;
    world.adapter.ensured(&world.web().await).await;
    // A second load balancer may have been found and removed since.
    world.balancers().await > 1 || world.cloud.count(Operation::DeleteLoadBalancer) > 0
}

pub(crate) async fn cut_by_hanging_up(world: World) -> bool {
    world.cloud.settings(json!({ "provisioning": { "create_ms": 100 } })).await;
    hang_up(&world, &world.web().await).await;
    !soon(async || world.cloud.count(Operation::CreateListener) == 1).await
}
