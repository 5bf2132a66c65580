//! Tests Events as they reach the API server.

use k8s_openapi::api::core::v1::Node;
use kube::Resource as _;
use tokio::task::JoinSet;

use super::*;
use crate::{
    mirror::ObjectName,
    testing::{BEGIN, FakeKube, Verb, eventually, node},
};

fn notice(note: &str) -> Notice {
    Notice { kind: Kind::Warning, reason: "Waits", action: "Initialise", note: note.to_owned() }
}

fn start(kube: &FakeKube, tasks: &mut JoinSet<()>, stop: &CancellationToken) -> Recorder {
    let clock = Clock::starting_at(BEGIN);
    let (recorder, writer) = recorder(kube.client(), "cloud-node-controller", "pod-1".to_owned(), clock);
    tasks.spawn(writer.run(stop.clone()));
    recorder
}

// Behaviour: P21
#[tokio::test(start_paused = true)]
async fn an_event_names_component_and_object() {
    let (kube, mut tasks, stop) = (FakeKube::new(), JoinSet::new(), CancellationToken::new());
    let recorder = start(&kube, &mut tasks, &stop);
    let node: Node = node("a").build();
    recorder.emit(&node.object_ref(&()), notice("waits for its instance"));
    eventually("the event is written", || !kube.event_objects().is_empty()).await;
    let event = kube.event_objects().remove(0);
    let source = event.source.and_then(|source| source.component);
    assert_eq!(source.as_deref(), Some("cloud-node-controller"));
    assert_eq!(event.reporting_component, source);
    assert_eq!(event.reporting_instance.as_deref(), Some("pod-1"));
    let begin = Some(BEGIN.as_second());
    let second = |time: Option<Time>| time.map(|time| time.0.as_second());
    assert_eq!(
        (second(event.first_timestamp), second(event.last_timestamp), event.count),
        (begin, begin, Some(1))
    );
    assert_eq!(event.metadata.namespace.as_deref(), Some("default"));
    let regarding = event.involved_object;
    assert_eq!((regarding.kind.as_deref(), regarding.uid.as_deref()), (Some("Node"), Some("uid-a")));
    assert_eq!(kube.events(), ["Warning Waits a: waits for its instance"]);
}

#[tokio::test(start_paused = true)]
async fn one_process_may_report_as_two_components() {
    let (kube, mut tasks, stop) = (FakeKube::new(), JoinSet::new(), CancellationToken::new());
    let recorder = start(&kube, &mut tasks, &stop);
    let about = node("a").build().object_ref(&());
    recorder.emit(&about, notice("x"));
    recorder.as_component("cloud-node-lifecycle-controller").emit(&about, notice("x"));
    eventually("both Events are written", || kube.events().len() == 2).await;
    let events = kube.event_objects();
    let mut speakers: Vec<&str> =
        events.iter().filter_map(|event| event.reporting_component.as_deref()).collect();
    speakers.sort_unstable();
    assert_eq!(speakers, ["cloud-node-controller", "cloud-node-lifecycle-controller"]);
}

// Behaviour: P22
#[tokio::test(start_paused = true)]
async fn repeats_are_counted_in_one_event() {
    let (kube, mut tasks, stop) = (FakeKube::new(), JoinSet::new(), CancellationToken::new());
    let recorder = start(&kube, &mut tasks, &stop);
    let about = node("a").build().object_ref(&());
    for _ in 0..100 {
        recorder.emit(&about, notice("x"));
        sleep(Duration::from_secs(1)).await;
    }
    recorder.emit(&about, notice("y"));
    eventually("all notices are counted", || kube.events().contains(&"Warning Waits a: x (x100)".to_owned()))
        .await;
    assert_eq!(kube.events().len(), 2);
    assert_eq!(kube.requests(Verb::Patch, "events"), 10, "one write per 10 s");
}

// Behaviour: P22
#[tokio::test(start_paused = true)]
async fn a_lasting_condition_is_one_event_until_it_expires() {
    let (kube, mut tasks, stop) = (FakeKube::new(), JoinSet::new(), CancellationToken::new());
    let recorder = start(&kube, &mut tasks, &stop);
    let about = node("a").build().object_ref(&());
    for _ in 0..5 {
        recorder.emit(&about, notice("x"));
        sleep(REMIND).await;
    }
    assert_eq!(kube.events(), ["Warning Waits a: x (x5)"]);
    let name = kube.event_objects().remove(0).metadata.name.expect("the Event has a name");
    kube.delete::<Event>(&ObjectName::namespaced("default", &name));
    recorder.emit(&about, notice("x"));
    eventually("a new Event is created", || kube.events() == ["Warning Waits a: x"]).await;
}

// Behaviour: P22
#[tokio::test(start_paused = true)]
async fn an_early_last_repeat_is_counted() {
    let (kube, mut tasks, stop) = (FakeKube::new(), JoinSet::new(), CancellationToken::new());
    let recorder = start(&kube, &mut tasks, &stop);
    let about = node("a").build().object_ref(&());
    recorder.emit(&about, notice("x"));
    sleep(Duration::from_secs(1)).await;
    recorder.emit(&about, notice("x"));
    sleep(Duration::from_secs(8)).await;
    assert_eq!(kube.events(), ["Warning Waits a: x"], "the quiet time is not over");
    sleep(Duration::from_secs(7)).await;
    assert_eq!(kube.events(), ["Warning Waits a: x (x2)"]);
    let event = kube.event_objects().remove(0);
    let last = event.last_timestamp.expect("each Event has a time").0.as_second() - BEGIN.as_second();
    assert_eq!(last, 1, "the time of the notice, not of the write");
    sleep(Duration::from_mins(10)).await;
    assert_eq!(kube.requests(Verb::Patch, "events"), 1);
}

// Behaviour: P22
#[tokio::test(start_paused = true)]
async fn repeats_before_a_stop_are_counted() {
    let (kube, mut tasks, stop) = (FakeKube::new(), JoinSet::new(), CancellationToken::new());
    let recorder = start(&kube, &mut tasks, &stop);
    let about = node("a").build().object_ref(&());
    for note in ["x", "y", "x", "x", "y"] {
        recorder.emit(&about, notice(note));
        sleep(Duration::from_secs(1)).await;
    }
    stop.cancel();
    tasks.join_all().await;
    assert_eq!(kube.events(), ["Warning Waits a: x (x3)", "Warning Waits a: y (x2)"]);
}

#[tokio::test(start_paused = true)]
async fn processes_share_an_event_that_does_not_expire() {
    let (kube, mut tasks, stop) = (FakeKube::new(), JoinSet::new(), CancellationToken::new());
    let recorders = [(); 2].map(|()| start(&kube, &mut tasks, &stop));
    let about = node("a").build().object_ref(&());
    for _ in 0..3 {
        recorders.iter().for_each(|recorder| recorder.emit_shared(&about, notice("x")));
        sleep(REMIND).await;
    }
    assert_eq!(kube.events(), ["Warning Waits a: x"], "one Event, without a count");
    let event = kube.event_objects().remove(0);
    assert_eq!(event.metadata.name.as_deref(), Some("a.waits.uid-a"));
    let last = event.last_timestamp.expect("each Event has a time").0.as_second() - BEGIN.as_second();
    assert_eq!(last, 3600, "the time of the last repeat");
    assert_eq!(recorders[0].dropped.get() + recorders[1].dropped.get(), 0);
    kube.delete::<Event>(&ObjectName::namespaced("default", "a.waits.uid-a"));
    recorders.iter().for_each(|recorder| recorder.emit_shared(&about, notice("x")));
    eventually("the Event is created again", || kube.events().len() == 1).await;
}

#[tokio::test(start_paused = true)]
async fn emitting_neither_blocks_nor_fails_without_an_api_server() {
    let (kube, mut tasks, stop) = (FakeKube::new(), JoinSet::new(), CancellationToken::new());
    kube.away(true);
    let recorder = start(&kube, &mut tasks, &stop);
    let about = node("a").build().object_ref(&());
    for n in 0..QUEUE * 2 {
        recorder.emit(&about, notice(&n.to_string()));
    }
    assert!(recorder.dropped.get() > 0);
    sleep(Duration::from_mins(2)).await;
    kube.away(false);
    recorder.emit(&about, notice("back"));
    eventually("the Event is written", || kube.events().iter().any(|event| event.ends_with(": back"))).await;
}

#[tokio::test(start_paused = true)]
async fn a_notice_refused_by_a_full_queue_can_be_retried() {
    let (kube, mut tasks, stop) = (FakeKube::new(), JoinSet::new(), CancellationToken::new());
    let recorder = start(&kube, &mut tasks, &stop);
    let about = node("a").build().object_ref(&());
    for n in 0..QUEUE / 2 {
        assert!(recorder.try_emit(&about, notice(&n.to_string())), "{n}");
    }
    assert!(!recorder.try_emit(&about, notice("one more")));
    (0..QUEUE / 2).for_each(|n| recorder.emit(&about, notice(&format!("new {n}"))));
    assert_eq!(recorder.dropped.get(), 0, "no notice is dropped, since the caller retries");
    let all = PACE * u32::try_from(QUEUE).expect("small");
    sleep(all).await;
    assert!(recorder.try_emit(&about, notice("one more")));
    sleep(all).await;
    assert!(kube.events().iter().any(|event| event.ends_with(": one more")));
}

// Behaviour: P7
#[tokio::test(start_paused = true)]
async fn events_emitted_before_a_stop_are_written() {
    let (kube, mut tasks, stop) = (FakeKube::new(), JoinSet::new(), CancellationToken::new());
    let recorder = start(&kube, &mut tasks, &stop);
    stop.cancel();
    recorder.emit(&node("a").build().object_ref(&()), notice("the last word"));
    tasks.join_all().await;
    assert_eq!(kube.events(), ["Warning Waits a: the last word"]);
}

#[tokio::test(start_paused = true)]
async fn a_backlog_does_not_delay_a_stop() {
    let (kube, mut tasks, stop) = (FakeKube::new(), JoinSet::new(), CancellationToken::new());
    let recorder = start(&kube, &mut tasks, &stop);
    let about = node("a").build().object_ref(&());
    for n in 0..QUEUE {
        recorder.emit(&about, notice(&n.to_string()));
    }
    eventually("the rate limit applies", || kube.event_objects().len() > 200).await;
    let stopped = Instant::now();
    stop.cancel();
    tasks.join_all().await;
    assert!(stopped.elapsed() <= FLUSH, "{:?}", stopped.elapsed());
    assert_eq!(kube.event_objects().len(), QUEUE, "the queued Events are written before the stop");
}

#[tokio::test(start_paused = true)]
async fn a_warning_does_not_wait_behind_normal_events() {
    let (kube, mut tasks, stop) = (FakeKube::new(), JoinSet::new(), CancellationToken::new());
    let recorder = start(&kube, &mut tasks, &stop);
    let about = node("a").build().object_ref(&());
    for n in 0..QUEUE {
        recorder.emit(&about, Notice { kind: Kind::Normal, ..notice(&n.to_string()) });
    }
    eventually("the rate limit applies", || kube.event_objects().len() > 200).await;
    recorder.emit(&about, notice("something is wrong"));
    let is_written = || kube.events().iter().any(|event| event == "Warning Waits a: something is wrong");
    let waited =
        tokio::time::timeout(Duration::from_secs(1), eventually("the Warning is written", is_written));
    waited.await.expect("within a second");
    assert!(kube.event_objects().len() < QUEUE, "not after all other Events");
    eventually("the other Events are written", || kube.event_objects().len() == QUEUE + 1).await;
}

#[tokio::test(start_paused = true)]
async fn normal_events_are_written_among_many_warnings() {
    let (kube, mut tasks, stop) = (FakeKube::new(), JoinSet::new(), CancellationToken::new());
    let recorder = start(&kube, &mut tasks, &stop);
    let about = node("a").build().object_ref(&());
    for n in 0..QUEUE {
        recorder.emit(&about, notice(&n.to_string()));
    }
    recorder.emit(&about, Notice { kind: Kind::Normal, ..notice("all is well") });
    let is_written = || kube.events().iter().any(|event| event == "Normal Waits a: all is well");
    eventually("the Event is written", is_written).await;
    assert!(kube.event_objects().len() < QUEUE, "not after all Warnings");
}

#[tokio::test(start_paused = true)]
async fn an_api_server_that_hangs_does_not_delay_a_stop() {
    let hanging = tower::service_fn(|_: http::Request<kube::client::Body>| {
        std::future::pending::<Result<http::Response<kube::client::Body>, std::io::Error>>()
    });
    let client = Client::new(hanging, "default");
    let (recorder, writer) = recorder(client, "c", "pod-1".to_owned(), Clock::starting_at(BEGIN));
    let (mut tasks, stop) = (JoinSet::new(), CancellationToken::new());
    tasks.spawn(writer.run(stop.clone()));
    recorder.emit(&node("a").build().object_ref(&()), notice("x"));
    sleep(Duration::from_secs(1)).await;
    let stopped = Instant::now();
    stop.cancel();
    tasks.join_all().await;
    assert!(stopped.elapsed() <= FLUSH, "{:?}", stopped.elapsed());
}

#[tokio::test(start_paused = true)]
async fn event_has_at_most_200_characters() {
    let (kube, mut tasks, stop) = (FakeKube::new(), JoinSet::new(), CancellationToken::new());
    let recorder = start(&kube, &mut tasks, &stop);
    let about = node("a").build().object_ref(&());
    recorder.emit(&about, notice(&"ü".repeat(201)));
    assert!(recorder.try_emit(&about, notice(&"x".repeat(201))));
    eventually("both are written", || kube.event_objects().len() == 2).await;
    let notes = kube.event_objects().into_iter().filter_map(|event| event.message);
    let lengths: Vec<_> = notes.map(|note| (note.chars().count(), note.ends_with('…'))).collect();
    assert_eq!(lengths, [(200, true), (200, true)]);
}
