//! Verifies load balancers that are in ERROR, changed by hand, busy or incomplete.

use std::time::Duration;

use cloud_api_proto::v1alpha1::{
    EnsureLoadBalancerResponse, LoadBalancerState, Recreate, WatchLoadBalancersRequest,
};
use tokio::time::Instant;

use super::{changes::only, keys, vendor_id};
use crate::checks::prelude::*;

/// Time within which an adapter makes its next write.
const NEXT_WRITE: Duration = Duration::from_secs(30);
const CONFLICTS: u64 = 2;

/// load_balancer_service.proto, `LOAD_BALANCER_STATE_ERROR`: answers and listings report a load balancer in the vendor's error state as
/// ERROR, with a condition. It is recreated only with permission, and can be deleted.
pub(super) async fn vendor_error(cx: &Context) -> Verdict {
    let web = cx.web(1).await?;
    let first = cx.converge(&web).await?;
    let broken = broken(cx, &web, vendor_id(&first)?).await?;
    expect::equal("an ERROR answer has no retry delay", &broken.retry_after, &None)?;
    let reported = broken.conditions.iter().any(|one| !one.r#type.is_empty() && !one.message.is_empty());
    let wants = "a condition explains why the load balancer is not in the desired state";
    expect::shown(reported, wants, &broken)?;
    let listed = only(cx).await?;
    let wants = "the listing shows the load balancer in ERROR";
    expect::equal(wants, &listed.state(), &LoadBalancerState::Error)?;
    let wants = "without permission the load balancer is not recreated";
    expect::equal(wants, &listed.vendor_id.as_str(), &vendor_id(&first)?)?;

    let mut again = web.clone().fence(cx.cluster().fence());
    again.request.set_recreate(Recreate::IfError);
    let second = cx.converge(&again).await?;
    let other = vendor_id(&second)? != vendor_id(&first)?;
    expect::shown(other, "with permission the load balancer is recreated", &second)?;
    expect::equal("the new load balancer replaces the old one", &keys(cx).await?, &vec![web.key()])?;

    let last = web.fence(cx.cluster().fence());
    self::broken(cx, &last, vendor_id(&second)?).await?;
    cx.remove(&last).await?;
    let left = cx.load_balancers(&cx.cluster()).await?.items;
    expect::shown(left.is_empty(), "a load balancer in ERROR can be deleted", &left)
}

/// Sets a load balancer to ERROR, and repeats a live Ensure until the answer shows the error.
async fn broken(cx: &Context, web: &Balancer, id: &str) -> Result<EnsureLoadBalancerResponse, Stop> {
    cx.hook(Hook::BreakLoadBalancer, &[("VENDOR_ID", id)]).await?;
    let mut live = web.clone();
    live.request.context = Some(cx.cluster().live());
    let wants = "a load balancer in the vendor's error state is answered with ERROR";
    let observe = || async {
        let answer = cx.ensure(&live).await??;
        Ok((answer.state() == LoadBalancerState::Error).then_some(answer))
    };
    cx.until(cx.params().timings.converge, wants, observe).await
}

/// load_balancer_service.proto, `EnsureLoadBalancer`: if the vendor answers with a conflict because its last change is in progress, the
/// answer is PENDING and not an error.
pub(super) async fn busy(cx: &Context) -> Verdict {
    let machines = cx.machines(1).await?;
    let web = cx.cluster().balancer("web").listeners([tcp(80), tcp(443)]).backends(&machines);
    cx.converge(&web).await?;
    let refused = cx.proxy()?.inject(Rule::writes().next(CONFLICTS), Action::Answer(409));
    let more = web.fence(cx.cluster().fence()).listeners([tcp(80), tcp(443), tcp(8443)]);
    let end = Instant::now() + cx.params().timings.converge;
    loop {
        let answer = cx.ensure(&more).await??;
        if answer.state() == LoadBalancerState::Active {
            break;
        }
        let wants = "a load balancer that is not ready is PENDING";
        expect::equal(wants, &answer.state(), &LoadBalancerState::Pending)?;
        let pause = expect::some(answer.retry_after, "PENDING has a retry delay (retry_after)")?;
        expect::shown(Instant::now() < end, "the load balancer becomes ACTIVE", &answer)?;
        tokio::time::sleep(pause.try_into().unwrap_or_default()).await;
    }
    let tried = refused.fired() == CONFLICTS;
    let wants = "an added listener causes a write, which is repeated after a conflict";
    expect::that(tried, wants, || {
        format!("the vendor answered with {} of {CONFLICTS} conflicts", refused.fired())
    })?;
    let there = only(cx).await?.listeners;
    let wanted = ["tcp/443", "tcp/80", "tcp/8443"].map(str::to_owned).to_vec();
    expect::equal("the change is complete", &there, &wanted)
}

/// load_balancer_service.proto, `WatchLoadBalancers`: load balancers that are incomplete or no longer requested are listed with key, owner
/// and vendor IDs, so that the caller can delete them.
pub(super) async fn partial(cx: &Context) -> Verdict {
    let machines = cx.machines(1).await?;
    let web = cx.cluster().balancer("web").listeners([tcp(80), tcp(443)]).backends(&machines);
    cx.put(&web).await?;
    let held = cx.proxy()?.inject(Rule::writes().from(2), Action::HoldBefore);
    let answer = cx.service()?.ensure_load_balancer(web.request.clone()).await?;
    expect::equal("an incomplete load balancer is PENDING", &answer.state(), &LoadBalancerState::Pending)?;
    held.reached(NEXT_WRITE).await?;
    let half = only(cx).await?;
    let state = half.state();
    let unfinished = state != LoadBalancerState::Active || half.applied_hash.is_empty();
    let wants = "an incomplete load balancer is not listed as complete: it has no applied hash";
    expect::shown(unfinished, wants, &half)?;
    let wants = "an incomplete load balancer is listed with its key from the first write on";
    expect::equal(wants, &half.key, &Some(web.key()))?;
    let wants = "an incomplete load balancer is listed with its owner from the first write on";
    expect::equal(wants, &half.owner, &web.request.owner)?;
    held.release();
    drop(held);
    // The request is not repeated, so the load balancer is an orphan. The adapter finishes the work in progress.
    let wants = "work in progress belongs to the adapter, and continues without the caller";
    let observe = || async {
        let listed = only(cx).await?;
        let done = listed.state() == LoadBalancerState::Active && !listed.applied_hash.is_empty();
        Ok(done.then_some(listed))
    };
    let orphan = cx.until(cx.params().timings.converge, wants, observe).await?;
    expect::equal("an orphan is listed with its key", &orphan.key, &Some(web.key()))?;
    expect::equal("an orphan is listed with its owner", &orphan.owner, &web.request.owner)?;
    let ids = orphan.vendor_ids.unwrap_or_default().ids;
    let id = ids.get("loadbalancer").map(String::as_str);
    expect::equal("vendor_ids has the orphan's ID as `loadbalancer`", &id, &Some(orphan.vendor_id.as_str()))
}

/// load_balancer_service.proto, `EnsureLoadBalancer`: if the request is repeated, the adapter corrects a manual change within the drift
/// period, and then makes no further change. The adapter must notice the change by itself: the check watches, as controllers do, and makes
/// no live request.
pub(super) async fn drift(cx: &Context) -> Verdict {
    let machines = cx.machines(2).await?;
    let web = cx.cluster().balancer("web").listeners([tcp(80), tcp(443)]).backends(&machines);
    let answer = cx.converge(&web).await?;
    let before = only(cx).await?;
    let watched = WatchLoadBalancersRequest { context: Some(cx.cluster().context()), ..Default::default() };
    let mut mirror = cx.service()?.watch_load_balancers(watched).await?;
    mirror.listing(cx.params().timings.ready).await?;
    cx.hook(Hook::DriftLoadBalancer, &[("VENDOR_ID", vendor_id(&answer)?)]).await?;
    let mark = cx.proxy()?.mark();
    let wants = "a change by hand is corrected within the drift period";
    let observe = || async {
        cx.converge(&web).await?;
        Ok((!cx.proxy()?.since(mark).writes().is_empty()).then_some(()))
    };
    cx.until(cx.params().timings.drift, wants, observe).await?;
    drop(mirror);
    let repaired = only(cx).await?;
    expect::equal("the correction restores all listeners", &repaired.listeners, &before.listeners)?;
    expect::equal("the correction restores all backends", &repaired.backends, &before.backends)?;
    expect::equal("the corrected load balancer is ACTIVE", &repaired.state(), &LoadBalancerState::Active)?;
    let wants = "the correction does not recreate the load balancer";
    expect::equal(wants, &repaired.vendor_id, &before.vendor_id)?;
    expect::equal("the correction keeps the addresses", &repaired.addresses, &before.addresses)?;
    let mark = cx.proxy()?.mark();
    cx.converge(&web).await?;
    cx.proxy()?.since(mark).writes().must_be_none("the corrected load balancer is not written again")
}
