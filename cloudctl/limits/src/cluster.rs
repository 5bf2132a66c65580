//! A cluster and its adapter, as far as vendor calls are concerned: listings that are shared, load balancers that converge one write
//! after the other, routes in batches.
//!
//! It leaves out what changes few calls: requests' deadlines, and controllers that ask again how far their load balancers are.

mod balancers;
mod listings;
mod routes;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use cloud_adapter::vendor::Operation;
use cloud_budget::{Class, Time};

use self::{balancers::Balancer, listings::Listing};
use crate::{
    Question,
    cloud::{Cloud, Collection, Stock},
    world::{Asked, Caller, World},
};

/// A run that takes longer than this in virtual time is given up.
pub(crate) const LONGEST: Duration = Duration::from_hours(7 * 24);

/// What an answer, or a moment, means.
#[derive(Clone, Copy, Debug)]
pub(crate) enum News {
    /// A call of the start has come back.
    Started,
    /// A page has come.
    Page(Collection),
    /// A collection is to be refreshed.
    Refresh(Collection),
    /// A Service is handed in.
    HandIn(usize),
    /// A load balancer was written, or read alone.
    Written(usize),
    Read(usize),
    /// A load balancer is to be looked at.
    Poll(usize),
    /// A call of a batch of routes has come back.
    Laid,
}

/// What a run begins with, and what happens in it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Plot {
    /// The adapter starts, and its controllers with it.
    pub(crate) starts: bool,
    /// What there is at the vendor.
    pub(crate) stock: Stock,
    /// Load balancers to make.
    pub(crate) create: u32,
    /// Load balancers to make for a user, each at its moment.
    pub(crate) users: Vec<Duration>,
    /// A node joins.
    pub(crate) node: bool,
    /// Load balancers that it joins.
    pub(crate) join: u32,
    /// Routes to lay.
    pub(crate) lay: u32,
}

/// When what was wanted is so. `None`: not yet.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Milestones {
    pub(crate) nodes: Option<Time>,
    pub(crate) routes: Option<Time>,
    pub(crate) balancers: Option<Time>,
}

impl Milestones {
    /// The last of them, if all are reached.
    pub(crate) fn all(&self) -> Option<Time> {
        Some(self.nodes?.max(self.routes?).max(self.balancers?))
    }
}

/// The state of one run.
#[derive(Debug)]
pub(crate) struct Cluster {
    cloud: Cloud,
    cache: cloud_adapter::CacheSettings,
    pub(crate) world: World<News>,
    stock: Stock,
    listings: BTreeMap<Collection, Listing>,
    balancers: Vec<Balancer>,
    /// Those that are not as they shall be.
    unsettled: usize,
    /// Those of them for which somebody waits: users, not nodes.
    awaited: usize,
    pub(crate) starts: bool,
    starting: Vec<Operation>,
    /// Routes that are not laid, and the calls of the batch that is being laid.
    to_lay: u32,
    laying: Option<Vec<Operation>>,
    pub(crate) reached: Milestones,
}

impl Cluster {
    pub(crate) fn new(question: &Question, plot: &Plot) -> Self {
        let limits =
            cloud_budget::Config { mode: cloud_budget::Mode::Enforce, ..question.config.limits.clone() };
        let mut cluster = Self {
            cloud: question.cloud,
            cache: question.config.cache.clone(),
            world: World::new(limits, plot.starts),
            stock: plot.stock,
            listings: Collection::ALL.into_iter().map(|what| (what, Listing::default())).collect(),
            balancers: Vec::new(),
            unsettled: 0,
            awaited: 0,
            starts: plot.starts,
            starting: question.cloud.start().iter().rev().copied().collect(),
            to_lay: plot.lay,
            laying: None,
            reached: Milestones::default(),
        };
        cluster.cast(plot);
        if plot.starts {
            cluster.start();
        } else {
            cluster.go_on(plot.node);
        }
        cluster
    }

    /// Runs until everything is as it shall be, at most until then.
    pub(crate) fn converge(&mut self, until: Time) {
        while self.reached.all().is_none()
            && let Some(news) = self.world.next(until)
        {
            self.hear(news);
        }
    }

    /// Runs until then.
    pub(crate) fn run(&mut self, until: Time) {
        while let Some(news) = self.world.next(until) {
            self.hear(news);
        }
    }

    /// How long it took from the wish to the load balancer for those that users made.
    pub(crate) fn user_times(&self) -> Vec<Duration> {
        let users = self.balancers.iter().filter(|balancer| balancer.user);
        users.filter_map(|balancer| Some(balancer.ready?.since(balancer.began))).collect()
    }

    fn hear(&mut self, news: News) {
        match news {
            News::Started => self.start(),
            News::Page(what) => self.page(what),
            News::Refresh(what) => self.refresh(what),
            News::HandIn(at) => self.begin(at),
            News::Written(at) => self.written(at),
            News::Read(at) => self.act(at),
            News::Poll(at) => self.look(at, true),
            News::Laid => self.lay(),
        }
    }

    /// The credentials are checked first; then all is listed at once, for controllers watch it.
    fn start(&mut self) {
        match self.starting.pop() {
            Some(operation) => {
                let caller = adapter("self-check", Class::Lifecycle);
                self.world.submit(Asked { operation, caller, news: News::Started });
            }
            None => Collection::ALL.into_iter().for_each(|what| self.refresh(what)),
        }
    }

    /// Everything is known already. A node that joins is asked for live, and all else follows it.
    fn go_on(&mut self, node: bool) {
        let now = self.world.now();
        for what in Collection::ALL {
            let listing = self.listings.entry(what).or_default();
            let calls = self.cloud.listing(what, self.stock, page_size(&self.cache, what)).len();
            listing.observed = Some(now);
            listing.pages = calls;
            self.schedule(what);
        }
        if node {
            self.look_for_node();
        } else {
            self.reached.nodes = Some(now);
            self.settle();
        }
    }

    /// A collection is known for the first time, or again.
    fn listed(&mut self, what: Collection, first: bool) {
        let now = self.world.now();
        match what {
            Collection::Instances if self.reached.nodes.is_none() => {
                self.reached.nodes = Some(now);
                // What is there follows the new node; at a start its load balancers are listed first.
                if !self.starts {
                    self.hand_in_all();
                }
            }
            Collection::LoadBalancers if first => self.hand_in_all(),
            Collection::Instances | Collection::LoadBalancers | Collection::Routes => (),
        }
        if self.reached.nodes.is_some() && self.knows(Collection::Routes) && self.laying.is_none() {
            self.lay_first();
        }
        self.settle();
    }

    fn settle(&mut self) {
        let now = self.world.now();
        if self.to_lay == 0 && self.laying.is_none() && self.knows(Collection::Routes) {
            self.reached.routes.get_or_insert(now);
        }
        if self.unsettled == 0 && self.knows(Collection::LoadBalancers) {
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

/// What the file says of a collection.
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

/// The adapter itself.
fn adapter(what: &str, class: Class) -> Caller {
    Caller { class, controller: "adapter", object: Arc::from(what), user: false, again: false }
}
