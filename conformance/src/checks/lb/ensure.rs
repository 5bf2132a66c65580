//! What an Ensure brings about, and what it costs.

use cloud_api_proto::v1alpha1::LoadBalancerState;

use crate::{check::Verdict, context::Context, expect};

/// Times that an Ensure is repeated.
const REPEATS: usize = 5;

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
