//! Verifies results and cost of EnsureLoadBalancer.

use std::collections::BTreeSet;

use cloud_api_proto::v1alpha1::LoadBalancerState;
use futures::future;

use super::{keys, vendor_id};
use crate::checks::prelude::*;

const REPEATS: usize = 5;
const CALLERS: usize = 8;
/// The numbers of load balancers that are requested from a restarted adapter in two runs.
const FIRST_SERVICES: usize = 2;
const SERVICES: usize = 6;
/// The number of the adapter's own periodic calls that are tolerated. It is smaller than the number of load balancers, so one additional
/// call for each load balancer is noticed.
const OWN_CALLS: usize = 2;

/// load_balancer_service.proto, `EnsureLoadBalancer`: an Ensure that is repeated until ACTIVE returns addresses, the applied hash and
/// vendor IDs, and no retry delay.
pub(super) async fn reaches_active(cx: &Context) -> Verdict {
    let web = cx.web(2).await?;
    let answer = cx.converge(&web).await?;
    expect::shown(!answer.addresses.is_empty(), "an ACTIVE load balancer has an address", &answer)?;
    expect::shown(!answer.applied_hash.is_empty(), "an ACTIVE load balancer has its applied hash", &answer)?;
    let wants = "retry_after is set if and only if the load balancer is PENDING";
    expect::equal(wants, &answer.retry_after, &None)?;
    let listed = cx.load_balancers(&cx.cluster()).await?;
    let keys: Vec<_> = listed.items.iter().filter_map(|item| item.key.clone()).collect();
    expect::equal("the load balancer is listed, once, with its key", &keys, &vec![web.key()])?;
    cx.remove(&web).await?;
    let left = cx.load_balancers(&cx.cluster()).await?.items;
    expect::shown(left.is_empty(), "an ABSENT load balancer is not listed", &left)
}

/// load_balancer_service.proto, `EnsureLoadBalancer`: an Ensure without changes causes 0 vendor calls, according to `Cost` and to the
/// vendor.
pub(super) async fn repeat_is_free(cx: &Context) -> Verdict {
    let web = cx.web(2).await?;
    cx.converge(&web).await?;
    let mark = cx.proxy()?.mark();
    for _repeat in 0..REPEATS {
        let answer = cx.ensure(&web).await??;
        expect::equal("an ACTIVE load balancer stays ACTIVE", &answer.state(), &LoadBalancerState::Active)?;
        let cost = answer.cost.unwrap_or_default();
        expect::equal("the Cost without changes is 0 vendor calls", &cost.vendor_calls, &0)?;
    }
    // The adapter's periodic refreshes are listings, and they are fewer than the requests of this check.
    let calls = cx.proxy()?.since(mark);
    let caused = calls.only(|call| call.list.is_none());
    let few = caused.is_empty() && calls.len() < REPEATS;
    expect::that(few, "a repeated Ensure causes no vendor call", || calls.to_string())
}

/// load_balancer_service.proto, `EnsureLoadBalancer`: a restarted adapter reads the applied states from its listing. Load balancers in the
/// desired state cause no write and no separate call, only the shared listing. If the adapter reports that the vendor's listings have no
/// backends, it also reads each listener once.
pub(super) async fn after_restart(cx: &Context) -> Verdict {
    let machines = cx.machines(2).await?;
    let cluster = cx.cluster();
    let all: Vec<_> =
        (0..SERVICES).map(|n| cluster.balancer(&format!("web-{n}")).backends(&machines)).collect();
    let few = calls_after_restart(cx, all.get(..FIRST_SERVICES).unwrap_or_default()).await?;
    let many = calls_after_restart(cx, &all).await?;
    let read_each = cx.has_attribute("loadbalancers", "backends", "read-each");
    let own = if read_each { SERVICES.saturating_sub(FIRST_SERVICES) } else { 0 };
    let more = many.len().saturating_sub(few.len());
    let wants = "after a restart, one listing serves every Ensure that has nothing to do, for any number of load balancers";
    expect::that(more <= own.saturating_add(OWN_CALLS), wants, || {
        format!(
            "{} calls for {FIRST_SERVICES} load balancers, and for {SERVICES} load balancers {many}",
            few.len()
        )
    })
}

/// Returns the calls that a restarted adapter makes for load balancers in the desired state.
async fn calls_after_restart(cx: &Context, all: &[Balancer]) -> Result<Calls, Stop> {
    future::try_join_all(all.iter().map(|one| cx.converge(one))).await?;
    let mark = cx.proxy()?.mark();
    cx.process().restart().await?;
    let started = cx.proxy()?.mark();
    for one in all {
        cx.converge(one).await?;
    }
    cx.proxy()?
        .since(mark)
        .writes()
        .must_be_none("a load balancer in the desired state is not written again")?;
    Ok(cx.proxy()?.since(started))
}

/// load_balancer_service.proto, `EnsureLoadBalancer`: an identical request joins the work in progress. Many callers cause as many vendor
/// calls as a single caller, and all of them get the same answer.
pub(super) async fn identical_join(cx: &Context) -> Verdict {
    let machines = cx.machines(2).await?;
    let cluster = cx.cluster();
    let alone = writes_of(cx, &[cluster.balancer("alone").backends(&machines)]).await?;
    let web = cluster.balancer("web").backends(&machines);
    let joined = writes_of(cx, &vec![web.clone(); CALLERS]).await?;
    let wants = format!("{CALLERS} callers cause no more writes than one caller, which is {alone}");
    expect::that(joined <= alone, &wants, || format!("{joined} writes"))?;
    let made = keys(cx).await?.into_iter().filter(|key| *key == web.key()).count();
    expect::equal("all callers get one load balancer", &made, &1)
}

/// Sends these requests concurrently until all load balancers are ACTIVE and have the same ID. Returns the writes that the vendor accepted.
async fn writes_of(cx: &Context, same: &[Balancer]) -> Result<usize, Stop> {
    for balancer in same {
        cx.put(balancer).await?;
    }
    let mark = cx.proxy()?.mark();
    let api = cx.service()?;
    let first = same.iter().map(|one| api.ensure_load_balancer(one.request.clone()));
    // The adapter must not refuse a concurrent identical request.
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
