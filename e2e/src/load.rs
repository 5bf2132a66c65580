//! Simulates the load of users while a test does something else. The users create, change and delete Services, and nodes join and leave,
//! all the time.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use adapter_sim::simcloud::model::{LoadBalancer, ProvisioningStatus};
use anyhow::{Context, ensure};
use k8s_openapi::api::core::v1::{Node, Service};
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::{Api, Client};
use serde_json::json;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::bed::{Bed, address, is_uninitialised};
use crate::eventually::{WITHIN, eventually};
use crate::objects::{delete_node, node, service};
use crate::simcloud::{Simcloud, State};

/// The number of users that work on Services at the same time.
const USERS: usize = 3;
/// The number of Services that each user changes once and then keeps. Changes of other Services must not affect them.
const KEPT: usize = 2;
/// The number of instance names that are reused. At most `NODES` of the instances are nodes at the same time.
const MACHINES: usize = 8;
/// The first pod network, outside of those that a cluster gives its own nodes.
const FIRST_NETWORK: usize = 100;
const NODES: usize = 3;

/// Running users. They work until they are stopped, or until this value is dropped.
#[derive(Debug)]
pub struct Load {
    rounds: Arc<AtomicUsize>,
    stop: watch::Sender<bool>,
    users: JoinSet<anyhow::Result<Outcome>>,
}

/// The objects that the users have created and kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// The total number of Services created.
    pub n_services: usize,
    /// The total number of nodes that joined, with repetitions.
    pub n_joined: usize,
    /// The remaining Services, each with two ports.
    pub services: Vec<String>,
    /// The pod networks of the remaining nodes.
    pub networks: Vec<String>,
}

impl Outcome {
    /// Fails unless each Service has one complete load balancer, and each pod network has its route: those in `networks` and those of the
    /// remaining nodes. Also fails if the cloud contains anything else.
    pub fn check(&self, state: &State, networks: &[String]) -> anyhow::Result<()> {
        let complete = |it: &LoadBalancer| it.status == ProvisioningStatus::Active && it.listeners.len() == 2;
        ensure!(state.load_balancers.iter().all(complete), "{:#?}", state.load_balancers);
        let owner = |it: &LoadBalancer| it.tags.get("cloudadapter.dev/owner-name").cloned();
        let mut owners: Vec<_> = state.load_balancers.iter().filter_map(owner).collect();
        owners.sort();
        ensure!(owners == self.services, "load balancers of {owners:?}, not of {:?}", self.services);
        let mut routes: Vec<_> = state.routes.iter().map(|it| it.destination.to_string()).collect();
        routes.sort();
        let mut wanted = [self.networks.as_slice(), networks].concat();
        wanted.sort();
        ensure!(routes == wanted, "routes to {routes:?}, not {wanted:?}");
        Ok(())
    }
}

#[derive(Clone)]
struct User {
    client: Client,
    rounds: Arc<AtomicUsize>,
    stop: watch::Receiver<bool>,
}

impl Load {
    /// Creates instances, and starts the users as soon as there are nodes.
    pub async fn start(bed: &Bed) -> anyhow::Result<Self> {
        Self::beside(bed.client(), &bed.cluster.cloud).await
    }

    /// Starts the users in any cluster, including one that already has nodes.
    pub async fn beside(client: Client, cloud: &Simcloud) -> anyhow::Result<Self> {
        let cloud = cloud.caller();
        let (rounds, stop) = (Arc::<AtomicUsize>::default(), watch::Sender::new(false));
        let mut users = JoinSet::new();
        let user = User { client, rounds: Arc::clone(&rounds), stop: stop.subscribe() };
        users.spawn(user.clone().nodes(cloud));
        let mut this = Self { rounds, stop, users };
        this.rounds(NODES).await?;
        for number in 0..USERS {
            this.users.spawn(user.clone().services(number));
        }
        Ok(this)
    }

    /// Waits until the users have completed this number of further rounds without an error.
    pub async fn rounds(&mut self, more: usize) -> anyhow::Result<()> {
        let wanted = self.rounds.load(Ordering::Relaxed) + more;
        let (rounds, users) = (&self.rounds, &mut self.users);
        let worked = eventually("users have completed their rounds", WITHIN * 2, || async {
            let done = rounds.load(Ordering::Relaxed);
            ensure!(done >= wanted, "{done} of {wanted} rounds");
            Ok(())
        });
        tokio::select! {
            worked = worked => worked,
            Some(ended) = users.join_next() => ended?.and_then(|_| anyhow::bail!("a user stopped")),
        }
    }

    /// Waits until the users have worked for this time without an error.
    pub async fn work_for(&mut self, time: Duration) -> anyhow::Result<()> {
        let began = Instant::now();
        while began.elapsed() < time {
            self.rounds(1).await?;
        }
        Ok(())
    }

    /// Waits until the users have finished their current rounds.
    pub async fn stop(mut self) -> anyhow::Result<Outcome> {
        self.stop.send_replace(true);
        let mut all = Outcome::default();
        while let Some(ended) = self.users.join_next().await {
            let Outcome { n_services, n_joined, services, networks } = ended??;
            all.n_services += n_services;
            all.n_joined += n_joined;
            all.services.extend(services);
            all.networks.extend(networks);
        }
        all.services.sort();
        all.networks.sort();
        Ok(all)
    }
}

impl User {
    /// Creates a Service, waits for its address, changes and deletes it, in a loop. The first Services are kept.
    async fn services(self, number: usize) -> anyhow::Result<Outcome> {
        let services: Api<Service> = Api::default_namespaced(self.client.clone());
        let (mut kept, mut n_services) = (Vec::new(), 0);
        for round in 0.. {
            if self.stops() {
                break;
            }
            let name = format!("load-{number}-{round}");
            service(&name).port(80).create(&self.client).await?;
            n_services += 1;
            eventually(&format!("Service {name} has an address"), WITHIN, || async {
                address(&services.get(&name).await?).context("the Service has no address")
            })
            .await?;
            let more = json!({ "spec": { "ports": [{ "name": "more", "port": 443, "protocol": "TCP" }] } });
            services.patch(&name, &PatchParams::default(), &Patch::Strategic(&more)).await?;
            if round < KEPT {
                kept.push(name);
            } else {
                self.delete(&services, &name).await?;
            }
            self.done();
        }
        Ok(Outcome { n_services, services: kept, ..Outcome::default() })
    }

    async fn delete(&self, services: &Api<Service>, name: &str) -> anyhow::Result<()> {
        services.delete(name, &DeleteParams::default()).await.context("cannot delete the Service")?;
        eventually(&format!("Service {name} is gone"), WITHIN, || async {
            let left = services.get_opt(name).await?;
            ensure!(left.is_none(), "finalizers {:?}", left.and_then(|it| it.metadata.finalizers));
            Ok(())
        })
        .await
    }

    /// Adds an instance that joins as a node and gets its route. Then removes the oldest node, its instance first, as an autoscaler does.
    /// The number of routes that are removed at once is limited only while their instances exist.
    async fn nodes(self, cloud: Simcloud) -> anyhow::Result<Outcome> {
        let (mut there, mut n_joined) = (Vec::new(), 0);
        for number in (1..=MACHINES).cycle() {
            if self.stops() {
                break;
            }
            let (name, network) =
                (format!("load-{number}"), format!("10.244.{}.0/24", FIRST_NETWORK + number));
            let machine = cloud.create_instance(&name).await?.id;
            node(&name).pods(&network).register(&self.client).await?;
            n_joined += 1;
            self.works(&name).await?;
            there.push((name, network, machine));
            if there.len() > NODES {
                let (name, _network, machine) = there.remove(0);
                cloud.delete_instance(&machine).await?;
                delete_node(&self.client, &name).await?;
            }
            self.done();
        }
        let networks = there.into_iter().map(|(_name, network, _machine)| network).collect();
        Ok(Outcome { n_joined, networks, ..Outcome::default() })
    }

    async fn works(&self, name: &str) -> anyhow::Result<()> {
        let nodes: Api<Node> = Api::all(self.client.clone());
        eventually(&format!("node {name} is initialised and has its route"), WITHIN, || async {
            let node = nodes.get(name).await?;
            let conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
            let routed = conditions.filter_map(|it| it.reason.as_deref()).any(|it| it == "RouteCreated");
            ensure!(!is_uninitialised(&node) && routed, "{:?}", node.status);
            Ok(())
        })
        .await
    }

    fn stops(&self) -> bool {
        // If the sender was dropped, the user stops, too.
        *self.stop.borrow() || self.stop.has_changed().is_err()
    }

    fn done(&self) {
        self.rounds.fetch_add(1, Ordering::Relaxed);
    }
}
