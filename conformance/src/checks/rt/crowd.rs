//! Many routes at once.

use cloud_api_proto::v1alpha1::{ApplyRoutesRequest, RouteOwner, RouteUpsert, route_result::Outcome};
use futures::{StreamExt as _, TryStreamExt as _, stream};

use super::{apply, became};
use crate::{
    check::Verdict,
    context::Context,
    expect,
    params::BucketParams,
    proxy::{Call, Calls},
};

/// Routes in all.
const ROUTES: u16 = 1000;
/// Of these, so many are asked for one by one, so that there is something to hold back.
const SINGLE: usize = 200;
/// Requests at once.
const AT_ONCE: usize = 16;
/// Upserts of one request at most. Source: route_service.proto, `ApplyRoutesRequest.upserts`.
const ITEMS_MAX: usize = 200;
/// Calls that are sent in time may arrive together, where machines are busy: this part of the burst.
const BUNCHED: f64 = 0.2;

/// route_service.proto, `ApplyRoutes`; common.proto, `REASON_BUDGET_EXHAUSTED`, `REASON_QUEUE_FULL`: a thousand routes, asked for in large
/// requests and in small ones at once, are all laid for a caller that comes back when told, and no bucket is overdrawn meanwhile.
pub(super) async fn thousand(cx: &Context) -> Verdict {
    let machines = cx.machines(4).await?;
    let cluster = cx.cluster();
    let hops = machines.iter().cycle();
    let mut routes: Vec<RouteUpsert> =
        (0..ROUTES).zip(hops).map(|(n, machine)| cluster.route(n, machine)).collect();
    let single = routes.split_off(routes.len().saturating_sub(SINGLE));
    // One writer: requests that are under way at once may overtake each other.
    let fence = cluster.route_fence();
    let request = |upserts: &[RouteUpsert]| ApplyRoutesRequest {
        fence: Some(fence.clone()),
        ..cluster.routes(upserts.to_vec())
    };
    let limit = cx.info().limits.as_ref().and_then(|limits| usize::try_from(limits.batch_routes).ok());
    let large = limit.filter(|limit| *limit > 0).unwrap_or(ITEMS_MAX).min(ITEMS_MAX);
    let requests: Vec<_> = routes.chunks(large).chain(single.chunks(1)).map(request).collect();

    let mark = cx.proxy()?.mark();
    let laid = stream::iter(requests).map(|request| async move {
        let results = apply(cx, &request).await?;
        became(&results, &vec![Outcome::Applied; results.len()], "all routes are APPLIED")
    });
    laid.buffer_unordered(AT_ONCE).try_collect::<()>().await?;
    let calls = cx.proxy()?.since(mark);
    for (name, bucket) in &cx.params().limits.buckets {
        let most = overdraft(&calls, bucket);
        let wants =
            format!("bucket {name} keeps to {} calls/s with a burst of {}", bucket.rate, bucket.burst);
        expect::that(most <= BUNCHED * bucket.burst, &wants, || {
            format!("{most:.1} calls too many at once, of {} in all", calls.len())
        })?;
    }
    let listed = cx.routes(&cluster).await?.items;
    let mine = listed.iter().filter(|route| route.owner() == RouteOwner::Mine).count();
    expect::equal("the mirror has all routes", &mine, &usize::from(ROUTES))
}

/// By how many calls a bucket was overdrawn when it was worst, as it would be filled and emptied at the vendor.
fn overdraft(calls: &Calls, bucket: &BucketParams) -> f64 {
    let covered = |call: &&Call| bucket.calls.matches(&call.method, &call.path);
    let (mut tokens, mut worst, mut last) = (bucket.burst, 0.0_f64, None);
    for at in calls.0.iter().filter(covered).map(|call| call.started) {
        let since = last.map_or(0.0, |last| at.saturating_duration_since(last).as_secs_f64());
        tokens = (tokens + since * bucket.rate).min(bucket.burst) - 1.0;
        worst = worst.max(-tokens);
        last = Some(at);
    }
    worst
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use http::Method;
    use tokio::time::Instant;

    use super::*;

    #[test]
    fn a_bucket_is_overdrawn_by_what_comes_before_it_is_filled() {
        let start = Instant::now();
        let call = |millis| Call {
            method: Method::POST,
            path: "/routes".to_owned(),
            write: true,
            list: None,
            status: Some(200),
            reached: true,
            request_id: None,
            started: start + Duration::from_millis(millis),
            ended: None,
        };
        let bucket = |calls: &str| BucketParams {
            rate: 10.0,
            burst: 2.0,
            calls: regex::Regex::new(calls).expect("is right").into(),
        };
        for (times, over) in [(vec![0, 0, 100, 200], 0.0), (vec![0, 0, 0, 100, 100], 2.0)] {
            let calls = Calls(times.iter().copied().map(call).collect());
            assert!((overdraft(&calls, &bucket(" /routes")) - over).abs() < 1e-9, "{times:?}");
            assert!(overdraft(&calls, &bucket(" /instances")) < 1e-9);
        }
    }
}
