//! Users at work while something else happens: Services come, change and go, and nodes join and leave, all the time.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, ensure};
use k8s_openapi::api::core::v1::{Node, Service};
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::{Api, Client};
use serde_json::json;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::bed::{Bed, WITHIN, address, is_uninitialised};
use crate::eventually::eventually;
use crate::objects::{delete_node, node, service};
use crate::simcloud::Simcloud;

/// Users who work on Services at the same time.
const USERS: usize = 3;
/// So many of its Services each user keeps, changed: what others do must not touch them.
const KEPT: usize = 2;
/// Names of machines that come and go, of which these are nodes at the same time.
const MACHINES: usize = 8;
/// Their networks begin here, far from those that a cluster gives its own nodes.
const FIRST_NETWORK: usize = 100;
const NODES: usize = 3;

/// Users at work, until they are stopped or this is dropped.
#[derive(Debug)]
pub struct Load {
    rounds: Arc<AtomicUsize>,
    stop: watch::Sender<bool>,
    users: JoinSet<anyhow::Result<Outcome>>,
}

/// What is left of the users' work.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// How many Services there ever were.
    pub n_services: usize,
    /// How many nodes joined, some of them again.
    pub n_joined: usize,
    /// The Services that are there, each with two ports.
    pub services: Vec<String>,
    /// The networks of the nodes that are there.
    pub networks: Vec<String>,
}

/// One user: what it needs.
#[derive(Clone)]
struct User {
    client: Client,
    rounds: Arc<AtomicUsize>,
    stop: watch::Receiver<bool>,
}

impl Load {
    /// Makes machines, and sets users to work as soon as there are nodes.
    ///
    /// # Errors
    /// When the cloud refuses, or no node is initialised.
    pub async fn start(bed: &Bed) -> anyhow::Result<Self> {
        Self::beside(bed.client(), &bed.cluster.cloud).await
    }

    /// The same in any cluster, also one that has nodes already.
    ///
    /// # Errors
    /// When the cloud refuses, or no node is initialised.
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

    /// Waits until users have done so many more rounds of work, each with success.
    ///
    /// # Errors
    /// When one of them waits in vain for what it asked for.
    pub async fn rounds(&mut self, more: usize) -> anyhow::Result<()> {
        let wanted = self.rounds.load(Ordering::Relaxed) + more;
        let (rounds, users) = (&self.rounds, &mut self.users);
        let worked = eventually("users have worked on", WITHIN * 2, || async {
            let done = rounds.load(Ordering::Relaxed);
            ensure!(done >= wanted, "{done} rounds of {wanted}");
            Ok(())
        });
        tokio::select! {
            worked = worked => worked,
            Some(ended) = users.join_next() => ended?.and_then(|_| anyhow::bail!("a user stopped")),
        }
    }

    /// Waits until users have worked for so long, with success.
    ///
    /// # Errors
    /// When one of them waits in vain for what it asked for.
    pub async fn work_for(&mut self, time: Duration) -> anyhow::Result<()> {
        let began = Instant::now();
        while began.elapsed() < time {
            self.rounds(1).await?;
        }
        Ok(())
    }

    /// Lets users finish what they are at.
    ///
    /// # Errors
    /// When one of them waits in vain for what it asked for.
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
    /// A Service comes, gets its address, changes and goes; the first ones stay.
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
                address(&services.get(&name).await?).context("it has none")
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

    /// A machine joins as a node and gets its route, and the one that has been there for longest leaves: the machine first, as an autoscaler
    /// does it. Of nodes whose machines stay, only a few routes may go at once.
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
        // Nobody is left to say it: that is a stop, too.
        *self.stop.borrow() || self.stop.has_changed().is_err()
    }

    fn done(&self) {
        self.rounds.fetch_add(1, Ordering::Relaxed);
    }
}
