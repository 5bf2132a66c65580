//! These tests use the queue as its callers do, on paused time.

use std::sync::atomic::{AtomicUsize, Ordering};

use telemetry::traces::testing::{Recorder, attribute};
use tokio::sync::mpsc;

use super::*;

const BACKOFF: Backoff = Backoff { first: Duration::from_secs(1), longest: Duration::from_secs(5) };

/// A queue whose worker reports the key, the seconds since the start and the failures so far. The worker returns the requeue that the test
/// sets.
struct Bench {
    queue: Queue<&'static str>,
    seen: mpsc::UnboundedReceiver<(&'static str, u64, u32)>,
    stop: CancellationToken,
    tasks: JoinSet<()>,
}

impl Bench {
    fn start(workers: usize, answer: impl Fn(&'static str, u32) -> Again + Send + Sync + 'static) -> Self {
        let queue = Queue::new("test", BACKOFF);
        let (report, seen) = mpsc::unbounded_channel();
        let stop = CancellationToken::new();
        let mut tasks = JoinSet::new();
        let (runner, token, start) = (queue.clone(), stop.clone(), Instant::now());
        let answer = Arc::new(answer);
        tasks.spawn(async move {
            let work = |key, failures| {
                report.send((key, start.elapsed().as_secs(), failures)).expect("the test listens");
                let answer = Arc::clone(&answer);
                async move { answer(key, failures) }
            };
            runner.run(workers, token, work).await;
        });
        Self { queue, seen, stop, tasks }
    }

    async fn seen(&mut self, n: usize) -> Vec<(&'static str, u64, u32)> {
        let mut seen = Vec::new();
        while seen.len() < n {
            seen.push(self.seen.recv().await.expect("the queue runs"));
        }
        seen
    }
}

#[tokio::test(start_paused = true)]
async fn a_key_added_twice_is_worked_on_once() {
    let mut bench = Bench::start(1, |_, _| Again::Done);
    bench.queue.add("a");
    bench.queue.add("a");
    bench.queue.add("b");
    assert_eq!(bench.seen(2).await, [("a", 0, 0), ("b", 0, 0)]);
    bench.stop.cancel();
    bench.tasks.join_all().await;
    assert!(bench.seen.try_recv().is_err());
}

#[tokio::test(start_paused = true)]
async fn failures_of_one_key_grow_its_pause_to_a_limit_and_success_forgets_them() {
    let mut bench = Bench::start(1, |_, failures| if failures == 4 { Again::Done } else { Again::Backoff });
    bench.queue.add("a");
    // The pauses are 1 + 2 + 4 + 5 seconds.
    assert_eq!(bench.seen(5).await, [("a", 0, 0), ("a", 1, 1), ("a", 3, 2), ("a", 7, 3), ("a", 12, 4)]);
    bench.queue.add("a");
    assert_eq!(bench.seen(1).await, [("a", 12, 0)]);
}

#[tokio::test(start_paused = true)]
async fn an_exact_delay_neither_counts_nor_forgets_failures() {
    let answers = [Again::Backoff, Again::After(Duration::from_secs(30)), Again::Backoff, Again::Done];
    let turn = AtomicUsize::new(0);
    let mut bench = Bench::start(1, move |_, _| answers[turn.fetch_add(1, Ordering::Relaxed)]);
    bench.queue.add("a");
    assert_eq!(bench.seen(4).await, [("a", 0, 0), ("a", 1, 1), ("a", 31, 1), ("a", 33, 2)]);
}

#[tokio::test(start_paused = true)]
async fn adding_a_delayed_key_makes_it_due_now_and_only_once() {
    let mut bench = Bench::start(1, |_, _| Again::Done);
    bench.queue.after("a", Duration::from_secs(60));
    bench.queue.after("a", Duration::from_secs(90));
    bench.queue.add("a");
    bench.queue.after("b", Duration::from_secs(100));
    assert_eq!(bench.seen(2).await, [("a", 0, 0), ("b", 100, 0)]);
}

// Behaviour: W12
#[tokio::test(start_paused = true)]
async fn a_key_has_one_worker_and_changes_are_not_lost() {
    let queue = Queue::new("test", BACKOFF);
    let (report, mut seen) = mpsc::unbounded_channel();
    let stop = CancellationToken::new();
    let (runner, token) = (queue.clone(), stop.clone());
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        let work = |key: &'static str, _| {
            let report = report.clone();
            async move {
                report.send((key, "begins")).expect("the test listens");
                tokio::time::sleep(Duration::from_secs(1)).await;
                report.send((key, "ends")).expect("the test listens");
                Again::Done
            }
        };
        runner.run(4, token, work).await;
    });
    queue.add("a");
    assert_eq!(seen.recv().await, Some(("a", "begins")));
    queue.add("a");
    queue.add("a");
    assert_eq!(seen.recv().await, Some(("a", "ends")));
    assert_eq!(seen.recv().await, Some(("a", "begins")));
    // After a stop, work in progress is finished.
    stop.cancel();
    tasks.join_all().await;
    assert_eq!(seen.recv().await, Some(("a", "ends")));
    assert_eq!(seen.recv().await, None);
}

// Behaviour: W20
#[tokio::test(start_paused = true)]
async fn a_panic_costs_one_attempt_of_one_key() {
    let mut bench = Bench::start(1, |key, failures| {
        assert!(key != "bad" || failures > 0, "a bug of the worker");
        Again::Done
    });
    bench.queue.add("bad");
    bench.queue.add("good");
    assert_eq!(bench.seen(3).await, [("bad", 0, 0), ("good", 0, 0), ("bad", 1, 1)]);
    let mut registry = Registry::default();
    bench.queue.register(&mut registry);
    let text = crate::metrics::render(&registry).expect("metrics can be written");
    assert!(text.contains("workqueue_panics_total{name=\"test\"} 1"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn a_delay_beyond_the_clock_does_not_lose_the_key() {
    let mut bench = Bench::start(1, |_, _| Again::After(Duration::MAX));
    bench.queue.add("a");
    assert_eq!(bench.seen(1).await, [("a", 0, 0)]);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(
        matches!(bench.queue.key_state(&"a"), KeyState::Later { .. }),
        "{:?}",
        bench.queue.key_state(&"a")
    );
}

#[tokio::test(start_paused = true)]
async fn sizes_are_collected_at_each_scrape() {
    let queue: Queue<&str> = Queue::new("Nodes", BACKOFF);
    queue.add("a");
    queue.add("b");
    let mut registry = Registry::default();
    queue.register(&mut registry);
    let text = crate::metrics::render(&registry).expect("metrics can be written");
    assert!(text.contains("workqueue_depth{name=\"Nodes\"} 2"), "{text}");
    assert!(text.contains("workqueue_adds_total{name=\"Nodes\"} 2"), "{text}");
}

// Behaviour: P20
#[tokio::test(start_paused = true)]
async fn a_delayed_key_counts_as_added_when_it_is_due() {
    let recorder = Recorder::start();
    let mut bench = Bench::start(1, |_, _| Again::Done);
    let mut registry = Registry::default();
    bench.queue.register(&mut registry);
    let adds = || {
        let text = crate::metrics::render(&registry).expect("metrics can be written");
        let line = text.lines().find(|line| line.starts_with("workqueue_adds_total{")).expect("the metric");
        line.rsplit(' ').next().expect("a number").to_owned()
    };
    bench.queue.add_after("a", Duration::from_secs(5));
    bench.queue.add_after("a", Duration::from_secs(7));
    assert_eq!(adds(), "0");
    assert_eq!(bench.seen(1).await, [("a", 5, 0)]);
    bench.queue.after("a", Duration::from_secs(5));
    assert_eq!(bench.seen(1).await, [("a", 10, 0)]);
    assert_eq!(adds(), "2");
    bench.stop.cancel();
    bench.tasks.join_all().await;
    let triggers =
        recorder.ended().iter().map(|span| attribute(span, "reconcile.trigger")).collect::<Vec<_>>();
    assert_eq!(triggers, ["change", "time"]);
}

// Behaviour: P23
#[tokio::test(start_paused = true)]
async fn each_reconcile_is_a_trace_with_cause_and_wait() {
    let recorder = Recorder::start();
    let answers = AtomicUsize::new(0);
    let mut bench = Bench::start(1, move |_, _| match answers.fetch_add(1, Ordering::Relaxed) {
        0 => Again::After(Duration::from_secs(3)),
        1 => Again::Backoff,
        _ => Again::Done,
    });
    bench.queue.after("a", Duration::from_secs(60));
    assert_eq!(bench.seen(3).await, [("a", 60, 0), ("a", 63, 0), ("a", 64, 1)]);
    bench.queue.add("a");
    bench.seen(1).await;
    bench.stop.cancel();
    bench.tasks.join_all().await;
    let spans = recorder.ended().into_iter().map(|span| {
        assert_eq!(span.name, "reconcile test");
        ["trigger", "attempt", "outcome", "queued_seconds"]
            .map(|name| attribute(&span, &format!("reconcile.{name}")))
            .join(" ")
    });
    let spans: Vec<_> = spans.collect();
    assert_eq!(spans, ["time 0 again 0", "again 0 failed 0", "failure 1 done 0", "change 0 done 0"]);
}

/// Keys that were added together with all keys do not delay a key that is added individually. Such keys are nevertheless served from time
/// to time.
#[test]
fn keys_added_for_themselves_come_before_those_added_with_all() {
    let (mut state, now) = (State::new(|_key: &u32| ""), Instant::now());
    (0..20).for_each(|key| state.add_with_all(key, now));
    state.add(7, now);
    state.add(100, now);
    (101..130).for_each(|key| state.add(key, now));
    assert_eq!(state.depth(), 50);
    let order: Vec<u32> = std::iter::from_fn(|| state.take(now).map(|taken| taken.key)).collect();
    assert_eq!(order[..9], [7, 100, 101, 102, 103, 104, 105, 0, 106]);
    assert_eq!(order.len(), 50, "each key once: {order:?}");
    assert_eq!(order.iter().filter(|key| **key == 7).count(), 1);
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Of(&'static str, u32);

impl Display for Of {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.0, self.1)
    }
}

fn namespace(Of(namespace, _): &Of) -> &str {
    namespace
}

/// A thousand keys of one namespace are queued, and each of these keys is added again while a worker reconciles it.
#[tokio::test(start_paused = true)]
async fn a_busy_namespace_does_not_delay_others() {
    let queue = Queue::by_namespace("test", BACKOFF, namespace);
    let (report, mut seen) = mpsc::unbounded_channel();
    let (runner, stop) = (queue.clone(), CancellationToken::new());
    let (token, mut tasks) = (stop.clone(), JoinSet::new());
    (0..1000).for_each(|key| queue.add(Of("evil", key)));
    tasks.spawn(async move {
        let again = runner.clone();
        let work = |key: Of, _| {
            report.send(key).expect("the test listens");
            let queue = again.clone();
            async move {
                tokio::time::sleep(Duration::from_secs(1)).await;
                if namespace(&key) == "evil" {
                    queue.add(key);
                }
                Again::Done
            }
        };
        runner.run(1, token, work).await;
    });
    for _ in 0..10 {
        seen.recv().await.expect("the queue runs");
    }
    let added = Instant::now();
    queue.add(Of("shop", 0));
    let mut turns = 1;
    while seen.recv().await.expect("the queue runs") != Of("shop", 0) {
        turns += 1;
    }
    assert!(turns <= 2, "after {turns} turns");
    assert!(added.elapsed() <= Duration::from_secs(2), "{:?}", added.elapsed());
    stop.cancel();
    tasks.join_all().await;
}

#[test]
fn namespaces_and_their_keys_are_served_in_turn() {
    let (mut state, now) = (State::new(namespace), Instant::now());
    (0..1000).for_each(|key| state.add(Of("evil", key), now));
    for key in [Of("shop", 0), Of("shop", 1), Of("bank", 0)] {
        state.add(key, now);
    }
    assert_eq!(state.depth(), 1003);
    let take = |state: &mut State<Of>| {
        let key = state.take(now).expect("a key waits").key;
        // The key changed while a worker was busy with it.
        state.add(key, now);
        state.done(&key, Again::Done, &BACKOFF, now);
        key
    };
    let order: Vec<String> = (0..9).map(|_| take(&mut state).to_string()).collect();
    let want = "evil/0 shop/0 bank/0 evil/1 shop/1 bank/0 evil/2 shop/0 bank/0";
    assert_eq!(order.join(" "), want);
    assert_eq!(state.depth(), 1003, "each key waits once");
}

/// One in eight keys taken is a key that was added together with all keys. The namespaces of such keys take turns.
#[test]
fn keys_added_with_all_share_turns_by_namespace() {
    let (mut state, now) = (State::new(namespace), Instant::now());
    (0..1000).for_each(|key| state.add_with_all(Of("evil", key), now));
    state.add_with_all(Of("shop", 0), now);
    (0..1000).for_each(|key| state.add(Of("evil", key), now));
    (1000..2000).for_each(|key| state.add_with_all(Of("evil", key), now));
    let turns = std::iter::from_fn(|| state.take(now)).take_while(|taken| taken.key != Of("shop", 0)).count();
    assert!(turns < 16, "after {turns} turns");
    let left = std::iter::from_fn(|| state.take(now)).count();
    assert_eq!(turns + 1 + left, 2001, "each key once");
}
