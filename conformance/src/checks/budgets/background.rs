//! Verifies that urgent requests do not wait for background requests.

use std::time::Duration;

use cloud_api_proto::v1alpha1::{EnsureLoadBalancerResponse, Priority};
use futures::future;

use crate::checks::prelude::*;

/// The number of load balancers that are requested in the background. Each adds one write to the queue before the urgent write.
const BACKGROUND_BALANCERS: usize = 30;
/// The duration of the vendor's pause, during which the background requests queue up. It is longer than the adapter waits for the
/// completion of an Ensure.
const PAUSE: Duration = Duration::from_secs(5);

/// common.proto, `Priority`: an urgent request does not queue behind background requests. When a pause ends, the write of an urgent change
/// is among the first writes, although many background writes were requested earlier.
pub(super) async fn delays_no_ensure(cx: &Context) -> Verdict {
    let machines = cx.machines(2).await?;
    let cluster = cx.cluster();
    // The change only replaces the backends of an existing load balancer, so the path of the first write contains its ID.
    let urgent = |n| cluster.balancer("urgent").backends(machines.get(..n).unwrap_or_default());
    let built = cx.converge(&urgent(2)).await?;
    let proxy = cx.proxy()?;
    let mark = proxy.mark();
    let built = [built, cx.converge(&urgent(1)).await?];
    if its(&proxy.since(mark), &built).is_empty() {
        return Err(Stop::skipped(
            "the paths of vendor calls do not show which load balancer they belong to",
        ));
    }
    let resync = |n| {
        let mut one = cluster.balancer(&format!("resync-{n}")).backends(&machines);
        one.request.context.get_or_insert_default().priority = Priority::Background.into();
        one
    };
    let storm: Vec<Balancer> = (0..BACKGROUND_BALANCERS).map(resync).collect();
    let throttled = proxy.inject(Rule::writes().next(1), Action::Throttle(Some(PAUSE)));
    let api = cx.service()?;
    let asks = storm.iter().map(|one| api.ensure_load_balancer(one.request.clone()));
    future::join_all(asks).await;
    throttled.must_have_fired("an Ensure of a load balancer that does not exist causes a write")?;
    drop(throttled);

    let mark = proxy.mark();
    cx.converge(&urgent(2)).await?;
    let writes = proxy.since(mark).writes();
    let first = its(&writes, &built).0.first().map(|call| call.started);
    let first = expect::some(first, "a change of a load balancer causes a vendor write")?;
    let before = writes.only(|call| call.started < first).len();
    cx.note(format!(
        "{before} of {BACKGROUND_BALANCERS} background writes came before the urgent one, {} writes in total",
        writes.len()
    ));
    let wants = "a request that a user waits for does not queue behind requests with PRIORITY_BACKGROUND";
    expect::that(before < BACKGROUND_BALANCERS / 2, wants, || {
        format!("{before} of {BACKGROUND_BALANCERS} background writes came before the urgent one")
    })
}

/// Returns the writes for a load balancer. They are recognised by the IDs of the load balancer, its listeners and its pools.
fn its(calls: &Calls, reported: &[EnsureLoadBalancerResponse]) -> Calls {
    let ids: Vec<&str> = reported
        .iter()
        .filter_map(|answer| answer.vendor_ids.as_ref())
        .flat_map(|parts| parts.ids.values().map(String::as_str))
        .collect();
    calls.writes().only(|call| call.path.split(['/', '?', '&', '=']).any(|part| ids.contains(&part)))
}
