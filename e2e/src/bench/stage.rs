//! The cluster that is measured, and looks at what it took.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use adapter_sim::simcloud::counts::Counts;
use anyhow::{Context, ensure};
use e2e_tools::Tools;
use kube::Client;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::audit::{AuditWrite, Mark};
use crate::cluster::Cluster;
use crate::helm::merge;
use crate::peer::{Peer, PeerFlags};
use crate::quiet::quiet;
use crate::{ADAPTER, CONTROLLERS, eventually, seconds};

use super::fleet::{self, CLUSTER_CIDR, node_name};
use super::machine::{self, Memory};
use super::profile::Recordings;
use super::progress::Progress;
use super::result::{Calls, Size, Spent, Usage, Who};
use super::seen::Seen;

/// How long each answer of the cloud takes.
const LATENCY_MILLIS: u64 = 50;
/// What the adapter may send each family of the cloud's API, in calls a second: its default for this cloud.
pub(super) const RATE: u32 = 20;
/// Events are written little by little, long after what they tell of. Nothing more comes when nothing was written for so long: twice the
/// pause between two passes over the routes.
const SETTLED_AFTER: Duration = Duration::from_secs(2);
/// The peer's process.
const PEER: &str = "cloud-controller-manager";
/// How many nodes and Services it works on at once where it is given a chance.
const PEER_WORKERS: u32 = 10;
/// It says of no queue that it is empty: it is idle when it has written nothing to the cloud for so long.
const IDLE_AFTER: Duration = Duration::from_secs(5);
/// The users as whom our processes write.
const WRITERS: &str = "system:serviceaccount:";

/// A running cluster, its users, and its kubelets.
#[derive(Debug)]
pub(super) struct Stage {
    // Who calls ends before who is called.
    kubelets: JoinSet<anyhow::Result<()>>,
    pub(super) seen: Seen,
    /// In place of ours, which do not run then.
    peer: Option<Peer>,
    pub(super) cluster: Cluster,
    pub(super) who: Who,
    pub(super) size: Size,
    pub(super) progress: Progress,
    /// Where samples of the processes are kept, if they are wanted.
    pub(super) profile: Option<PathBuf>,
    /// Before the first node came.
    pub(super) born: Reading,
    /// The nodes that are there, with their machines.
    machines: BTreeMap<String, String>,
    /// Those of them that stand behind load balancers.
    members: BTreeSet<String>,
    /// How many were ever made.
    last: usize,
    pub(super) services: Vec<String>,
    /// Whose kubelets report.
    reporting: Arc<Mutex<BTreeSet<String>>>,
}

/// Where all counters stood.
#[derive(Clone, Debug, Default)]
pub(super) struct Reading {
    at: Option<Instant>,
    counts: Counts,
    mark: Mark,
    cpu: BTreeMap<String, (u32, Duration)>,
}

impl Stage {
    /// Starts everything, without nodes.
    pub(super) async fn start(
        tools: &Tools,
        (size, who): (Size, Who),
        progress: Progress,
    ) -> anyhow::Result<Self> {
        Self::start_with(tools, (size, who), &json!({}), progress).await
    }

    /// The same, with these values of the chart. Of each Deployment one replica is started.
    pub(super) async fn start_with(
        tools: &Tools,
        (size, who): (Size, Who),
        more: &Value,
        progress: Progress,
    ) -> anyhow::Result<Self> {
        let values = json!({ "routeController": { "clusterCidr": CLUSTER_CIDR } });
        let change = |all: &mut Value| {
            merge(all, &values);
            merge(all, more);
        };
        let mut cluster = Cluster::install(tools, change).await?;
        let quotas = json!({ "load_balancers": 10_000, "routes": 100_000, "members_per_pool": 10_000 });
        let settings = json!({ "latency": { "default_ms": LATENCY_MILLIS }, "quotas": quotas });
        cluster.cloud.configure(&settings).await?;
        let peer = match flags(who) {
            None => {
                for name in CONTROLLERS.iter().chain([&ADAPTER]) {
                    cluster.pods.get(name)?.start()?;
                }
                for name in CONTROLLERS.iter().chain([&ADAPTER]) {
                    cluster.pods.get(name)?.wait_ready(seconds(60)).await?;
                }
                None
            }
            Some(flags) => Some(Peer::run(&cluster.control_plane, &cluster.cloud, &flags).await?),
        };
        let client = cluster.control_plane.client();
        let seen = Seen::start(&client).await?;
        let reporting = Arc::<Mutex<BTreeSet<String>>>::default();
        let mut kubelets = JoinSet::new();
        let names = Arc::clone(&reporting);
        kubelets.spawn(fleet::report_statuses(client, move || locked(&names).iter().cloned().collect()));
        let mut this = Self {
            kubelets,
            seen,
            peer,
            cluster,
            who,
            size,
            progress,
            profile: None,
            born: Reading::default(),
            machines: BTreeMap::new(),
            members: BTreeSet::new(),
            last: 0,
            services: Vec::new(),
            reporting,
        };
        this.born = this.reading().await?;
        Ok(this)
    }

    pub(super) fn client(&self) -> Client {
        self.cluster.control_plane.client()
    }

    /// No measure of speed, only the end of hope, for something that is done to so many objects.
    pub(super) fn patience(&self, n: usize) -> Duration {
        let each = match self.who {
            Who::Ours => Duration::from_millis(500),
            Who::Peer | Who::PeerConcurrent => Duration::from_secs(5),
        };
        seconds(120) + each.saturating_mul(u32::try_from(n).unwrap_or(u32::MAX))
    }

    /// Where all counters stand. From here on, peaks of memory are those of what comes.
    pub(super) async fn reading(&mut self) -> anyhow::Result<Reading> {
        let mut cpu = BTreeMap::new();
        for (name, pid, _) in self.processes()? {
            machine::forget_peak(pid);
            cpu.insert(name, (pid, machine::cpu(pid)?));
        }
        let mark = self.cluster.control_plane.audit_log().mark()?;
        Ok(Reading { at: Some(Instant::now()), counts: self.cluster.cloud.counts().await?, mark, cpu })
    }

    /// What was taken since.
    pub(super) async fn spent(&mut self, since: &Reading) -> anyhow::Result<Spent> {
        let took = since.at.map(|at| at.elapsed()).unwrap_or_default();
        // Without heartbeats nothing would be easier than to be idle.
        if let Some(ended) = self.kubelets.try_join_next() {
            ended?.context("no node's status is reported any more")?;
        }
        let counts = self.cluster.cloud.counts().await?;
        let writes = self.cluster.control_plane.audit_log().writes_since(since.mark, WRITERS)?;
        let (mut processes, mut users) = (BTreeMap::new(), BTreeMap::new());
        for (name, pid, user) in self.processes()? {
            let (memory, cpu) = (Memory::of(pid)?, machine::cpu(pid)?);
            // Another process of the name began at zero.
            let before = since.cpu.get(&name).filter(|(was, _)| *was == pid).map(|(_, cpu)| *cpu);
            let usage = Usage {
                rss_mib: mib(memory.resident),
                peak_mib: mib(memory.peak),
                cpu_seconds: cpu.saturating_sub(before.unwrap_or_default()).as_secs_f64(),
            };
            users.insert(user, deployment(&name).to_owned());
            processes.insert(name, usage);
        }
        Ok(Spent {
            seconds: took.as_secs_f64(),
            vendor: Calls::between(&since.counts, &counts),
            api_writes: by_process(&writes, &users),
            processes,
        })
    }

    /// Name, process ID and user of each that is measured.
    fn processes(&mut self) -> anyhow::Result<Vec<(String, u32, String)>> {
        if let Some(peer) = &self.peer {
            let pid = peer.id().context("the peer does not run")?;
            return Ok(vec![(PEER.to_owned(), pid, Peer::USER.to_owned())]);
        }
        let pods = &mut self.cluster.pods;
        let names = pods.names();
        let process = |name: String| {
            let pod = pods.look_at(&name).ok()?;
            Some((name, pod.id()?, pod.user().to_owned()))
        };
        Ok(names.into_iter().filter_map(process).collect())
    }

    /// The replicas of all controllers that were started.
    fn controllers(&self) -> Vec<String> {
        let mut names = self.cluster.pods.names();
        let started = |name: &String| self.cluster.pods.look_at(name).is_ok_and(|pod| pod.id().is_some());
        names.retain(|name| deployment(name) != ADAPTER && started(name));
        names
    }

    /// Waits until no controller has anything left to do, and the cloud is not written to any more: what comes to one a moment later
    /// would be counted with what happens next.
    pub(super) async fn quiet(&mut self) -> anyhow::Result<()> {
        if self.peer.is_some() {
            return self.silent(IDLE_AFTER, |counts| counts.writes).await;
        }
        self.idle().await?;
        self.silent(SETTLED_AFTER, |counts| counts.writes).await
    }

    /// Waits until no controller of ours has anything left to do.
    pub(super) async fn idle(&mut self) -> anyhow::Result<()> {
        let within = self.patience(self.machines.len() + self.services.len());
        for name in self.controllers() {
            let pod = self.cluster.pods.look_at(&name)?;
            let what = format!("{name} has nothing left to do");
            let look = eventually(&what, within, || async {
                // A look costs the one who is looked at.
                sleep(Duration::from_millis(100)).await;
                quiet(&pod.metrics().await?)
            });
            look.await.with_context(|| pod.tail())?;
        }
        Ok(())
    }

    /// Waits until the cloud has not been asked for a while.
    pub(super) async fn silent(&self, time: Duration, of: fn(&Counts) -> u64) -> anyhow::Result<()> {
        let end = Instant::now() + self.patience(self.machines.len() + self.services.len());
        let mut calls = of(&self.cluster.cloud.counts().await?);
        loop {
            sleep(time).await;
            let next = of(&self.cluster.cloud.counts().await?);
            if next == calls {
                return Ok(());
            }
            ensure!(Instant::now() < end, "the cloud is asked on and on");
            calls = next;
        }
    }

    /// Machines come up for the next nodes; who is to register is told.
    pub(super) async fn boot(&mut self, n: usize) -> anyhow::Result<std::ops::RangeInclusive<usize>> {
        let numbers = self.last + 1..=self.last + n;
        let ids = fleet::make_machines(&self.cluster.cloud, numbers.clone()).await?;
        self.last += n;
        self.machines.extend(numbers.clone().map(node_name).zip(ids));
        Ok(numbers)
    }

    /// Kubelets register these nodes, which are waited for until they are initialised. How long each waited is told.
    pub(super) async fn join(
        &mut self,
        numbers: std::ops::RangeInclusive<usize>,
        members: usize,
    ) -> anyhow::Result<Vec<Duration>> {
        self.members.extend(numbers.clone().filter(|number| *number <= members).map(node_name));
        let began = fleet::register(&self.client(), numbers, members).await?;
        let names: Vec<_> = began.iter().map(|(name, _)| name.clone()).collect();
        locked(&self.reporting).extend(names.iter().cloned());
        let within = self.patience(names.len());
        let done =
            self.seen.nodes("all nodes are initialised", &names, (|it| it.initialised, within)).await?;
        Ok(waits(&began, &done))
    }

    /// Users create these Services and wait for their addresses. How long each waited is told.
    pub(super) async fn create(&self, names: &[String]) -> anyhow::Result<Vec<Duration>> {
        let began = fleet::create_services(&self.client(), names.iter().cloned()).await?;
        let within = self.patience(names.len());
        let done =
            self.seen.services("all Services have addresses", names, (|it| it.address, within)).await?;
        Ok(waits(&began, &done))
    }

    /// Users delete these Services and wait until they are gone.
    pub(super) async fn delete(&self, names: &[String]) -> anyhow::Result<()> {
        fleet::delete_services(&self.client(), names).await?;
        let within = self.patience(names.len());
        self.seen.services("all Services are gone", names, (|it| it.gone, within)).await.map(drop)
    }

    /// Nodes join and Services are made until there are so many, and everything about them is done.
    pub(super) async fn grow(&mut self, nodes: usize, services: usize) -> anyhow::Result<()> {
        let progress = self.progress;
        let more = nodes.saturating_sub(self.machines.len());
        if more > 0 {
            let numbers = self.boot(more).await?;
            let members = self.size.members;
            progress.told(&format!("{more} nodes join"), self.join(numbers, members)).await?;
        }
        if more > 0 {
            let names = self.node_names();
            let within = self.patience(names.len());
            let routed = self.seen.nodes("all have routes", &names, (|it| it.routed, within));
            progress.told("their routes are laid", routed).await?;
        }
        let made = self.services.len();
        let new: Vec<_> = (made..services).map(|number| format!("svc-{number:05}")).collect();
        if !new.is_empty() {
            let what = format!("{} Services are created", new.len());
            progress.told(&what, self.create(&new)).await?;
            self.services.extend(new);
        }
        self.quiet().await?;
        progress.told("the last Events are written", self.settled()).await
    }

    /// Waits until our processes have written nothing for a while.
    pub(super) async fn settled(&self) -> anyhow::Result<()> {
        let audit = self.cluster.control_plane.audit_log();
        let mut mark = audit.mark()?;
        let end = Instant::now() + self.patience(self.machines.len() + self.services.len());
        loop {
            sleep(SETTLED_AFTER).await;
            let next = audit.mark()?;
            let writes = audit.writes_since(mark, WRITERS)?;
            if writes.iter().all(AuditWrite::keeps_a_lease) {
                return Ok(());
            }
            ensure!(Instant::now() < end, "somebody writes on and on: {:?}", writes.last());
            mark = next;
        }
    }

    /// Watches where the CPU time of these processes goes from here on, if that is wanted.
    pub(super) async fn record(&self, scenario: &str, names: &[&str]) -> anyhow::Result<Recordings> {
        let Some(dir) = self.profile.as_ref().filter(|_| self.who == Who::Ours) else {
            return Ok(Recordings::default());
        };
        let pid = |name: &str| self.cluster.pods.look_at(name)?.id().context("it does not run");
        let named = names.iter().map(|name| Ok(((*name).to_owned(), pid(name)?)));
        Recordings::start(dir, scenario, &named.collect::<anyhow::Result<Vec<_>>>()?).await
    }

    /// The machine of a node.
    pub(super) fn machine(&self, number: usize) -> anyhow::Result<String> {
        let name = node_name(number);
        self.machines.get(&name).cloned().with_context(|| format!("{name} has no machine"))
    }

    /// The names of the nodes that are there.
    pub(super) fn node_names(&self) -> Vec<String> {
        self.machines.keys().cloned().collect()
    }

    /// The first nodes, which stand behind load balancers as far as there are such.
    pub(super) fn first_nodes(&self, n: usize) -> Vec<String> {
        self.machines.keys().take(n).cloned().collect()
    }

    /// The machines of nodes that are to leave, by their IDs. Their kubelets say nothing any more.
    pub(super) fn take_machines(&mut self, nodes: &[String]) -> anyhow::Result<Vec<String>> {
        let take = |name: &String| {
            locked(&self.reporting).remove(name);
            self.members.remove(name);
            self.machines.remove(name).with_context(|| format!("{name} has no machine"))
        };
        nodes.iter().map(take).collect()
    }

    /// What the cloud was asked since.
    pub(super) async fn calls_since(&self, before: &Reading) -> anyhow::Result<Calls> {
        Ok(Calls::between(&before.counts, &self.cluster.cloud.counts().await?))
    }

    /// Fails unless each load balancer has the members that it should have, and no other.
    pub(super) async fn check_members(&self) -> anyhow::Result<()> {
        let wanted: BTreeSet<&str> =
            self.members.iter().filter_map(|name| self.machines.get(name)).map(String::as_str).collect();
        let state = self.cluster.cloud.state().await?;
        ensure!(
            state.load_balancers.len() == self.services.len(),
            "{} load balancers for {} Services",
            state.load_balancers.len(),
            self.services.len()
        );
        for balancer in &state.load_balancers {
            let members = balancer.pools.iter().flat_map(|pool| &pool.members);
            let there: BTreeSet<&str> = members.filter_map(|it| it.instance_id.as_deref()).collect();
            let (name, n, wrong) = (&balancer.name, there.len(), there.symmetric_difference(&wanted).count());
            ensure!(wrong == 0, "load balancer {name} has {n} members; {wrong} are missing or too many");
        }
        Ok(())
    }

    /// For who looks into a failure later.
    pub(super) fn keep_logs(&mut self) {
        self.cluster.control_plane.keep_logs();
    }

    /// Stops all in good order.
    pub(super) async fn close(mut self) -> anyhow::Result<()> {
        if let Some(mut peer) = self.peer.take() {
            peer.stop().await?;
            return self.cluster.control_plane.stop().await;
        }
        for name in self.controllers().into_iter().chain([ADAPTER.to_owned()]) {
            let pod = self.cluster.pods.get(&name)?;
            if pod.is_running() {
                pod.stop().await?;
            }
        }
        self.cluster.control_plane.stop().await
    }
}

/// Whose replica this is: those behind the first have a number at the end.
fn deployment(pod: &str) -> &str {
    let mut all = CONTROLLERS.into_iter().chain([ADAPTER]);
    all.find(|name| pod.starts_with(name)).unwrap_or(pod)
}

/// Nothing for ours.
fn flags(who: Who) -> Option<PeerFlags> {
    let concurrency = match who {
        Who::Ours => return None,
        Who::Peer => None,
        Who::PeerConcurrent => Some(PEER_WORKERS),
    };
    Some(PeerFlags { concurrency, cluster_cidr: CLUSTER_CIDR.to_owned(), ..PeerFlags::default() })
}

fn locked(names: &Mutex<BTreeSet<String>>) -> std::sync::MutexGuard<'_, BTreeSet<String>> {
    names.lock().unwrap_or_else(PoisonError::into_inner)
}

fn waits(began: &[(String, Instant)], done: &BTreeMap<String, Instant>) -> Vec<Duration> {
    let wait = |(name, began): &(String, Instant)| Some(done.get(name)?.saturating_duration_since(*began));
    began.iter().filter_map(wait).collect()
}

#[expect(clippy::cast_precision_loss, reason = "no process has so much memory")]
fn mib(kib: u64) -> f64 {
    kib as f64 / 1024.0
}

/// Who wrote what how often, but for Leases: those are written whatever else there is to do.
fn by_process(
    writes: &[AuditWrite],
    users: &BTreeMap<String, String>,
) -> BTreeMap<String, BTreeMap<String, u64>> {
    let mut all = BTreeMap::<String, BTreeMap<String, u64>>::new();
    for write in writes.iter().filter(|write| !write.keeps_a_lease()) {
        let Some(process) = users.get(&write.user) else { continue };
        let what = format!("{} {}", write.verb, write.resource);
        *all.entry(process.clone()).or_default().entry(what).or_default() += 1;
    }
    all
}

#[cfg(test)]
mod tests {
    use super::{AuditWrite, BTreeMap, by_process, deployment};

    #[test]
    fn replicas_are_those_of_their_deployment() {
        let names = ["node-controller", "service-controller-3", "cloud-adapter", "stranger-1"];
        assert_eq!(
            names.map(deployment),
            ["node-controller", "service-controller", "cloud-adapter", "stranger-1"]
        );
    }

    #[test]
    fn writes_are_counted_by_process_without_leases_and_strangers() {
        let write = |user: &str, verb: &str, resource: &str| AuditWrite {
            user: user.to_owned(),
            verb: verb.to_owned(),
            resource: resource.to_owned(),
            namespace: String::new(),
            name: String::new(),
            code: 200,
        };
        let writes = [
            write("a", "patch", "nodes"),
            write("a", "patch", "nodes"),
            write("a", "patch", "leases"),
            write("stranger", "patch", "nodes"),
        ];
        let users = BTreeMap::from([("a".to_owned(), "node-controller".to_owned())]);
        let counted = by_process(&writes, &users);
        assert_eq!(counted.len(), 1);
        assert_eq!(counted["node-controller"], BTreeMap::from([("patch nodes".to_owned(), 2)]));
    }
}
