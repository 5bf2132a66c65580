//! Step 1: keeps the caches of Nodes and routes. Defines which fields they contain, and which change triggers a pass.

pub(crate) mod ability;
pub(crate) mod nodes;
mod routes;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use controller_core::Clock;
use controller_core::adapter::{Adapter, ScopeGuard};
use controller_core::config::Listing;
use controller_core::mirror::cloud::Routes as RouteSource;
use controller_core::mirror::{Change, Mirror, ObjectName};
use controller_core::node::TrimmedNode;
use controller_core::queue::{Backoff, Queue};
use kube::Api;
use tokio::sync::watch;
use tokio::time::Instant;

use self::ability::{Ability, NO_ROUTES};
use self::nodes::NodeChange;
use crate::plan::condition::{Change as Said, Network, NetworkByNode, changes};
use crate::plan::node::Node;
use crate::plan::route::Route;

/// The only key of the queue, since a pass compares all nodes with all routes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct AllRoutes;

/// Minimum time between the starts of two passes, so that a hundred nodes that join at once are handled in one batch.
const GAP: Duration = Duration::from_secs(1);

/// Delay before this controller overwrites the condition of another controller. If both controllers keep overwriting the condition, each of
/// them writes once in that time. Source: the period of the route controller of k8s.io/cloud-provider.
const CONDITION_OVERWRITE_DELAY: Duration = Duration::from_secs(10);

/// Backoff while the adapter or the API server is unavailable.
const BACKOFF: Backoff = Backoff { first: Duration::from_secs(1), longest: Duration::from_secs(30) };

/// Name of the queue in metrics. Source: the route controller of k8s.io/cloud-provider.
const QUEUE_NAME: &str = "Routes";

/// The CIDRs for which the controller also watches routes of other owners.
const EVERYWHERE: [&str; 2] = ["0.0.0.0/0", "::/0"];

/// How long a deleted node is remembered if no route to it is listed. A route that was created shortly before the deletion may not be
/// listed yet.
const REMEMBERED: Duration = Duration::from_mins(10);

#[derive(Clone, Debug)]
pub(crate) struct Mirrors {
    pub(crate) nodes: Mirror<ObjectName, Node>,
    /// Routes by the vendor's ID. `None`: the destination is not a valid CIDR.
    pub(crate) routes: Mirror<String, Option<Route>>,
    /// What the adapter can do about routes. `None`: not known yet.
    ability: watch::Sender<Option<Ability>>,
    /// The provider ID scheme of the adapter's cloud. `None`: not known yet, or the adapter does not report it.
    scheme: Arc<Mutex<Option<String>>>,
    scope: ScopeGuard,
    deleted: Deleted,
    /// The conditions that the last pass computed for the nodes.
    judged: Arc<Mutex<NetworkByNode>>,
}

/// Nodes whose deletion was observed. Nodes that are merely absent from a listing are not included.
#[derive(Clone, Debug, Default)]
struct Deleted(Arc<Mutex<Tombstones>>);

#[derive(Debug, Default)]
struct Tombstones {
    /// Time of the deletion, by UID.
    at: BTreeMap<String, Instant>,
    /// UIDs that are kept because the last pass saw a route to their nodes.
    reached: BTreeSet<String>,
}

/// Triggers passes: the first pass at once, then at most one pass per [`GAP`].
#[derive(Clone, Debug)]
pub(crate) struct Trigger {
    pub(crate) queue: Queue<AllRoutes>,
    last: Arc<Mutex<Option<Instant>>>,
}

impl Mirrors {
    pub(crate) fn new(clock: Clock) -> Self {
        let (nodes, routes) = (Mirror::new("nodes", clock), Mirror::new("routes", clock));
        let ability = watch::Sender::new(None);
        let (scheme, deleted, judged) = (Arc::default(), Deleted::default(), Arc::default());
        Self { nodes, routes, ability, scheme, scope: ScopeGuard::default(), deleted, judged }
    }

    pub(crate) fn in_scope(self, scope: &ScopeGuard) -> Self {
        Self { scope: scope.clone(), ..self }
    }

    /// Keeps the cache of Nodes in sync with the API server. Never ends; drop the future to stop.
    pub(crate) async fn follow_nodes(&self, api: Api<TrimmedNode>, listing: Listing, trigger: &Trigger) {
        let wake = |change: Change<ObjectName, Node>| {
            self.deleted.note(&change);
            let kind = match (&change.old, &change.new) {
                (Some(before), Some(after)) => nodes::classify(before, after, self.judged(&after.uid)),
                _ => NodeChange::Plan,
            };
            match kind {
                NodeChange::Plan => trigger.wake(),
                NodeChange::Condition => trigger.wake_after(CONDITION_OVERWRITE_DELAY),
                NodeChange::Nothing => (),
            }
        };
        self.nodes.follow_kubernetes(api, listing, |TrimmedNode(node)| nodes::trim(&node), wake).await;
    }

    /// Keeps the cache of routes in sync with the adapter, as long as the adapter has routes. Never ends; drop the future to stop.
    ///
    /// Watches all destinations, because pod CIDRs may be outside of the cluster's CIDRs.
    pub(crate) async fn follow_routes(&self, adapter: &Adapter, trigger: &Trigger) {
        let trim = |route| routes::trim(&route, adapter.cluster_id());
        let (mut some, mut none) = (self.ability.subscribe(), self.ability.subscribe());
        // Waiting cannot fail, since `self` owns the sender.
        while some.wait_for(|ability| *ability != Some(Ability::None)).await.is_ok() {
            let source = RouteSource { cluster_cidrs: EVERYWHERE.map(str::to_owned).to_vec() };
            tokio::select! {
                () = self.routes.follow_cloud(adapter, source, trim, |_change| trigger.wake()) => (),
                _ = none.wait_for(|ability| *ability == Some(Ability::None)) => (),
            }
        }
    }

    pub(crate) fn ability(&self) -> Option<Ability> {
        *self.ability.borrow()
    }

    /// Records the conclusions of a pass before they are written, so that this controller's own writes do not trigger a pass. Returns the
    /// changes to write.
    ///
    /// Compares the conclusions with the current nodes. Before the first pass has ended, there are no conclusions yet, so a condition that
    /// another controller writes does not trigger a pass.
    pub(crate) fn judge(&self, judged: &NetworkByNode) -> Vec<Said> {
        self.judged.lock().unwrap_or_else(PoisonError::into_inner).clone_from(judged);
        self.nodes.read(|content| changes(content.values().map(Arc::as_ref), judged))
    }

    /// Returns the condition that the last pass computed for a node. `None`: the pass could not decide.
    pub(crate) fn judged(&self, uid: &str) -> Option<Network> {
        self.judged.lock().unwrap_or_else(PoisonError::into_inner).get(uid).copied()
    }

    /// Returns the times at which nodes were deleted, by UID. Forgets each deletion after a while, unless a route still leads to the node
    /// (`reached`).
    pub(crate) fn deleted(&self, reached: BTreeSet<String>) -> BTreeMap<String, Instant> {
        let mut tombstones = self.deleted.tombstones();
        tombstones.reached = reached;
        tombstones.forget();
        tombstones.at.clone()
    }

    /// Triggers a pass when both caches are complete, and whenever one of them connects or disconnects. Drop the future to stop.
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

    /// Returns all current nodes. Nodes whose provider IDs have another scheme than the adapter's cloud are marked as nodes of other
    /// clouds. The nodes share memory with the cache, except nodes of other clouds: copies of all nodes of a large cluster would double the
    /// memory.
    pub(crate) fn nodes(&self) -> Vec<Arc<Node>> {
        let nodes: Vec<Arc<Node>> = self.nodes.read(|content| content.values().cloned().collect());
        match self.scheme() {
            Some(scheme) => nodes.into_iter().map(|node| node.seen_from(&scheme)).collect(),
            None => nodes,
        }
    }

    /// Returns a cached node, marked if its provider ID has another scheme than the adapter's cloud.
    pub(crate) fn seen(&self, node: Arc<Node>) -> Arc<Node> {
        match self.scheme() {
            Some(scheme) => node.seen_from(&scheme),
            None => node,
        }
    }

    fn scheme(&self) -> Option<String> {
        self.scheme.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns all current routes. The adapter may use another form of a provider ID than the node. If a route leads to a node's instance,
    /// the route gets the node's form of the ID.
    pub(crate) fn routes(&self) -> Vec<Arc<Option<Route>>> {
        let routes: Vec<Arc<Option<Route>>> = self.routes.read(|content| content.values().cloned().collect());
        let others = self.other_forms();
        let as_of_the_node = |route: Arc<Option<Route>>| {
            let machine = route.as_ref().as_ref().and_then(|route| route.next_hop.provider_id.as_deref());
            let Some(id) = machine.and_then(|machine| others.get(machine)) else { return route };
            let mut route = Arc::unwrap_or_clone(route);
            if let Some(route) = &mut route {
                route.next_hop.provider_id = Some(id.clone());
            }
            Arc::new(route)
        };
        routes.into_iter().map(as_of_the_node).collect()
    }

    /// Maps the other form of each node's provider ID to the node's form, except if another node has that other form as its ID.
    fn other_forms(&self) -> BTreeMap<String, String> {
        self.nodes.read(|nodes| {
            let own: BTreeSet<&str> = nodes.values().filter_map(|node| node.provider_id.as_deref()).collect();
            let others = own.iter().filter_map(|id| Some((self.scope.other_form(id)?, (*id).to_owned())));
            others.filter(|(other, _)| !own.contains(other.as_str())).collect()
        })
    }

    /// Checks whether a pass can decide anything. A pass needs the nodes, and what [`Self::routes_readiness`] checks. The error names what
    /// is missing.
    pub(crate) fn readiness(&self) -> Result<(), String> {
        self.nodes.readiness()?;
        self.routes_readiness()
    }

    /// Checks whether a pass has everything that it needs from the adapter: the capability for routes, and a complete list of them. The
    /// error names what is missing.
    pub(crate) fn routes_readiness(&self) -> Result<(), String> {
        match self.ability() {
            Some(Ability::None) => Err(format!("routes: {NO_ROUTES}")),
            Some(Ability::Unmarked | Ability::Marked) => self.routes.readiness(),
            None => self
                .routes
                .readiness()
                .and(Err("routes: the adapter has not reported its capabilities".to_owned())),
        }
    }
}

impl Deleted {
    /// Records a deletion that the API server reports, or that a new node of the same name implies.
    fn note(&self, change: &Change<ObjectName, Node>) {
        let mut tombstones = self.tombstones();
        match (&change.old, &change.new) {
            (Some(old), None) if change.reported => tombstones.put(&old.uid),
            (Some(old), Some(new)) if old.uid != new.uid => tombstones.put(&old.uid),
            _ => (),
        }
        if let Some(new) = &change.new {
            tombstones.at.remove(&new.uid);
        }
    }

    fn tombstones(&self) -> MutexGuard<'_, Tombstones> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Tombstones {
    /// Adds the node with this UID. Also forgets old entries, since no pass runs while the adapter is unavailable or has no routes.
    fn put(&mut self, uid: &str) {
        self.forget();
        self.at.insert(uid.to_owned(), Instant::now());
    }

    fn forget(&mut self) {
        self.at.retain(|uid, at| self.reached.contains(uid) || at.elapsed() < REMEMBERED);
    }
}

impl Trigger {
    pub(crate) fn new() -> Self {
        Self { queue: Queue::new(QUEUE_NAME, BACKOFF), last: Arc::default() }
    }

    pub(crate) fn wake(&self) {
        self.queue.add_after(AllRoutes, self.rest_of_gap());
    }

    /// Triggers a pass after `delay`, unless something else triggers a pass earlier.
    pub(crate) fn wake_after(&self, delay: Duration) {
        self.queue.after(AllRoutes, delay.max(self.rest_of_gap()));
    }

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

#[cfg(test)]
mod tests {
    use controller_core::Again;
    use controller_core::metrics::{Registry, render};
    use controller_core::testing::FakeKube;
    use jiff::Timestamp;
    use k8s_openapi::api::core::v1 as api;
    use tokio::task::JoinSet;
    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::plan::tests::node;

    fn goes(uid: &str) -> Change<ObjectName, Node> {
        let old = Some(Arc::new(node("a").uid(uid)));
        Change { key: ObjectName::cluster("a"), old, new: None, reported: true }
    }

    #[tokio::test(start_paused = true)]
    async fn deleted_nodes_without_a_route_are_forgotten() {
        let mirrors = Mirrors::new(Clock::starting_at(Timestamp::UNIX_EPOCH));
        mirrors.deleted.note(&goes("reached"));
        mirrors.deleted(BTreeSet::from(["reached".to_owned()]));
        for n in 0..1000 {
            mirrors.deleted.note(&goes(&n.to_string()));
            tokio::time::advance(Duration::from_mins(1)).await;
        }
        let tombstones = mirrors.deleted.tombstones();
        assert_eq!(
            tombstones.at.len(),
            11,
            "those of the last ten minutes and one more: {:?}",
            tombstones.at.keys()
        );
        assert!(tombstones.at.contains_key("reached"));
    }

    // Behaviour: P20
    #[tokio::test(start_paused = true)]
    async fn wakes_are_counted() {
        let trigger = Trigger::new();
        let (passes, stop) = (trigger.queue.clone(), CancellationToken::new());
        let token = stop.clone();
        let mut tasks = JoinSet::new();
        tasks.spawn(async move { passes.run(1, token, |_, _| async { Again::Done }).await });
        for _ in 0..3 {
            trigger.wake();
            tokio::time::sleep(GAP).await;
        }
        assert_eq!(adds(&trigger), "3");
        stop.cancel();
        tasks.join_all().await;
    }

    fn adds(trigger: &Trigger) -> String {
        let mut registry = Registry::default();
        trigger.queue.register(&mut registry);
        let text = render(&registry).expect("metrics can be rendered");
        let line = text.lines().find(|line| line.starts_with("workqueue_adds_total"));
        line.and_then(|line| line.rsplit(' ').next()).unwrap_or_default().to_owned()
    }

    // Behaviour: R16
    #[tokio::test(start_paused = true)]
    async fn own_conditions_do_not_wake_and_foreign_ones_do_after_10_s() {
        let (kube, trigger) = (FakeKube::new(), Trigger::new());
        let mirrors = Mirrors::new(Clock::starting_at(Timestamp::UNIX_EPOCH));
        kube.put::<api::Node>(controller_core::testing::node("a"));
        let says = |reason: &str| {
            let condition = api::NodeCondition {
                type_: "NetworkUnavailable".to_owned(),
                status: "False".to_owned(),
                reason: Some(reason.to_owned()),
                ..api::NodeCondition::default()
            };
            kube.change::<api::Node>(&ObjectName::cluster("a"), |node| {
                node.status.get_or_insert_default().conditions = Some(vec![condition]);
            });
        };
        let (follower, passes, stop) = (mirrors.clone(), trigger.clone(), CancellationToken::new());
        let (nodes, listing) = (Api::all(kube.client()), Listing::default());
        let (waker, token) = (trigger.clone(), stop.clone());
        let mut tasks = JoinSet::new();
        tasks.spawn(async move { follower.follow_nodes(nodes, listing, &waker).await });
        tasks.spawn(async move { passes.queue.run(1, token, |_, _| async { Again::Done }).await });
        let wait = |seconds| tokio::time::sleep(Duration::from_secs(seconds));
        wait(60).await;
        assert_eq!(adds(&trigger), "1", "the node was created");

        let judged = mirrors.judge(&NetworkByNode::from([("uid-a".to_owned(), Network::Available)]));
        assert_eq!(judged.len(), 1, "it is not written yet");
        says("RouteCreated");
        wait(60).await;
        assert_eq!(adds(&trigger), "1", "the controller's own write");
        says("CalicoIsUp");
        wait(9).await;
        assert_eq!(adds(&trigger), "1", "the delay is not over");
        wait(2).await;
        assert_eq!(adds(&trigger), "2");
        says("RouteCreated");
        wait(60).await;
        assert_eq!(adds(&trigger), "2", "the controller's own overwrite");
        stop.cancel();
    }
}
