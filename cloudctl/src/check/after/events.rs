//! Checks that the controllers have emitted no Events of type Warning since their start.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::{
    api::core::v1::{Event, Pod},
    apimachinery::pkg::apis::meta::v1::Time,
};
use kube::{Api, api::ListParams};
use telemetry::report::grouped;

use super::super::{About, Check, CheckResult};
use crate::{
    cluster::Cluster,
    labels::component_of,
    objects::{ObjectEvent, of_controller, reporter},
    options::Component,
    release::Release,
    words::age,
};

const EVENTS: About = About {
    name: "the controllers have emitted no recent Events of type Warning",
    hint: "see kubectl get events --all-namespaces --field-selector type=Warning",
    link: "docs/troubleshoot.md#events",
};

/// API servers keep Events for an hour by default, and some keep them longer.
const RECENT: SignedDuration = SignedDuration::from_hours(1);

/// The time at which the first of the running containers of a component started.
type Starts = BTreeMap<Component, Timestamp>;

pub(in super::super) async fn check(cluster: &Cluster, release: &Release, now: Timestamp) -> Check {
    let api: Api<Event> = cluster.all();
    let params = ListParams::default().fields("type=Warning");
    let events = match cluster.ask("events", async { api.list(&params).await }).await {
        Ok(events) => events.items,
        Err(why) => return EVENTS.unknown(&why),
    };
    // Without pods, only the age of an Event counts.
    let mut pods = cluster.pods(Some(&release.namespace)).await.unwrap_or_default();
    pods.retain(|it| release.has(it));
    of(events, &starts(&pods), now)
}

pub(in super::super) fn starts(pods: &[Pod]) -> Starts {
    let mut starts = Starts::new();
    for pod in pods {
        let Some(component) = component_of(pod) else { continue };
        let containers = pod.status.iter().flat_map(|status| status.container_statuses.iter().flatten());
        let running = containers.filter_map(|it| it.state.as_ref()?.running.as_ref()?.started_at.as_ref());
        for Time(at) in running {
            let first = starts.entry(component).or_insert(*at);
            *first = (*first).min(*at);
        }
    }
    starts
}

/// An Event from before the start of its controller says nothing about the present, as the controller has reconciled all objects since.
pub(in super::super) fn of(events: Vec<Event>, starts: &Starts, now: Timestamp) -> Check {
    let is_recent = |event: &ObjectEvent| {
        let start = reporter(&event.from).and_then(|it| starts.get(&it));
        event.at.is_none_or(|at| now.duration_since(at) <= RECENT && start.is_none_or(|start| at >= *start))
    };
    let all = events.into_iter().filter_map(of_controller);
    let (recent, old): (Vec<ObjectEvent>, Vec<ObjectEvent>) = all.partition(is_recent);
    let left_out = match old.len() {
        0 => String::new(),
        1 => "1 older is left out".to_owned(),
        number => format!("{number} older are left out"),
    };
    if recent.is_empty() {
        return EVENTS.ok(left_out);
    }
    let mut latest: BTreeMap<&str, Option<Timestamp>> = BTreeMap::new();
    for event in &recent {
        let at = latest.entry(event.reason.as_str()).or_default();
        *at = event.at.max(*at);
    }
    let text = |event: &ObjectEvent| {
        let at = latest.get(event.reason.as_str()).copied().flatten();
        let ago = at.map(|at| format!(" ({} ago)", age(now, at))).unwrap_or_default();
        format!("{}{ago}", event.reason)
    };
    let texts: Vec<String> = recent.iter().map(text).collect();
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    let left_out = if left_out.is_empty() { left_out } else { format!("; {left_out}") };
    EVENTS.result(CheckResult::Warning, format!("{}{left_out}", grouped(&texts)))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::labels::COMPONENT;

    fn now() -> Timestamp {
        "2026-01-02T03:04:05Z".parse().expect("a time")
    }

    fn of_json<T: serde::de::DeserializeOwned>(value: &Value) -> T {
        serde_json::from_value(value.clone()).expect("an object")
    }

    fn warning(at: &str) -> Event {
        of_json(&json!({
            "metadata": {}, "involvedObject": {}, "reason": "SyncLoadBalancerFailed", "type": "Warning",
            "reportingComponent": "service-controller", "lastTimestamp": at,
        }))
    }

    #[test]
    fn old_events_are_left_out() {
        let of_times = |times: &[&str], running: &[Pod]| {
            let check = of(times.iter().map(|at| warning(at)).collect(), &starts(running), now());
            (check.result, check.found)
        };
        let [recent, earlier, old] = ["2026-01-02T03:03:05Z", "2026-01-02T02:34:05Z", "2026-01-02T02:04:04Z"];
        assert_eq!(
            of_times(&[recent, earlier, old], &[]),
            (CheckResult::Warning, "2 × SyncLoadBalancerFailed (1m ago); 1 older is left out".to_owned())
        );
        assert_eq!(of_times(&[old], &[]), (CheckResult::Ok, "1 older is left out".to_owned()));
        let started = |component: &str, at: &str| -> Pod {
            let state = json!({ "running": { "startedAt": at } });
            let status = json!([{ "name": "it", "image": "", "imageID": "", "ready": true, "restartCount": 0, "state": state }]);
            of_json(
                &json!({ "metadata": { "labels": { COMPONENT: component } }, "status": { "containerStatuses": status } }),
            )
        };
        let pods = [
            started("service-controller", "2026-01-02T03:03:00Z"),
            started("service-controller", "2026-01-02T03:04:00Z"),
            started("node-controller", "2026-01-02T02:00:00Z"),
        ];
        assert_eq!(
            of_times(&[recent, earlier], &pods),
            (CheckResult::Warning, "1 × SyncLoadBalancerFailed (1m ago); 1 older is left out".to_owned()),
            "the first replica may have emitted it"
        );
    }
}
