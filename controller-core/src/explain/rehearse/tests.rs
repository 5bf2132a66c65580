use std::sync::Mutex as Plain;

use super::*;
use crate::{
    Clock,
    explain::{Describe, Finding, Kind, Ledger, Seen, Sources},
    mirror::ObjectName,
    queue::{Backoff, Queue},
    testing::{FakeCloud, FakeShards},
};

const SECOND: Duration = Duration::from_secs(1);

/// A controller for tests. It shows the nodes in `all`, and each of its dry runs takes the time `takes`.
#[derive(Default)]
struct Stage {
    /// The objects for which a dry run was made, in order.
    asked: Plain<Vec<String>>,
    takes: Duration,
    all: Vec<Object>,
    unlisted: bool,
}

impl Stage {
    fn asked(&self) -> Vec<String> {
        std::mem::take(&mut self.asked.lock().expect("no panic"))
    }
}

impl Describe for Stage {
    fn uid(&self, name: &ObjectName) -> Option<String> {
        Some(format!("uid-{name}"))
    }

    fn all(&self) -> Vec<Object> {
        self.all.clone()
    }

    fn listed(&self) -> bool {
        !self.unlisted
    }

    fn describe(&self, _object: &Object) -> Seen {
        Seen::default()
    }
}

impl Rehearse for Stage {
    fn others(&self) -> Vec<Object> {
        vec![Object::node("10.0.9.0/24", "uid-gone")]
    }

    fn rehearse(self: Arc<Self>, objects: Vec<Object>) -> BoxStream<'static, (Object, Rehearsal)> {
        let said = move |object: Object| {
            let this = Arc::clone(&self);
            async move {
                this.asked.lock().expect("no panic").push(object.name.to_string());
                tokio::time::sleep(this.takes).await;
                (object, Rehearsal { cluster: vec!["patch".to_owned()], ..Rehearsal::default() })
            }
        };
        stream::iter(objects).then(said).boxed()
    }
}

fn staged(nodes: usize, takes: Duration) -> (Explain, Arc<Stage>, Ledger) {
    staged_as(nodes, Stage { takes, ..Stage::default() })
}

fn staged_as(nodes: usize, stage: Stage) -> (Explain, Arc<Stage>, Ledger) {
    let (cloud, fake_shards) = (FakeCloud::new(), FakeShards::new("node-controller", 1));
    fake_shards.give(0, 1000 * SECOND);
    let ledger = Ledger::new(Clock::starting_at(crate::testing::BEGIN));
    let all: Vec<Object> =
        (0..nodes).map(|n| Object::node(&format!("n{n:03}"), &format!("uid-n{n:03}"))).collect();
    let plan = || Finding { plan: vec!["patch".to_owned()], ..Finding::default() };
    ledger.replace_findings(all.iter().map(|object| (object.clone(), plan())).collect(), |_| true);
    let stage = Arc::new(Stage { all, ..stage });
    let backoff = Backoff { first: SECOND, longest: SECOND };
    let queue: Queue<ObjectName> = Queue::new("Nodes", backoff);
    let explain = Explain::default();
    let objects = Arc::clone(&stage) as Arc<dyn Describe>;
    let sources = Sources::of_each(Kind::Node, objects, vec![ledger.clone()], &queue);
    explain.by(sources.rehearsed(Arc::clone(&stage) as Arc<dyn Rehearse>));
    let (adapter, shards, clock) = (cloud.adapter(), fake_shards.shards(), cloud.clock());
    let (controller, runtime) = ("node-controller", tokio::runtime::Handle::current());
    explain.is_of(Identity { controller, adapter, shards, clock, dry_run: true, runtime });
    (explain, stage, ledger)
}

#[tokio::test(start_paused = true)]
async fn pages_follow_one_another_in_the_order_of_keys() {
    let (explain, stage, ledger) = staged(250, Duration::ZERO);
    for object in stage.all.iter().take(20) {
        ledger.mark_seen(object);
    }
    ledger.forget_name(&ObjectName::cluster("n000"));
    let (mut keys, mut after) = (Vec::new(), String::new());
    for size in [100, 100, 50] {
        let page = explain.plan(&after).await.expect("the controller runs");
        assert_eq!((page.objects.len(), page.looked_at, page.of), (size, 19, 250));
        assert!(page.dry_run);
        keys.extend(page.objects.into_iter().map(|it| (it.kind, it.key)));
        let Some(next) = page.next else { break };
        after = next;
    }
    assert_eq!(keys[0], ("Route".to_owned(), "10.0.9.0/24".to_owned()));
    let nodes: Vec<&str> = keys[1..].iter().map(|(_, key)| key.as_str()).collect();
    assert!(nodes.is_sorted() && nodes.len() == 249 && nodes[0] == "n001", "{nodes:?}");
    assert_eq!(explain.plan("n249").await.expect("the controller runs").objects, []);
}

/// An empty list of objects does not prove that no objects exist.
#[tokio::test(start_paused = true)]
async fn unlisted_objects_count_as_not_reconciled() {
    for (unlisted, of) in [(false, 0), (true, 1)] {
        let (explain, ..) = staged_as(0, Stage { unlisted, ..Stage::default() });
        let page = explain.plan("").await.expect("the controller runs");
        assert_eq!((page.looked_at, page.of), (0, of));
        assert_eq!(explain.status().expect("the controller runs").listed, Some(!unlisted));
    }
}

#[tokio::test(start_paused = true)]
async fn results_are_reused_for_five_seconds() {
    let (explain, stage, _ledger) = staged(3, Duration::ZERO);
    let first = explain.plan("").await.expect("the controller runs");
    assert_eq!(stage.asked(), ["10.0.9.0/24", "n000", "n001", "n002"]);
    for after in ["", "a", "n000", "n0005"] {
        tokio::time::sleep(SECOND).await;
        let page = explain.plan(after).await.expect("the controller runs");
        assert!(page.objects.iter().all(|it| first.objects.contains(it)) && stage.asked().is_empty());
    }
    tokio::time::sleep(SECOND).await;
    explain.plan("n001").await.expect("the controller runs");
    assert_eq!(stage.asked(), ["n002"]);
}

#[tokio::test(start_paused = true)]
async fn waiting_is_limited_and_disconnecting_saves_no_calls() {
    let (explain, stage, _ledger) = staged(10, SECOND * 3 / 2);
    let page = explain.plan("a").await.expect("the controller runs");
    let late: Vec<bool> = page.objects.iter().map(|it| it.trouble.is_some()).collect();
    assert_eq!(late, [false, false, true, true, true, true, true, true, true, true]);
    let words = page.objects[9].trouble.as_deref();
    assert_eq!(words, Some("No answer from the cloud adapter within 4 s. Try again"));
    assert_eq!(stage.asked().len(), 3);

    tokio::time::sleep(5 * SECOND).await;
    let hung_up = tokio::time::timeout(SECOND / 10, explain.plan("a")).await;
    assert!(hung_up.is_err() && stage.asked().len() == 1);
    for _ in 0..20 {
        explain.plan("a").await.expect("the controller runs");
    }
    assert!(stage.asked().is_empty(), "the controller was just asked about this object");
}

#[tokio::test(start_paused = true)]
async fn the_cause_of_a_wait_comes_from_the_ledger() {
    let (explain, stage, ledger) = staged(2, Duration::ZERO);
    let reason = Some("VENDOR_QUOTA");
    let waits = Waits { text: "no quota".to_owned(), reason, topic: "quota".to_owned(), reported: true };
    ledger.record_wait(&stage.all[0], &waits);
    ledger.record_dry_run(&stage.all[1]);
    let page = explain.plan("n").await.expect("the controller runs");
    let shown = |n: usize| (page.objects[n].trouble.as_deref(), page.objects[n].reason.as_deref());
    assert_eq!((shown(0), shown(1)), ((Some("no quota"), reason), (None, None)));
}
