//! Verifies changes of the desired state of existing load balancers.

use cloud_api_proto::{
    Reason,
    v1alpha1::{IpFamily, LoadBalancer, LoadBalancerState, Recreate, load_balancer_spec::Scheme},
};

use super::{keys, vendor_id};
use crate::checks::prelude::*;

/// load_balancer_service.proto, `LoadBalancer.applied_hash`: an added backend costs at most one write per pool, that is, per listener.
/// Listeners and tags do not change.
pub(super) async fn members(cx: &Context) -> Verdict {
    let machines = cx.machines(3).await?;
    let two = machines.get(..2).unwrap_or_default();
    let listeners = [tcp(80), tcp(443)];
    let web = cx.cluster().balancer("web").listeners(listeners.clone()).backends(two);
    let before = cx.converge(&web).await?;
    let listed = only(cx).await?;
    let more = web.backends(&machines);
    cx.put(&more).await?;
    let mark = cx.proxy()?.mark();
    let after = cx.converge(&more).await?;
    let writes = cx.proxy()?.since(mark).writes();
    let wants = "an added backend costs one write for each listener's backends, and no other write";
    let few = !writes.is_empty() && writes.len() <= listeners.len();
    expect::that(few, wants, || writes.to_string())?;
    expect::equal("the hash does not depend on backends", &after.applied_hash, &before.applied_hash)?;
    expect::equal("all parts of the load balancer keep their IDs", &after.vendor_ids, &before.vendor_ids)?;
    let joined = only(cx).await?;
    expect::equal("listeners stay unchanged", &joined.listeners, &listed.listeners)?;
    let more = joined.backends > listed.backends;
    expect::shown(more, "the listing counts the added backends", &joined)
}

/// load_balancer_service.proto, `EnsureLoadBalancer`: with `lb.in-place-update`, a changed port updates the existing load balancer, which
/// keeps its addresses.
pub(super) async fn ports(cx: &Context) -> Verdict {
    let web = cx.web(1).await?;
    let before = cx.converge(&web).await?;
    for (ports, listed) in
        [(vec![tcp(80), tcp(443)], vec!["tcp/443", "tcp/80"]), (vec![tcp(8080)], vec!["tcp/8080"])]
    {
        let after = cx.converge(&web.clone().fence(cx.cluster().fence()).listeners(ports)).await?;
        let wants = "another port does not recreate the load balancer";
        expect::equal(wants, &vendor_id(&after)?, &vendor_id(&before)?)?;
        expect::equal("another port keeps the addresses", &after.addresses, &before.addresses)?;
        let differs = after.applied_hash != before.applied_hash;
        expect::shown(differs, "another desired state has another hash", &after)?;
        let there = only(cx).await?.listeners;
        let there: Vec<&str> = there.iter().map(String::as_str).collect();
        expect::equal("the listing has the desired ports, and no others", &there, &listed)?;
    }
    Ok(())
}

/// load_balancer_service.proto, `Recreate`: a change that is impossible in place is refused with IMMUTABLE_FIELD, and nothing changes. If
/// the caller allows it, the adapter recreates the load balancer instead. In either case, there is one load balancer in the end.
pub(super) async fn immutable(cx: &Context) -> Verdict {
    let web = cx.web(1).await?;
    let before = cx.converge(&web).await?;
    let mut changes: Vec<(&str, Balancer)> = Vec::new();
    let next = || web.clone().fence(cx.cluster().fence());
    if cx.can("lb.internal") {
        changes.push(("scheme", web.clone().spec(|spec| spec.set_scheme(Scheme::Internal))));
    }
    if cx.can("lb.dual-stack") {
        let both = vec![IpFamily::Ipv4.into(), IpFamily::Ipv6.into()];
        changes.push(("ip_families", web.clone().spec(|spec| spec.ip_families = both)));
    }
    for (field, changed) in changes {
        // The fence must be newer than the fence of the request that restored the previous state.
        let changed = changed.fence(cx.cluster().fence());
        let error = match cx.ensure(&changed).await? {
            Err(error) if error.reason == Reason::ImmutableField => error,
            answer => {
                // This vendor can change the field in place, so the adapter must do that.
                answer?;
                let after = cx.converge(&changed).await?;
                let wants = "without permission, the load balancer is not recreated";
                expect::equal(wants, &vendor_id(&after)?, &vendor_id(&before)?)?;
                cx.converge(&next()).await?;
                continue;
            }
        };
        let named = error.metadata.get("fields").is_some_and(|fields| fields.contains(field));
        expect::that(named, "metadata `fields` names the field", || format!("{:?}", error.metadata))?;
        return follows_policy(cx, changed, vendor_id(&before)?).await;
    }
    Err(Stop::skipped("this vendor changes everything in place that the check can change"))
}

async fn follows_policy(cx: &Context, changed: Balancer, first: &str) -> Verdict {
    let with = |recreate: Recreate| {
        let mut balancer = changed.clone();
        balancer.request.set_recreate(recreate);
        balancer
    };
    for recreate in [Recreate::Never, Recreate::IfError] {
        expect::refused(cx.ensure(&with(recreate)).await?, Reason::ImmutableField)?;
    }
    let kept = only(cx).await?;
    expect::equal("a refused change leaves the load balancer unchanged", &kept.vendor_id.as_str(), &first)?;
    let wants = "a refused change leaves the load balancer unchanged";
    expect::equal(wants, &kept.state(), &LoadBalancerState::Active)?;
    let recreated = cx.converge(&with(Recreate::IfImmutableChanged)).await?;
    let other = vendor_id(&recreated)? != first;
    expect::shown(other, "with permission, the load balancer is recreated", &recreated)?;
    expect::equal("the new load balancer replaces the old one", &keys(cx).await?, &vec![changed.key()])
}

/// load_balancer_service.proto, `LoadBalancerKey`: names are only for display. The check renames the Service and the cluster, and changes
/// the class. There is still one load balancer with the key (the former one if the class is refused), and deleting it leaves nothing
/// behind.
pub(super) async fn names(cx: &Context) -> Verdict {
    let web = cx.web(1).await?;
    let before = cx.converge(&web).await?;
    let mut renamed = web.clone().fence(cx.cluster().fence());
    let owner = renamed.request.owner.get_or_insert_default();
    (owner.namespace, owner.name) = ("mall".to_owned(), "internet".to_owned());
    "renamed".clone_into(&mut renamed.request.context.get_or_insert_default().cluster_name);
    let after = cx.converge(&renamed).await?;
    let wants = "another name of the Service or the cluster does not create a second load balancer";
    expect::equal(wants, &vendor_id(&after)?, &vendor_id(&before)?)?;
    expect::equal(wants, &keys(cx).await?, &vec![web.key()])?;

    let class = Some("conformance.example/other".to_owned());
    let mut classed = renamed.fence(cx.cluster().fence()).spec(|spec| spec.class = class);
    classed.request.set_recreate(Recreate::IfImmutableChanged);
    match cx.ensure(&classed).await? {
        Err(error) if error.retry_after.is_none() => cx.note(format!("the class is refused: {error}")),
        Ok(_) | Err(_) => drop(cx.converge(&classed).await?),
    }
    let wants = "after a change of the class there is one load balancer with the key";
    expect::equal(wants, &keys(cx).await?, &vec![web.key()])?;
    cx.remove(&classed).await?;
    let left = cx.load_balancers(&cx.cluster()).await?.items;
    expect::shown(left.is_empty(), "nothing is left after the deletion", &left)
}

/// Returns the only load balancer of the check's cluster from a fresh listing, with its listeners in order.
pub(super) async fn only(cx: &Context) -> Result<LoadBalancer, Stop> {
    let mut items = cx.load_balancers(&cx.cluster()).await?.items;
    items.iter_mut().for_each(|one| one.listeners.sort_unstable());
    expect::shown(items.len() == 1, "the listing has exactly this load balancer", &items)?;
    expect::some(items.pop(), "the listing has exactly this load balancer")
}
