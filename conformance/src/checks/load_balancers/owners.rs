//! Verifies the ownership of load balancers.

use std::{pin::pin, time::Duration};

use cloud_api_proto::{
    Reason,
    v1alpha1::{Adoption, EnsureLoadBalancerResponse, Known, LoadBalancer, VendorIds},
};
use futures::future;

use super::{keys, vendor_id};
use crate::checks::prelude::*;

/// Time within which an adapter makes its next write.
const NEXT_WRITE: Duration = Duration::from_secs(30);

/// load_balancer_service.proto, `LoadBalancerKey`: if Services in two clusters have the same name and UID, they have two load balancers
/// that are independent of each other.
pub(super) async fn of_two_clusters(cx: &Context) -> Verdict {
    let (here, there) = (cx.cluster(), another_cluster(cx)?);
    let machines = cx.machines(1).await?;
    let web = here.balancer("web").backends(&machines);
    let mut twin = there.balancer("web").backends(&machines);
    twin.request.key.get_or_insert_default().owner_uid = web.key().owner_uid;
    twin.request.owner.clone_from(&web.request.owner);
    let (one, other) = tokio::join!(cx.converge(&web), cx.converge(&twin));
    let (one, other) = (one?, other?);
    let apart = vendor_id(&one)? != vendor_id(&other)?;
    expect::that(apart, "two clusters never share a load balancer", || format!("{one:?}\n{other:?}"))?;
    expect::equal("a cluster's listing has only its own load balancers", &keys(cx).await?, &vec![web.key()])?;
    let before = cx.load_balancers(&there).await?.items;
    let owners: Vec<_> = before.iter().filter_map(|one| one.key.clone()).collect();
    expect::equal("a cluster's listing has only its own load balancers", &owners, &vec![twin.key()])?;
    cx.remove(&web).await?;
    let after = cx.load_balancers(&there).await?.items;
    expect::equal("a deletion in one cluster does not affect another cluster", &after, &before)
}

/// load_balancer_service.proto, `Adoption`, `DeleteLoadBalancer`: a load balancer of another Service or cluster is not adopted, changed or
/// deleted, even if the caller names its vendor ID.
pub(super) async fn of_others(cx: &Context) -> Verdict {
    let cluster = cx.cluster();
    let machines = cx.machines(1).await?;
    let mut others = vec![(cluster.clone(), cluster.balancer("mail").backends(&machines))];
    if let Ok(other) = another_cluster(cx) {
        others.push((other.clone(), other.balancer("web").backends(&machines)));
    }
    let made = others.iter().map(|(_, foreign)| cx.converge(foreign));
    let made = future::try_join_all(made).await?;
    let ids = made.iter().map(vendor_id).collect::<Result<Vec<_>, _>>()?;
    let seen = || future::try_join_all(others.iter().zip(&ids).map(|((theirs, _), id)| seen(cx, theirs, id)));
    let before = seen().await?;
    let web = cluster.balancer("web").backends(&machines);
    for id in &ids {
        let greedy = adopting(named(web.clone(), id), Adoption::ById);
        expect::refused(cx.ensure(&greedy).await?, Reason::OwnedByOther)?;
    }
    let misled = named(web.clone(), ids.last().copied().unwrap_or_default());
    let answer = cx.converge(&misled).await?;
    let own = !ids.contains(&vendor_id(&answer)?);
    expect::shown(own, "a wrong hint does not make the adapter use a foreign load balancer", &answer)?;
    for id in &ids {
        cx.remove(&named(web.clone(), id)).await?;
    }
    expect::equal("a load balancer of another owner is never changed", &seen().await?, &before)
}

/// load_balancer_service.proto, `Adoption`: a load balancer without owner does not change unless the caller asks to adopt it, by its ID or
/// by the key's name. Then the first write sets its tags. This is verified only if there is a proxy.
pub(super) async fn adoption(cx: &Context) -> Verdict {
    let cluster = cx.cluster();
    let machines = cx.machines(1).await?;
    let web = cluster.balancer("web").backends(&machines);
    let found = ownerless(cx, &format!("conformance-{}", cluster.id())).await?;
    let before = described(cx, &found).await?;
    let answer = cx.converge(&named(web.clone(), &found)).await?;
    let own = vendor_id(&answer)? != found;
    expect::shown(own, "without adoption a new load balancer is created", &answer)?;
    let items = cx.load_balancers(&cluster).await?.items;
    let name = expect::some(items.into_iter().next(), "an ACTIVE load balancer is listed")?.name;
    cx.remove(&web).await?;
    let wants = "without adoption the existing load balancer stays unchanged";
    expect::equal(wants, &described(cx, &found).await?, &before)?;
    taken_by_id(cx, &named(cluster.balancer("mail").backends(&machines), &found)).await?;

    let found = ownerless(cx, &name).await?;
    let before = described(cx, &found).await?;
    let web = web.fence(cluster.fence());
    expect::refused(cx.ensure(&web).await?, Reason::OwnedByOther)?;
    let wants = "without adoption the existing load balancer stays unchanged";
    expect::equal(wants, &described(cx, &found).await?, &before)?;
    let answer = cx.converge(&adopting(web, Adoption::IfUnowned)).await?;
    let wants = "IF_UNOWNED adopts the load balancer with the name of the key";
    expect::equal(wants, &vendor_id(&answer)?, &found.as_str())
}

async fn taken_by_id(cx: &Context, mail: &Balancer) -> Verdict {
    let mail = adopting(mail.clone(), Adoption::ById);
    let known = mail.request.known.clone().unwrap_or_default().vendor_ids.unwrap_or_default();
    let answer = match cx.proxy() {
        Ok(proxy) => tags_first(cx, proxy, &mail).await?,
        Err(_) => cx.converge(&mail).await?,
    };
    let id = known.ids.get("loadbalancer").map(String::as_str);
    expect::equal("BY_ID adopts the load balancer with that ID", &Some(vendor_id(&answer)?), &id)
}

/// Verifies the tags of an adopted load balancer before its second write.
async fn tags_first(
    cx: &Context,
    proxy: &Proxy,
    mail: &Balancer,
) -> Result<EnsureLoadBalancerResponse, Stop> {
    let second = proxy.inject(Rule::writes().nth(2), Action::HoldBefore);
    let mut adoption = pin!(cx.converge(mail));
    tokio::select! {
        // The adapter may need only one write, so the adoption may end before a second write is held.
        answer = &mut adoption => answer,
        held = second.reached(NEXT_WRITE) => {
            held?;
            let items = cx.load_balancers(&cx.cluster()).await?.items;
            let tagged = items.iter().any(|one| one.key == Some(mail.key()));
            let wants = "the first write to an adopted load balancer sets the owner tags";
            expect::that(tagged, wants, || format!("the listing has {items:?}"))?;
            second.release();
            adoption.await
        }
    }
}

fn another_cluster(cx: &Context) -> Result<Cluster, Stop> {
    match cx.lane().params.cluster_id {
        Some(_) => Err(Stop::skipped("lanes[].clusterId is set: the adapter serves one cluster")),
        None => Ok(cx.new_cluster()),
    }
}

fn named(mut balancer: Balancer, id: &str) -> Balancer {
    let ids = [("loadbalancer".to_owned(), id.to_owned())].into();
    balancer.request.known = Some(Known { vendor_ids: Some(VendorIds { ids }), ..Known::default() });
    balancer
}

fn adopting(mut balancer: Balancer, adoption: Adoption) -> Balancer {
    balancer.request.adoption = adoption.into();
    balancer
}

/// Creates a load balancer without an owner, as a user would.
async fn ownerless(cx: &Context, name: &str) -> Result<String, Stop> {
    let id = cx.hook(Hook::CreateLoadBalancer, &[("NAME", name)]).await?;
    cx.undo_by(Hook::DeleteLoadBalancer, vec![("VENDOR_ID", id.clone())]);
    Ok(id)
}

/// Returns the load balancer as listed for its cluster, and the vendor's description of it if there is a command for this.
async fn seen(cx: &Context, theirs: &Cluster, id: &str) -> Result<(Option<LoadBalancer>, String), Stop> {
    let items = cx.load_balancers(theirs).await?.items;
    Ok((items.into_iter().find(|one| one.vendor_id == id), described(cx, id).await?))
}

/// Returns the vendor's description. Empty if there is no command for this.
async fn described(cx: &Context, id: &str) -> Result<String, Stop> {
    let described = cx.optional_hook(Hook::DescribeLoadBalancer, &[("VENDOR_ID", id)]).await?;
    Ok(described.unwrap_or_default())
}
