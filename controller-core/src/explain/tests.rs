use axum::body::{Body, to_bytes};
use cloud_api_proto::v1alpha1::Scope;
use serde_json::Value;
use tokio::{task::JoinSet, time::sleep};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;

use super::*;
use crate::{
    Again,
    config::Listing,
    queue::Backoff,
    testing::{BEGIN, FakeCloud, FakeKube, FakeShards, Fault, Verb, eventually},
};

const SECOND: Duration = Duration::from_secs(1);
const BACKOFF: Backoff = Backoff { first: Duration::from_secs(30), longest: Duration::from_secs(30) };

/// Nodes with UIDs `uid-NAME`. All exist except `gone`.
struct Shown;

impl Describe for Shown {
    fn uid(&self, name: &ObjectName) -> Option<String> {
        (name.name != "gone").then(|| format!("uid-{name}"))
    }

    fn all(&self) -> Vec<Object> {
        ["a", "b", "c"].map(object).to_vec()
    }

    fn listed(&self) -> bool {
        true
    }

    fn describe(&self, object: &Object) -> Seen {
        Seen { wanted: vec![format!("an instance for {}", object.name)], ..Seen::default() }
    }

    /// Returns orphaned load balancers. The last in the list have waited longest.
    fn orphans(&self) -> Vec<Orphan> {
        let orphan = |n: i64| Orphan { uid: format!("uid-lb-{n}"), since: at(1000 - n), ..Orphan::default() };
        (0..1000).map(orphan).collect()
    }
}

struct World {
    explain: Explain,
    nodes: Mirror<ObjectName, u32>,
    ledger: Ledger,
    queue: Queue<ObjectName>,
    fake_shards: FakeShards,
    tasks: JoinSet<()>,
}

impl World {
    /// Returns a process that holds some of four shards.
    fn new(held: impl IntoIterator<Item = usize>) -> Self {
        let (cloud, fake_shards) = (FakeCloud::new(), FakeShards::new("node-controller", 4));
        held.into_iter().for_each(|shard| fake_shards.give(shard, 1000 * SECOND));
        let (explain, ledger) = (Explain::default(), Ledger::new(cloud.clock()));
        let queue = Queue::new("Nodes", BACKOFF);
        let instances: Mirror<String, u32> = Mirror::new("instances", cloud.clock());
        let sources = Sources::of_each(Kind::Node, Arc::new(Shown), vec![ledger.clone()], &queue);
        let nodes = Mirror::new("nodes", cloud.clock());
        explain.by(sources.linked(&instances).watching(&nodes));
        let (controller, shards) = ("node-controller", fake_shards.shards());
        let (adapter, clock, runtime) = (cloud.adapter(), cloud.clock(), Handle::current());
        explain.is_of(Identity { controller, adapter, shards, clock, dry_run: false, runtime });
        Self { explain, nodes, ledger, queue, fake_shards, tasks: JoinSet::new() }
    }

    /// Starts a worker of the queue. Each of its reconciles takes ten seconds and fails.
    fn works(&mut self) {
        let queue = self.queue.clone();
        self.tasks.spawn(async move {
            let work = |_key, _attempt| async {
                sleep(10 * SECOND).await;
                Again::Backoff
            };
            queue.run(1, CancellationToken::new(), work).await;
        });
    }

    fn one(&self, key: &str) -> Explanation {
        self.explain.one(key).expect("a good key")
    }

    fn keys(&self) -> Vec<String> {
        self.explain.all().expect("the controller runs").objects.into_iter().map(|it| it.key).collect()
    }

    async fn page(&self, path: &str) -> (u16, String) {
        let request = http::Request::get(path).body(Body::empty()).expect("a good request");
        let answer = routes(self.explain.clone()).oneshot(request).await.expect("infallible");
        let status = answer.status().as_u16();
        let body = to_bytes(answer.into_body(), usize::MAX).await.expect("a body");
        (status, String::from_utf8_lossy(&body).into_owned())
    }
}

fn object(name: &str) -> Object {
    Object::node(name, &format!("uid-{name}"))
}

fn quota() -> Waits {
    Waits {
        text: "waits for a larger quota".to_owned(),
        reason: Some("VENDOR_QUOTA"),
        topic: "quota".to_owned(),
        reported: true,
    }
}

fn at(seconds: i64) -> Option<Timestamp> {
    Some(BEGIN + SignedDuration::from_secs(seconds))
}

#[tokio::test(start_paused = true)]
async fn orphans_of_held_shards_are_shown_oldest_first_and_bounded() {
    let world = World::new([0, 2]);
    let uids = (0..1000).rev().map(|n| format!("uid-lb-{n}"));
    let ours: Vec<String> = uids.filter(|uid| world.fake_shards.shards().has(uid)).collect();
    let status = world.explain.status().expect("the controller runs");
    let shown: Vec<String> = status.orphans.into_iter().map(|it| it.uid).collect();
    assert!(ours.len() > 300 && ours.len() < 700, "{}", ours.len());
    assert_eq!(shown, ours[..200]);
    assert_eq!(status.more_orphans, u64::try_from(ours.len()).unwrap() - 200);
    assert_eq!(World::new([]).explain.status().expect("the controller runs").orphans, []);
}

// Behaviour: P19
#[tokio::test(start_paused = true)]
async fn the_ledger_says_why_and_the_queue_says_when() {
    let mut world = World::new(0..4);
    let seen = world.one("a");
    assert_eq!((seen.state, seen.known, seen.held), (State::Settled, true, true));
    assert_eq!((seen.wanted, seen.since), (vec!["an instance for a".to_owned()], None));

    world.queue.add(ObjectName::cluster("a"));
    sleep(SECOND).await;
    let seen = world.one("a");
    assert_eq!((seen.state, seen.since), (State::NotLookedAt, at(0)), "the key is still queued");
    assert_eq!(world.keys(), ["a"]);

    world.works();
    sleep(SECOND).await;
    world.ledger.begin_pass(&object("a"));
    world.ledger.record_plan(&object("a"), &"initialise\n");
    let seen = world.one("a");
    assert_eq!((seen.state, seen.plan.as_slice()), (State::Working, ["initialise".to_owned()].as_slice()));
    assert_eq!((seen.waits_for, seen.next_try), (None, None));
    world.ledger.record_wait(&object("a"), &quota());
    world.ledger.end_pass(&object("a"));
    assert_eq!(world.one("a").state, State::Working, "the reconcile has not ended");

    sleep(10 * SECOND).await;
    let seen = world.one("a");
    assert_eq!((seen.state, seen.since, seen.next_try), (State::Waiting, at(2), at(41)));
    assert_eq!(seen.waits_for.as_deref(), Some("waits for a larger quota"));
    assert_eq!((seen.reason.as_deref(), seen.attempts), (Some("VENDOR_QUOTA"), 1));

    world.ledger.mark_settled(&object("a"));
    let seen = world.one("a");
    assert_eq!((seen.state, seen.plan, seen.waits_for), (State::Settled, vec![], None));
    assert!(world.keys().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_key_that_was_added_with_all_is_settled() {
    let world = World::new(0..4);
    world.queue.add_with_all(ObjectName::cluster("a"));
    assert_eq!((world.one("a").state, world.keys().len()), (State::Settled, 0));
    world.queue.add(ObjectName::cluster("a"));
    assert_eq!((world.one("a").state, world.keys().len()), (State::NotLookedAt, 1));
    world.queue.add(ObjectName::cluster("gone"));
    assert_eq!(world.keys(), ["a"], "a deleted object waits for nothing");
}

#[tokio::test(start_paused = true)]
async fn the_list_begins_with_the_oldest_and_is_bounded() {
    let world = World::new(0..4);
    for n in (0..510).rev() {
        world.ledger.record_wait(&object(&format!("n{n:03}")), &quota());
        sleep(SECOND).await;
    }
    let all = world.explain.all().expect("the controller runs");
    assert_eq!((all.objects.len(), all.more), (500, 10));
    assert_eq!((all.objects[0].key.as_str(), all.objects[499].key.as_str()), ("n509", "n010"));
    assert_eq!(world.explain.status().expect("the controller runs").unsettled, 510);
}

#[tokio::test(start_paused = true)]
async fn the_oldest_waits_are_named_without_cloud_only_objects() {
    let world = World::new(0..4);
    assert_eq!(world.explain.backlog(), (0, Duration::ZERO));
    world.ledger.record_wait(&object("gone"), &quota());
    sleep(SECOND).await;
    for n in 0..12 {
        world.ledger.record_wait(&object(&format!("n{n:02}")), &quota());
        sleep(SECOND).await;
    }
    assert_eq!(world.explain.backlog(), (12, 12 * SECOND));
    let waits = world.explain.status().expect("the controller runs").waits;
    let first = Waiting {
        kind: "Node".to_owned(),
        key: "n00".to_owned(),
        since: at(1),
        waits_for: Some("waits for a larger quota".to_owned()),
        reason: Some("VENDOR_QUOTA".to_owned()),
    };
    assert_eq!((waits.len(), &waits[0], waits[9].key.as_str()), (10, &first, "n09"));
    world.ledger.mark_settled(&object("n00"));
    assert_eq!(world.explain.backlog(), (11, 11 * SECOND));
}

// Behaviour: P19
#[tokio::test(start_paused = true)]
async fn nothing_is_shown_of_other_replicas_shards() {
    let world = World::new([]);
    let of = |name: &str| world.fake_shards.shards().of(&format!("uid-{name}"));
    let names = ["a", "b", "c", "d", "e", "f"];
    names.iter().for_each(|name| world.ledger.record_wait(&object(name), &quota()));
    world.explain.brakes().holds("deletions", vec!["3 of 10".to_owned()]);
    let seen = world.one("a");
    assert_eq!((seen.known, seen.held, seen.state), (true, false, State::NotLookedAt));
    assert_eq!((seen.shard, seen.waits_for), (number(of("a")), None));
    let status = world.explain.status().expect("the controller runs");
    assert_eq!((status.held, status.unsettled, status.held_back), (vec![], 0, vec![]));

    world.fake_shards.give(of("a"), 1000 * SECOND);
    let ours: Vec<&str> = names.into_iter().filter(|name| of(name) == of("a")).collect();
    assert_eq!(world.keys(), ours);
    assert_eq!((world.one("a").held, world.one("a").state), (true, State::Waiting));
    let status = world.explain.status().expect("the controller runs");
    assert_eq!((status.shards, status.held), (4, vec![number(of("a"))]));
    assert_eq!(status.held_back, ["3 of 10"]);
    world.explain.brakes().holds("deletions", Vec::new());
    assert!(world.explain.status().expect("the controller runs").held_back.is_empty());
}

#[tokio::test(start_paused = true)]
async fn several_ledgers_are_one_answer() {
    let (cloud, fake_shards) = (FakeCloud::new(), FakeShards::new("node-controller", 1));
    fake_shards.give(0, 1000 * SECOND);
    let (first, second) = (Ledger::new(cloud.clock()), Ledger::new(cloud.clock()));
    let queue: Queue<u8> = Queue::new("Routes", BACKOFF);
    let ledgers = vec![first.clone(), second.clone()];
    let explain = Explain::default();
    explain.by(Sources::of_all(Kind::Node, Arc::new(Shown), ledgers, &queue, 0));
    let (adapter, shards, clock) = (cloud.adapter(), fake_shards.shards(), cloud.clock());
    let (controller, runtime) = ("route-controller", Handle::current());
    explain.is_of(Identity { controller, adapter, shards, clock, dry_run: false, runtime });
    queue.after(0, 60 * SECOND);
    second.record_plan(&object("a"), &"delete");
    sleep(SECOND).await;
    first.record_plan(&object("a"), &"label");
    second.record_wait(&object("a"), &quota());
    let seen = explain.one("a").expect("the controller runs");
    assert_eq!((seen.plan.join(", ").as_str(), seen.since), ("label, delete", at(0)));
    assert_eq!((seen.state, seen.next_try), (State::Waiting, at(60)), "the next pass");
    let finding = Finding { next: Some(Instant::now() + 5 * SECOND), ..Finding::default() };
    first.replace_findings([(object("a"), finding)].into(), |_| true);
    assert_eq!(explain.one("a").expect("the controller runs").next_try, at(6), "its own time");
}

// Behaviour: P19
#[tokio::test(start_paused = true)]
async fn pages_are_json_and_explain_invalid_keys() {
    let world = World::new(0..4);
    world.ledger.record_wait(&object("a"), &quota());
    let long = "x".repeat(254);
    for key in ["default%2Fa", "", "A", "a%20b", "%00", long.as_str()] {
        let want = (400, "key: expected the name of a Node\n".to_owned());
        assert_eq!(world.page(&format!("/explain?key={key}")).await, want, "{key}");
    }
    assert_eq!(world.page("/explain?key=a&key=b").await.0, 400, "one attempt at a time");
    let json = |body: &str| serde_json::from_str::<Value>(body).expect("JSON");
    let (status, body) = world.page("/explain?key=gone").await;
    let body = json(&body);
    assert_eq!((status, &body["known"], &body["key"]), (404, &Value::Bool(false), &"gone".into()));
    let (status, body) = world.page("/explain?key=a").await;
    let one = json(&body);
    assert_eq!(
        (status, &one["waitsFor"], &one["kind"]),
        (200, &"waits for a larger quota".into(), &"Node".into())
    );
    let (status, body) = world.page("/explain").await;
    assert_eq!((status, &json(&body)["objects"][0]), (200, &one));
    let (status, body) = world.page("/status").await;
    let body = json(&body);
    assert_eq!((status, &body["clusterId"], &body["unsettled"]), (200, &"cluster-uid".into(), &1.into()));
}

#[tokio::test(start_paused = true)]
async fn keys_of_services_have_a_namespace() {
    let name = |key| Kind::Service.name(key);
    assert_eq!(name("default/web"), Some(ObjectName::namespaced("default", "web")));
    for key in ["web", "a/b/c", "/web", "default/", "", "default/Web", "../web "] {
        assert_eq!(name(key), None, "{key}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_controller_that_has_not_started_says_so() {
    let explain = Explain::default();
    assert_eq!(explain.status(), Err(Unexplained::NotStarted));
    let request = http::Request::get("/status").body(Body::empty()).expect("a good request");
    let answer = routes(explain).oneshot(request).await.expect("infallible");
    assert_eq!(answer.status().as_u16(), 503);
}

/// Without a watch, an object that was in sync may have changed.
#[tokio::test(start_paused = true)]
async fn a_refused_watch_is_shown_and_is_the_cause() {
    let world = World::new(0..4);
    assert_eq!((world.one("a").state, world.one("a").waits_for), (State::Settled, None));
    let kube = FakeKube::new();
    kube.order(Fault::status(403).on(Verb::List, "nodes"));
    let api = kube::Api::<k8s_openapi::api::core::v1::Node>::all(kube.client());
    let follow = world.nodes.follow_kubernetes(api, Listing::Pages, |_node| Some(1), |_change| ());
    let watches = || world.explain.status().expect("the controller runs").failing_watches;
    let scenario = async {
        eventually("the watch is refused", || !watches().is_empty()).await;
        let why = watches().concat();
        assert!(why.starts_with("the watch of nodes has been unavailable since "), "{why}");
        assert!(why.contains(": the API server refuses it: ") && why.contains("403"), "{why}");
        assert!(why.ends_with("; see `cloudctl check`"), "{why}");
        let seen = world.one("a");
        assert_eq!((seen.state, seen.waits_for), (State::Waiting, Some(why)));
        world.ledger.record_wait(&object("b"), &quota());
        assert_eq!(world.one("b").reason.as_deref(), Some("VENDOR_QUOTA"), "its own cause is kept");
        kube.heal();
        eventually("the watch works", || watches().is_empty()).await;
        assert_eq!(world.one("a").state, State::Settled);
    };
    tokio::select! {
        () = follow => (),
        () = scenario => (),
    }
}

#[tokio::test(start_paused = true)]
async fn an_object_waits_while_the_cloud_is_another_one() {
    let world = World::new(0..4);
    world.ledger.record_plan(&object("b"), &"create load balancer");
    let guard = world.explain.identity().expect("set").adapter.scope().clone();
    guard.read(Some("#a project a".to_owned()));
    guard.remedy("run: kubectl annotate".to_owned());
    let scope = |project: &str| Scope {
        project: project.to_owned(),
        fingerprint: format!("#{project}"),
        ..Scope::default()
    };
    guard.report(Some(&scope("b")));
    for name in ["a", "b"] {
        let seen = world.one(name);
        assert_eq!((seen.state, seen.reason, seen.plan), (State::Waiting, None, Vec::new()), "{name}");
        assert_eq!(seen.cloud, [IN_ANOTHER_SCOPE]);
        let why = seen.waits_for.expect("a cause");
        let scopes = "now uses project b, but this controller has worked in project a";
        assert!(why.contains(scopes) && why.ends_with("run: kubectl annotate"), "{why}");
    }
    guard.report(Some(&scope("a")));
    assert_eq!(world.one("a").state, State::Settled);
}
