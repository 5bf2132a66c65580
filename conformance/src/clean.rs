//! Removes the objects that a check created, and verifies that none are left.

use std::{collections::BTreeMap, time::Duration};

use cloud_api_proto::{
    Reason,
    v1alpha1::{
        ApplyRoutesRequest, DeleteLoadBalancerRequest, LoadBalancerState, RouteDelete, RouteResult,
        route_result::Outcome,
    },
};
use futures::future;
use tokio::time::Instant;

use crate::{
    check::Stop,
    cluster::Cluster,
    context::Context,
    hooks::Hook,
    proxy::Proxy,
    tracker::{Made, Undo},
};

/// Maximum time for the removal of the objects of one check; `timings.converge` applies if it is smaller. While the adapter works on a
/// deletion, `timings.converge` is the limit.
const LIMIT: Duration = Duration::from_secs(60);
const TICK: Duration = Duration::from_millis(100);
/// Minimum time for one call; the maximum is `timings.answer`.
const CALL_MIN: Duration = Duration::from_secs(1);
/// An epoch above those of all writers in a check, so that no fence refuses the removal.
const EPOCH: u64 = 1 << 40;
/// Maximum number of upserts and deletes in one request. Source: contract, ApplyRoutes.
const ROUTES_MAX: usize = 200;

/// Removes the objects that the check created. Returns the objects that are left, one line for each. `exclusive` says whether the check had
/// exclusive use of the adapter.
pub(crate) async fn clean(cx: &Context, exclusive: bool) -> Vec<String> {
    let end = Instant::now() + LIMIT.min(cx.params().timings.converge);
    let made = cx.tracker().take();
    let nothing = made.balancers.is_empty() && made.routes.is_empty() && cx.clusters().is_empty();
    let mut left = Vec::new();
    for replica in cx.lane().down() {
        if let Err(stop) = cx.replica_process(replica).start().await {
            left.push(format!("the adapter hangs: {}", text(&stop)));
        }
    }
    let acted = exclusive && cx.lane().proxy.as_ref().is_some_and(Proxy::clear);
    if exclusive {
        left.extend(healed(cx, acted).await);
    }
    if !nothing {
        cx.note("cleaning up");
        left.extend(remove_all(cx, &made, end).await);
    }
    for Undo { hook, variables } in made.undo.iter().rev() {
        let variables: Vec<(&str, &str)> =
            variables.iter().map(|(name, value)| (*name, value.as_str())).collect();
        if let Err(stop) = cx.hook(*hook, &variables).await {
            left.push(format!("{variables:?}: {}", text(&stop)));
        }
    }
    if exclusive {
        left.extend(healed(cx, false).await);
    }
    if !nothing {
        left.extend(leaks(cx).await);
    }
    left
}

/// Waits until the adapter has recovered from faults. Returns at once if the check injected no faults and the adapter reports none.
async fn healed(cx: &Context, acted: bool) -> Option<String> {
    if !(acted || cx.is_marked().await) {
        return None;
    }
    cx.heal().await.err().map(|stop| text(&stop))
}

async fn remove_all(cx: &Context, made: &Made, end: Instant) -> Vec<String> {
    let balancers = made.balancers.values().map(|removal| remove(cx, removal.clone(), end));
    let mut by_cluster: BTreeMap<&str, Vec<RouteDelete>> = BTreeMap::new();
    for ([cluster, ..], removal) in &made.routes {
        by_cluster.entry(cluster).or_default().push(removal.clone());
    }
    let clusters = cx.clusters();
    let routes = by_cluster.into_iter().filter_map(|(id, removals)| {
        let cluster = clusters.iter().find(|cluster| cluster.id() == id)?;
        Some(remove_routes(cx, cluster, removals, end))
    });
    let (balancers, routes) = future::join(future::join_all(balancers), future::join_all(routes)).await;
    balancers.into_iter().flatten().chain(routes.into_iter().flatten()).collect()
}

/// Deletes one load balancer. Returns a description of the load balancer if the deletion does not complete.
async fn remove(cx: &Context, mut request: DeleteLoadBalancerRequest, end: Instant) -> Option<String> {
    let key = request.key.clone().unwrap_or_default();
    request.fence = Some(cx.cluster().fence_of(EPOCH, 1));
    // The check may have sent an invalid request on purpose.
    if let Some(cluster) = cx.clusters().iter().find(|cluster| cluster.id() == key.cluster_id) {
        request.context = Some(cluster.context());
    }
    let left = |why: &str| Some(format!("load balancer {}/{}: {why}", key.cluster_id, key.owner_uid));
    let Ok(api) = cx.service() else { return left("no service-controller identity to delete it with") };
    let late = Instant::now() + cx.params().timings.converge;
    let mut end = end;
    loop {
        let came = match api.within(time_left(cx, end)).delete_load_balancer(request.clone()).await {
            Ok(answer) if answer.state() == LoadBalancerState::Absent => return None,
            Ok(answer) => {
                // A deletion in progress may take as long as a load balancer needs to converge.
                end = end.max(late);
                format!("{:?}", answer.state())
            }
            // An adapter creates nothing for an invalid key. If it does, the listing shows the object.
            Err(error) if error.reason == Reason::FieldInvalid => return None,
            Err(error) => error.to_string(),
        };
        if Instant::now() >= end {
            return left(&came);
        }
        tokio::time::sleep(TICK).await;
    }
}

/// Time limit for one attempt, so that an adapter that hangs delays the clean-up no longer than an adapter that refuses calls.
fn time_left(cx: &Context, end: Instant) -> Duration {
    let longest = cx.params().timings.answer.max(CALL_MIN);
    end.saturating_duration_since(Instant::now()).clamp(CALL_MIN, longest)
}

/// Deletes the routes of a cluster. Returns the routes that are left.
async fn remove_routes(
    cx: &Context,
    cluster: &Cluster,
    mut removals: Vec<RouteDelete>,
    end: Instant,
) -> Option<String> {
    let Ok(api) = cx.route() else {
        return Some("routes: no route-controller identity to delete them with".to_owned());
    };
    // Some checks create routes in the CIDRs of another cluster on purpose.
    let everywhere: Vec<String> = cx.clusters().iter().map(Cluster::cluster_cidr).collect();
    // A retry delay means that the adapter works on the deletion, which may take as long as a load balancer needs to converge.
    let late = Instant::now() + cx.params().timings.converge;
    loop {
        let (mut rest, mut came, mut end) = (Vec::new(), String::new(), end);
        for some in removals.chunks(ROUTES_MAX) {
            let request = ApplyRoutesRequest {
                fence: Some(cluster.route_fence_of(EPOCH, 1)),
                deletes: some.to_vec(),
                cluster_cidrs: everywhere.clone(),
                ..cluster.routes(Vec::new())
            };
            match api.within(time_left(cx, end)).apply_routes(request).await {
                Ok(answer) => {
                    let open = some.iter().zip(&answer.results).filter(|(_, result)| !is_done(result));
                    rest.extend(open.map(|(removal, result)| {
                        came = format!("{:?}", result.outcome());
                        end = if result.outcome() == Outcome::Pending { late } else { end };
                        removal.clone()
                    }));
                }
                Err(error) => {
                    came = error.to_string();
                    end = if error.retry_after.is_some() { late } else { end };
                    rest.extend(some.iter().cloned());
                }
            }
        }
        if rest.is_empty() {
            return None;
        }
        if Instant::now() >= end {
            return Some(format!("{} routes of cluster {}: {came}", rest.len(), cluster.id()));
        }
        removals = rest;
        tokio::time::sleep(TICK).await;
    }
}

/// An invalid key counts as done, because no route can have it.
fn is_done(result: &RouteResult) -> bool {
    let invalid = || result.error.as_ref().is_some_and(|error| error.reason() == Reason::FieldInvalid);
    matches!(result.outcome(), Outcome::Applied | Outcome::Unchanged | Outcome::Conflict) || invalid()
}

/// Lists the objects that the check's clusters still own, according to the adapter's listing and to the vendor.
async fn leaks(cx: &Context) -> Vec<String> {
    let found = cx.clusters().into_iter().map(|cluster| async move {
        let mut left = Vec::new();
        if cx.lane().params.cluster_id.is_none() {
            left.extend(listed(cx, &cluster).await);
        }
        if cx.lane().hooks.has(Hook::ListOwned) {
            match cx.hook(Hook::ListOwned, &[("CLUSTER_ID", cluster.id())]).await {
                Ok(printed) => left.extend(printed.lines().map(|line| format!("in the cloud: {line}"))),
                Err(stop) => left.push(text(&stop)),
            }
        }
        left
    });
    future::join_all(found).await.into_iter().flatten().collect()
}

/// Lists the objects of a cluster. An adapter that does not answer within `timings.ready` is reported as an object that is left.
async fn listed(cx: &Context, cluster: &Cluster) -> Vec<String> {
    let limit = cx.params().timings.ready;
    let late = |_elapsed| vec![format!("cluster {}: not listed within {} s", cluster.id(), limit.as_secs())];
    tokio::time::timeout(limit, left_objects(cx, cluster)).await.unwrap_or_else(late)
}

async fn left_objects(cx: &Context, cluster: &Cluster) -> Vec<String> {
    let mut left = Vec::new();
    match cx.load_balancers(cluster).await {
        Ok(listing) => {
            left.extend(
                listing.items.iter().map(|one| format!("load balancer {} ({})", one.vendor_id, one.name)),
            );
        }
        Err(stop) if cx.can("loadbalancers") => left.push(format!("load balancers: {}", text(&stop))),
        Err(_) => (),
    }
    if !cx.can("routes") {
        return left;
    }
    match cx.routes(cluster).await {
        Ok(listing) => {
            let mine = listing.items.iter().filter(|route| route.owner() == cx.own_routes());
            left.extend(mine.map(|route| format!("route {} to {}", route.vendor_id, route.destination)));
        }
        Err(stop) => left.push(format!("routes: {}", text(&stop))),
    }
    left
}

fn text(stop: &Stop) -> String {
    match stop {
        Stop::Failed(finding) => finding.came.clone(),
        Stop::Skipped(why) => why.clone(),
    }
}
