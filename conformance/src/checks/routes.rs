//! RT: routes.

mod items;
mod many;
mod ownership;

use std::time::Duration;

use cloud_api_proto::v1alpha1::{
    ApplyRoutesRequest, Instance, Route, RouteOwner, RouteResult, RouteUpsert, route_result::Outcome,
};
use tokio::time::Instant;

use super::{CREATE, DELETE, LIMITS, ROUTES};
use crate::checks::prelude::*;

pub(super) const CHECKS: &[Check] = &[
    Check::t1("RT-01", "apply-is-idempotent-per-item", run!(items::idempotent))
        .section("route_service.proto, RouteResult.Outcome")
        .needs(&[ROUTES, CREATE]),
    Check::t1("RT-02", "foreign-routes-survive-every-apply", run!(ownership::foreign_survive))
        .section("route_service.proto, ApplyRoutes: there is no \"replace everything\"")
        .needs(FOREIGN),
    Check::t1("RT-03", "deletes-need-key-and-ownership", run!(ownership::deletes))
        .section("route_service.proto, ApplyRoutes: a deletion needs an explicit key and ownership")
        .needs(FOREIGN),
    Check::t2("RT-04", "one-failing-route-does-not-fail-the-batch", run!(items::one_fails))
        .section("route_service.proto, ApplyRoutes: one failing route never fails the others")
        .needs(&[Need::Proxy, ROUTES, CREATE, DELETE]),
    Check::t1("RT-05", "overlapping-foreign-route-is-a-conflict-not-a-takeover", run!(ownership::conflict))
        .section("route_service.proto, RouteResult.Outcome, RouteOwner")
        .needs(FOREIGN),
    Check::t2("RT-06", "thousand-routes-respect-budget-and-finish", run!(many::thousand))
        .section("route_service.proto, ApplyRoutes; common.proto, REASON_BUDGET_EXHAUSTED, REASON_QUEUE_FULL")
        .needs(&[Need::Proxy, LIMITS, ROUTES, CREATE])
        .within(600),
];

/// Deadline of one request. A request may contain many routes, and may wait behind many other requests.
const DEADLINE: Duration = Duration::from_secs(30);

const FOREIGN: &[Need] = &[ROUTES, CREATE, Need::Hook(Hook::CreateRoute), Need::Hook(Hook::DeleteRoute)];

/// The expected outcomes of a request with two items.
const APPLIED: [Outcome; 2] = [Outcome::Applied; 2];

/// Moves routes to other instances. Without route tags, the old routes are deleted first, because a route that does not lead to its node's
/// instance then has no owner.
async fn moved(cx: &Context, cluster: &Cluster, from: &[RouteUpsert; 2], to: &[RouteUpsert; 2]) -> Verdict {
    if !cx.has_route_tags() {
        let deletes = from.iter().map(removal).collect();
        let results = apply(cx, &ApplyRoutesRequest { deletes, ..cluster.routes(Vec::new()) }).await?;
        became(&results, &APPLIED, "routes to the former instances of the nodes are deleted")?;
    }
    let results = apply(cx, &cluster.routes(to.to_vec())).await?;
    became(&results, &APPLIED, "routes to other instances are created")
}

/// Repeats a request until no item is PENDING, obeying retry delays. Returns the result of each item, first the upserts and then the
/// deletes. An item that was PENDING and is now in the desired state counts as APPLIED.
async fn apply(cx: &Context, request: &ApplyRoutesRequest) -> Result<Vec<RouteResult>, Stop> {
    let end = Instant::now() + cx.params().timings.converge;
    let api = cx.route()?.within(DEADLINE);
    let mut settled: Vec<RouteResult> = Vec::new();
    loop {
        let (pause, came) = match api.apply_routes(request.clone()).await {
            Err(error) => match error.retry_after {
                Some(pause) => (pause, error.to_string()),
                None => return Err(error.into()),
            },
            Ok(answer) => {
                settled = merged(settled, in_order(request, answer.results)?);
                let Some(open) = settled.iter().find(|result| result.outcome() == Outcome::Pending) else {
                    return Ok(settled);
                };
                let wants = "a PENDING item has a retry delay (retry_after)";
                let pause = expect::some(open.retry_after, wants)?;
                (pause.try_into().unwrap_or_default(), format!("{open:?}"))
            }
        };
        expect::that(Instant::now() < end, "routes are created within timings.converge", || came)?;
        tokio::time::sleep(pause).await;
    }
}

fn in_order(request: &ApplyRoutesRequest, results: Vec<RouteResult>) -> Result<Vec<RouteResult>, Stop> {
    let asked = request.upserts.iter().map(|one| &one.key);
    let asked = asked.chain(request.deletes.iter().map(|one| &one.key));
    let holds = asked.eq(results.iter().map(|result| &result.key));
    let wants = "there is a result for each item, first the upserts and then the deletes, in the order of the request";
    expect::shown(holds, wants, &results)?;
    Ok(results)
}

/// Merges the results of an earlier attempt with the results of this attempt, item by item.
fn merged(before: Vec<RouteResult>, now: Vec<RouteResult>) -> Vec<RouteResult> {
    let before = before.into_iter().map(Some).chain(std::iter::repeat(None));
    let merge = |(before, mut now): (Option<RouteResult>, RouteResult)| match before {
        None => now,
        Some(before) if before.outcome() != Outcome::Pending => before,
        Some(_pending) => {
            if now.outcome() == Outcome::Unchanged {
                now.set_outcome(Outcome::Applied);
            }
            now
        }
    };
    before.zip(now).map(merge).collect()
}

fn became(results: &[RouteResult], wanted: &[Outcome], wants: &str) -> Verdict {
    let holds = results.iter().map(RouteResult::outcome).eq(wanted.iter().copied());
    expect::that(holds, wants, || format!("{results:?}; expected {wanted:?}"))
}

/// Creates a route without owner directly in the cloud, and waits until the adapter reports it to a cluster whose CIDRs contain it.
async fn ownerless(cx: &Context, cluster: &Cluster, to: &str, by: &Instance) -> Result<Route, Stop> {
    let printed =
        cx.hook(Hook::CreateRoute, &[("DESTINATION", to), ("PROVIDER_ID", &by.provider_id)]).await?;
    let id = printed.trim().to_owned();
    cx.undo_by(Hook::DeleteRoute, vec![("VENDOR_ID", id), ("DESTINATION", to.to_owned())]);
    let wants = "a route without owner that overlaps the cluster's CIDRs is listed";
    let route = cx.until(cx.params().timings.converge, wants, || route_to(cx, cluster, to)).await?;
    expect::equal("a route without owner is UNMANAGED", &route.owner(), &RouteOwner::Unmanaged)?;
    Ok(route)
}

/// Returns the route to a destination from a fresh listing of the cluster's routes.
async fn route_to(cx: &Context, cluster: &Cluster, destination: &str) -> Result<Option<Route>, Stop> {
    let listed = cx.routes(cluster).await?.items;
    Ok(listed.into_iter().find(|route| route.destination == destination))
}

async fn is_as_it_was(cx: &Context, cluster: &Cluster, route: &Route) -> Verdict {
    let now = route_to(cx, cluster, &route.destination).await?;
    let wants = format!("the route to {} ({:?}) is unchanged", route.destination, route.owner());
    expect::equal(&wants, &now.as_ref(), &Some(route))
}
