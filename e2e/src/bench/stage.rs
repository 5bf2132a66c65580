//! The measured cluster, and readings of its cost.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use adapter_sim::simcloud::counts::Counts;
use anyhow::{Context, ensure};
use e2e_tools::Tools;
use kube::Client;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::audit::{AuditWrite, Mark as AuditMark};
use crate::cluster::Cluster;
use crate::helm::merge;
use crate::peer::{Peer, PeerFlags};
use crate::quiet::quiet;
use crate::{ADAPTER, CONTROLLERS, eventually, seconds};

use super::fleet::{self, CLUSTER_CIDR, node_name};
use super::machine::{self, Memory};
use super::progress::Progress;
use super::result::{Calls, Size, Spent, Usage, Who};
use super::seen::{Mark, Seen};

const LATENCY_MILLIS: u64 = 50;
/// The adapter's default rate limit for this cloud, in calls per second for each family of the API.
pub(super) const RATE: u32 = 20;
/// Events are written with a delay. If there was no write for this duration, no more writes are expected. The duration is twice the
/// interval at which all routes are reconciled.
const SETTLED_AFTER: Duration = Duration::from_secs(2);
const PEER: &str = "cloud-controller-manager";
/// The number of nodes and Services that the peer reconciles at once, if configured.
const PEER_WORKERS: u32 = 10;
/// The peer does not report its queues. It counts as idle if it has written nothing to the cloud for this duration.
const IDLE_AFTER: Duration = Duration::from_secs(5);
/// The prefix of the users of the measured processes.
const WRITERS: &str = "system:serviceaccount:";

#[derive(Debug)]
pub(super) struct Stage {
    // Fields in the order in which they are dropped: clients before their servers.
    kubelets: JoinSet<anyhow::Result<()>>,
    pub(super) seen: Seen,
    /// The peer, if it runs instead of the controllers.
    peer: Option<Peer>,
    pub(super) cluster: Cluster,
    pub(super) who: Who,
    pub(super) size: Size,
    pub(super) progress: Progress,
    /// The counters before the first node joined.
    pub(super) born: Reading,
    /// The existing nodes, with their instances.
    machines: BTreeMap<String, String>,
    /// The nodes of `machines` that are behind load balancers.
    members: BTreeSet<String>,
    /// The number of nodes created so far.
    last: usize,
    pub(super) services: Vec<String>,
    /// The nodes whose kubelets report their status.
    reporting: Arc<Mutex<BTreeSet<String>>>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Reading {
    at: Option<Instant>,
    counts: Counts,
    mark: AuditMark,
    cpu: BTreeMap<String, (u32, Duration)>,
}

impl Stage {
    /// Starts the control plane, the cloud and all processes, without nodes.
    pub(super) async fn start(
        tools: &Tools,
        size: Size,
        who: Who,
        progress: Progress,
    ) -> anyhow::Result<Self> {
        Self::start_with(tools, size, who, &json!({}), progress).await
    }

    /// Same as [`Self::start`], with these chart values. Starts one replica of each Deployment.
    pub(super) async fn start_with(
        tools: &Tools,
        size: Size,
        who: Who,
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

    /// The deadline for an operation on this number of objects. It only ends failed runs; it is not a performance target.
    pub(super) fn time_limit(&self, n: usize) -> Duration {
        let each = match self.who {
            Who::Ours => Duration::from_millis(500),
            Who::Peer | Who::PeerConcurrent => Duration::from_secs(5),
        };
        seconds(120) + each.saturating_mul(u32::try_from(n).unwrap_or(u32::MAX))
    }

    /// Reads all counters, and resets the peaks of memory.
    pub(super) async fn reading(&mut self) -> anyhow::Result<Reading> {
        let mut cpu = BTreeMap::new();
        for (name, pid, _) in self.processes()? {
            machine::forget_peak(pid);
            cpu.insert(name, (pid, machine::cpu(pid)?));
        }
        let mark = self.cluster.control_plane.audit_log().mark()?;
        Ok(Reading { at: Some(Instant::now()), counts: self.cluster.cloud.counts().await?, mark, cpu })
    }

    pub(super) async fn spent(&mut self, since: &Reading) -> anyhow::Result<Spent> {
        let took = since.at.map(|at| at.elapsed()).unwrap_or_default();
        // If the status reports of the kubelets have ended, the measured cost would be too low, so the run fails.
        if let Some(ended) = self.kubelets.try_join_next() {
            ended?.context("the status reports of nodes ended")?;
        }
        let counts = self.cluster.cloud.counts().await?;
        let writes = self.cluster.control_plane.audit_log().writes_since(since.mark, WRITERS)?;
        let (mut processes, mut users) = (BTreeMap::new(), BTreeMap::new());
        for (name, pid, user) in self.processes()? {
            let (memory, cpu) = (Memory::of(pid)?, machine::cpu(pid)?);
            // If a process was replaced by a new process of the same name, the counters of the new process start at zero.
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

    /// Name, process ID and user of each measured process.
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

    /// The started replicas of all controllers.
    fn controllers(&self) -> Vec<String> {
        let mut names = self.cluster.pods.names();
        let started = |name: &String| self.cluster.pods.look_at(name).is_ok_and(|pod| pod.id().is_some());
        names.retain(|name| deployment(name) != ADAPTER && started(name));
        names
    }

    /// Waits until all controllers are idle and write no more to the cloud. Later writes would be counted in the next scenario.
    pub(super) async fn quiet(&mut self) -> anyhow::Result<()> {
        if self.peer.is_some() {
            return self.silent(IDLE_AFTER, |counts| counts.writes).await;
        }
        self.idle().await?;
        self.silent(SETTLED_AFTER, |counts| counts.writes).await
    }

    /// Waits until the queues of all controllers are empty.
    pub(super) async fn idle(&mut self) -> anyhow::Result<()> {
        let within = self.time_limit(self.machines.len() + self.services.len());
        for name in self.controllers() {
            let pod = self.cluster.pods.look_at(&name)?;
            let what = format!("the queue of {name} is empty");
            let look = eventually(&what, within, || async {
                // Each read of the metrics costs the process CPU time.
                sleep(Duration::from_millis(100)).await;
                quiet(&pod.metrics().await?)
            });
            look.await.with_context(|| pod.tail())?;
        }
        Ok(())
    }

    /// Waits until the number of calls that `of` selects has not changed for this duration.
    pub(super) async fn silent(&self, time: Duration, of: fn(&Counts) -> u64) -> anyhow::Result<()> {
        let end = Instant::now() + self.time_limit(self.machines.len() + self.services.len());
        let mut calls = of(&self.cluster.cloud.counts().await?);
        loop {
            sleep(time).await;
            let next = of(&self.cluster.cloud.counts().await?);
            if next == calls {
                return Ok(());
            }
            ensure!(Instant::now() < end, "calls to the cloud do not end");
            calls = next;
        }
    }

    /// Creates the instances of the next nodes, and returns their numbers.
    pub(super) async fn boot(&mut self, n: usize) -> anyhow::Result<std::ops::RangeInclusive<usize>> {
        let numbers = self.last + 1..=self.last + n;
        let ids = fleet::make_machines(&self.cluster.cloud, numbers.clone()).await?;
        self.last += n;
        self.machines.extend(numbers.clone().map(node_name).zip(ids));
        Ok(numbers)
    }

    /// Registers these nodes and waits until they are initialised. Returns the waiting time of each node.
    pub(super) async fn join(
        &mut self,
        numbers: std::ops::RangeInclusive<usize>,
        members: usize,
    ) -> anyhow::Result<Vec<Duration>> {
        self.members.extend(numbers.clone().filter(|number| *number <= members).map(node_name));
        let began = fleet::register(&self.client(), numbers, members).await?;
        let names: Vec<_> = began.iter().map(|(name, _)| name.clone()).collect();
        locked(&self.reporting).extend(names.iter().cloned());
        let within = self.time_limit(names.len());
        let done = self.seen.all("all nodes are initialised", &names, Mark::Initialised, within).await?;
        Ok(waits(&began, &done))
    }

    /// Creates these Services and waits for their addresses. Returns the waiting time of each Service.
    pub(super) async fn create(&self, names: &[String]) -> anyhow::Result<Vec<Duration>> {
        let began = fleet::create_services(&self.client(), names.iter().cloned()).await?;
        let within = self.time_limit(names.len());
        let done = self.seen.all("all Services have addresses", names, Mark::Address, within).await?;
        Ok(waits(&began, &done))
    }

    pub(super) async fn delete(&self, names: &[String]) -> anyhow::Result<()> {
        fleet::delete_services(&self.client(), names).await?;
        let within = self.time_limit(names.len());
        self.seen.all("all Services are gone", names, Mark::ServiceGone, within).await.map(drop)
    }

    /// Adds nodes and Services up to these numbers, and waits until the controllers have processed them.
    pub(super) async fn grow(&mut self, nodes: usize, services: usize) -> anyhow::Result<()> {
        let progress = self.progress;
        let more = nodes.saturating_sub(self.machines.len());
        if more > 0 {
            let numbers = self.boot(more).await?;
            let members = self.size.members;
            progress.step(&format!("{more} nodes join"), self.join(numbers, members)).await?;
        }
        if more > 0 {
            let names = self.node_names();
            let within = self.time_limit(names.len());
            let routed = self.seen.all("all nodes have routes", &names, Mark::Routed, within);
            progress.step("creating their routes", routed).await?;
        }
        let made = self.services.len();
        let new: Vec<_> = (made..services).map(|number| format!("svc-{number:05}")).collect();
        if !new.is_empty() {
            let what = format!("creating {} Services", new.len());
            progress.step(&what, self.create(&new)).await?;
            self.services.extend(new);
        }
        self.quiet().await?;
        progress.step("waiting for the last Events", self.settled()).await
    }

    /// Waits until the measured processes have written nothing for [`SETTLED_AFTER`].
    pub(super) async fn settled(&self) -> anyhow::Result<()> {
        let audit = self.cluster.control_plane.audit_log();
        let mut mark = audit.mark()?;
        let end = Instant::now() + self.time_limit(self.machines.len() + self.services.len());
        loop {
            sleep(SETTLED_AFTER).await;
            let next = audit.mark()?;
            let writes = audit.writes_since(mark, WRITERS)?;
            if writes.iter().all(AuditWrite::keeps_a_lease) {
                return Ok(());
            }
            ensure!(Instant::now() < end, "writes do not end: {:?}", writes.last());
            mark = next;
        }
    }

    /// The ID of a node's instance.
    pub(super) fn machine(&self, number: usize) -> anyhow::Result<String> {
        let name = node_name(number);
        self.machines.get(&name).cloned().with_context(|| format!("{name} has no instance"))
    }

    pub(super) fn node_names(&self) -> Vec<String> {
        self.machines.keys().cloned().collect()
    }

    /// The first nodes, which are the nodes behind load balancers.
    pub(super) fn first_nodes(&self, n: usize) -> Vec<String> {
        self.machines.keys().take(n).cloned().collect()
    }

    /// Removes leaving nodes from the records, and returns the IDs of their instances. Their kubelets stop reporting.
    pub(super) fn take_machines(&mut self, nodes: &[String]) -> anyhow::Result<Vec<String>> {
        let take = |name: &String| {
            locked(&self.reporting).remove(name);
            self.members.remove(name);
            self.machines.remove(name).with_context(|| format!("{name} has no instance"))
        };
        nodes.iter().map(take).collect()
    }

    pub(super) async fn calls_since(&self, before: &Reading) -> anyhow::Result<Calls> {
        Ok(Calls::between(&before.counts, &self.cluster.cloud.counts().await?))
    }

    /// Fails unless each load balancer has the expected members and no others.
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
            ensure!(wrong == 0, "load balancer {name} has {n} members; {wrong} are missing or unexpected");
        }
        Ok(())
    }

    pub(super) fn keep_logs(&mut self) {
        self.cluster.control_plane.keep_logs();
    }

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

/// The Deployment of a replica; the names of all but the first replica end with a number.
fn deployment(pod: &str) -> &str {
    let mut all = CONTROLLERS.into_iter().chain([ADAPTER]);
    all.find(|name| pod.starts_with(name)).unwrap_or(pod)
}

/// The flags of the peer; `None` for the controllers.
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

/// The writes of each process, by verb and resource. Leaves out Leases, which are renewed all the time.
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
    fn replica_belongs_to_its_deployment() {
        let names = ["node-controller", "service-controller-3", "cloud-adapter", "stranger-1"];
        assert_eq!(
            names.map(deployment),
            ["node-controller", "service-controller", "cloud-adapter", "stranger-1"]
        );
    }

    #[test]
    fn writes_are_counted_by_process_without_leases() {
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
