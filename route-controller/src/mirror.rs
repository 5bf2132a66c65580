//! Room 1: which objects of both sides are kept, which of their fields, and which change wakes the one key that there is.

mod nodes;
mod routes;

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use controller_core::Clock;
use controller_core::adapter::Adapter;
use controller_core::mirror::cloud::Routes as RouteSource;
use controller_core::mirror::{Change, Mirror, ObjectName};
use controller_core::queue::{Backoff, Queue};
use k8s_openapi::api::core::v1 as api;
use kube::Api;
use tokio::time::Instant;

use crate::config::ClusterCidrs;
use crate::plan::node::Node;
use crate::plan::route::Route;

/// The only key: a pass compares all nodes with all routes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct AllRoutes;

/// Passes begin at least so far apart: a hundred nodes that join at once are one batch and not a hundred.
const GAP: Duration = Duration::from_secs(1);

/// Between passes that found the adapter or the API server away.
const BACKOFF: Backoff = Backoff { first: Duration::from_secs(1), longest: Duration::from_secs(30) };

/// The name of the queue in metrics. Source: the reference controller.
const QUEUE_NAME: &str = "Routes";

/// Both sides, trimmed.
#[derive(Clone, Debug)]
pub(crate) struct Mirrors {
    pub(crate) nodes: Mirror<ObjectName, Node>,
    /// By the vendor's ID. `None`: it leads to what is no CIDR.
    pub(crate) routes: Mirror<String, Option<Route>>,
}

/// Wakes the key: the first time at once, then at most once a [`GAP`].
#[derive(Clone, Debug)]
pub(crate) struct Trigger {
    pub(crate) queue: Queue<AllRoutes>,
    last: Arc<Mutex<Option<Instant>>>,
}

impl Mirrors {
    pub(crate) fn new(clock: Clock) -> Self {
        Self { nodes: Mirror::new("nodes", clock), routes: Mirror::new("routes", clock) }
    }

    /// Keeps the nodes in step with the API server. Never ends; drop it to stop.
    pub(crate) async fn follow_nodes(&self, api: Api<api::Node>, trigger: &Trigger) {
        let wake = |change: Change<ObjectName, Node>| {
            let matters = match (&change.old, &change.new) {
                (Some(before), Some(after)) => nodes::matters(before, after),
                _ => true,
            };
            if matters {
                trigger.wake();
            }
        };
        self.nodes.follow_kubernetes(api, |node: api::Node| nodes::trim(&node), wake).await;
    }

    /// Keeps the routes in step with the adapter. Never ends; drop it to stop.
    pub(crate) async fn follow_routes(&self, adapter: &Adapter, cidrs: &ClusterCidrs, trigger: &Trigger) {
        let source = RouteSource { cluster_cidrs: cidrs.to_strings() };
        let trim = |route| routes::trim(&route, adapter.cluster_id());
        self.routes.follow_cloud(adapter, source, trim, |_change| trigger.wake()).await;
    }

    /// Wakes the key when both sides are listed, and whenever one of them comes or goes: also if nothing else changed. Drop it
    /// to stop.
    pub(crate) async fn follow_links(&self, trigger: &Trigger) {
        let (mut nodes, mut routes) = (self.nodes.links(), self.routes.links());
        self.nodes.synced().await;
        self.routes.synced().await;
        trigger.wake();
        while let Ok(()) = tokio::select! {
            changed = nodes.changed() => changed,
            changed = routes.changed() => changed,
        } {
            trigger.wake();
        }
    }

    /// All nodes and all routes as they are now.
    pub(crate) fn facts(&self) -> (Vec<Node>, Vec<Route>) {
        let nodes = self.nodes.read(|content| content.values().map(|node| Node::clone(node)).collect());
        let routes =
            self.routes.read(|content| content.values().filter_map(|route| Option::clone(route)).collect());
        (nodes, routes)
    }

    /// What must be there before anything is decided.
    pub(crate) fn readiness(&self) -> Result<(), String> {
        self.nodes.readiness()?;
        self.routes.readiness()
    }
}

impl Trigger {
    pub(crate) fn new() -> Self {
        Self { queue: Queue::new(QUEUE_NAME, BACKOFF), last: Arc::default() }
    }

    pub(crate) fn wake(&self) {
        self.queue.after(AllRoutes, self.rest_of_gap());
    }

    /// Wakes the key after `delay`, unless something else does before.
    pub(crate) fn wake_after(&self, delay: Duration) {
        self.queue.after(AllRoutes, delay.max(self.rest_of_gap()));
    }

    /// Notes that a pass begins.
    pub(crate) fn begins(&self) {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }

    fn rest_of_gap(&self) -> Duration {
        let last = *self.last.lock().unwrap_or_else(PoisonError::into_inner);
        last.map_or(Duration::ZERO, |last| GAP.saturating_sub(last.elapsed()))
    }
}

impl fmt::Display for AllRoutes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("routes")
    }
}
