//! Tests with more calls than the limits of the adapter or the vendor permit.

use std::time::Duration;

use adapter_sim::simcloud::Operation;
use cloud_api_proto::{Reason, v1alpha1::LoadBalancerState};
use futures::{StreamExt as _, stream::FuturesUnordered};
use serde_json::{Value, json};
use tonic::{Code, Status};

use crate::{
    conditions::reported::{Reported, Retry},
    conditions::world::World,
};

/// Two values of the vendor's Retry-After: one is longer and one is shorter than the time that a caller waits.
pub(crate) const PAUSE: Duration = Duration::from_secs(30);
pub(crate) const SHORT_PAUSE: Duration = Duration::from_secs(1);

pub(crate) async fn wait_beyond_the_deadline() -> Status {
    let slow = "limits: {reserve: 0, buckets: {compute: {rate: 0.1, burst: 1}}}";
    let world = World::configured(slow).await;
    world.look_up(Duration::from_secs(20)).await.expect("the first call may be sent");
    let sent = world.cloud.counts().total;
    let asked = tokio::time::Instant::now();
    let status = world.look_up(Duration::from_secs(8)).await.expect_err("in 10 s");
    assert!(asked.elapsed() < Duration::from_secs(4), "the refusal comes at once");
    assert_eq!(world.cloud.counts().total, sent, "the refusal causes no vendor call");
    status
}

pub(crate) async fn full_queue() -> Status {
    let narrow = "limits: {reserve: 0, queue: {total: 1}, buckets: {loadbalancer: {rate: 0.5, burst: 2}}}";
    let world = World::configured(narrow).await;
    let uids = ["a", "b", "c", "d"];
    let asking = uids.map(async |uid| world.settled(&world.web(uid).await).await);
    let mut answers: FuturesUnordered<_> = asking.into_iter().collect();
    let status = answers.next().await.expect("an answer").expect_err("only one call may wait");
    assert!(status.message().contains("too many calls wait"), "{status:?}");
    status
}

/// A new process starts with empty buckets, so an adapter that crashes repeatedly does not exceed the rate.
#[tokio::test]
async fn new_process_starts_with_empty_buckets() {
    let began = tokio::time::Instant::now();
    let world = World::configured("limits: {reserve: 0, buckets: {compute: {rate: 1, burst: 20}}}").await;
    for _ in 0..3 {
        world.look_up(Duration::from_secs(20)).await.expect("sent when the bucket permits");
    }
    let took = began.elapsed();
    assert!(took >= Duration::from_secs(3), "three calls at 1/s took {took:?}");
}

fn throttled(pause: Duration) -> Value {
    json!({ "respond": { "status": 429, "headers": { "retry-after": pause.as_secs().to_string() } } })
}

pub(crate) async fn throttled_read() -> Status {
    let world = World::start().await;
    world.always("*Instances", throttled(PAUSE)).await;
    let status = world.look_up(Duration::from_secs(20)).await.expect_err("not before the deadline");
    Reported::read(&status).quotes_the_vendor("injected");
    let sent = world.cloud.counts().total;
    let again = world.look_up(Duration::from_secs(20)).await.expect_err("the pause is not over");
    Reported::read(&again).is(Reason::VendorThrottled, Code::ResourceExhausted, Retry::After(PAUSE / 2));
    assert_eq!((sent, world.cloud.counts().total), (1, 1), "one call, and none during the pause");
    status
}

pub(crate) async fn throttled_write() -> Status {
    let world = World::start().await;
    world.always("CreateLoadBalancer", throttled(SHORT_PAUSE)).await;
    let request = world.web("web").await;
    let status = world.settled(&request).await.expect_err("throttled twice");
    Reported::read(&status).quotes_the_vendor("injected");
    assert_eq!(world.cloud.count(Operation::CreateLoadBalancer), 2);
    status
}

/// Callers that wait for the retry delay succeed, and the adapter makes no additional vendor call for them.
#[tokio::test]
async fn obeying_the_retry_delay_succeeds() {
    let world = World::configured("limits: {reserve: 0, buckets: {compute: {rate: 0.5, burst: 1}}}").await;
    world.look_up(Duration::from_secs(5)).await.expect("the first call may be sent");
    let status = world.look_up(Duration::from_secs(1)).await.expect_err("in 2 s");
    let reported = Reported::read(&status);
    reported.is(Reason::BudgetExhausted, Code::ResourceExhausted, Retry::After(Duration::from_secs(1)));
    tokio::time::sleep(reported.delay()).await;
    world.look_up(Duration::from_secs(1)).await.expect("served after the delay");
}

/// If all callers have left before the bucket permits their request, the request is not sent.
#[tokio::test]
async fn abandoned_request_makes_no_vendor_call() {
    let world = World::configured("limits: {reserve: 0, buckets: {compute: {rate: 0.5, burst: 1}}}").await;
    let patient = Duration::from_secs(30);
    world.look_up(patient).await.expect("the first call may be sent");
    for _ in 0..3 {
        let hung_up = tokio::time::timeout(Duration::from_millis(300), world.look_up(patient)).await;
        assert!(hung_up.is_err(), "the bucket permits the next call in 2 s");
    }
    world.look_up(patient).await.expect("sent when the bucket permits");
    world.look_up(patient).await.expect("sent when the bucket permits");
    assert_eq!(world.cloud.counts().total, 3, "calls only for the callers that still wait");
}

/// Returns the condition and the retry delay of a PENDING load balancer whose work the adapter has postponed.
async fn held_up(world: &World) -> (String, Duration) {
    let answer = world.ensure(&world.web("web").await).await.expect("work in progress");
    assert_eq!(answer.state(), LoadBalancerState::Pending);
    let again = answer.retry_after.expect("has a retry delay");
    let [condition] = &answer.conditions[..] else { panic!("{:?}", answer.conditions) };
    (condition.message.clone(), Duration::try_from(again).expect("a delay"))
}

/// The work continues without the caller. The answer names the cause of the delay, and its retry delay is longer than that delay.
#[tokio::test]
async fn pending_condition_reports_the_vendors_pause() {
    let world = World::start().await;
    world.always("ListLoadBalancers", throttled(PAUSE)).await;
    let began = tokio::time::Instant::now();
    let (message, again) = held_up(&world).await;
    assert!(message.contains("the vendor paused the bucket loadbalancer for"), "{message}");
    let rest = PAUSE.saturating_sub(began.elapsed());
    assert!(again >= rest && again < PAUSE * 2, "{again:?} of {rest:?}");
}

#[tokio::test]
async fn pending_condition_reports_an_exhausted_budget() {
    let slow = "limits: {reserve: 0, buckets: {loadbalancer: {rate: 0.1, burst: 1}}}";
    let world = World::configured(slow).await;
    let (message, again) = held_up(&world).await;
    assert!(
        message.starts_with(
            "waits for the call budget of bucket loadbalancer: 0 calls ahead at 0.1 a second, next call in about "
        ),
        "{message}"
    );
    assert!(again >= Duration::from_secs(5), "{again:?} at one call in ten seconds");
}
