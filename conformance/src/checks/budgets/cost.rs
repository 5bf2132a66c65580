//! Verifies the Cost that answers report.

use std::time::Duration;

use cloud_api_proto::v1alpha1::{ApplyRoutesRequest, Cost, LoadBalancerState, route_result::Outcome};

use crate::checks::prelude::*;

/// The maximum number of reads that are compared. Only one read must match, because the adapter's own periodic listings disturb some of
/// them.
const READS: usize = 3;
const ROUTES: u16 = 3;

/// common.proto, `Cost`: the calls that an answer reports equal the calls that the vendor receives, in total and by family. For a change,
/// the costs of all answers are added up.
pub(super) async fn is_true(cx: &Context) -> Verdict {
    let machines = cx.machines(2).await?;
    let web = cx.cluster().balancer("web").backends(&machines);
    cx.put(&web).await?;
    compare(cx, "creating a load balancer", ensure(cx, &web)).await?;
    compare(cx, "deleting a load balancer", delete(cx, &web)).await?;
    if cx.can("routes") {
        let cluster = cx.cluster();
        let hops = machines.iter().cycle();
        let upserts: Vec<_> = (0..ROUTES).zip(hops).map(|(n, machine)| cluster.route(n, machine)).collect();
        let removal = ApplyRoutesRequest {
            deletes: upserts.iter().map(removal).collect(),
            ..cluster.routes(Vec::new())
        };
        compare(cx, "creating routes", apply(cx, cluster.routes(upserts))).await?;
        let removal = ApplyRoutesRequest { fence: Some(cluster.route_fence()), ..removal };
        compare(cx, "deleting routes", apply(cx, removal)).await?;
    }
    if cx.can("instances") { reads(cx).await } else { Ok(()) }
}

/// Compares the reported calls with the observed calls. The observed number has a lower and an upper bound, because the adapter's own
/// listings belong to no request.
async fn compare(cx: &Context, what: &str, work: impl Future<Output = Result<u64, Stop>>) -> Verdict {
    let proxy = cx.proxy()?;
    let mark = proxy.mark();
    let reported = work.await?;
    let calls = proxy.since(mark);
    let least = calls.only(|call| call.list.is_none()).len();
    let wants = format!("{what}: the Costs of the answers equal the calls that the vendor receives");
    let between = number(least) <= reported && reported <= number(calls.len());
    expect::that(between, &wants, || {
        format!(
            "{reported} calls reported; expected at least {least}, plus \
    listings, of {calls} received"
        )
    })
}

async fn reads(cx: &Context) -> Verdict {
    let machines = cx.machines(2).await?;
    let cluster = cx.cluster();
    let mut came = String::new();
    for _read in 0..READS {
        let mark = cx.proxy()?.mark();
        let request = cluster.instances(cluster.live(), machines.iter().map(|one| one.provider_id.as_str()));
        let answer = cx.node()?.batch_get_instances(request).await?;
        let reported = calls(answer.cost.as_ref())?;
        let seen = cx.proxy()?.since(mark);
        if reported > 0 && reported == number(seen.len()) {
            return Ok(());
        }
        came = format!("{reported} calls reported; the vendor received {seen}");
    }
    Err(Stop::failed("the Cost of a live read equals the calls that the vendor receives", came))
}

async fn ensure(cx: &Context, web: &Balancer) -> Result<u64, Stop> {
    let mut reported = 0;
    loop {
        let answer = cx.ensure(web).await??;
        reported += calls(answer.cost.as_ref())?;
        if answer.state() != LoadBalancerState::Pending {
            return Ok(reported);
        }
        pause(answer.retry_after).await;
    }
}

async fn delete(cx: &Context, web: &Balancer) -> Result<u64, Stop> {
    let (api, mut reported) = (cx.service()?, 0);
    loop {
        let answer = api.delete_load_balancer(web.removal()).await?;
        reported += calls(answer.cost.as_ref())?;
        if answer.state() == LoadBalancerState::Absent {
            return Ok(reported);
        }
        pause(answer.retry_after).await;
    }
}

async fn apply(cx: &Context, request: ApplyRoutesRequest) -> Result<u64, Stop> {
    let answer = cx.route()?.apply_routes(request).await?;
    let applied = answer.results.iter().all(|result| result.outcome() == Outcome::Applied);
    expect::that(applied, "all routes are APPLIED", || format!("{:?}", answer.results))?;
    calls(answer.cost.as_ref())
}

/// Returns the reported number of calls. First verifies that the numbers of the families add up to this number.
fn calls(cost: Option<&Cost>) -> Result<u64, Stop> {
    let cost = expect::some(cost, "an answer has a Cost")?;
    let families: u32 = cost.calls_by_family.values().sum();
    expect::equal("calls_by_family adds up to vendor_calls", &families, &cost.vendor_calls)?;
    Ok(cost.vendor_calls.into())
}

async fn pause(reported: Option<prost_types::Duration>) {
    let reported = reported.and_then(|reported| Duration::try_from(reported).ok());
    tokio::time::sleep(reported.unwrap_or_default()).await;
}

fn number(n: usize) -> u64 {
    u64::try_from(n).unwrap_or(u64::MAX)
}
