//! Measures when users see the results that they wait for. Two watches read only the fields that matter, because thousands of nodes change
//! at once.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{anyhow, ensure};
use futures::{Stream, TryStreamExt, pin_mut};
use k8s_openapi::api::core::v1::{Node, Service};
use kube::api::ApiResource;
use kube::core::Object;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client, ResourceExt};
use serde::{Deserialize, Serialize};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::eventually::eventually;
use crate::objects::UNINITIALIZED;

type TrimmedNode = Object<NodeSpec, NodeStatus>;
type TrimmedService = Object<ServiceSpec, ServiceStatus>;

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct NodeSpec {
    taints: Vec<Taint>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Taint {
    key: String,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct NodeStatus {
    conditions: Vec<Condition>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Condition {
    #[serde(rename = "type")]
    type_: String,
    status: String,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct ServiceSpec {}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ServiceStatus {
    load_balancer: LoadBalancer,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct LoadBalancer {
    ingress: Vec<serde_json::Value>,
}

/// A result that users wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Mark {
    Initialised,
    Routed,
    NodeGone,
    Address,
    ServiceGone,
}

#[derive(Debug, Default)]
struct Times {
    /// The time at which each result was first seen, by the name of the object.
    seen: BTreeMap<(Mark, String), Instant>,
    listed: usize,
    failed: Option<String>,
}

/// Two running watches. Dropping this value ends them.
#[derive(Debug)]
pub(super) struct Seen {
    times: Arc<Mutex<Times>>,
    _watches: JoinSet<()>,
}

impl Seen {
    /// Waits until both watches have listed the existing objects.
    pub(super) async fn start(client: &Client) -> anyhow::Result<Self> {
        let times = Arc::<Mutex<Times>>::default();
        let mut watches = JoinSet::new();
        let nodes: Api<TrimmedNode> = Api::all_with(client.clone(), &ApiResource::erase::<Node>(&()));
        let services: Api<TrimmedService> =
            Api::all_with(client.clone(), &ApiResource::erase::<Service>(&()));
        let nodes = watcher(nodes, watcher::Config::default()).default_backoff();
        watches.spawn(follow(nodes, Arc::clone(&times), Times::node));
        let services = watcher(services, watcher::Config::default()).default_backoff();
        watches.spawn(follow(services, Arc::clone(&times), Times::service));
        let this = Self { times, _watches: watches };
        eventually("existing objects are listed", Duration::from_secs(60), || async {
            let listed = this.with(|times| times.listed);
            ensure!(listed == 2, "{listed} of 2 listings are complete");
            Ok(())
        })
        .await?;
        Ok(this)
    }

    /// Waits until all objects of these names have the mark, and returns the time at which each of them first had it.
    pub(super) async fn all(
        &self,
        what: &str,
        names: &[String],
        mark: Mark,
        within: Duration,
    ) -> anyhow::Result<BTreeMap<String, Instant>> {
        eventually(what, within, || async {
            self.with(|times| {
                if let Some(failed) = &times.failed {
                    return Err(anyhow!("a watch failed: {failed}"));
                }
                let found = |name: &String| Some((name.clone(), *times.seen.get(&(mark, name.clone()))?));
                let found: BTreeMap<_, _> = names.iter().filter_map(found).collect();
                ensure!(found.len() == names.len(), "{} of {}", found.len(), names.len());
                Ok(found)
            })
        })
        .await
    }

    fn with<T>(&self, look: impl FnOnce(&Times) -> T) -> T {
        look(&self.times.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Times {
    fn mark(&mut self, mark: Mark, object: &impl ResourceExt, now: Instant) {
        self.seen.entry((mark, object.name_any())).or_insert(now);
    }

    fn node(&mut self, event: Event<TrimmedNode>, now: Instant) {
        match event {
            Event::Init => (),
            Event::InitDone => self.listed = self.listed.saturating_add(1),
            Event::Delete(node) => self.mark(Mark::NodeGone, &node, now),
            Event::Apply(node) | Event::InitApply(node) => {
                let mut conditions = node.status.iter().flat_map(|status| &status.conditions);
                if conditions.any(|it| it.type_ == "NetworkUnavailable" && it.status == "False") {
                    self.mark(Mark::Routed, &node, now);
                }
                if node.spec.taints.iter().all(|taint| taint.key != UNINITIALIZED) {
                    self.mark(Mark::Initialised, &node, now);
                }
            }
        }
    }

    fn service(&mut self, event: Event<TrimmedService>, now: Instant) {
        match event {
            Event::Init => (),
            Event::InitDone => self.listed = self.listed.saturating_add(1),
            Event::Delete(service) => self.mark(Mark::ServiceGone, &service, now),
            Event::Apply(service) | Event::InitApply(service) => {
                if service.status.as_ref().is_some_and(|status| !status.load_balancer.ingress.is_empty()) {
                    self.mark(Mark::Address, &service, now);
                }
            }
        }
    }
}

/// Passes each event of a watch to `note`. A broken watch resumes by itself; its error is kept until the next event.
async fn follow<K>(
    events: impl Stream<Item = Result<Event<K>, watcher::Error>>,
    times: Arc<Mutex<Times>>,
    note: fn(&mut Times, Event<K>, Instant),
) {
    pin_mut!(events);
    loop {
        let next = events.try_next().await;
        let mut times = times.lock().unwrap_or_else(PoisonError::into_inner);
        match next {
            Ok(Some(event)) => {
                times.failed = None;
                note(&mut times, event, Instant::now());
            }
            Ok(None) => return,
            Err(error) => times.failed = Some(error.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Duration, Event, Instant, Mark, Times, TrimmedNode, TrimmedService, UNINITIALIZED};
    use serde_json::{Value, from_value, json};

    fn node(taints: &Value, conditions: &Value) -> TrimmedNode {
        let status = json!({ "conditions": conditions, "images": [{ "names": ["a"] }] });
        from_value(json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": "a" },
            "spec": { "taints": taints, "podCIDR": "10.0.0.0/24" }, "status": status }))
        .unwrap()
    }

    fn seen(times: &Times, mark: Mark) -> Option<Instant> {
        times.seen.get(&(mark, "a".to_owned())).copied()
    }

    #[tokio::test(start_paused = true)]
    async fn results_are_seen_once() {
        let mut times = Times::default();
        let tainted = json!([{ "key": UNINITIALIZED, "effect": "NoSchedule" }]);
        times.node(Event::Apply(node(&tainted, &json!([]))), Instant::now());
        assert!(times.seen.is_empty());
        let first = Instant::now();
        times.node(Event::Apply(node(&json!([]), &json!([]))), first);
        let second = first + Duration::from_secs(1);
        let routed = json!([{ "type": "NetworkUnavailable", "status": "False" }]);
        times.node(Event::Apply(node(&json!([]), &routed)), second);
        times.node(Event::Delete(node(&json!([]), &routed)), second);
        let marks = [Mark::Initialised, Mark::Routed, Mark::NodeGone].map(|mark| seen(&times, mark));
        assert_eq!(marks, [Some(first), Some(second), Some(second)]);

        let service = |ingress: Value| -> TrimmedService {
            from_value(json!({ "apiVersion": "v1", "kind": "Service", "metadata": { "name": "a" },
                "spec": { "ports": [] }, "status": { "loadBalancer": { "ingress": ingress } } }))
            .unwrap()
        };
        times.service(Event::Apply(service(json!([]))), first);
        assert_eq!(seen(&times, Mark::Address), None);
        times.service(Event::Apply(service(json!([{ "ip": "192.0.2.1" }]))), first);
        assert_eq!(seen(&times, Mark::Address), Some(first));
    }
}
