//! Faults in the existence and the listings of instances.

use cloud_api_proto::v1alpha1::{
    Existence, WatchInstancesRequest, WatchInstancesResponse, instance_ref::Ref,
    watch_instances_response::Event,
};
use reqwest::Method;
use serde_json::json;
use sha2::{Digest as _, Sha256};

use crate::{
    adapter::bench::live,
    broken::world::{WHILE, World, id, soon},
    support::until,
};

/// Returns all messages of a listing; fewer if the listing breaks off or does not end.
async fn listing(world: &World) -> Vec<Event> {
    let request = WatchInstancesRequest {
        context: Some(live()),
        stop_when_synced: true,
        ..WatchInstancesRequest::default()
    };
    let mut stream = world.adapter.instances().watch_instances(request).await.expect("a stream").into_inner();
    let mut events = Vec::new();
    let all = async {
        while let Ok(Some(WatchInstancesResponse { event })) = stream.message().await {
            events.extend(event);
        }
    };
    // If the listing does not end, the messages received so far are evaluated.
    drop(tokio::time::timeout(WHILE, all).await);
    events
}

fn items(events: &[Event]) -> Vec<String> {
    let items = events.iter().filter_map(|event| match event {
        Event::Items(items) => Some(items),
        Event::Reset(_) | Event::Synced(_) | Event::Upsert(_) | Event::Gone(_) | Event::Bookmark(_) => None,
    });
    items.flat_map(|items| items.items.iter().map(|one| one.provider_id.clone())).collect()
}

fn checksum(events: &[Event]) -> Option<u64> {
    events.iter().find_map(|event| match event {
        Event::Synced(synced) => Some(synced.checksum),
        Event::Reset(_) | Event::Items(_) | Event::Upsert(_) | Event::Gone(_) | Event::Bookmark(_) => None,
    })
}

/// Whether a listing ends with Synced although it is not complete.
async fn cut(world: &World, wanted: usize) -> bool {
    let events = listing(world).await;
    checksum(&events).is_some() && items(&events).len() < wanted
}

pub(crate) async fn gone_by_401(world: World) -> bool {
    world.cloud.machines(2).await;
    world.look_up([id(1), id(2)]).await.expect("there");
    world.spoil("*", json!("always"), json!({ "respond": { "status": 401 } })).await;
    world.look_up([id(1)]).await.is_ok_and(|answer| answer.results[0].existence() == Existence::Gone)
}

pub(crate) async fn gone_by_404(world: World) -> bool {
    world.cloud.machines(1).await;
    world.look_up([id(1)]).await.expect("there");
    world.spoil("*", json!("always"), json!({ "respond": { "status": 404 } })).await;
    world.look_up([id(1)]).await.is_ok_and(|answer| answer.results[0].existence() == Existence::Gone)
}

pub(crate) async fn other_order(world: World) -> bool {
    world.cloud.machines(2).await;
    let results = world.look_up([id(1), id(2)]).await.expect("there").results;
    results[0].instance.as_ref().expect("there").name == "node-2"
}

pub(crate) async fn batch_fails(world: World) -> bool {
    world.cloud.machines(1).await;
    world.look_up([id(1), Ref::ProviderId("sim://sim-1".to_owned())]).await.is_err()
}

pub(crate) async fn no_zone(world: World) -> bool {
    world.cloud.machines(1).await;
    world.instance(1).await.zone.is_empty()
}

/// Two instances that the adapter has seen, one of which was deleted since.
async fn one_less(world: &World) {
    world.cloud.machines(2).await;
    world.look_up([id(1), id(2)]).await.expect("there");
    world.cloud.admin(Method::DELETE, "instances/i-0001", json!({})).await;
}

pub(crate) async fn no_evidence(world: World) -> bool {
    one_less(&world).await;
    until("it is gone", async || world.existence(id(1)).await == Existence::Gone).await;
    world.result(id(1)).await.evidence.is_none()
}

pub(crate) async fn never_gone(world: World) -> bool {
    one_less(&world).await;
    !soon(async || world.existence(id(1)).await == Existence::Gone).await
}

pub(crate) async fn foreign_gone(world: World) -> bool {
    world.existence(Ref::ProviderId("other:///i-1".to_owned())).await == Existence::Gone
}

pub(crate) async fn name_gone(world: World) -> bool {
    world.existence(Ref::NodeName("nobody".to_owned())).await == Existence::Gone
}

pub(crate) async fn unseen_gone(world: World) -> bool {
    world.existence(id(99)).await == Existence::Gone
}

pub(crate) async fn wrong_checksum(world: World) -> bool {
    world.cloud.machines(3).await;
    let events = listing(&world).await;
    let first =
        |id: String| Sha256::digest(id).iter().take(8).fold(0_u64, |sum, byte| sum << 8 | u64::from(*byte));
    let sum = items(&events).into_iter().map(first).fold(0, u64::wrapping_add);
    checksum(&events).expect("synced") != sum
}

pub(crate) async fn never_synced(world: World) -> bool {
    world.cloud.machines(1).await;
    let events = listing(&world).await;
    items(&events).len() == 1 && checksum(&events).is_none()
}

pub(crate) async fn no_reset(world: World) -> bool {
    !matches!(listing(&world).await.first(), Some(Event::Reset(_)))
}

pub(crate) async fn resumed_without_what_came(world: World) -> bool {
    let synced = listing(&world).await.into_iter().find_map(|event| match event {
        Event::Synced(synced) => Some(synced),
        Event::Reset(_) | Event::Items(_) | Event::Upsert(_) | Event::Gone(_) | Event::Bookmark(_) => None,
    });
    world.cloud.machines(1).await;
    world.look_up([id(1)]).await.expect("there");
    let request = WatchInstancesRequest {
        context: Some(live()),
        resume_token: synced.expect("synced").token,
        ..WatchInstancesRequest::default()
    };
    let mut stream = world.adapter.instances().watch_instances(request).await.expect("a stream").into_inner();
    let told = async {
        while let Ok(Some(message)) = stream.message().await {
            if matches!(message.event, Some(Event::Upsert(_))) {
                break;
            }
        }
    };
    tokio::time::timeout(WHILE, told).await.is_err()
}

pub(crate) async fn synced_after_broken_page(world: World) -> bool {
    world.cloud.settings(json!({ "page_size_max": 2 })).await;
    world.cloud.machines(5).await;
    world.spoil("ListInstances", json!({ "nth": 2 }), json!({ "respond": { "status": 500 } })).await;
    cut(&world, 5).await
}

pub(crate) async fn empty_on_error(world: World) -> bool {
    world.cloud.machines(3).await;
    world.refuse("ListInstances", 500).await;
    cut(&world, 3).await
}

pub(crate) async fn items_lost(world: World) -> bool {
    world.cloud.settings(json!({ "page_size_max": 2 })).await;
    world.cloud.machines(5).await;
    cut(&world, 5).await
}

pub(crate) async fn giant_chunk(world: World) -> bool {
    world.cloud.machines(600).await;
    let events = listing(&world).await;
    assert_eq!(items(&events).len(), 600);
    events.iter().any(|event| items(std::slice::from_ref(event)).len() > 512)
}

pub(crate) async fn gone_by_an_empty_list(world: World) -> bool {
    world.cloud.machines(1).await;
    world.instance(1).await;
    world.spoil("ListInstances", json!("always"), json!("empty_page")).await;
    listing(&world).await;
    world.existence(id(1)).await == Existence::Gone
}

pub(crate) async fn stale(world: World) -> bool {
    world.cloud.machines(1).await;
    listing(&world).await;
    world.cloud.admin(Method::PATCH, "instances/i-0001", json!({ "status": "stopped" })).await;
    world.instance(1).await.vendor_state != "stopped"
}

pub(crate) async fn restless(world: World) -> bool {
    world.cloud.machines(1).await;
    let first = world.instance(1).await.fingerprint;
    world.instance(1).await.fingerprint != first
}

pub(crate) async fn frozen(world: World) -> bool {
    world.cloud.machines(1).await;
    let first = world.instance(1).await.fingerprint;
    world.cloud.admin(Method::PATCH, "instances/i-0001", json!({ "status": "stopped" })).await;
    world.instance(1).await.fingerprint == first
}
