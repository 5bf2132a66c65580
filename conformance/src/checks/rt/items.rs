//! Each item of a request has a fate of its own.

use cloud_api_proto::v1alpha1::{
    ApplyRoutesRequest, RouteDelete, RouteResult, RouteUpsert, route_result::Outcome,
};

use super::{apply, became};
use crate::{check::Verdict, context::Context, expect};

/// Inside of no cluster's CIDRs. Source: RFC 5737.
const OUTSIDE: &str = "192.0.2.0/24";

/// route_service.proto, `RouteResult.Outcome`: what is so already is UNCHANGED, item by item: APPLIED is what was laid or removed now.
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
    let wants = "routes that are there already are UNCHANGED beside a new one that is APPLIED";
    became(&results, &[there, there, laid], wants)?;
    let results = apply(cx, &cluster.routes(upserts.clone())).await?;
    became(&results, &[there; 3], "all are UNCHANGED when repeated")?;
    let mine = cx.routes(&cluster).await?.items;
    let mine = mine.iter().filter(|route| route.owner() == cx.own_routes()).count();
    expect::equal("each route is in the mirror once", &mine, &3)?;

    let deletes: Vec<RouteDelete> = upserts.iter().map(removal).collect();
    let request = |upserts, deletes| ApplyRoutesRequest { deletes, ..cluster.routes(upserts) };
    let (first, others) = (deletes.iter().take(1).cloned().collect(), deletes.clone());
    let results = apply(cx, &request(one.collect(), first)).await?;
    let wants = "of an upsert that is so already and a deletion only the second is APPLIED";
    became(&results, &[there, laid], wants)?;
    let results = apply(cx, &request(Vec::new(), others)).await?;
    let wants = "the deletion of what is gone is UNCHANGED beside others that are APPLIED";
    became(&results, &[there, laid, laid], wants)?;
    let results = apply(cx, &request(Vec::new(), deletes)).await?;
    became(&results, &[there; 3], "all deletions are UNCHANGED when repeated")
}

/// route_service.proto, `ApplyRoutes`: routes that cannot be laid, for reasons of the request, of the cluster or of the vendor, fail
/// alone, each with its `error`; the others are laid and removed by the same call. Nothing is tried again and again for their sake.
pub(super) async fn one_fails(cx: &Context) -> Verdict {
    let cluster = cx.cluster();
    let (machines, gone) = (cx.machines(1).await?, cx.new_machines(1).await?);
    let machine = expect::some(machines.first(), "there is a machine")?;
    let gone = expect::some(gone.first(), "there is a machine")?;
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
    let mut nobodys = removal(&former);
    nobodys.key.get_or_insert_default().node_uid.clear();
    let deletes = vec![nobodys, removal(&former)];
    let items = upserts.len().saturating_add(deletes.len());
    let mark = cx.proxy()?.mark();
    let results = apply(cx, &ApplyRoutesRequest { deletes, ..cluster.routes(upserts) }).await?;
    let (laid, failed) = (Outcome::Applied, Outcome::Failed);
    let wants = "host bits, a destination outside of the CIDRs, a machine that is gone and a key without a node FAIL, each alone";
    became(&results, &[laid, failed, failed, failed, laid, failed, laid], wants)?;
    let explained = |result: &RouteResult| result.outcome() != failed || result.error.is_some();
    let wants = "what FAILED says why in `error`";
    expect::that(results.iter().all(explained), wants, || format!("{results:?}"))?;
    let writes = cx.proxy()?.since(mark).writes();
    let wants = "a route that fails is not tried again and again";
    expect::that(writes.len() <= items, wants, || writes.to_string())?;
    let mine = cx.routes(&cluster).await?.items;
    let mut there: Vec<&str> = mine.iter().map(|route| route.destination.as_str()).collect();
    there.sort_unstable();
    let wanted = [cluster.pod_cidr(0), cluster.pod_cidr(4)];
    expect::equal(
        "the mirror has what could be laid, and no more",
        &there,
        &wanted.each_ref().map(String::as_str).to_vec(),
    )
}

/// The deletion of what an upsert lays.
pub(super) fn removal(upsert: &RouteUpsert) -> RouteDelete {
    let RouteUpsert { key, next_hop, .. } = upsert.clone();
    RouteDelete { key, next_hop, ..RouteDelete::default() }
}
