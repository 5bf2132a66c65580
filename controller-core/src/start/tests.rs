//! These tests run two processes of one controller against one API server, in virtual time.

use std::sync::{Arc, Mutex};

use ::http::Method;
use cloud_api_proto::{
    AdapterError, Reason,
    v1alpha1::{DeleteLoadBalancerRequest, Fence},
};
use k8s_openapi::{
    api::{coordination::v1::Lease, core::v1::Node},
    jiff::Timestamp,
};
use tokio::{task::JoinSet, time::Instant};

use super::*;
use crate::{
    config::Election,
    mirror::ObjectName,
    testing::{BEGIN, FakeCloud, FakeKube, Fault, Verb, eventually, node},
};

const NAMES: Names = Names { controller: "node-controller", component: "node", managed: &["cloud-node"] };

/// The actions of all replicas, in the sequence in which they happened.
type Deeds = Arc<Mutex<Vec<String>>>;

struct World {
    kube: FakeKube,
    cloud: FakeCloud,
    deeds: Deeds,
}

/// A running process. Dropping this value is like killing the process.
struct Replica {
    stop: CancellationToken,
    health: Health,
    shards: Shards,
    adapter: Adapter,
    ended: JoinSet<anyhow::Result<()>>,
}

impl World {
    fn new() -> Self {
        Self { kube: FakeKube::new(), cloud: FakeCloud::new(), deeds: Deeds::default() }
    }

    /// Starts a replica with one task, which reports its start, and takes three seconds to finish after a stop.
    fn start(&self, name: &'static str) -> Replica {
        self.start_in(name, 1)
    }

    fn start_in(&self, name: &'static str, shards: u16) -> Replica {
        let election = Election {
            namespace: "kube-system".to_owned(),
            name: None,
            shards: shards.try_into().expect("one at least"),
            timing: cloud_lease::Timing {
                duration: Duration::from_secs(15),
                renew_deadline: Duration::from_secs(10),
                retry: Duration::from_secs(2),
            },
        };
        // All replicas of a test run in one process on one host. Only different start times make their identities different.
        let wall: Timestamp = BEGIN + Duration::from_nanos(name.len() as u64);
        let clock = Clock::starting_at(wall);
        let candidate =
            Candidate::new(NAMES.controller, &election, self.kube.client(), &clock).expect("good");
        let shards = Shards::new(NAMES.controller, candidate.terms.clone());
        let process = Process::new(NAMES, self.kube.client(), self.cloud.adapter(), clock);
        let mut process = Process { shards: shards.clone(), candidate: Some(candidate), ..process };
        let (stop, deeds) = (process.stop.clone(), Arc::clone(&self.deeds));
        let stopping = stop.clone();
        process.task("work", async move {
            let say = |what: &str| deeds.lock().expect("no panic").push(format!("{name} {what}"));
            say("starts");
            stopping.cancelled().await;
            tokio::time::sleep(Duration::from_secs(3)).await;
            say("has finished");
        });
        let (health, mut ended) = (process.health.clone(), JoinSet::new());
        let adapter = process.adapter.clone();
        ended.spawn(process.finish());
        Replica { stop, health, shards, adapter, ended }
    }

    fn deeds(&self) -> Vec<String> {
        self.deeds.lock().expect("no panic").clone()
    }

    async fn until(&self, deed: &str) {
        let done = tokio::time::timeout(Duration::from_mins(5), async {
            eventually(deed, || self.deeds().iter().any(|it| it == deed)).await;
        });
        assert!(done.await.is_ok(), "{deed}: {:?}, {:#?}", self.deeds(), self.kube.writes());
    }

    /// Returns the scope that is stored on the Lease.
    fn kept(&self) -> Option<String> {
        self.lease().metadata.annotations.unwrap_or_default().remove("cloudadapter.dev/scope")
    }

    /// Returns the number of Events about a move.
    fn moves(&self) -> usize {
        let events = self.kube.event_objects();
        events.iter().filter(|event| event.reason.as_deref() == Some("CloudMoved")).count()
    }

    fn lease(&self) -> Lease {
        let name = ObjectName::namespaced("kube-system", "cloud-node-controller");
        self.kube.get(&name).expect("a replica has created it")
    }
}

impl Replica {
    /// Returns whether the replica is allowed to change the cloud after it has connected to the adapter.
    async fn may_change(&self) -> bool {
        self.adapter.get_info().await.expect("the adapter answers");
        tokio::time::sleep(Duration::from_secs(1)).await;
        let deletion = self.adapter.delete_load_balancer(Default::default(), Default::default());
        deletion.await.map_err(|error| error.reason) != Err(Reason::NotLeader)
    }

    async fn ended(&mut self) -> anyhow::Result<()> {
        self.ended.join_next().await.expect("the replica ran").expect("no panic")
    }
}

#[tokio::test(start_paused = true)]
async fn one_of_two_replicas_works_and_the_other_stands_by() {
    let world = World::new();
    let _first = world.start("a");
    world.until("a starts").await;
    let second = world.start("bb");
    eventually("the standby knows the leader", || second.health.readiness().is_ok()).await;
    tokio::time::sleep(Duration::from_mins(10)).await;
    assert_eq!(world.deeds(), ["a starts"]);
    assert_eq!(second.health.readiness(), Ok(()));
    assert!(!second.shards.is_running());
}

// Behaviour: P8
#[tokio::test(start_paused = true)]
async fn a_stopped_leader_releases_the_lease_for_the_next() {
    let world = World::new();
    let mut first = world.start("a");
    world.until("a starts").await;
    let _second = world.start("bb");
    tokio::time::sleep(Duration::from_mins(1)).await;

    let stopped = Instant::now();
    first.stop.cancel();
    first.ended().await.expect("the process ends without error");
    world.until("bb starts").await;
    let took = stopped.elapsed();
    assert_eq!(world.deeds(), ["a starts", "a has finished", "bb starts"]);
    assert!(took < Duration::from_secs(4), "{took:?}, of which its work took 3 s");
}

#[tokio::test(start_paused = true)]
async fn a_stopped_replica_releases_each_shard_when_it_is_idle() {
    let world = World::new();
    let mut first = world.start_in("a", 2);
    eventually("the replica holds all shards", || first.shards.held() == 2).await;
    let mut turns = first.shards.enter_all();
    let turn = turns.pop().expect("two");
    drop(turns);
    let second = world.start_in("bb", 2);
    first.stop.cancel();
    world.until("bb starts").await;
    assert!(turn.is_valid());
    assert_eq!((first.shards.held(), second.shards.held()), (1, 1));
    drop(turn);
    eventually("the turn has ended", || first.shards.held() == 0).await;
    assert_eq!(
        world.deeds(),
        ["a starts", "bb starts"],
        "other work of the first replica is still in progress"
    );
    first.ended().await.expect("the process ends without error");
    eventually("the other replica holds all shards", || second.shards.held() == 2).await;
}

#[tokio::test(start_paused = true)]
async fn a_killed_leader_is_replaced_when_the_lease_expires() {
    let world = World::new();
    let first = world.start("a");
    world.until("a starts").await;
    let _second = world.start("bb");
    tokio::time::sleep(Duration::from_mins(1)).await;
    let killed = Instant::now();
    drop(first);
    world.until("bb starts").await;
    assert!(killed.elapsed() <= Duration::from_secs(17), "{:?}", killed.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_stopped_standby_ends_without_having_worked() {
    let world = World::new();
    let _first = world.start("a");
    world.until("a starts").await;
    let mut second = world.start("bb");
    tokio::time::sleep(Duration::from_secs(1)).await;
    second.stop.cancel();
    second.ended().await.expect("the process ends without error");
    assert_eq!(world.deeds(), ["a starts"]);
    let holder = world.lease().spec.and_then(|spec| spec.holder_identity).expect("a still leads");
    assert_eq!(holder, first_identity(&world), "{holder}");
}

fn first_identity(world: &World) -> String {
    let writes = world.kube.writes();
    let creation = writes.iter().find(|write| write.method == Method::POST.as_str()).expect("made");
    creation.body["spec"]["holderIdentity"].as_str().expect("a name").to_owned()
}

#[tokio::test(start_paused = true)]
async fn a_replica_that_loses_the_lease_ends_with_an_error() {
    let world = World::new();
    let mut first = world.start("a");
    world.until("a starts").await;
    let name = ObjectName::namespaced("kube-system", "cloud-node-controller");
    world.kube.change::<Lease>(&name, |lease| {
        if let Some(spec) = &mut lease.spec {
            spec.holder_identity = Some("other".to_owned());
        }
    });
    let taken = Instant::now();
    let error = first.ended().await.expect_err("it is not the leader");
    assert!(error.to_string().contains("kube-system/cloud-node-controller was lost to other"), "{error}");
    assert!(taken.elapsed() <= Duration::from_secs(3), "{:?}: the process does not wait", taken.elapsed());
    assert_eq!(world.deeds(), ["a starts"], "work in progress is dropped");
}

// Behaviour: P11
#[tokio::test(start_paused = true)]
async fn an_unreachable_api_server_stops_writes_but_no_process() {
    let world = World::new();
    let first = world.start("a");
    world.until("a starts").await;
    let epoch = first.shards.epoch();
    world.kube.away(true);
    tokio::time::sleep(Duration::from_secs(11)).await;
    assert!(!first.shards.is_running(), "the replica could not renew for 10 s");
    assert!(first.health.readiness().is_err());
    assert_eq!(first.health.liveness(), Ok(()));
    tokio::time::sleep(Duration::from_mins(10)).await;
    world.kube.away(false);
    eventually("the replica leads again", || first.shards.is_running()).await;
    assert!(first.shards.epoch() > epoch, "a new term, which the adapter sees");
    assert_eq!(world.deeds(), ["a starts"], "the replica's work continued");
}

// Behaviour: P8
#[tokio::test(start_paused = true)]
async fn outside_of_its_term_a_process_changes_nothing_in_the_cloud() {
    let world = World::new();
    let first = world.start("a");
    world.until("a starts").await;
    let adapter = world.cloud.adapter().writing_in(first.shards.clone());
    let delete = || adapter.delete_load_balancer(Default::default(), Default::default());
    let reason = async || delete().await.map_err(|error| error.reason).err();
    assert_ne!(reason().await, Some(Reason::NotLeader));
    world.kube.away(true);
    tokio::time::sleep(Duration::from_secs(11)).await;
    assert_eq!(reason().await, Some(Reason::NotLeader));
}

#[tokio::test(start_paused = true)]
async fn a_late_request_of_an_own_earlier_term_is_not_a_stale_fence() {
    let world = World::new();
    let first = world.start("a");
    world.until("a starts").await;
    let adapter = world.cloud.adapter().writing_in(first.shards.clone());
    let deletion = |epoch| {
        let stale = AdapterError::new(Reason::StaleFence, "a newer writer was here");
        world.cloud.fail_next("DeleteLoadBalancer", stale);
        let fence = Some(Fence { epoch, ..Fence::default() });
        let request = DeleteLoadBalancerRequest { fence, ..DeleteLoadBalancerRequest::default() };
        adapter.delete_load_balancer(Default::default(), request)
    };
    let asked_in = first.shards.epoch();
    assert_eq!(deletion(asked_in).await.map_err(|error| error.reason), Err(Reason::StaleFence));
    world.kube.away(true);
    tokio::time::sleep(Duration::from_secs(11)).await;
    world.kube.away(false);
    eventually("the replica leads again", || first.shards.is_running()).await;
    assert_eq!(deletion(asked_in).await.map_err(|error| error.reason), Err(Reason::OutcomeUnknown));
    assert_eq!(deletion(first.shards.epoch()).await.map_err(|error| error.reason), Err(Reason::StaleFence));
}

// Behaviour: P11
#[tokio::test(start_paused = true)]
async fn liveness_covers_the_election() {
    let world = World::new();
    let mut first = world.start("a");
    world.until("a starts").await;
    assert_eq!(first.health.liveness(), Ok(()));
    // Aborting the election's tasks simulates an election that hangs.
    first.ended.abort_all();
    while first.ended.join_next().await.is_some() {}
    tokio::time::sleep(Duration::from_mins(1)).await;
    let stuck = first.health.liveness().expect_err("no replica would ever renew the Lease");
    assert!(stuck.starts_with("leaderElection: the election has not made progress for 6"), "{stuck}");
}

// Behaviour: P12
#[tokio::test(start_paused = true)]
async fn another_project_is_not_changed_before_confirmation() {
    let world = World::new();
    world.kube.put::<Node>(node("n").provider_id("sim://a/i-1"));
    world.cloud.moves_to("a");
    let mut first = world.start("a");
    world.until("a starts").await;
    assert!(first.may_change().await);
    assert_eq!(world.kept().as_deref(), Some("a cluster cluster-uid project a"));
    world.cloud.moves_to("b");
    assert!(!first.may_change().await);
    first.stop.cancel();
    first.ended().await.expect("the process ends without error");

    // The scope survives a restart.
    let second = world.start("bb");
    world.until("bb starts").await;
    assert!(!second.may_change().await);
    let why = second.health.readiness().expect_err("moved");
    let remedy = "run: kubectl -n kube-system annotate lease cloud-node-controller cloudadapter.dev/scope-";
    for part in ["now uses project b,", "has worked in project a.", remedy] {
        assert!(why.contains(part), "{why}");
    }
    tokio::time::sleep(Duration::from_mins(10)).await;
    assert_eq!(world.moves(), 2, "once per process");

    let name = ObjectName::namespaced("kube-system", "cloud-node-controller");
    let mut acceptances = second.adapter.scope().acceptances();
    world.kube.change::<Lease>(&name, |lease| lease.metadata.annotations = None);
    acceptances.next().await;
    assert_eq!(second.health.readiness(), Ok(()), "the waiting work is notified");
    assert!(second.may_change().await);
    assert_eq!(world.kept().as_deref(), Some("b cluster cluster-uid project b"));
}

// Behaviour: P12
#[tokio::test(start_paused = true)]
async fn controller_that_made_nothing_follows_to_another_project() {
    let world = World::new();
    world.kube.put::<Node>(node("n").uninitialised());
    world.cloud.moves_to("a");
    let first = world.start("a");
    world.until("a starts").await;
    assert!(first.may_change().await);
    world.cloud.moves_to("b");
    assert!(first.may_change().await);
    assert_eq!((first.health.readiness(), world.moves()), (Ok(()), 0), "this is no fault");
    assert_eq!(world.kept().as_deref(), Some("b cluster cluster-uid project b"));

    world.kube.put::<Node>(node("n").provider_id("sim://b/i-1"));
    world.cloud.moves_to("c");
    assert!(!first.may_change().await, "now the cluster has a node in b");
    assert_eq!((world.kept().as_deref(), world.moves()), (Some("b cluster cluster-uid project b"), 1));
}

// Behaviour: P12
#[tokio::test(start_paused = true)]
async fn failed_search_for_evidence_is_a_move_until_it_succeeds() {
    let world = World::new();
    world.cloud.moves_to("a");
    let first = world.start("a");
    world.until("a starts").await;
    assert!(first.may_change().await);
    world.kube.order(Fault::status(500).on(Verb::List, "nodes"));
    world.cloud.moves_to("b");
    assert!(!first.may_change().await);
    assert_eq!((first.health.readiness().is_err(), world.moves()), (true, 1));
    world.kube.heal();
    eventually("nothing was made in the former project", || first.health.readiness().is_ok()).await;
    assert!(first.may_change().await);
}

#[tokio::test(start_paused = true)]
async fn without_an_election_a_move_is_noticed_until_a_restart() {
    let world = World::new();
    world.cloud.moves_to("a");
    let process = Process::new(NAMES, world.kube.client(), world.cloud.adapter(), Clock::starting_at(BEGIN));
    let (adapter, health) = (process.adapter.clone(), process.health.clone());
    let mut running = JoinSet::new();
    running.spawn(process.finish());
    adapter.get_info().await.expect("the adapter answers");
    assert_eq!(health.readiness(), Ok(()));
    world.cloud.moves_to("b");
    adapter.get_info().await.expect("the adapter answers");
    let why = health.readiness().expect_err("moved");
    assert!(why.contains("restart this controller"), "{why}");
    let reported = || !world.kube.event_objects().is_empty();
    eventually("an Event is emitted", reported).await;
}
