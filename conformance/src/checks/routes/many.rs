//! Verifies many concurrent route requests.

use cloud_api_proto::v1alpha1::{ApplyRoutesRequest, RouteUpsert, route_result::Outcome};
use futures::{StreamExt as _, TryStreamExt as _, stream};

use super::{apply, became};
use crate::checks::{budget, prelude::*};

const ROUTES: u16 = 1000;
/// Number of routes that are requested one by one. The burst of a rate limit allows more, so a cloud with large batches creates them
/// quickly.
const SINGLE: usize = 40;
/// Concurrent requests.
const AT_ONCE: usize = 8;
/// Maximum upserts in one request. Source: route_service.proto, `ApplyRoutesRequest.upserts`.
const ITEMS_MAX: usize = 200;

/// route_service.proto, `ApplyRoutes`; common.proto, `REASON_BUDGET_EXHAUSTED`, `REASON_QUEUE_FULL`: a caller that obeys retry delays
/// requests a thousand routes in concurrent large and small requests. All are created, and no bucket is exceeded.
pub(super) async fn thousand(cx: &Context) -> Verdict {
    let machines = cx.machines(4).await?;
    let cluster = cx.cluster();
    let hops = machines.iter().cycle();
    let mut routes: Vec<RouteUpsert> =
        (0..ROUTES).zip(hops).map(|(n, machine)| cluster.route(n, machine)).collect();
    let single = routes.split_off(routes.len().saturating_sub(SINGLE));
    // All writers use one fence, because concurrent requests may arrive in another order.
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
    budget::kept(cx, &cx.proxy()?.since(mark))?;
    let listed = cx.routes(&cluster).await?.items;
    let mine = listed.iter().filter(|route| route.owner() == cx.own_routes()).count();
    expect::equal("the watch lists all routes", &mine, &usize::from(ROUTES))
}
