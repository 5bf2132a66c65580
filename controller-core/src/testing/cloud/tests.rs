//! These tests use the fake adapter with a real client and a mirror.

mod replicas;

use cloud_api_proto::{
    Reason,
    v1alpha1::{
        EnsureLoadBalancerRequest, Existence, InstanceRef, LoadBalancerKey, LoadBalancerSpec,
        instance_ref::Ref,
    },
};
use tokio::task::JoinSet;

use super::*;
use crate::{
    adapter::Call,
    mirror::{Mirror, cloud::Instances},
    testing::{eventually, instance},
};

fn follow(cloud: &FakeCloud, tasks: &mut JoinSet<()>) -> Mirror<String, String> {
    let mirror = Mirror::new("instances", cloud.clock());
    let (follower, adapter) = (mirror.clone(), cloud.adapter());
    tasks.spawn(async move { follower.follow_cloud(&adapter, Instances, |item| item.name, |_| ()).await });
    mirror
}

fn names(mirror: &Mirror<String, String>) -> Vec<String> {
    mirror.items().into_iter().map(|(_, name)| name.to_string()).collect()
}

#[tokio::test(start_paused = true)]
async fn a_mirror_shows_existing_objects_and_changes() {
    let (cloud, mut tasks) = (FakeCloud::new(), JoinSet::new());
    cloud.put(instance("sim://north/i-1").named("a"));
    let mirror = follow(&cloud, &mut tasks);
    mirror.synced().await;
    assert_eq!(names(&mirror), ["a"]);
    cloud.put(instance("sim://north/i-2").named("b"));
    eventually("the second instance appears", || names(&mirror) == ["a", "b"]).await;
    cloud.edit(|state| drop(state.instances.remove("sim://north/i-1")));
    eventually("the first instance disappears", || names(&mirror) == ["b"]).await;
    assert_eq!(mirror.readiness(), Ok(()));
}

#[tokio::test(start_paused = true)]
async fn a_quiet_mirror_stays_fresh_by_bookmarks() {
    let (cloud, mut tasks) = (FakeCloud::new(), JoinSet::new());
    let mirror = follow(&cloud, &mut tasks);
    mirror.synced().await;
    tokio::time::sleep(Duration::from_mins(10)).await;
    assert!(mirror.age().is_some_and(|age| age.as_secs() <= 30), "{:?}", mirror.age());
    assert_eq!(cloud.calls("WatchInstances"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_mirror_is_as_old_as_what_the_adapter_knows() {
    let (cloud, mut tasks) = (FakeCloud::new(), JoinSet::new());
    let mirror = follow(&cloud, &mut tasks);
    mirror.synced().await;
    cloud.lists(false);
    tokio::time::sleep(Duration::from_hours(1)).await;
    assert_eq!(mirror.age().map(|age| age.as_secs()), Some(3600), "bookmarks do not reduce the age");
    assert_eq!(mirror.readiness(), Ok(()), "the adapter answers");
    cloud.lists(true);
    tokio::time::sleep(Duration::from_secs(31)).await;
    assert!(mirror.age().is_some_and(|age| age.as_secs() <= 30), "{:?}", mirror.age());
}

#[tokio::test(start_paused = true)]
async fn the_age_is_bounded_despite_a_wrong_adapter_clock() {
    let clock = Clock::starting_at(BEGIN);
    let mirror: Mirror<String, ()> = Mirror::new("instances", clock);
    let minute = Duration::from_mins(1);
    mirror.mark_observed(BEGIN + minute);
    assert_eq!((mirror.observed(), mirror.age()), (Some(BEGIN), Some(Duration::ZERO)));
    mirror.mark_observed(BEGIN - minute);
    assert_eq!((mirror.observed(), mirror.age()), (Some(BEGIN - minute), Some(minute)));
}

#[tokio::test(start_paused = true)]
async fn a_mirror_waits_for_the_adapter_and_resumes() {
    let (cloud, mut tasks) = (FakeCloud::new(), JoinSet::new());
    cloud.away(true);
    cloud.put(instance("sim://north/i-1").named("a"));
    let mirror = follow(&cloud, &mut tasks);
    eventually("the outage is noticed", || mirror.readiness().is_err_and(|text| text.contains("refused")))
        .await;
    cloud.away(false);
    mirror.synced().await;
    cloud.away(true);
    eventually("the second outage is noticed", || !mirror.link().is_up()).await;
    assert_eq!(names(&mirror), ["a"], "the content stays");
    cloud.put(instance("sim://north/i-1").named("b"));
    cloud.away(false);
    eventually("changes during the outage are seen", || names(&mirror) == ["b"]).await;
    assert!(mirror.link().is_up());
}

#[tokio::test(start_paused = true)]
async fn an_immediate_replacement_is_not_an_outage() {
    let (cloud, mut tasks) = (FakeCloud::new(), JoinSet::new());
    let mirror = follow(&cloud, &mut tasks);
    mirror.synced().await;
    tokio::time::sleep(Duration::from_mins(1)).await;
    let mut links = mirror.links();
    links.mark_unchanged();
    cloud.away(true);
    cloud.away(false);
    cloud.put(instance("sim://north/i-1").named("a"));
    eventually("the adapter serves watches again", || names(&mirror) == ["a"]).await;
    assert!(!links.has_changed().expect("the mirror is listed"), "{}", mirror.link());
}

#[tokio::test(start_paused = true)]
async fn two_quick_replacements_are_not_an_outage() {
    let (cloud, mut tasks) = (FakeCloud::new(), JoinSet::new());
    let mirror = follow(&cloud, &mut tasks);
    mirror.synced().await;
    tokio::time::sleep(Duration::from_mins(1)).await;
    let mut links = mirror.links();
    links.mark_unchanged();
    for name in ["a", "b"] {
        cloud.away(true);
        cloud.away(false);
        cloud.put(instance("sim://north/i-1").named(name));
        eventually("the adapter serves watches again", || names(&mirror) == [name]).await;
        tokio::time::sleep(Duration::from_secs(3)).await;
    }
    assert!(!links.has_changed().expect("the mirror is listed"), "{}", mirror.link());
}

#[tokio::test(start_paused = true)]
async fn an_adapter_that_breaks_each_watch_is_an_outage() {
    let (cloud, mut tasks) = (FakeCloud::new(), JoinSet::new());
    let mirror = follow(&cloud, &mut tasks);
    mirror.synced().await;
    let mut links = mirror.links();
    links.mark_unchanged();
    for number in 0..4 {
        tokio::time::sleep(Duration::from_secs(3)).await;
        cloud.away(true);
        cloud.away(false);
        let name = number.to_string();
        cloud.put(instance("sim://north/i-1").named(&name));
        eventually("the adapter serves watches again", || names(&mirror) == [name.as_str()]).await;
    }
    assert!(links.has_changed().expect("the mirror is listed"), "{}", mirror.link());
}

#[tokio::test(start_paused = true)]
async fn an_adapter_that_hangs_is_an_outage() {
    let (cloud, mut tasks) = (FakeCloud::new(), JoinSet::new());
    let mirror = follow(&cloud, &mut tasks);
    mirror.synced().await;
    tokio::time::sleep(Duration::from_mins(1)).await;
    cloud.hang(true);
    // The client gives up the connection after 30 s, and the next attempt reports the outage.
    tokio::time::sleep(Duration::from_secs(65)).await;
    assert!(mirror.readiness().is_err(), "{}", mirror.link());
    cloud.hang(false);
    eventually("the adapter is back", || mirror.readiness().is_ok()).await;
}

#[tokio::test(start_paused = true)]
async fn a_batch_answers_each_reference_with_typed_errors() {
    let cloud = FakeCloud::new();
    cloud.put(instance("sim://north/i-1").named("a"));
    let adapter = cloud.adapter();
    let reference = |r#ref| InstanceRef { r#ref: Some(r#ref), ..InstanceRef::default() };
    let refs = vec![
        reference(Ref::NodeName("a".to_owned())),
        reference(Ref::ProviderId("sim://north/i-9".to_owned())),
        reference(Ref::ProviderId("aws:///z/i-1".to_owned())),
    ];
    let answer =
        adapter.batch_get_instances(Call::default(), refs.clone()).await.expect("the call is answered");
    let existences: Vec<_> = answer.results.iter().map(|result| result.existence()).collect();
    assert_eq!(existences, [Existence::Exists, Existence::NotVisible, Existence::Foreign]);
    let delay = Duration::from_secs(7);
    let error = AdapterError::new(Reason::VendorThrottled, "slow down").retry_after(delay);
    cloud.fail_next("BatchGetInstances", error.clone());
    let answer = adapter.batch_get_instances(Call::default(), refs.clone()).await;
    assert_eq!(answer.expect_err("ordered"), error);
    cloud.away(true);
    let answer = adapter.batch_get_instances(Call::default(), refs).await.expect_err("away");
    assert_eq!(answer.reason, Reason::OutcomeUnknown, "cut off in progress: {answer}");
    let refs = Vec::new();
    let answer = adapter.batch_get_instances(Call::default(), refs).await.expect_err("away");
    assert_eq!(answer.reason, Reason::VendorUnavailable, "refused: {answer}");
    assert!(answer.message.ends_with(": the connection was refused"), "{answer}");
    let ids: Vec<_> = cloud.read(|state| {
        state
            .batch_gets
            .iter()
            .map(|request| request.context.clone().unwrap_or_default().request_id)
            .collect()
    });
    assert_eq!(ids.len(), 1, "only answered calls are recorded: {ids:?}");
}

#[tokio::test(start_paused = true)]
async fn an_ensure_without_a_change_has_no_steps() {
    let (cloud, set) = (FakeCloud::new(), "set-1".to_owned());
    cloud.edit(|state| drop(state.backend_sets.insert(set.clone(), Vec::new())));
    let adapter = cloud.adapter();
    let request = |tag: &str| EnsureLoadBalancerRequest {
        key: Some(LoadBalancerKey { owner_uid: "u".to_owned(), ..LoadBalancerKey::default() }),
        spec: Some(LoadBalancerSpec {
            backend_set_id: set.clone(),
            tags: [("k".to_owned(), tag.to_owned())].into(),
            ..LoadBalancerSpec::default()
        }),
        ..EnsureLoadBalancerRequest::default()
    };
    let mut steps = Vec::new();
    for tag in ["a", "a", "b", "b"] {
        let answer =
            adapter.ensure_load_balancer(Call::default(), request(tag)).await.expect("the call is answered");
        steps.push((answer.step, answer.steps));
    }
    assert_eq!(steps, [(1, 1), (0, 0), (1, 1), (0, 0)]);
}

// Behaviour: P5
#[tokio::test(start_paused = true)]
async fn a_refused_caller_is_unready_until_it_is_accepted() {
    let (cloud, kube) = (FakeCloud::new(), crate::testing::FakeKube::new());
    let names = crate::start::Names { controller: "node-controller", component: "node", managed: &[] };
    let process = crate::testing::process(names, &kube, &cloud);
    cloud.fail_next("GetInfo", AdapterError::new(Reason::CallerUnauthenticated, "the token is too old"));
    process.adapter.get_info().await.expect_err("refused");
    let unready = process.health.readiness().expect_err("refused");
    assert_eq!(
        unready,
        "adapter: cloud adapter refuses GetInfo: CALLER_UNAUTHENTICATED: the token is too old"
    );
    process.adapter.get_info().await.expect("accepted");
    assert_eq!(process.health.readiness(), Ok(()));
}

#[tokio::test(start_paused = true)]
async fn a_refused_mirror_reports_it() {
    let (cloud, mut tasks) = (FakeCloud::new(), JoinSet::new());
    for _ in 0..3 {
        cloud
            .fail_next("WatchInstances", AdapterError::new(Reason::CallerForbidden, "not with this cluster"));
    }
    let mirror = follow(&cloud, &mut tasks);
    eventually("the mirror reports the refusal", || {
        let unready = mirror.readiness().err().unwrap_or_default();
        unready.contains("the adapter denies this controller access: CALLER_FORBIDDEN: not with this cluster")
    })
    .await;
    mirror.synced().await;
    assert_eq!(mirror.readiness(), Ok(()));
}
