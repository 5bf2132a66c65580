//! The page of a controller explains each object that waits with the text of the object's Event. Once the object is ready, it leaves the
//! list.

use adapter_sim::simcloud::model::Route;
use anyhow::{Context, ensure};
use cloud_api_proto::DOMAIN;
use e2e::{ADAPTER, Bed, CONTROLLERS, State as Cloud, WITHIN, eventually, node, service};
use k8s_openapi::api::core::v1::Event;
use kube::Api;
use kube::api::ListParams;
use reqwest::Method;
use serde::de::DeserializeOwned;
use serde_json::json;
use telemetry::report::{ControllerStatus, Explanation, Explanations, State};

/// The pod CIDR of a node for which another owner's route exists.
const TAKEN: &str = "10.244.2.0/24";

// Behaviour: P19
#[tokio::test]
async fn waiting_objects_are_explained_with_the_text_of_their_event() {
    let values = json!({ "adapter": { "cache": { "routes": { "maxAge": "2s" } } } });
    let mut bed = Bed::install_with(&values).await.unwrap();
    an_adapter_that_is_away(&mut bed).await;
    a_mistake_in_an_annotation(&mut bed).await;
    a_quota(&mut bed).await;
    a_missing_instance(&mut bed).await;
    a_route_that_cannot_be_created(&mut bed).await;
    what_cannot_be_asked(&mut bed).await;
}

async fn an_adapter_that_is_away(bed: &mut Bed) {
    for name in CONTROLLERS {
        bed.cluster.pods.get(name).unwrap().start().unwrap();
    }
    bed.cluster.cloud.create_instance("a").await.unwrap();
    node("a").pods("10.244.1.0/24").register(&bed.client()).await.unwrap();
    service("web").port(80).create(&bed.client()).await.unwrap();
    bed.wait_for_event("Service", "web", "SyncLoadBalancerFailed").await.unwrap();
    let web = waits(bed, "service-controller", "Service", "default/web").await;
    assert!(
        web.waits_for.is_some_and(|it| it.contains("waiting until the adapter is reachable")),
        "{:?}",
        web.plan
    );
    assert!(web.wanted.iter().any(|it| it.starts_with("1 listener: TCP 80 -> ")), "{:?}", web.wanted);
    bed.wait_for_event("Node", "a", "CloudProviderUnavailable").await.unwrap();
    waits(bed, "node-controller", "Node", "a").await;
    for name in CONTROLLERS {
        let status: ControllerStatus = page(bed, name, "/status").await;
        assert!(status.adapter.trouble.is_some_and(|it| it.contains("unavailable since")), "{name}");
        assert_eq!((status.controller.as_str(), status.held), (name, vec![0]));
    }
    let of_node: ControllerStatus = page(bed, "node-controller", "/status").await;
    assert_eq!(of_node.unsettled, 1);

    bed.cluster.pods.get(ADAPTER).unwrap().start().unwrap();
    bed.initialised("a").await.unwrap();
    bed.address("web").await.unwrap();
    all_is_settled(bed).await;
    let web = explained(bed, "service-controller", "default/web").await;
    assert_eq!((web.state, web.known, web.held), (State::Settled, true, true));
    assert_eq!(web.plan, [""; 0], "nothing is left to do");
    assert!(web.cloud.iter().any(|it| it.contains(" ACTIVE ")), "{:?}", web.cloud);
    let a = explained(bed, "route-controller", "a").await;
    assert!(a.cloud.iter().any(|it| it.contains(" to 10.244.1.0/24 via ")), "{:?}", a.cloud);
    let status: ControllerStatus = page(bed, "service-controller", "/status").await;
    assert_eq!((status.adapter.trouble, status.adapter.replica.is_some()), (None, true));
}

async fn a_mistake_in_an_annotation(bed: &mut Bed) {
    let key = format!("lb.{DOMAIN}/internal");
    service("wrong").port(80).annotation(&key, "perhaps").create(&bed.client()).await.unwrap();
    bed.wait_for_event("Service", "wrong", "SyncLoadBalancerFailed").await.unwrap();
    let wrong = waits(bed, "service-controller", "Service", "default/wrong").await;
    assert!(wrong.waits_for.is_some_and(|it| it.contains(&key)), "{:?}", wrong.plan);
    assert_eq!((wrong.reason, wrong.next_try), (None, None), "only a change of the Service helps");
    bed.patch_service("wrong", &json!({ "metadata": { "annotations": { key: "true" } } })).await.unwrap();
    bed.address("wrong").await.unwrap();
    all_is_settled(bed).await;
}

async fn a_quota(bed: &mut Bed) {
    bed.cluster.cloud.configure(&json!({ "quotas": { "load_balancers": 2 } })).await.unwrap();
    service("full").port(80).create(&bed.client()).await.unwrap();
    bed.wait_for_event("Service", "full", "SyncLoadBalancerFailed").await.unwrap();
    let full = waits(bed, "service-controller", "Service", "default/full").await;
    assert_eq!(full.reason.as_deref(), Some("VENDOR_QUOTA"));
    assert!(full.since.is_some() && full.next_try > full.since && full.attempts > 0, "{full:?}");
    assert!(matches!(full.plan.as_slice(), [only] if only.starts_with("ensure ")), "{:?}", full.plan);
    bed.cluster.cloud.configure(&json!({ "quotas": { "load_balancers": 100 } })).await.unwrap();
    // Without a restart, the controller would retry only after five minutes.
    let controller = bed.cluster.pods.get("service-controller").unwrap();
    controller.terminate().await.unwrap();
    controller.start().unwrap();
    bed.address("full").await.unwrap();
    all_is_settled(bed).await;
}

async fn a_missing_instance(bed: &mut Bed) {
    node("late").register(&bed.client()).await.unwrap();
    bed.wait_for_event("Node", "late", "InstanceNotVisible").await.unwrap();
    let late = waits(bed, "node-controller", "Node", "late").await;
    assert_eq!(late.wanted, ["an instance named late"]);
    bed.cluster.cloud.create_instance("late").await.unwrap();
    bed.initialised("late").await.unwrap();
    all_is_settled(bed).await;
}

async fn a_route_that_cannot_be_created(bed: &mut Bed) {
    let there = bed.cluster.cloud.state().await.unwrap();
    let a = there.instances.iter().find(|it| it.name == "a").unwrap();
    bed.cluster.cloud.create_route(TAKEN, &a.id).await.unwrap();
    let theirs = route(&bed.cluster.cloud.state().await.unwrap()).unwrap();
    bed.join("b", Some(TAKEN)).await.unwrap();
    bed.wait_for_event("Node", "b", "FailedToCreateRoute").await.unwrap();
    let b = waits(bed, "route-controller", "Node", "b").await;
    assert!(b.waits_for.is_some_and(|it| it.contains(TAKEN)), "{:?}", b.plan);
    assert!(b.cloud.iter().any(|it| it.contains(TAKEN)), "{:?}", b.cloud);
    let remove = json!({ "remove": [theirs.id] });
    bed.cluster.cloud.by_hand(Method::POST, "/v1/routes:batch", Some(&remove)).await.unwrap();
    bed.until_cloud("b has its route", route).await.unwrap();
    all_is_settled(bed).await;
}

fn route(state: &Cloud) -> anyhow::Result<Route> {
    let found = state.routes.iter().find(|it| it.destination.to_string() == TAKEN);
    found.cloned().context("no route leads there")
}

async fn what_cannot_be_asked(bed: &mut Bed) {
    let pod = &*bed.cluster.pods.get("service-controller").unwrap();
    let form = pod.page("/explain?key=web").await.unwrap_err().to_string();
    assert!(form.contains("400") && form.contains("expected NAMESPACE/NAME of a Service"), "{form}");
    let unknown = pod.page("/explain?key=default/unknown").await.unwrap_err().to_string();
    assert!(unknown.contains("404") && unknown.contains("\"known\":false"), "{unknown}");
    assert_eq!(pod.http_status(Method::POST, "/explain").await.unwrap(), 405, "the page is read-only");
}

/// Waits until a controller's list shows that an object waits, with the text of one of the object's Events.
async fn waits(bed: &mut Bed, controller: &str, kind: &str, key: &str) -> Explanation {
    let name = key.rsplit('/').next().unwrap_or(key);
    let events: Api<Event> = Api::all(bed.client());
    let about =
        ListParams::default().fields(&format!("involvedObject.kind={kind},involvedObject.name={name}"));
    let pod = &*bed.cluster.pods.get(controller).unwrap();
    eventually(
        &format!("{controller} explains why {key} waits, with the text of its Event"),
        WITHIN,
        || async {
            let seen: Explanations = serde_json::from_str(&pod.page("/explain").await?)?;
            let one = seen.objects.into_iter().find(|it| it.key == key).context("it is not in the list")?;
            ensure!(one.state == State::Waiting, "{one:#?}");
            let messages = events.list(&about).await?.items.into_iter().filter_map(|event| event.message);
            let messages: Vec<String> = messages.collect();
            let has = |words: &String| messages.iter().any(|it| words.starts_with(unshortened(it)));
            ensure!(one.waits_for.as_ref().is_some_and(has), "{one:#?} {messages:#?}");
            let alone: Explanation = serde_json::from_str(&pod.page(&format!("/explain?key={key}")).await?)?;
            ensure!(alone.key == one.key && alone.since == one.since, "{alone:#?} {one:#?}");
            Ok(one)
        },
    )
    .await
    .unwrap()
}

/// Returns the part of an Event's message before an ellipsis, and before the command that shows the whole text.
fn unshortened(message: &str) -> &str {
    let message = message.split('…').next().unwrap_or(message);
    message.split(": cloudctl explain ").next().unwrap_or(message)
}

async fn page<T: DeserializeOwned>(bed: &mut Bed, controller: &str, path: &str) -> T {
    let text = bed.cluster.pods.get(controller).unwrap().page(path).await.unwrap();
    serde_json::from_str(&text).unwrap()
}

async fn explained(bed: &mut Bed, controller: &str, key: &str) -> Explanation {
    page(bed, controller, &format!("/explain?key={key}")).await
}

async fn all_is_settled(bed: &mut Bed) {
    for name in CONTROLLERS {
        let pod = &*bed.cluster.pods.get(name).unwrap();
        eventually(&format!("{name} lists no object"), WITHIN, || async {
            let seen: Explanations = serde_json::from_str(&pod.page("/explain").await?)?;
            ensure!(seen.objects.is_empty() && seen.more == 0, "{seen:#?}");
            let status: ControllerStatus = serde_json::from_str(&pod.page("/status").await?)?;
            ensure!(status.unsettled == 0 && status.held_back.is_empty(), "{status:#?}");
            Ok(())
        })
        .await
        .unwrap();
    }
}
