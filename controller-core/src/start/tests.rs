//! Two processes of one controller over one API server, in virtual time.

use std::sync::{Arc, Mutex};

use cloud_api_proto::{
    AdapterError, Reason,
    v1alpha1::{DeleteLoadBalancerRequest, Fence},
};
use http::Method;
use k8s_openapi::{api::coordination::v1::Lease, jiff::Timestamp};
use tokio::{task::JoinSet, time::Instant};

use super::*;
use crate::{
    config::Election,
    mirror::ObjectName,
    testing::{BEGIN, FakeCloud, FakeKube, eventually},
};

const NAMES: Names = Names { controller: "node-controller", component: "node", managed: &["cloud-node"] };

/// What each replica did, in the order in which it happened.
type Deeds = Arc<Mutex<Vec<String>>>;

struct World {
    kube: FakeKube,
    cloud: FakeCloud,
    deeds: Deeds,
}

/// A process that runs. Dropped, it ends as if killed.
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

    /// Starts a replica whose only task says when it starts, and what it is at when it shall stop takes three seconds.
    fn start(&self, name: &'static str) -> Replica {
        self.start_in(name, 1)
    }

    /// The same, where the work is divided into so many shards.
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
        // Processes that start at one moment have other machines.
        let wall: Timestamp = BEGIN + Duration::from_nanos(name.len() as u64);
        let clock = Clock::starting_at(wall);
        let candidate = Candidate::new(NAMES, &election, self.kube.client(), &clock).expect("good");
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
        let told = tokio::time::timeout(Duration::from_mins(5), async {
            eventually(deed, || self.deeds().iter().any(|it| it == deed)).await;
        });
        assert!(told.await.is_ok(), "{deed}: {:?}, {:#?}", self.deeds(), self.kube.writes());
    }

    fn lease(&self) -> Lease {
        let name = ObjectName::namespaced("kube-system", "cloud-node-controller");
        self.kube.get(&name).expect("somebody made it")
    }
}

impl Replica {
    /// Whether it changes something in the cloud, once it has heard of the adapter.
    async fn may_change(&self) -> bool {
        self.adapter.get_info().await.expect("it is there");
        tokio::time::sleep(Duration::from_secs(1)).await;
        let deletion = self.adapter.delete_load_balancer(Default::default(), Default::default());
        deletion.await.map_err(|error| error.reason) != Err(Reason::NotLeader)
    }

    async fn ended(&mut self) -> anyhow::Result<()> {
        self.ended.join_next().await.expect("it ran").expect("no panic")
    }
}

#[tokio::test(start_paused = true)]
async fn one_of_two_works_and_the_other_is_ready_and_waits() {
    let world = World::new();
    let _first = world.start("a");
    world.until("a starts").await;
    let second = world.start("bb");
    eventually("it knows who leads", || second.health.readiness().is_ok()).await;
    tokio::time::sleep(Duration::from_mins(10)).await;
    assert_eq!(world.deeds(), ["a starts"]);
    assert_eq!(second.health.readiness(), Ok(()));
    assert!(!second.shards.is_running());
}

#[tokio::test(start_paused = true)]
async fn who_is_stopped_finishes_gives_the_lease_back_and_is_followed_at_once() {
    let world = World::new();
    let mut first = world.start("a");
    world.until("a starts").await;
    let _second = world.start("bb");
    tokio::time::sleep(Duration::from_mins(1)).await;

    let stopped = Instant::now();
    first.stop.cancel();
    first.ended().await.expect("in good order");
    world.until("bb starts").await;
    let took = stopped.elapsed();
    assert_eq!(world.deeds(), ["a starts", "a has finished", "bb starts"]);
    assert!(took < Duration::from_secs(4), "{took:?}, of which its work took 3 s");
}

#[tokio::test(start_paused = true)]
async fn who_is_stopped_gives_each_shard_back_as_soon_as_nothing_is_under_way_in_it() {
    let world = World::new();
    let mut first = world.start_in("a", 2);
    eventually("it has all", || first.shards.held() == 2).await;
    let mut turns = first.shards.enter_all();
    let turn = turns.pop().expect("two");
    drop(turns);
    let second = world.start_in("bb", 2);
    first.stop.cancel();
    world.until("bb starts").await;
    assert!(turn.is_valid());
    assert_eq!((first.shards.held(), second.shards.held()), (1, 1));
    drop(turn);
    eventually("it is over there", || first.shards.held() == 0).await;
    assert_eq!(world.deeds(), ["a starts", "bb starts"], "other work of the first one is under way still");
    first.ended().await.expect("in good order");
    eventually("the other has all", || second.shards.held() == 2).await;
}

#[tokio::test(start_paused = true)]
async fn who_is_killed_is_followed_when_the_lease_is_over() {
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
async fn who_waits_and_is_stopped_ends_without_having_worked() {
    let world = World::new();
    let _first = world.start("a");
    world.until("a starts").await;
    let mut second = world.start("bb");
    tokio::time::sleep(Duration::from_secs(1)).await;
    second.stop.cancel();
    second.ended().await.expect("in good order");
    assert_eq!(world.deeds(), ["a starts"]);
    let holder = world.lease().spec.and_then(|spec| spec.holder_identity).expect("a leads still");
    assert_eq!(holder, first_identity(&world), "{holder}");
}

/// Who took the Lease first.
fn first_identity(world: &World) -> String {
    let writes = world.kube.writes();
    let creation = writes.iter().find(|write| write.method == Method::POST.as_str()).expect("made");
    creation.body["spec"]["holderIdentity"].as_str().expect("a name").to_owned()
}

#[tokio::test(start_paused = true)]
async fn who_loses_the_lease_to_another_ends_at_once_with_an_error() {
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
    assert!(error.to_string().contains("kube-system/cloud-node-controller is lost to other"), "{error}");
    assert!(taken.elapsed() <= Duration::from_secs(3), "{:?}: nothing is waited for", taken.elapsed());
    assert_eq!(world.deeds(), ["a starts"], "what was under way is dropped");
}

#[tokio::test(start_paused = true)]
async fn an_api_server_that_is_away_stops_writes_and_ends_no_process() {
    let world = World::new();
    let first = world.start("a");
    world.until("a starts").await;
    let epoch = first.shards.epoch();
    world.kube.away(true);
    tokio::time::sleep(Duration::from_secs(11)).await;
    assert!(!first.shards.is_running(), "it could not renew for 10 s");
    assert!(first.health.readiness().is_err());
    assert_eq!(first.health.liveness(), Ok(()));
    tokio::time::sleep(Duration::from_mins(10)).await;
    world.kube.away(false);
    eventually("it leads again", || first.shards.is_running()).await;
    assert!(first.shards.epoch() > epoch, "a new term, of which the adapter hears");
    assert_eq!(world.deeds(), ["a starts"], "its work went on");
}

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
async fn what_was_asked_for_in_an_earlier_term_of_ours_is_refused_by_nobody_newer() {
    let world = World::new();
    let first = world.start("a");
    world.until("a starts").await;
    let adapter = world.cloud.adapter().writing_in(first.shards.clone());
    let deletion = |epoch| {
        let stale = AdapterError::new(Reason::StaleFence, "a newer one was here");
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
    eventually("it leads again", || first.shards.is_running()).await;
    assert_eq!(deletion(asked_in).await.map_err(|error| error.reason), Err(Reason::OutcomeUnknown));
    assert_eq!(deletion(first.shards.epoch()).await.map_err(|error| error.reason), Err(Reason::StaleFence));
}

#[tokio::test(start_paused = true)]
async fn the_election_is_one_of_the_things_that_must_proceed() {
    let world = World::new();
    let mut first = world.start("a");
    world.until("a starts").await;
    assert_eq!(first.health.liveness(), Ok(()));
    // As if it hung: nothing of it goes on.
    first.ended.abort_all();
    while first.ended.join_next().await.is_some() {}
    tokio::time::sleep(Duration::from_mins(1)).await;
    let stuck = first.health.liveness().expect_err("nobody would ever renew the Lease");
    assert!(stuck.starts_with("leaderElection: the election has stood still for 6"), "{stuck}");
}

#[tokio::test(start_paused = true)]
async fn in_another_project_nothing_is_changed_until_a_person_says_that_the_move_is_meant() {
    let world = World::new();
    let kept = || world.lease().metadata.annotations.unwrap_or_default().remove("cloudadapter.dev/scope");
    world.cloud.moves_to("a");
    let mut first = world.start("a");
    world.until("a starts").await;
    assert!(first.may_change().await);
    assert_eq!(kept().as_deref(), Some("a project a"));
    world.cloud.moves_to("b");
    assert!(!first.may_change().await);
    first.stop.cancel();
    first.ended().await.expect("in good order");

    // A restart forgets nothing.
    let second = world.start("bb");
    world.until("bb starts").await;
    assert!(!second.may_change().await);
    let why = second.health.readiness().expect_err("moved");
    let remedy =
        "kubectl --namespace kube-system annotate lease cloud-node-controller cloudadapter.dev/scope-";
    for part in ["now: project b;", "so far this controller worked in: project a.", remedy] {
        assert!(why.contains(part), "{why}");
    }
    tokio::time::sleep(Duration::from_mins(10)).await;
    let told =
        world.kube.event_objects().into_iter().filter(|event| event.reason.as_deref() == Some("CloudMoved"));
    assert_eq!(told.count(), 2, "once by each process");

    let name = ObjectName::namespaced("kube-system", "cloud-node-controller");
    world.kube.change::<Lease>(&name, |lease| lease.metadata.annotations = None);
    eventually("it is noticed", || second.health.readiness().is_ok()).await;
    assert!(second.may_change().await);
    assert_eq!(kept().as_deref(), Some("b project b"));
}

#[tokio::test(start_paused = true)]
async fn without_an_election_a_move_is_noticed_as_long_as_the_process_runs() {
    let world = World::new();
    world.cloud.moves_to("a");
    let process = Process::new(NAMES, world.kube.client(), world.cloud.adapter(), Clock::starting_at(BEGIN));
    let (adapter, health) = (process.adapter.clone(), process.health.clone());
    let mut running = JoinSet::new();
    running.spawn(process.finish());
    adapter.get_info().await.expect("it is there");
    assert_eq!(health.readiness(), Ok(()));
    world.cloud.moves_to("b");
    adapter.get_info().await.expect("it is there");
    let why = health.readiness().expect_err("moved");
    assert!(why.contains("restart this controller"), "{why}");
    let told = || !world.kube.event_objects().is_empty();
    eventually("people hear of it", told).await;
}
