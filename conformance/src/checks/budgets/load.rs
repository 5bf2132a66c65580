//! Generates more work than the budget allows, with callers that ignore retry delays.

use std::{convert::Infallible, pin::pin, time::Duration};

use cloud_api_proto::v1alpha1::{ApplyRoutesRequest, Fence, Instance, RouteUpsert, route_result::Outcome};
use futures::future::{BoxFuture, Either, select, select_all};

use crate::checks::prelude::*;

/// How many routes are created and deleted concurrently.
const ROUTES: u16 = 16;
const LISTERS: usize = 2;
/// Interval at which refused callers retry, regardless of the retry delay.
const RETRY_INTERVAL: Duration = Duration::from_millis(100);

pub(in crate::checks) async fn under<T>(
    load: impl Future<Output = Result<Infallible, Stop>>,
    work: impl Future<Output = Result<T, Stop>>,
) -> Result<T, Stop> {
    match select(pin!(load), pin!(work)).await {
        Either::Left((Err(stop), _work)) => Err(stop),
        Either::Left((Ok(never), _work)) => match never {},
        Either::Right((done, _load)) => done,
    }
}

/// Causes fresh listings and writes of all kinds that the adapter supports. Never returns.
pub(in crate::checks) async fn everything(cx: &Context, machine: &Instance) -> Result<Infallible, Stop> {
    let mut callers = listers(cx);
    if cx.can("routes") {
        callers.push(Box::pin(async { routes(cx, machine).await.ok() }));
    }
    forever(callers).await
}

/// Creates and deletes routes. Each change needs its own vendor write. Never returns.
pub(super) async fn routes(cx: &Context, machine: &Instance) -> Result<Infallible, Stop> {
    let (api, cluster) = (cx.route()?, cx.cluster());
    // All writers use one fence, because concurrent requests may arrive in another order.
    let fence = cluster.route_fence();
    let flip = |n| -> BoxFuture<'_, Option<Infallible>> {
        Box::pin(flip(&api, &cluster, &fence, cluster.route(n, machine)))
    };
    forever((0..ROUTES).map(flip).collect()).await
}

fn listers(cx: &Context) -> Vec<BoxFuture<'_, Option<Infallible>>> {
    let mut callers: Vec<BoxFuture<'_, Option<Infallible>>> = Vec::new();
    for _caller in 0..LISTERS {
        if cx.can("instances") {
            callers.push(Box::pin(again_and_again(|| async { cx.instances().await.is_ok() })));
        }
        if cx.can("loadbalancers") {
            callers
                .push(Box::pin(again_and_again(|| async { cx.load_balancers(&cx.cluster()).await.is_ok() })));
        }
        if cx.can("routes") {
            callers.push(Box::pin(again_and_again(|| async { cx.routes(&cx.cluster()).await.is_ok() })));
        }
    }
    callers
}

async fn forever(callers: Vec<BoxFuture<'_, Option<Infallible>>>) -> Result<Infallible, Stop> {
    let no_caller = || Stop::skipped("the adapter reports no capability that causes vendor calls");
    if callers.is_empty() {
        return Err(no_caller());
    }
    let (ended, ..) = select_all(callers).await;
    ended.ok_or_else(no_caller)
}

async fn again_and_again<F: Future<Output = bool>>(ask: impl Fn() -> F) -> Option<Infallible> {
    loop {
        if !ask().await {
            tokio::time::sleep(RETRY_INTERVAL).await;
        }
    }
}

async fn flip(api: &Api, cluster: &Cluster, fence: &Fence, upsert: RouteUpsert) -> Option<Infallible> {
    let removal = removal(&upsert);
    let mut laid = false;
    loop {
        let (upserts, deletes) =
            if laid { (vec![], vec![removal.clone()]) } else { (vec![upsert.clone()], vec![]) };
        let request = ApplyRoutesRequest { fence: Some(fence.clone()), deletes, ..cluster.routes(upserts) };
        let outcomes = api.apply_routes(request).await.map(|answer| answer.results);
        let outcome = outcomes.ok().and_then(|results| Some(results.first()?.outcome()));
        if matches!(outcome, Some(Outcome::Applied | Outcome::Unchanged)) {
            laid = !laid;
        } else {
            tokio::time::sleep(RETRY_INTERVAL).await;
        }
    }
}
