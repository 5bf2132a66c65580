//! Verifies that an adapter sends no calls during a pause that the vendor requested.

use std::{pin::pin, time::Duration};

use cloud_api_proto::{
    Reason,
    v1alpha1::{BatchGetInstancesRequest, BatchGetInstancesResponse, Existence},
};
use futures::future::{select, try_join_all};
use tokio::time::Instant;

use crate::{checks::prelude::*, params::Pattern};

/// Retry-After that the vendor sends.
const PAUSE: Duration = Duration::from_secs(2);
/// A pause that is longer than [`DEADLINE`].
const LONG: Duration = Duration::from_secs(5);
/// `DEADLINE` is the deadline of a call during the pause [`LONG`]; `AT_ONCE` is the time limit for an immediate refusal.
const DEADLINE: Duration = Duration::from_millis(2500);
const AT_ONCE: Duration = Duration::from_millis(1250);
/// The longest permitted retry delay for a pause of [`LONG`]. It includes jitter and a slow start.
const DELAY_MAX: Duration = Duration::from_secs(20);
/// Shortest permitted retry delay of a refusal for lack of budget.
const RETRY_MIN: Duration = Duration::from_millis(500);
const BATCH: usize = 20;
/// The maximum number of vendor calls for a throttled batch before the pause is over.
const BATCH_CALLS_MAX: usize = 2;
const IMPATIENT: usize = 4;

/// common.proto, `REASON_VENDOR_THROTTLED`; adapter_service.proto, `Budget.paused_until`: after a Retry-After, the adapter sends no call of
/// the bucket for any caller until the delay is over. Then calls continue.
pub(super) async fn retry_after(cx: &Context) -> Verdict {
    // Read only one instance for one caller, because a second call in flight could not know about the pause.
    let (request, bucket) = live_read(cx, 1).await?;
    let proxy = cx.proxy()?;
    let mark = proxy.mark();
    let in_bucket = |call: &Call| bucket.matches(&call.method, &call.path);
    let throttled = proxy.inject(Rule::all().calls(bucket.clone()).next(1), Action::Throttle(Some(PAUSE)));
    let api = cx.node()?;
    let reported = cx.until(cx.params().timings.converge, "max_staleness 0 causes a vendor read", || async {
        let calls = proxy.since(mark).only(in_bucket);
        Ok(calls.0.iter().any(|call| call.ended.is_some()).then_some(()))
    });
    select(pin!(reported), pin!(api.batch_get_instances(request.clone()))).await;
    let wants = "vendor calls continue after the pause";
    let asks = (0..IMPATIENT).map(|_caller| {
        cx.until(cx.params().timings.converge, wants, || async {
            let _answer = api.batch_get_instances(request.clone()).await;
            Ok((proxy.since(mark).only(in_bucket).len() > 1).then_some(()))
        })
    });
    try_join_all(asks).await?;
    drop(throttled);
    let calls = proxy.since(mark).only(in_bucket);
    let mut starts = calls.0.iter().map(|call| call.started);
    let (first, next) = (starts.next(), starts.next());
    let waited = expect::some(first.zip(next), wants)?;
    let waited = waited.1.saturating_duration_since(waited.0);
    let wants = format!(
        "the adapter sends no call of a bucket within the {} s that the vendor requested",
        PAUSE.as_secs()
    );
    expect::that(waited >= PAUSE, &wants, || {
        format!("the next call came after {} ms: {calls}", waited.as_millis())
    })
}

/// instance_service.proto, `BatchGetInstances`: a throttled batch fails as a whole, or succeeds after the pause; it is never split into
/// single calls.
pub(super) async fn no_fan_out(cx: &Context) -> Verdict {
    let (request, bucket) = live_read(cx, BATCH).await?;
    let proxy = cx.proxy()?;
    let mark = proxy.mark();
    // Only the first call is throttled. Calls that the adapter sends despite the pause succeed, and the check counts them.
    let throttled = proxy.inject(Rule::all().calls(bucket.clone()).next(1), Action::Throttle(Some(PAUSE)));
    let answer = cx.node()?.batch_get_instances(request.clone()).await;
    let first = proxy
        .since(mark)
        .0
        .iter()
        .find(|call| bucket.matches(&call.method, &call.path))
        .map(|call| call.started);
    let first = expect::some(first, "max_staleness 0 causes a vendor read")?;
    let end = first + PAUSE;
    tokio::time::sleep_until(end).await;
    let calls = proxy.since(mark).only(|call| call.started < end && bucket.matches(&call.method, &call.path));
    let wants = format!(
        "until the pause is over, a throttled batch of {BATCH} makes at most {BATCH_CALLS_MAX} calls"
    );
    expect::that(calls.len() <= BATCH_CALLS_MAX, &wants, || calls.to_string())?;
    match answer {
        Err(error) => {
            let wants = "a throttled batch is refused with RESOURCE_EXHAUSTED";
            expect::that(is_exhausted(error.reason), wants, || error.to_string())?;
        }
        Ok(answer) => {
            let all = |wanted| answer.results.iter().all(|result| result.existence() == wanted);
            let whole = all(Existence::Unknown) || all(Existence::Exists);
            expect::shown(whole, "a throttled batch fails as a whole, or succeeds after the pause", &answer)?;
        }
    }
    drop(throttled);
    let api = cx.node()?;
    cx.until(cx.params().timings.converge, "the batch succeeds after the pause", || async {
        let answer = api.batch_get_instances(request.clone()).await;
        let exists = |answer: &BatchGetInstancesResponse| {
            answer.results.iter().all(|result| result.existence() == Existence::Exists)
        };
        Ok(answer.ok().filter(exists).map(drop))
    })
    .await
}

/// common.proto, `REASON_BUDGET_EXHAUSTED`: a call that cannot be served before its deadline is refused at once, with a retry delay. A call
/// after that delay is served.
pub(super) async fn deadline(cx: &Context) -> Verdict {
    let (request, bucket) = live_read(cx, 1).await?;
    let throttled = cx.proxy()?.inject(Rule::all().calls(bucket).next(1), Action::Throttle(Some(LONG)));
    let api = cx.node()?;
    // This call only starts the pause. The check does not wait until the call returns.
    let paused = throttled.reached(cx.params().timings.converge);
    let patient = api.within(LONG);
    let asks = patient.batch_get_instances(request.clone());
    select(pin!(paused), pin!(asks)).await;
    throttled.must_have_fired("max_staleness 0 causes a vendor read")?;
    drop(throttled);
    let asked = Instant::now();
    let wants = "a call that cannot be served before its deadline is refused with RESOURCE_EXHAUSTED";
    let error = match api.within(DEADLINE).batch_get_instances(request.clone()).await {
        Err(error) => error,
        Ok(answer) => return Err(Stop::failed(wants, format!("OK: {answer:?}"))),
    };
    expect::that(is_exhausted(error.reason), wants, || error.to_string())?;
    let took = asked.elapsed();
    expect::that(took < AT_ONCE, "the call is refused at once, not at its deadline", || {
        format!("after {} ms, with a deadline of {} ms", took.as_millis(), DEADLINE.as_millis())
    })?;
    let reported = expect::some(error.retry_after, "RESOURCE_EXHAUSTED has a retry delay")?;
    let sensible = (RETRY_MIN..=DELAY_MAX).contains(&reported);
    expect::shown(sensible, "the retry delay is at least 500 ms, and near the vendor's pause", &reported)?;
    tokio::time::sleep(reported).await;
    // The delay is an estimate and may be too short, so there is a second attempt.
    match api.batch_get_instances(request.clone()).await {
        Ok(_answer) => Ok(()),
        Err(again) => {
            tokio::time::sleep(again.retry_after.unwrap_or_default().min(DELAY_MAX)).await;
            api.batch_get_instances(request).await?;
            Ok(())
        }
    }
}

/// Prepares a live read of this many instances, and the calls of the bucket that it uses.
async fn live_read(cx: &Context, count: usize) -> Result<(BatchGetInstancesRequest, Pattern), Stop> {
    let machines = cx.machines(count).await?;
    let cluster = cx.cluster();
    let request = cluster.instances(cluster.live(), machines.iter().map(|one| one.provider_id.as_str()));
    let proxy = cx.proxy()?;
    let mark = proxy.mark();
    cx.node()?.batch_get_instances(request.clone()).await?;
    let calls = proxy.since(mark);
    let buckets = &cx.params().limits.buckets;
    let paid = calls.0.iter().find_map(|call| {
        let bucket = buckets.values().find(|bucket| bucket.calls.matches(&call.method, &call.path))?;
        Some(bucket.calls.clone())
    });
    let paid = paid.ok_or_else(|| Stop::skipped("limits.buckets: no bucket covers reads of instances"))?;
    Ok((request, paid))
}

fn is_exhausted(reason: Reason) -> bool {
    matches!(reason, Reason::VendorThrottled | Reason::BudgetExhausted | Reason::QueueFull)
}
