//! Verifies the graceful shutdown of the leader.

use std::time::Duration;

use cloud_api_proto::{
    Reason,
    v1alpha1::{WatchInstancesRequest, WatchInstancesResponse},
};
use tokio::time::Instant;

use crate::checks::prelude::*;

/// `grpc.health.v1`: SERVING.
const SERVING: i32 = 1;
/// Limit for conditions without a deadline in the contract.
const TIMEOUT: Duration = Duration::from_secs(30);
/// The time limit for a takeover after the Lease was released, well below the time in which an unreleased Lease expires. Source:
/// replicas.md, "When the leader changes".
const HAND_OVER: Duration = Duration::from_secs(6);

/// common.proto, `REASON_DRAINING`: an adapter that is about to stop refuses new work with DRAINING and ends its watches with it. It
/// completes the vendor calls in flight, and releases its Lease. Another replica takes over at once. No call through the endpoint of all
/// replicas fails.
pub(super) async fn graceful(cx: &Context) -> Verdict {
    let web = cx.web(2).await?;
    cx.converge(&web).await?;
    let (at, leader) = leader(cx).await?;
    let mut watch = leader.watch_instances(watch_request(cx)).await?;
    watch.listing(TIMEOUT).await?;
    let load = load(cx)?;
    load.more(cx, 3).await?;

    let mark = cx.proxy()?.mark();
    let held = cx.proxy()?.inject(Rule::writes().next(1), Action::HoldBefore);
    let change = web.clone().listeners([tcp(81)]).fence(cx.cluster().fence());
    // The answer is PENDING, because the change waits for the call that the proxy holds.
    leader.ensure_load_balancer(change.request.clone()).await?;
    held.reached(TIMEOUT).await?;
    let process = cx.replica_process(at);
    let (stopped, drained) = tokio::join!(process.stop(), async {
        let drained = drains(cx, &leader).await;
        // Release the held call even after a failure, because the process cannot end while a call is held.
        held.release();
        drained?;
        farewell(&mut watch).await
    });
    drained?;
    stopped?;
    let gone = Instant::now();
    whole(cx, mark, gone).await?;
    taken_over(cx, at, gone).await?;
    load.more(cx, 3).await?;
    load.whole("no call through the endpoint of all replicas fails")?;
    cx.converge(&change).await?;
    let listing = cx.load_balancers(&cx.cluster()).await?;
    expect::equal("the next leader finishes the work: there is one load balancer", &listing.items.len(), &1)
}

/// Asserts that the vendor answered the calls that began before the process ended. Calls of the next leader may be in flight.
async fn whole(cx: &Context, mark: usize, gone: Instant) -> Verdict {
    let proxy = cx.proxy()?;
    let began = || proxy.since(mark).only(|call| call.started <= gone);
    let wants = "vendor calls in flight are answered or cut off";
    cx.until(TIMEOUT, wants, || async {
        Ok(began().0.iter().all(|call| call.ended.is_some()).then_some(()))
    })
    .await?;
    began()
        .only(|call| call.status.is_none())
        .must_be_none("vendor calls in flight are answered before the process ends")
}

fn watch_request(cx: &Context) -> WatchInstancesRequest {
    WatchInstancesRequest { context: Some(cx.cluster().context()), ..WatchInstancesRequest::default() }
}

/// Returns the index of the replica that serves, counted from 0, and its client.
async fn leader(cx: &Context) -> Result<(usize, Api), Stop> {
    let replicas = cx.replicas(Role::ServiceController)?;
    for (at, replica) in replicas.into_iter().enumerate() {
        if serves(&replica).await {
            return Ok((at, replica));
        }
    }
    Err(Stop::failed("one of the replicas serves", "no replica serves"))
}

async fn serves(replica: &Api) -> bool {
    let health = replica.health("cloudadapter.v1alpha1.LoadBalancerService").await;
    health.is_ok_and(|status| status == SERVING)
}

fn load(cx: &Context) -> Result<Load, Stop> {
    let (api, cluster) = (cx.service()?.off_record(), cx.cluster());
    let mut load = Load::default();
    load.add(move |_| {
        let (api, set) = (api.clone(), cluster.balancer("other").set);
        async move { Ok(api.put_backend_set(set).await.map(drop)?) }
    });
    Ok(load)
}

/// Asserts that new calls are refused with DRAINING while the process completes its vendor calls.
async fn drains(cx: &Context, leader: &Api) -> Verdict {
    let set = cx.cluster().balancer("late").set;
    let wants = "new calls are refused with DRAINING while the process completes its vendor calls";
    cx.until(TIMEOUT, wants, || async {
        match leader.put_backend_set(set.clone()).await {
            // The signal has not reached the process yet, so it still accepts calls.
            Ok(_) => Ok(None),
            Err(error) if error.reason == Reason::Draining => Ok(Some(())),
            Err(error) => Err(Stop::failed(wants, error.to_string())),
        }
    })
    .await?;
    let wants = "the health of the services is not SERVING while the process drains";
    expect::that(!serves(leader).await, wants, || "SERVING".to_owned())
}

async fn farewell(watch: &mut Watch<WatchInstancesResponse>) -> Verdict {
    let wants = "a watch ends with DRAINING";
    let end = Instant::now() + TIMEOUT;
    loop {
        match watch.next(end.saturating_duration_since(Instant::now())).await {
            Ok(Some(_)) => (),
            Ok(None) => return Err(Stop::failed(wants, "the stream ended without an error")),
            Err(error) => return expect::refused::<()>(Err(error), Reason::Draining).map(drop),
        }
    }
}

async fn taken_over(cx: &Context, left: usize, gone: Instant) -> Verdict {
    let replicas = cx.replicas(Role::ServiceController)?;
    let others: Vec<Api> =
        replicas.into_iter().enumerate().filter(|(at, _)| *at != left).map(|(_, api)| api).collect();
    let wants = "another replica serves at once after the leader released its Lease";
    cx.until(TIMEOUT, wants, || async {
        for other in &others {
            if serves(other).await {
                return Ok(Some(()));
            }
        }
        Ok(None)
    })
    .await?;
    let took = gone.elapsed();
    let wants = format!("{wants}: within {} s", HAND_OVER.as_secs());
    expect::that(took <= HAND_OVER, &wants, || format!("after {} ms", took.as_millis()))
}
