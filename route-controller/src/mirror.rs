//! Room 1: which objects of both sides are kept, which of their fields, and which change wakes the one key that there is.

pub(crate) mod ability;
mod nodes;
mod routes;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use controller_core::Clock;
use controller_core::adapter::{Adapter, ScopeGuard};
use controller_core::mirror::cloud::Routes as RouteSource;
use controller_core::mirror::kubernetes::Listing;
use controller_core::mirror::{Change, Mirror, ObjectName};
use controller_core::node::LeanNode;
use controller_core::queue::{Backoff, Queue};
use kube::Api;
use tokio::sync::watch;
use tokio::time::Instant;

use self::ability::{Ability, NO_ROUTES};
use self::nodes::News;
use crate::plan::condition::{Change as Said, Judged, Network, changes};
use crate::plan::node::Node;
use crate::plan::route::Route;

/// The only key: a pass compares all nodes with all routes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct AllRoutes;

/// Passes begin at least so far apart: a hundred nodes that join at once are one batch and not a hundred.
const GAP: Duration = Duration::from_secs(1);

/// For so long somebody else's word stands in the condition. Who insists as we do makes one write of each of us in that time.
/// Source: the reference controller's period.
const PEACE: Duration = Duration::from_secs(10);

/// Between passes that found the adapter or the API server away.
const BACKOFF: Backoff = Backoff { first: Duration::from_secs(1), longest: Duration::from_secs(30) };

/// The name of the queue in metrics. Source: the reference controller.
const QUEUE_NAME: &str = "Routes";

/// Which routes of others are watched.
const EVERYWHERE: [&str; 2] = ["0.0.0.0/0", "::/0"];

/// That a node was deleted is remembered for so long without a route that leads to it: one that was laid last may not be seen yet.
const REMEMBERED: Duration = Duration::from_mins(10);

/// Both sides, trimmed.
#[derive(Clone, Debug)]
pub(crate) struct Mirrors {
    pub(crate) nodes: Mirror<ObjectName, Node>,
    /// By the vendor's ID. `None`: it leads to what is no CIDR.
    pub(crate) routes: Mirror<String, Option<Route>>,
    /// `None`: not known yet.
    ability: watch::Sender<Option<Ability>>,
    /// The scheme of its provider IDs. `None`: not known yet, or the adapter does not say it.
    scheme: Arc<Mutex<Option<String>>>,
    /// Where the adapter works.
    scope: ScopeGuard,
    deleted: Deleted,
    /// What the last pass found to be the case.
    judged: Arc<Mutex<Judged>>,
}

/// Nodes that were seen to be deleted. One that is merely missing in a listing is not in it.
#[derive(Clone, Debug, Default)]
struct Deleted(Arc<Mutex<Tombs>>);

#[derive(Debug, Default)]
struct Tombs {
    /// By UID.
    at: BTreeMap<String, Instant>,
    /// Who is not forgotten: a route led there when one looked last.
    reached: BTreeSet<String>,
}

/// Wakes the key: the first time at once, then at most once a [`GAP`].
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

    /// The same, of an adapter that works there.
    pub(crate) fn in_scope(self, scope: &ScopeGuard) -> Self {
        Self { scope: scope.clone(), ..self }
    }

    /// Keeps the nodes in step with the API server. Never ends; drop it to stop.
    pub(crate) async fn follow_nodes(&self, api: (Api<LeanNode>, Listing), trigger: &Trigger) {
        let wake = |change: Change<ObjectName, Node>| {
            self.deleted.note(&change);
            let news = match (&change.old, &change.new) {
                (Some(before), Some(after)) => nodes::news(before, after, self.judged(&after.uid)),
                _ => News::Plan,
            };
            match news {
                News::Plan => trigger.wake(),
                News::Condition => trigger.wake_after(PEACE),
                News::Nothing => (),
            }
        };
        self.nodes.follow_kubernetes(api, |LeanNode(node)| nodes::trim(&node), wake).await;
    }

    /// Keeps the routes in step with the adapter, as long as it has any. Never ends; drop it to stop.
    ///
    /// All of them: nodes may ask for what lies outside of the cluster's CIDRs.
    pub(crate) async fn follow_routes(&self, adapter: &Adapter, trigger: &Trigger) {
        let trim = |route| routes::trim(&route, adapter.cluster_id());
        let (mut some, mut none) = (self.ability.subscribe(), self.ability.subscribe());
        // The sender lives in `self`: waiting cannot fail.
        while some.wait_for(|ability| *ability != Some(Ability::None)).await.is_ok() {
            let source = RouteSource { cluster_cidrs: EVERYWHERE.map(str::to_owned).to_vec() };
            tokio::select! {
                () = self.routes.follow_cloud(adapter, source, trim, |_change| trigger.wake()) => (),
                _ = none.wait_for(|ability| *ability == Some(Ability::None)) => (),
            }
        }
    }

    /// What the adapter can do about routes. `None`: not known yet.
    pub(crate) fn ability(&self) -> Option<Ability> {
        *self.ability.borrow()
    }

    /// Notes what is the case, before it is said: our own words on the nodes are no news then. Returns what is to be said.
    ///
    /// To the nodes as they are by now: what somebody else said of them during the first pass was no news, since nobody had judged.
    pub(crate) fn judge(&self, judged: &Judged) -> Vec<Said> {
        self.judged.lock().unwrap_or_else(PoisonError::into_inner).clone_from(judged);
        self.nodes.read(|content| changes(content.values().map(Arc::as_ref), judged))
    }

    /// What the last pass found to be the case with a node. `None`: nothing certain.
    pub(crate) fn judged(&self, uid: &str) -> Option<Network> {
        self.judged.lock().unwrap_or_else(PoisonError::into_inner).get(uid).copied()
    }

    /// By UID, when nodes were seen to be deleted. Forgets them after a while, but for those that are `reached` by a route.
    pub(crate) fn deleted(&self, reached: BTreeSet<String>) -> BTreeMap<String, Instant> {
        let mut tombs = self.deleted.tombs();
        tombs.reached = reached;
        tombs.forget();
        tombs.at.clone()
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

    /// All nodes as they are now, and as the adapter's cloud sees them: shared with the mirror but for those of other clouds, since copies
    /// of a large cluster would count twice.
    pub(crate) fn nodes(&self) -> Vec<Arc<Node>> {
        let nodes: Vec<Arc<Node>> = self.nodes.read(|content| content.values().cloned().collect());
        match self.scheme() {
            Some(scheme) => nodes.into_iter().map(|node| node.seen_from(&scheme)).collect(),
            None => nodes,
        }
    }

    /// A node of the mirror as the adapter's cloud sees it.
    pub(crate) fn seen(&self, node: Arc<Node>) -> Arc<Node> {
        match self.scheme() {
            Some(scheme) => node.seen_from(&scheme),
            None => node,
        }
    }

    fn scheme(&self) -> Option<String> {
        self.scheme.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// All routes as they are now. One that leads to a node's machine has the machine's provider ID as the node has it: the adapter may list
    /// it in another form.
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

    /// By the other form of their provider IDs: those of the nodes. What is a node's own ID stands for itself.
    fn other_forms(&self) -> BTreeMap<String, String> {
        self.nodes.read(|nodes| {
            let own: BTreeSet<&str> = nodes.values().filter_map(|node| node.provider_id.as_deref()).collect();
            let others = own.iter().filter_map(|id| Some((self.scope.other_form(id)?, (*id).to_owned())));
            others.filter(|(other, _)| !own.contains(other.as_str())).collect()
        })
    }

    /// What must be there before anything is decided.
    pub(crate) fn readiness(&self) -> Result<(), String> {
        self.nodes.readiness()?;
        self.routes_readiness()
    }

    /// The adapter's part of it.
    pub(crate) fn routes_readiness(&self) -> Result<(), String> {
        match self.ability() {
            Some(Ability::None) => Err(format!("routes: {NO_ROUTES}")),
            Some(Ability::Unmarked | Ability::Marked) => self.routes.readiness(),
            None => {
                self.routes.readiness().and(Err("routes: the adapter has not said what it can do".to_owned()))
            }
        }
    }
}

impl Deleted {
    /// A node is gone if the API server says so, or if its name is another's by now.
    fn note(&self, change: &Change<ObjectName, Node>) {
        let mut tombs = self.tombs();
        match (&change.old, &change.new) {
            (Some(old), None) if change.told => tombs.put(&old.uid),
            (Some(old), Some(new)) if old.uid != new.uid => tombs.put(&old.uid),
            _ => (),
        }
        if let Some(new) = &change.new {
            tombs.at.remove(&new.uid);
        }
    }

    fn tombs(&self) -> MutexGuard<'_, Tombs> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Tombs {
    /// Nobody looks while the adapter is away or has no routes, so that here is where others are forgotten.
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

    /// A node of this UID goes, as the API server tells.
    fn goes(uid: &str) -> Change<ObjectName, Node> {
        let old = Some(Arc::new(node("a").uid(uid)));
        Change { key: ObjectName::cluster("a"), old, new: None, told: true }
    }

    #[tokio::test(start_paused = true)]
    async fn nodes_that_go_while_nobody_looks_are_forgotten_but_those_that_a_route_leads_to() {
        let mirrors = Mirrors::new(Clock::starting_at(Timestamp::UNIX_EPOCH));
        mirrors.deleted.note(&goes("reached"));
        mirrors.deleted(BTreeSet::from(["reached".to_owned()]));
        for n in 0..1000 {
            mirrors.deleted.note(&goes(&n.to_string()));
            tokio::time::advance(Duration::from_mins(1)).await;
        }
        let tombs = mirrors.deleted.tombs();
        assert_eq!(tombs.at.len(), 11, "the last ten minutes' and one: {:?}", tombs.at.keys());
        assert!(tombs.at.contains_key("reached"));
    }

    #[tokio::test(start_paused = true)]
    async fn what_wakes_the_passes_is_counted() {
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

    /// How often the key was queued.
    fn adds(trigger: &Trigger) -> String {
        let mut registry = Registry::default();
        trigger.queue.register(&mut registry);
        let text = render(&registry).expect("metrics can be written");
        let line = text.lines().find(|line| line.starts_with("workqueue_adds_total"));
        line.and_then(|line| line.rsplit(' ').next()).unwrap_or_default().to_owned()
    }

    #[tokio::test(start_paused = true)]
    async fn the_echo_of_our_own_word_wakes_nobody_and_that_of_others_does_after_ten_seconds() {
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
        let nodes = (Api::all(kube.client()), Listing::default());
        let (waker, token) = (trigger.clone(), stop.clone());
        let mut tasks = JoinSet::new();
        tasks.spawn(async move { follower.follow_nodes(nodes, &waker).await });
        tasks.spawn(async move { passes.queue.run(1, token, |_, _| async { Again::Done }).await });
        let wait = |seconds| tokio::time::sleep(Duration::from_secs(seconds));
        wait(60).await;
        assert_eq!(adds(&trigger), "1", "the node came");

        let said = mirrors.judge(&Judged::from([("uid-a".to_owned(), Network::Available)]));
        assert_eq!(said.len(), 1, "it is not said yet");
        says("RouteCreated");
        wait(60).await;
        assert_eq!(adds(&trigger), "1", "our own word");
        says("CalicoIsUp");
        wait(9).await;
        assert_eq!(adds(&trigger), "1", "it has its time");
        wait(2).await;
        assert_eq!(adds(&trigger), "2");
        says("RouteCreated");
        wait(60).await;
        assert_eq!(adds(&trigger), "2", "the answer");
        stop.cancel();
    }
}
