//! Why the containers of a pod are not created, according to the Events about the pod.

use std::borrow::Cow;

use jiff::Timestamp;
use k8s_openapi::{
    api::core::v1::{Event, Pod},
    apimachinery::pkg::apis::meta::v1::{MicroTime, Time},
};
use kube::{Api, api::ListParams};

use crate::{
    cluster::Cluster,
    page,
    pods::{Stopped, with_end},
};

const REASONS: [&str; 2] = ["FailedMount", "FailedCreatePodSandBox"];
/// The start of the message of an Event that only lists the volumes. Another Event has the cause.
const SUMMARY: &str = "Unable to attach or mount volumes";

/// Without permission to list Events, the check shows only the reason in the status of the pod.
pub(super) async fn events(cluster: &Cluster, namespace: &str) -> Vec<Event> {
    let api: Api<Event> = cluster.namespaced(namespace);
    let params = ListParams::default().fields("involvedObject.kind=Pod,type=Warning");
    let events = cluster.ask("events", async { api.list(&params).await }).await;
    events.map(|it| it.items).unwrap_or_default()
}

/// Returns the cause in the newest Event about the pod. `reason`: why the pod does not run, according to its status.
pub(super) fn cause(pod: &Pod, reason: &str, events: &[Event]) -> Option<Stopped> {
    let is_about = |it: &&Event| {
        it.involved_object.name == pod.metadata.name && it.involved_object.uid == pod.metadata.uid
    };
    let has_cause = |it: &&Event| {
        let message = it.message.as_deref().unwrap_or_default();
        REASONS.contains(&it.reason.as_deref().unwrap_or_default())
            && !message.is_empty()
            && !message.starts_with(SUMMARY)
    };
    let newest = events.iter().filter(is_about).filter(has_cause).max_by_key(|it| at(it))?;
    let message = newest.message.as_deref()?;
    // Source: the kubelet writes `MountVolume.SetUp failed for volume "name" : cause`.
    let cause = message.split_once(" : ").map_or(message, |(_, cause)| cause);
    Some(Stopped { text: format!("{reason}: {}", with_end(cause)), hint: hint(cause) })
}

fn at(event: &Event) -> Option<Timestamp> {
    let last = event.last_timestamp.as_ref().map(|Time(at)| *at);
    last.max(event.event_time.as_ref().map(|MicroTime(at)| *at))
}

fn hint(cause: &str) -> Cow<'static, str> {
    let is_absent = cause.ends_with(" not found");
    match cause.split_once(' ') {
        Some(("secret", _)) if is_absent => {
            let page = page::url("docs/install.md#3-the-chart");
            format!("create this Secret; {page} shows how to create the one with the credentials").into()
        }
        Some(("configmap", _)) if is_absent => "create this ConfigMap".into(),
        _ => "see the Events in kubectl describe pod".into(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn event(uid: &str, second: u32, reason: &str, message: &str) -> Event {
        let at = format!("2026-01-02T03:04:{second:02}Z");
        let event = json!({
            "metadata": {}, "involvedObject": { "name": "x", "uid": uid }, "reason": reason, "message": message,
            "lastTimestamp": at,
        });
        serde_json::from_value(event).expect("an Event")
    }

    #[test]
    fn the_newest_event_about_the_pod_has_the_cause_and_the_hint() {
        let pod: Pod =
            serde_json::from_value(json!({ "metadata": { "name": "x", "uid": "1" } })).expect("a pod");
        let mount = |what: &str| format!("MountVolume.SetUp failed for volume \"a\" : {what}");
        let secret = mount("secret \"cloud-credentials\" not found");
        let events = [
            event("1", 2, "FailedMount", &secret),
            event("1", 1, "FailedMount", &mount("configmap \"b\" not found")),
            event("1", 3, "FailedMount", "Unable to attach or mount volumes: context deadline exceeded"),
            event("1", 4, "Unhealthy", "other"),
            event("2", 5, "FailedMount", &mount("of an earlier pod")),
        ];
        let found = cause(&pod, "ContainerCreating", &events).expect("a cause");
        assert_eq!(found.text, "ContainerCreating: secret \"cloud-credentials\" not found");
        assert!(found.hint.contains("docs/install.md#3-the-chart"), "{found:?}");
        let found = cause(&pod, "ContainerCreating", &events[1..]).expect("a cause");
        assert_eq!(
            (found.text.as_str(), found.hint.as_ref()),
            ("ContainerCreating: configmap \"b\" not found", "create this ConfigMap")
        );
        let sandbox =
            cause(&pod, "ContainerCreating", &[event("1", 1, "FailedCreatePodSandBox", "no network")]);
        assert_eq!(sandbox.map(|it| it.text).as_deref(), Some("ContainerCreating: no network"));
        assert_eq!(cause(&pod, "ContainerCreating", &events[2..]), None);
    }
}
