//! What an Ensure brings about, and what it costs.

use std::collections::BTreeSet;

use cloud_api_proto::v1alpha1::LoadBalancerState;
use futures::future;

use super::{keys, vendor_id};
use crate::{
    check::{Stop, Verdict},
    cluster::Balancer,
    context::Context,
    expect,
    proxy::Calls,
};

/// Times that an Ensure is repeated.
const REPEATS: usize = 5;
/// Callers that ask for the same at once.
const CALLERS: usize = 8;
/// Load balancers that a restarted adapter is asked for: first some, then all.
const SOME: usize = 2;
const SERVICES: usize = 6;
/// Calls that an adapter makes by itself meanwhile, now and then. Fewer than a call for each load balancer would be.
const OWN_CALLS: usize = 2;

/// load_balancer_service.proto, `EnsureLoadBalancer`: repeated until ACTIVE, it answers addresses, the applied hash and vendor IDs,
/// and no retry delay any more.
pub(super) async fn reaches_active(cx: &Context) -> Verdict {
    let machines = cx.machines(2).await?;
    let web = cx.cluster().balancer("web").backends(&machines);
    let answer = cx.converge(&web).await?;
    expect::that(!answer.addresses.is_empty(), "an ACTIVE load balancer has an address", || {
        format!("{answer:?}")
    })?;
    expect::that(!answer.applied_hash.is_empty(), "an ACTIVE load balancer has its applied hash", || {
        format!("{answer:?}")
    })?;
    expect::equal("retry_after is set if and only if PENDING", &answer.retry_after, &None)?;
    let listed = cx.load_balancers(&cx.cluster()).await?;
    let keys: Vec<_> = listed.items.iter().filter_map(|item| item.key.clone()).collect();
    expect::equal("the mirror has it, once, under its key", &keys, &vec![web.key()])?;
    cx.remove(&web).await?;
    let left = cx.load_balancers(&cx.cluster()).await?.items;
    expect::that(left.is_empty(), "what is ABSENT is not in the mirror", || format!("{left:?}"))
}

/// load_balancer_service.proto, `EnsureLoadBalancer`: nothing to do costs 0 vendor calls, as `Cost` says and as the vendor sees.
pub(super) async fn repeat_is_free(cx: &Context) -> Verdict {
    let machines = cx.machines(2).await?;
    let web = cx.cluster().balancer("web").backends(&machines);
    cx.converge(&web).await?;
    let mark = cx.proxy()?.mark();
    for _repeat in 0..REPEATS {
        let answer = cx.ensure(&web).await??;
        expect::equal("what is ACTIVE stays ACTIVE", &answer.state(), &LoadBalancerState::Active)?;
        let cost = answer.cost.unwrap_or_default();
        expect::equal("the Cost of nothing to do is 0 vendor calls", &cost.vendor_calls, &0)?;
    }
    // What an adapter refreshes by itself meanwhile are listings, and less often than this asks.
    let calls = cx.proxy()?.since(mark);
    let caused = calls.only(|call| call.list.is_none());
    let few = caused.is_empty() && calls.len() < REPEATS;
    expect::that(few, "the vendor sees no call for a repeated Ensure", || calls.to_string())
}

/// load_balancer_service.proto, `EnsureLoadBalancer`: a restarted adapter knows from its listing what was applied. Load balancers that
/// are as desired cost it no write and no call of their own, only what it lists for all of them; and one read for each listener, once,
/// where the adapter says that the vendor's listings do not tell backends.
pub(super) async fn after_restart(cx: &Context) -> Verdict {
    let machines = cx.machines(2).await?;
    let cluster = cx.cluster();
    let all: Vec<_> =
        (0..SERVICES).map(|n| cluster.balancer(&format!("web-{n}")).backends(&machines)).collect();
    let few = calls_after_restart(cx, all.get(..SOME).unwrap_or_default()).await?;
    let many = calls_after_restart(cx, &all).await?;
    let read_each = cx.has_attribute("loadbalancers", "backends", "read-each");
    let own = if read_each { SERVICES.saturating_sub(SOME) } else { 0 };
    let more = many.len().saturating_sub(few.len());
    let wants =
        "after a restart one listing serves every Ensure that has nothing to do, however many there are";
    expect::that(more <= own.saturating_add(OWN_CALLS), wants, || {
        format!("{} calls for {SOME} load balancers; for {SERVICES} {many}", few.len())
    })
}

/// The calls that a restarted adapter makes for load balancers that are as desired.
async fn calls_after_restart(cx: &Context, all: &[Balancer]) -> Result<Calls, Stop> {
    future::try_join_all(all.iter().map(|one| cx.converge(one))).await?;
    let mark = cx.proxy()?.mark();
    cx.process().restart().await?;
    let started = cx.proxy()?.mark();
    for one in all {
        cx.converge(one).await?;
    }
    let writes = cx.proxy()?.since(mark).writes();
    expect::that(writes.is_empty(), "what is as desired is not written again", || writes.to_string())?;
    Ok(cx.proxy()?.since(started))
}

/// load_balancer_service.proto, `EnsureLoadBalancer`: the same request joins the work under way. Many callers cost the vendor what one
/// does, and all are answered the same.
pub(super) async fn identical_join(cx: &Context) -> Verdict {
    let machines = cx.machines(2).await?;
    let cluster = cx.cluster();
    let alone = writes_of(cx, &[cluster.balancer("alone").backends(&machines)]).await?;
    let web = cluster.balancer("web").backends(&machines);
    let joined = writes_of(cx, &vec![web.clone(); CALLERS]).await?;
    let wants = format!("{CALLERS} callers cost no more than one does, which is {alone} writes");
    expect::that(joined <= alone, &wants, || format!("{joined} writes"))?;
    let made = keys(cx).await?.into_iter().filter(|key| *key == web.key()).count();
    expect::equal("they get one load balancer", &made, &1)
}

/// Asks for all of these at once, until all are ACTIVE and have the same ID. Answers the writes that the vendor accepted meanwhile.
async fn writes_of(cx: &Context, same: &[Balancer]) -> Result<usize, Stop> {
    for balancer in same {
        cx.put(balancer).await?;
    }
    let mark = cx.proxy()?.mark();
    let api = cx.service()?;
    let first = same.iter().map(|one| api.ensure_load_balancer(one.request.clone()));
    // Nobody is refused because another asks for the same.
    for answer in future::join_all(first).await {
        answer?;
    }
    let answers = future::try_join_all(same.iter().map(|one| cx.converge(one))).await?;
    let ids = answers.iter().map(vendor_id).collect::<Result<BTreeSet<_>, _>>()?;
    expect::equal("the same request gets the same load balancer", &ids.len(), &1)?;
    let accepted = |status: u16| (200..300).contains(&status);
    let writes = cx.proxy()?.since(mark).only(|call| call.write && call.status.is_some_and(accepted));
    cx.note(writes.to_string());
    Ok(writes.len())
}
