//! Verifies fences: of two writers, the newer one wins.

use std::time::Duration;

use cloud_api_proto::{Reason, v1alpha1::LoadBalancerState};

use crate::checks::prelude::*;

/// The time within which an adapter begins to work on a request.
const BEGINS: Duration = Duration::from_secs(30);
/// A deadline that is too short to wait for completion. The adapter answers half a second before the deadline.
const SHORT_DEADLINE: Duration = Duration::from_secs(1);

/// load_balancer_service.proto, `EnsureLoadBalancer`: of two requests for one key, the request with the newer fence takes over, even while
/// the adapter works on the older request. The caller of the older request gets OPERATION_CONFLICT or PENDING, and later requests with its
/// fence are refused.
pub(super) async fn newer_supersedes(cx: &Context) -> Verdict {
    let cluster = cx.cluster();
    let machines = cx.machines(1).await?;
    let old = cluster.balancer("web").backends(&machines).fence(cluster.fence_of(1, 9));
    let new = old.clone().listeners([tcp(81)]).fence(cluster.fence_of(2, 1));
    cx.put(&old).await?;
    let api = cx.service()?;
    match cx.lane().proxy.as_ref() {
        Some(proxy) => taken_over(proxy, &api, &old, &new).await?,
        None => {
            // If the vendor is fast, the older request may be complete before the newer one arrives.
            cx.without(Need::Proxy);
            api.within(SHORT_DEADLINE).ensure_load_balancer(old.request.clone()).await?;
        }
    }
    cx.converge(&new).await?;
    expect::refused(api.ensure_load_balancer(old.request.clone()).await, Reason::StaleFence)?;
    expect::refused(api.delete_load_balancer(old.removal()).await, Reason::StaleFence)?;
    let listed = cx.load_balancers(&cluster).await?.items;
    let listeners: Vec<_> = listed.iter().map(|one| one.listeners.clone()).collect();
    let wants = "there is one load balancer, in the state that the newer writer requested";
    expect::equal(wants, &listeners, &vec![vec!["tcp/81".to_owned()]])?;
    let writer = listed.into_iter().find_map(|one| one.fence);
    let newest = writer.is_none() || writer == new.request.fence;
    expect::shown(newest, "the listing has the fence of the writer that completed it", &writer)
}

async fn taken_over(proxy: &Proxy, api: &Api, old: &Balancer, new: &Balancer) -> Verdict {
    let held = proxy.inject(Rule::writes().nth(1), Action::HoldAfter);
    let newer = async {
        held.reached(BEGINS).await?;
        let answer = api.within(SHORT_DEADLINE).ensure_load_balancer(new.request.clone()).await;
        held.release();
        Ok::<_, Stop>(answer)
    };
    let (older, newer) = tokio::join!(api.ensure_load_balancer(old.request.clone()), newer);
    let wants = "the caller whose work a newer writer took over gets OPERATION_CONFLICT or PENDING";
    let reported = match &older {
        Ok(answer) => answer.state() == LoadBalancerState::Pending,
        Err(error) => error.reason == Reason::OperationConflict,
    };
    expect::shown(reported, wants, &older)?;
    let newer = newer?;
    let refused = [Reason::OperationConflict, Reason::StaleFence];
    let taken = !matches!(&newer, Err(error) if refused.contains(&error.reason));
    expect::shown(taken, "the request with the newer fence takes over", &newer)
}

/// common.proto, `Fence`: the adapter refuses an older epoch of a scope, and an older sequence number for the same load balancer. It makes
/// no vendor write for such a request. Sequence numbers for different load balancers may arrive in any order.
pub(super) async fn stale_is_refused(cx: &Context) -> Verdict {
    let cluster = cx.cluster();
    let machines = cx.machines(1).await?;
    let web = cluster.balancer("web").backends(&machines).fence(cluster.fence_of(7, 5));
    let mail = cluster.balancer("mail").backends(&machines).fence(cluster.fence_of(6, 9));
    cx.converge(&web).await?;
    let api = cx.service()?;
    let mark = cx.proxy()?.mark();
    for (epoch, sequence) in [(6, 9), (7, 4)] {
        let old = web.clone().listeners([tcp(81)]).fence(cluster.fence_of(epoch, sequence));
        expect::refused(api.ensure_load_balancer(old.request.clone()).await, Reason::StaleFence)?;
        expect::refused(api.delete_load_balancer(old.removal()).await, Reason::StaleFence)?;
    }
    // The highest epoch applies to all objects of its scope.
    expect::refused(api.ensure_load_balancer(mail.request.clone()).await, Reason::StaleFence)?;
    cx.proxy()?.since(mark).writes().must_be_none("a stale writer writes nothing")?;
    let again = cx.ensure(&web).await??;
    expect::equal("the newest writer may repeat its request", &again.state(), &LoadBalancerState::Active)?;
    let listed = cx.load_balancers(&cluster).await?.items;
    let listeners: Vec<_> = listed.into_iter().map(|one| one.listeners).collect();
    expect::equal("a stale writer changes nothing", &listeners, &vec![vec!["tcp/80".to_owned()]])?;
    cx.ensure(&mail.fence(cluster.fence_of(7, 1))).await??;
    Ok(())
}
