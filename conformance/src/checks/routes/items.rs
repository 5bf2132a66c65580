//! Verifies that each item of a request has its own result.

use cloud_api_proto::v1alpha1::{
    ApplyRoutesRequest, RouteDelete, RouteResult, RouteUpsert, route_result::Outcome,
};

use super::{apply, became};
use crate::checks::prelude::*;

/// A destination outside of all clusters' CIDRs. Source: RFC 5737.
const OUTSIDE: &str = "192.0.2.0/24";

/// route_service.proto, `RouteResult.Outcome`: an item that is already in the desired state is UNCHANGED; APPLIED means created or deleted
/// by this call.
pub(super) async fn idempotent(cx: &Context) -> Verdict {
    let machines = cx.machines(3).await?;
    let cluster = cx.cluster();
    let upserts: Vec<RouteUpsert> =
        machines.iter().zip(0..).map(|(machine, n)| cluster.route(n, machine)).collect();
    let (some, one) = (upserts.iter().take(2).cloned().collect(), upserts.iter().skip(2).cloned());
    let (laid, there) = (Outcome::Applied, Outcome::Unchanged);

    let results = apply(cx, &cluster.routes(some)).await?;
    became(&results, &[laid; 2], "new routes are APPLIED")?;
    let results = apply(cx, &cluster.routes(upserts.clone())).await?;
    let wants = "existing routes are UNCHANGED next to a new route that is APPLIED";
    became(&results, &[there, there, laid], wants)?;
    let results = apply(cx, &cluster.routes(upserts.clone())).await?;
    became(&results, &[there; 3], "all items are UNCHANGED if the request is repeated")?;
    let mine = cx.routes(&cluster).await?.items;
    let mine = mine.iter().filter(|route| route.owner() == cx.own_routes()).count();
    expect::equal("each route is listed once", &mine, &3)?;

    let deletes: Vec<RouteDelete> = upserts.iter().map(removal).collect();
    let request = |upserts, deletes| ApplyRoutesRequest { deletes, ..cluster.routes(upserts) };
    let (first, others) = (deletes.iter().take(1).cloned().collect(), deletes.clone());
    let results = apply(cx, &request(one.collect(), first)).await?;
    let wants = "with an upsert of an existing route and a deletion, only the deletion is APPLIED";
    became(&results, &[there, laid], wants)?;
    let results = apply(cx, &request(Vec::new(), others)).await?;
    let wants = "the deletion of a route that does not exist is UNCHANGED next to others that are APPLIED";
    became(&results, &[there, laid, laid], wants)?;
    let results = apply(cx, &request(Vec::new(), deletes)).await?;
    became(&results, &[there; 3], "all deletions are UNCHANGED if the request is repeated")
}

/// route_service.proto, `ApplyRoutes`: a route that cannot be created fails alone, with its own `error`. The cause may be the request, the
/// cluster or the vendor. The same call creates and deletes the other routes. The adapter does not retry failed items.
pub(super) async fn one_fails(cx: &Context) -> Verdict {
    let cluster = cx.cluster();
    let (machines, gone) = (cx.machines(1).await?, cx.new_machines(1).await?);
    let machine = expect::some(machines.first(), "the lane has an instance")?;
    let gone = expect::some(gone.first(), "the lane has an instance")?;
    cx.delete_machine(gone).await?;
    let former = cluster.route(7, machine);
    apply(cx, &cluster.routes(vec![former.clone()])).await?;
    let to = |n, destination: String| {
        let mut upsert = cluster.route(n, machine);
        upsert.key.get_or_insert_default().destination = destination;
        upsert
    };
    let host_bits = cluster.pod_cidr(1).replace("/28", "/18");
    let upserts = vec![
        cluster.route(0, machine),
        to(1, host_bits),
        to(2, OUTSIDE.to_owned()),
        cluster.route(3, gone),
        cluster.route(4, machine),
    ];
    let mut nodeless = removal(&former);
    nodeless.key.get_or_insert_default().node_uid.clear();
    let deletes = vec![nodeless, removal(&former)];
    let items = upserts.len().saturating_add(deletes.len());
    let mark = cx.proxy()?.mark();
    let results = apply(cx, &ApplyRoutesRequest { deletes, ..cluster.routes(upserts) }).await?;
    let (laid, failed) = (Outcome::Applied, Outcome::Failed);
    let wants = "host bits, a destination outside of the CIDRs, a deleted instance and a key without \
                 a node each FAIL alone";
    became(&results, &[laid, failed, failed, failed, laid, failed, laid], wants)?;
    let explained = |result: &RouteResult| result.outcome() != failed || result.error.is_some();
    let wants = "a FAILED item is explained in `error`";
    expect::shown(results.iter().all(explained), wants, &results)?;
    let writes = cx.proxy()?.since(mark).writes();
    let wants = "the adapter does not retry a route that fails";
    expect::that(writes.len() <= items, wants, || writes.to_string())?;
    let mine = cx.routes(&cluster).await?.items;
    let mut there: Vec<&str> = mine.iter().map(|route| route.destination.as_str()).collect();
    there.sort_unstable();
    let wanted = [cluster.pod_cidr(0), cluster.pod_cidr(4)];
    let wants = "the watch lists the valid routes, and no others";
    expect::equal(wants, &there, &wanted.each_ref().map(String::as_str).to_vec())
}
