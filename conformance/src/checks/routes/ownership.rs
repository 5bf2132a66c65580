//! Verifies that foreign routes are reported and never changed.

use cloud_api_proto::{
    Reason,
    v1alpha1::{
        ApplyRoutesRequest, Instance, NextHop, Route, RouteDelete, RouteKey, RouteOwner,
        route_result::Outcome,
    },
};

use super::{APPLIED, apply, became, is_as_it_was, moved, ownerless, route_to};
use crate::{checks::prelude::*, context::ROUTE_TAGS};

/// route_service.proto, `ApplyRoutes`: routes that the request does not name stay unchanged when other routes are created, moved and
/// deleted. This holds for routes of another cluster, and for routes without an owner inside and outside of the cluster's CIDRs.
pub(super) async fn foreign_survive(cx: &Context) -> Verdict {
    let [first, second] = &cx.these_machines().await?;
    let (cluster, neighbour) = (cx.cluster(), cx.new_cluster());
    apply(cx, &neighbour.routes(vec![neighbour.route(0, first)])).await?;
    let theirs = route_to(cx, &neighbour, &neighbour.pod_cidr(0)).await?;
    let theirs = expect::some(theirs, "a created route is listed")?;
    let inside = ownerless(cx, &cluster, &cluster.pod_cidr(9), first).await?;
    let outside = ownerless(cx, &neighbour, &neighbour.pod_cidr(9), first).await?;

    let here = [cluster.route(0, first), cluster.route(1, second)];
    let there = [cluster.route(0, second), cluster.route(1, first)];
    let results = apply(cx, &cluster.routes(here.to_vec())).await?;
    became(&results, &APPLIED, "routes are created")?;
    moved(cx, &cluster, &here, &there).await?;
    let deletes = there.iter().map(removal).collect();
    let results = apply(cx, &ApplyRoutesRequest { deletes, ..cluster.routes(Vec::new()) }).await?;
    became(&results, &APPLIED, "routes are deleted")?;

    is_as_it_was(cx, &cluster, &inside).await?;
    is_as_it_was(cx, &neighbour, &outside).await?;
    is_as_it_was(cx, &neighbour, &theirs).await
}

/// route_service.proto, `ApplyRoutes`: a deletion needs the key and ownership. A cluster owns a route that has its tag or description. A
/// route without any owner belongs to the cluster if the destination is inside the cluster's CIDRs and the next hop is the instance of the
/// named node. The vendor's ID is a hint, not a proof.
pub(super) async fn deletes(cx: &Context) -> Verdict {
    let [first, second] = &cx.these_machines().await?;
    let (cluster, neighbour) = (cx.cluster(), cx.new_cluster());
    apply(cx, &cluster.routes(vec![cluster.route(0, first)])).await?;
    apply(cx, &neighbour.routes(vec![neighbour.route(0, first)])).await?;
    let seen = |cluster: Cluster, n| async move {
        let found = route_to(cx, &cluster, &cluster.pod_cidr(n)).await?;
        expect::some(found, "a created route is listed")
    };
    let mine = seen(cluster.clone(), 0).await?;
    let theirs = seen(neighbour.clone(), 0).await?;
    let inside = ownerless(cx, &cluster, &cluster.pod_cidr(9), first).await?;
    let outside = ownerless(cx, &neighbour, &neighbour.pod_cidr(9), first).await?;

    let foul = Foul { cx, cluster: &cluster };
    if cx.has_route_tags() {
        foul.play("the key of another node", &mine, &cluster, 1, Some(first)).await?;
    } else {
        // Without tags, the instance in the request is the only evidence of ownership.
        cx.without(Need::Capability(ROUTE_TAGS));
        foul.play("a node with another instance", &mine, &cluster, 0, Some(second)).await?;
    }
    foul.play("a route of another cluster", &theirs, &neighbour, 0, Some(first)).await?;
    foul.play("a route without owner, request without instance", &inside, &cluster, 9, None).await?;
    foul.play("a route without owner, request with another instance", &inside, &cluster, 9, Some(second))
        .await?;
    foul.play("a route without owner, outside of the CIDRs", &outside, &neighbour, 9, Some(first)).await?;

    // Routes that the cluster owns are deleted. With tags, the destination may be outside of the cluster's CIDRs; without tags, it must be
    // inside.
    let elsewhere = vec![neighbour.cluster_cidr()];
    let own = deleting(&cluster, removal(&cluster.route(0, first)));
    let outside = ApplyRoutesRequest { cluster_cidrs: elsewhere, ..own.clone() };
    let results = apply(cx, &outside).await?;
    if cx.has_route_tags() {
        let wants = "a route of the cluster is deleted, although the cluster's CIDRs no longer contain it";
        became(&results, &[Outcome::Applied], wants)?;
    } else {
        let wants = "a route without owner is not deleted if the cluster's CIDRs no longer contain it";
        became(&results, &[Outcome::Unchanged], wants)?;
        is_as_it_was(cx, &cluster, &mine).await?;
        became(
            &apply(cx, &own).await?,
            &[Outcome::Applied],
            "a route of the cluster inside of its CIDRs is deleted",
        )?;
    }
    let untagged = removal(&cluster.route(9, first));
    let results = apply(cx, &deleting(&cluster, untagged)).await?;
    let wants =
        "a route without owner inside the CIDRs is deleted if its next hop is the instance of the node";
    became(&results, &[Outcome::Applied], wants)?;
    let left = cx.routes(&cluster).await?.items;
    expect::shown(left.is_empty(), "a deleted route is not listed", &left)
}

/// Deletions that the adapter must not execute.
struct Foul<'a> {
    cx: &'a Context,
    cluster: &'a Cluster,
}

impl Foul<'_> {
    /// Requests the deletion of a route for the n-th node of the cluster. Asserts that the cluster `sees` still lists the route unchanged.
    async fn play(
        &self,
        what: &str,
        route: &Route,
        sees: &Cluster,
        node: u16,
        machine: Option<&Instance>,
    ) -> Verdict {
        let key = RouteKey {
            cluster_id: self.cluster.id().to_owned(),
            node_uid: self.cluster.uid(&format!("node-{node}")),
            destination: route.destination.clone(),
        };
        let next_hop =
            machine.map(|machine| NextHop { provider_id: machine.provider_id.clone(), ..NextHop::default() });
        let delete = RouteDelete { key: Some(key), vendor_id: route.vendor_id.clone(), next_hop };
        let results = apply(self.cx, &deleting(self.cluster, delete)).await?;
        let removed = results.iter().any(|result| result.outcome() == Outcome::Applied);
        expect::shown(!removed, &format!("{what}: the deletion is not APPLIED"), &results)?;
        is_as_it_was(self.cx, sees, route).await
    }
}

fn deleting(cluster: &Cluster, delete: RouteDelete) -> ApplyRoutesRequest {
    ApplyRoutesRequest { deletes: vec![delete], ..cluster.routes(Vec::new()) }
}

/// route_service.proto, `RouteResult.Outcome`: an item is a CONFLICT, explained in `error`, if a route without owner, of another cluster or
/// of another node exists. That route stays unchanged, and the watch reports the overlap. Other items are applied.
pub(super) async fn conflict(cx: &Context) -> Verdict {
    let [first, second] = &cx.these_machines().await?;
    let (cluster, neighbour) = (cx.cluster(), cx.new_cluster());
    apply(cx, &cluster.routes(vec![cluster.route(2, first)])).await?;
    // The CIDRs of both clusters overlap, as after a configuration mistake.
    let mut intruder = neighbour.routes(vec![neighbour.route(1, first)]);
    intruder.cluster_cidrs = vec![cluster.cluster_cidr()];
    let keys = intruder.upserts.iter_mut().filter_map(|upsert| upsert.key.as_mut());
    keys.for_each(|key| key.destination = cluster.pod_cidr(1));
    apply(cx, &intruder).await?;
    let unowned = ownerless(cx, &cluster, &cluster.pod_cidr(0), first).await?;
    let wide = cluster.pod_cidr(64).replace("/28", "/26");
    let wide = ownerless(cx, &cluster, &wide, first).await?;
    let seen = |n| async move {
        let found = route_to(cx, &cx.cluster(), &cx.cluster().pod_cidr(n)).await?;
        expect::some(found, "a conflicting route is listed")
    };
    let (theirs, others) = (seen(1).await?, seen(2).await?);
    let flagged = if cx.has_route_tags() { RouteOwner::OtherCluster } else { RouteOwner::Unmanaged };
    expect::equal("another cluster's route is reported with the expected owner", &theirs.owner(), &flagged)?;

    let mut upserts: Vec<_> = (0..4).map(|n| cluster.route(n, second)).collect();
    let of_another_node = upserts.iter_mut().skip(2).take(1).filter_map(|upsert| upsert.key.as_mut());
    of_another_node.for_each(|key| key.node_uid = cluster.uid("node-7"));
    let results = apply(cx, &cluster.routes(upserts)).await?;
    let (in_the_way, laid) = (Outcome::Conflict, Outcome::Applied);
    let wants = "conflicting routes without owner, of another cluster and of another node are a \
                 CONFLICT each, and the last item is APPLIED";
    became(&results, &[in_the_way, in_the_way, in_the_way, laid], wants)?;
    for result in results.iter().filter(|result| result.outcome() == in_the_way) {
        let error = expect::some(result.error.clone(), "a CONFLICT is explained in `error`")?;
        expect::equal("the reason of a CONFLICT is OWNED_BY_OTHER", &error.reason(), &Reason::OwnedByOther)?;
    }
    for route in [unowned, theirs, others, wide] {
        is_as_it_was(cx, &cluster, &route).await?;
    }
    Ok(())
}
