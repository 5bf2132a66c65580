//! Verifies that requests are carried out even if their callers do not wait for the answer.

use std::time::Duration;

use cloud_api_proto::v1alpha1::{LoadBalancer, LoadBalancerKey, LoadBalancerState};
use futures::future;

use crate::checks::prelude::*;

const CANCELLED_AFTER: [Duration; 6] = [
    Duration::from_millis(10),
    Duration::from_millis(25),
    Duration::from_millis(50),
    Duration::from_millis(100),
    Duration::from_millis(200),
    Duration::from_millis(400),
];
/// The time after which a request that was sent has certainly reached the adapter.
const HEARD: Duration = Duration::from_millis(200);
const PAUSE: Duration = Duration::from_millis(250);

/// load_balancer_service.proto, `EnsureLoadBalancer`: a cancelled call never interrupts the work. Each load balancer that the adapter began
/// to create becomes ACTIVE although the request is not repeated.
pub(super) async fn cuts_nothing(cx: &Context) -> Verdict {
    let machines = cx.machines(2).await?;
    let cluster = cx.cluster();
    let api = cx.service()?;
    let balancer =
        |wait: Duration| cluster.balancer(&format!("web-{}", wait.as_millis())).backends(&machines);
    let first = balancer(HEARD);
    cx.put(&first).await?;
    let mut heard: Vec<LoadBalancerKey> = Vec::new();
    let calls = CANCELLED_AFTER.map(|wait| {
        let web = balancer(wait);
        if wait >= HEARD {
            heard.push(web.key());
        }
        let api = api.clone();
        async move { tokio::time::timeout(wait, api.ensure_load_balancer(web.request)).await }
    });
    let answered = future::join_all(calls).await.iter().filter(|answer| answer.is_ok()).count();
    cx.note(format!(
        "{answered} of {} requests were answered before the caller cancelled",
        CANCELLED_AFTER.len()
    ));
    let wants = "a load balancer whose request was cancelled becomes ACTIVE without another request";
    cx.until(cx.params().timings.converge, wants, || async {
        let listed = cx.load_balancers(&cluster).await?.items;
        if done(&listed, &heard) {
            return Ok(Some(()));
        }
        cx.note(format!("listed: {:?}", listed.iter().map(LoadBalancer::state).collect::<Vec<_>>()));
        tokio::time::sleep(PAUSE).await;
        Ok(None)
    })
    .await?;
    let listed = cx.load_balancers(&cluster).await?.items;
    complete(&listed)
}

/// Returns whether there is a load balancer for every received request, and all load balancers are ACTIVE and complete.
fn done(listed: &[LoadBalancer], heard: &[LoadBalancerKey]) -> bool {
    let has = |key: &LoadBalancerKey| listed.iter().any(|item| item.key.as_ref() == Some(key));
    heard.iter().all(has) && complete(listed).is_ok()
}

fn complete(listed: &[LoadBalancer]) -> Result<(), Stop> {
    let whole = |item: &LoadBalancer| {
        item.state() == LoadBalancerState::Active
            && !item.applied_hash.is_empty()
            && item.listeners.len() == 1
            && item.backends == 2
    };
    expect::shown(listed.iter().all(whole), "a load balancer that is ACTIVE is complete", &listed)
}
