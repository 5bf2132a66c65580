//! These tests use the fake with a real client, a mirror and a recorder.

use std::time::Duration;

use ::kube::{
    Api, ResourceExt as _,
    api::{DeleteParams, Patch, PatchParams, Preconditions},
};
use k8s_openapi::api::core::v1::Node;
use serde_json::json;
use tokio::task::JoinSet;

use super::*;
use crate::{
    Clock,
    config::Listing,
    mirror::Mirror,
    testing::{BEGIN, eventually, node},
};

fn follow(kube: &FakeKube, tasks: &mut JoinSet<()>) -> Mirror<ObjectName, Option<String>> {
    let mirror = Mirror::new("nodes", Clock::starting_at(BEGIN));
    let (follower, api) = (mirror.clone(), Api::<Node>::all(kube.client()));
    let trim = |node: Node| Some(node.labels().get("v").cloned());
    tasks.spawn(async move { follower.follow_kubernetes(api, Listing::default(), trim, |_| ()).await });
    mirror
}

#[tokio::test(start_paused = true)]
async fn a_mirror_shows_existing_objects_and_changes() {
    let (kube, mut tasks) = (FakeKube::new(), JoinSet::new());
    kube.put::<Node>(node("a").label("v", "1"));
    let mirror = follow(&kube, &mut tasks);
    mirror.synced().await;
    let value =
        |name: &str| mirror.get(&ObjectName::cluster(name)).map(|value| value.as_deref().map(str::to_owned));
    assert_eq!(value("a"), Some(Some("1".to_owned())));
    let api: Api<Node> = Api::all(kube.client());
    let patch = Patch::Merge(json!({ "metadata": { "labels": { "v": "2" } } }));
    api.patch("a", &PatchParams::default(), &patch).await.expect("a good patch");
    kube.put::<Node>(node("b"));
    eventually("both changes arrive", || value("a") == Some(Some("2".to_owned())) && value("b").is_some())
        .await;
    kube.delete::<Node>(&ObjectName::cluster("a"));
    eventually("the node is deleted", || value("a").is_none()).await;
    assert_eq!(kube.writes().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_mirror_waits_for_the_api_server_and_resumes() {
    let (kube, mut tasks) = (FakeKube::new(), JoinSet::new());
    kube.away(true);
    let mirror = follow(&kube, &mut tasks);
    eventually("the outage is noticed", || mirror.readiness().is_err_and(|text| text.contains("refused")))
        .await;
    kube.put::<Node>(node("a"));
    kube.away(false);
    mirror.synced().await;
    assert_eq!(mirror.readiness(), Ok(()));
    kube.away(true);
    eventually("the second outage is noticed", || !mirror.link().is_up()).await;
    assert_eq!(mirror.items().len(), 1, "the content stays");
    kube.delete::<Node>(&ObjectName::cluster("a"));
    kube.away(false);
    eventually("changes during the outage are seen", || mirror.items().is_empty()).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(mirror.link().is_up());
}

#[tokio::test(start_paused = true)]
async fn a_deletion_checks_its_preconditions() {
    let kube = FakeKube::new();
    kube.put::<Node>(node("a"));
    let api: Api<Node> = Api::all(kube.client());
    let version = api.get("a").await.expect("there").resource_version();
    let only = |uid: Option<&str>, resource_version: Option<String>| DeleteParams {
        preconditions: Some(Preconditions { uid: uid.map(str::to_owned), resource_version }),
        ..DeleteParams::default()
    };
    for wrong in [only(Some("uid-b"), None), only(Some("uid-a"), Some("0".to_owned()))] {
        let error = kube_api::Error::from(api.delete("a", &wrong).await.expect_err("another object"));
        assert!(error.is_stale(), "{error}");
    }
    api.delete("a", &only(Some("uid-a"), version)).await.expect("this object");
    assert!(api.get("a").await.is_err());
}

#[tokio::test(start_paused = true)]
async fn faults_apply_to_the_requests_that_they_name() {
    let kube = FakeKube::new();
    for name in ["a", "b"] {
        kube.put::<Node>(node(name));
    }
    let api: Api<Node> = Api::all(kube.client());
    let patch = Patch::Merge(json!({ "metadata": { "labels": { "v": "2" } } }));
    let write = async |name: &str| {
        let answer = kube_api::within(api.patch(name, &PatchParams::default(), &patch)).await;
        answer.map(drop).map_err(|error| (error.status(), error.to_string()))
    };

    kube.order(Fault::status(409).on(Verb::Patch, "nodes").of("a").times(2));
    assert_eq!(write("b").await, Ok(()));
    let ends: Vec<_> = [write("a").await, write("a").await, write("a").await].map(|end| end.is_ok()).into();
    assert_eq!(ends, [false, false, true]);

    kube.order(Fault::status(500).on(Verb::Patch, "nodes/status"));
    assert_eq!(write("a").await, Ok(()), "the body is plain text");

    kube.order(Fault::throttled(Duration::from_secs(7)));
    let (status, text) = write("a").await.expect_err("throttled");
    assert_eq!(status, Some(429));
    assert!(text.contains("try again later"), "{text}");
    kube.heal();
    assert_eq!(write("a").await, Ok(()));
    assert_eq!(kube.requests(Verb::Patch, "nodes"), 7);
}

#[tokio::test(start_paused = true)]
async fn a_slow_request_takes_effect_and_a_hanging_one_does_not() {
    let kube = FakeKube::new();
    kube.put::<Node>(node("a"));
    let api: Api<Node> = Api::all(kube.client());
    let delete = async || kube_api::within(api.delete("a", &DeleteParams::default())).await;

    kube.order(Fault::hang().on(Verb::Delete, "nodes"));
    assert!(matches!(delete().await, Err(kube_api::Error::Timeout)));
    assert!(kube.get::<Node>(&ObjectName::cluster("a")).is_some());
    kube.heal();
    kube.order(Fault::slow(Duration::from_secs(60)).on(Verb::Delete, "nodes"));
    assert!(matches!(delete().await, Err(kube_api::Error::Timeout)));
    assert!(kube.get::<Node>(&ObjectName::cluster("a")).is_none());
}

#[tokio::test(start_paused = true)]
async fn another_client_can_write_first() {
    let kube = FakeKube::new();
    kube.put::<Node>(node("a"));
    let api: Api<Node> = Api::all(kube.client());
    let before = api.get("a").await.expect("there");
    kube.before_next_write(|kube| {
        kube.change::<Node>(&ObjectName::cluster("a"), |node| node.metadata.labels = None);
    });
    let patch =
        json!({ "metadata": { "resourceVersion": before.resource_version(), "labels": { "v": "1" } } });
    let answer = kube_api::within(api.patch("a", &PatchParams::default(), &Patch::Merge(&patch))).await;
    assert!(answer.is_err_and(|error| error.is_stale()));
}

#[tokio::test(start_paused = true)]
async fn a_write_to_a_recreated_node_is_stale() {
    let kube = FakeKube::new();
    kube.put::<Node>(node("a").uid("u-2"));
    let api: Api<Node> = Api::all(kube.client());
    let params = PatchParams::default();
    let guarded = json!({ "metadata": { "uid": "u-1", "labels": { "v": "1" } } });
    let tested = json!([{ "op": "test", "path": "/metadata/uid", "value": "u-1" }]);
    let tested = Patch::Json::<()>(serde_json::from_value(tested).expect("a patch"));
    for (name, answer, is_about_another) in [
        ("merge", kube_api::within(api.patch("a", &params, &Patch::Merge(&guarded))).await, true),
        (
            "strategic",
            kube_api::within(api.patch_status("a", &params, &Patch::Strategic(&guarded))).await,
            true,
        ),
        // The answer to a JSON patch says only that a `test` operation failed. It does not say that the UID differs.
        ("JSON", kube_api::within(api.patch("a", &params, &tested)).await, false),
    ] {
        let error = answer.expect_err("the UID differs");
        let judged = (error.status(), error.is_stale(), error.is_about_another());
        assert_eq!(judged, (Some(422), true, is_about_another), "{name}: {error}");
    }
    assert_eq!(kube.get::<Node>(&ObjectName::cluster("a")).and_then(|node| node.metadata.labels), None);
}

#[tokio::test(start_paused = true)]
async fn a_mirror_lists_again_when_its_version_is_forgotten() {
    let (kube, mut tasks) = (FakeKube::new(), JoinSet::new());
    kube.put::<Node>(node("a"));
    let mirror = follow(&kube, &mut tasks);
    mirror.synced().await;
    assert_eq!(kube.requests(Verb::List, "nodes"), 1);
    kube.compact();
    kube.put::<Node>(node("b"));
    eventually("changes during the silence are seen", || mirror.items().len() == 2).await;
    assert!(kube.requests(Verb::List, "nodes") > 1);
    eventually("the mirror follows again", || mirror.link().is_up()).await;
    kube.put::<Node>(node("c"));
    eventually("the mirror follows again", || mirror.items().len() == 3).await;
}

#[tokio::test(start_paused = true)]
async fn a_listing_starts_again_when_its_pages_are_forgotten() {
    let (kube, mut tasks) = (FakeKube::new(), JoinSet::new());
    for n in 0..250 {
        kube.put::<Node>(node(&format!("n{n}")));
    }
    kube.order(Fault::status(410).on(Verb::Continue, "nodes").times(1));
    let mirror = follow(&kube, &mut tasks);
    mirror.synced().await;
    assert_eq!(mirror.items().len(), 250);
    assert_eq!((kube.requests(Verb::List, "nodes"), kube.requests(Verb::Continue, "nodes")), (2, 3));
}
