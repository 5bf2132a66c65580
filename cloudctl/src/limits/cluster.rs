//! A model of a cluster and its adapter that contains only what causes vendor calls. It has shared listings, load balancers that converge
//! one write after the other, and routes in batches.
//!
//! The model omits what hardly changes the number of calls: deadlines of requests, and requests that controllers repeat while their load
//! balancers are pending.

mod balancers;
mod listings;
mod routes;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use cloud_adapter::vendor::Operation;
use cloud_budget::{Class, Time};

use self::{balancers::Balancer, listings::Listing};
use crate::limits::{
    Question,
    cloud::{Collection, Model, Stock},
    tally::Caller,
    world::{Request, World},
};

/// A run that takes longer than this in virtual time is aborted.
pub(crate) const LONGEST: Duration = Duration::from_hours(7 * 24);

/// The meaning of an answer or of a timer.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ClusterEvent {
    /// A call of the start was answered.
    Started,
    /// A page of a listing was answered.
    Page(Collection),
    /// A collection is due for a refresh.
    Refresh(Collection),
    /// The service-controller passes a Service to the adapter.
    Submit(usize),
    /// A load balancer was written, or was read by a separate call.
    Written(usize),
    Read(usize),
    /// A load balancer is due for a poll.
    Poll(usize),
    /// A call of a batch of routes was answered.
    RouteCallAnswered,
}

/// The initial state of a run, and the events in it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Setup {
    /// Whether the adapter and its controllers start.
    pub(crate) starts: bool,
    /// The objects in the cloud at the beginning.
    pub(crate) stock: Stock,
    pub(crate) create: u32,
    /// Times at which users create load balancers, one at each.
    pub(crate) users: Vec<Duration>,
    /// Whether a node joins.
    pub(crate) node: bool,
    /// Number of load balancers that the node joins.
    pub(crate) join: u32,
    pub(crate) routes: u32,
}

/// When each part of the desired state was reached. `None`: the part is not reached yet.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Milestones {
    pub(crate) nodes: Option<Time>,
    pub(crate) routes: Option<Time>,
    pub(crate) balancers: Option<Time>,
}

impl Milestones {
    pub(crate) fn all(&self) -> Option<Time> {
        Some(self.nodes?.max(self.routes?).max(self.balancers?))
    }
}

#[derive(Debug)]
pub(crate) struct Cluster {
    model: &'static Model,
    cache: cloud_adapter::CacheSettings,
    pub(crate) world: World<ClusterEvent>,
    stock: Stock,
    listings: BTreeMap<Collection, Listing>,
    balancers: Vec<Balancer>,
    /// Number of load balancers that are not in sync.
    out_of_sync: usize,
    /// Number of load balancers that the adapter has begun to converge and that users wait for. All other load balancers wait only for a
    /// new node.
    awaited: usize,
    pub(crate) starts: bool,
    starting: Vec<Operation>,
    /// Number of routes that are still to be created, and the remaining calls of the batch in progress.
    routes_left: u32,
    route_calls: Option<Vec<Operation>>,
    pub(crate) reached: Milestones,
}

impl Cluster {
    pub(crate) fn new(question: &Question, setup: &Setup) -> Self {
        let limits =
            cloud_budget::Config { mode: cloud_budget::Mode::Enforce, ..question.config.limits.clone() };
        let mut cluster = Self {
            model: question.cloud.model(),
            cache: question.config.cache.clone(),
            world: World::new(limits, setup.starts),
            stock: setup.stock,
            listings: Collection::ALL.into_iter().map(|what| (what, Listing::default())).collect(),
            balancers: Vec::new(),
            out_of_sync: 0,
            awaited: 0,
            starts: setup.starts,
            starting: question.cloud.model().start.iter().rev().copied().collect(),
            routes_left: setup.routes,
            route_calls: None,
            reached: Milestones::default(),
        };
        cluster.add_load_balancers(setup);
        if setup.starts {
            cluster.start();
        } else {
            cluster.begin_in_sync(setup.node);
        }
        cluster
    }

    /// Runs until everything has converged, but no longer than `until`.
    pub(crate) fn converge(&mut self, until: Time) {
        while self.reached.all().is_none()
            && let Some(event) = self.world.next(until)
        {
            self.handle(event);
        }
    }

    pub(crate) fn run(&mut self, until: Time) {
        while let Some(event) = self.world.next(until) {
            self.handle(event);
        }
    }

    /// Returns, for each load balancer of a user, the time from the request until the load balancer was ready.
    pub(crate) fn user_times(&self) -> Vec<Duration> {
        let users = self.balancers.iter().filter(|balancer| balancer.user);
        users.filter_map(|balancer| Some(balancer.ready?.since(balancer.began))).collect()
    }

    fn handle(&mut self, event: ClusterEvent) {
        match event {
            ClusterEvent::Started => self.start(),
            ClusterEvent::Page(what) => self.page(what),
            ClusterEvent::Refresh(what) => self.refresh(what),
            ClusterEvent::Submit(at) => self.begin(at),
            ClusterEvent::Written(at) => self.written(at),
            ClusterEvent::Read(at) => self.act(at),
            ClusterEvent::Poll(at) => self.read_balancer(at, true),
            ClusterEvent::RouteCallAnswered => self.send_route_call(),
        }
    }

    /// Checks the credentials, then lists all collections at once, because controllers watch them.
    fn start(&mut self) {
        match self.starting.pop() {
            Some(operation) => {
                let caller = adapter("self-check", Class::Lifecycle);
                self.world.submit(Request { operation, caller, answered: ClusterEvent::Started });
            }
            None => Collection::ALL.into_iter().for_each(|what| self.refresh(what)),
        }
    }

    /// Starts a run in which the adapter already knows all objects. For a joining node, it first lists instances live; the other changes
    /// follow.
    fn begin_in_sync(&mut self, node: bool) {
        let now = self.world.now();
        for what in Collection::ALL {
            let listing = self.listings.entry(what).or_default();
            let calls = (self.model.listing)(what, self.stock, page_size(&self.cache, what)).len();
            listing.observed = Some(now);
            listing.pages = calls;
            self.schedule(what);
        }
        if node {
            self.list_for_node();
        } else {
            self.reached.nodes = Some(now);
            self.record_milestones();
        }
    }

    /// Handles a complete listing of a collection. `first` says whether this is the first listing of the collection.
    fn listed(&mut self, what: Collection, first: bool) {
        let now = self.world.now();
        match what {
            Collection::Instances if self.reached.nodes.is_none() => {
                self.reached.nodes = Some(now);
                // The new node joins existing load balancers after this listing; at a start, the adapter lists the load balancers first.
                if !self.starts {
                    self.submit_services();
                }
            }
            Collection::LoadBalancers if first => self.submit_services(),
            Collection::Instances | Collection::LoadBalancers | Collection::Routes => (),
        }
        if self.reached.nodes.is_some() && self.knows(Collection::Routes) && self.route_calls.is_none() {
            self.begin_route_batch();
        }
        self.record_milestones();
    }

    fn record_milestones(&mut self) {
        let now = self.world.now();
        if self.routes_left == 0 && self.route_calls.is_none() && self.knows(Collection::Routes) {
            self.reached.routes.get_or_insert(now);
        }
        if self.out_of_sync == 0 && self.knows(Collection::LoadBalancers) {
            self.reached.balancers.get_or_insert(now);
        }
    }

    fn knows(&self, what: Collection) -> bool {
        self.listings.get(&what).is_some_and(|listing| listing.observed.is_some())
    }
}

fn page_size(cache: &cloud_adapter::CacheSettings, what: Collection) -> Option<u32> {
    settings(cache, what).page_size
}

pub(crate) fn settings(
    cache: &cloud_adapter::CacheSettings,
    what: Collection,
) -> cloud_adapter::CollectionSettings {
    match what {
        Collection::Instances => cache.instances,
        Collection::LoadBalancers => cache.load_balancers,
        Collection::Routes => cache.routes,
    }
}

fn adapter(what: &str, class: Class) -> Caller {
    Caller { class, controller: "adapter", object: Arc::from(what), user: false, periodic: false }
}
