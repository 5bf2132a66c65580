//! The fake under a real client, a mirror and a recorder.

use std::time::Duration;

use ::kube::{
    Api, ResourceExt as _,
    api::{Patch, PatchParams},
};
use k8s_openapi::api::core::v1::Node;
use serde_json::json;
use tokio::task::JoinSet;

use super::*;
use crate::{
    Clock,
    mirror::Mirror,
    testing::{BEGIN, eventually, node},
};

fn follow(kube: &FakeKube, tasks: &mut JoinSet<()>) -> Mirror<ObjectName, Option<String>> {
    let mirror = Mirror::new("nodes", Clock::starting_at(BEGIN));
    let (follower, api) = (mirror.clone(), Api::<Node>::all(kube.client()));
    let trim = |node: Node| Some(node.labels().get("v").cloned());
    tasks.spawn(async move { follower.follow_kubernetes(api, trim, |_| ()).await });
    mirror
}

#[tokio::test(start_paused = true)]
async fn a_mirror_sees_what_was_there_and_what_happens() {
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
    eventually("the node goes", || value("a").is_none()).await;
    assert_eq!(kube.writes().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_mirror_waits_for_the_api_server_and_goes_on_when_it_is_back() {
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
    assert_eq!(mirror.items().len(), 1, "the content stays in force");
    kube.delete::<Node>(&ObjectName::cluster("a"));
    kube.away(false);
    eventually("what happened meanwhile is seen", || mirror.items().is_empty()).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(mirror.link().is_up());
}
