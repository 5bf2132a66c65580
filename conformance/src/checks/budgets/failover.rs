//! Verifies that two processes share one budget.

use std::time::Duration;

use super::load;
use crate::checks::{budget, prelude::*};

/// The leader is the replica that reports `SERVING` for this service.
const SERVICE: &str = "cloudadapter.v1alpha1.RouteService";
/// The value of `SERVING` in grpc.health.v1.
const SERVING: i32 = 1;
/// A replica that does not answer within this time is not the leader.
const ANSWER: Duration = Duration::from_secs(2);

/// adapter_service.proto, `Budget`: one replica is killed under load and another replica takes over. The calls of both replicas together
/// stay within each bucket.
pub(super) async fn keeps_to_the_budget(cx: &Context) -> Verdict {
    let [machine] = &cx.these_machines().await?;
    let proxy = cx.proxy()?;
    let timings = &cx.params().timings;
    let mark = proxy.mark();
    load::under(load::routes(cx, machine), async {
        let wants = "one of the replicas is SERVING";
        let leader = cx.until(timings.ready, wants, || async { Ok(serving(cx, None).await) }).await?;
        tokio::time::sleep(timings.load).await;
        cx.replica_process(leader).kill().await?;
        let wants = "another replica takes over";
        let next = cx.until(timings.ready, wants, || async { Ok(serving(cx, Some(leader)).await) }).await?;
        cx.note(format!("replica {next} took over from {leader}"));
        let taken = proxy.mark();
        let wants = "the new leader calls the vendor";
        let calls = || proxy.since(taken).only(|call: &Call| call.status.is_some());
        cx.until(timings.ready, wants, || async { Ok((!calls().is_empty()).then_some(())) }).await?;
        tokio::time::sleep(timings.load).await;
        Ok(())
    })
    .await?;
    budget::kept(cx, &proxy.since(mark))
}

/// Returns the index of the replica that serves, ignoring the replica `but`.
async fn serving(cx: &Context, but: Option<usize>) -> Option<usize> {
    let replicas = cx.replicas(Role::RouteController).ok()?;
    for (number, replica) in replicas.iter().enumerate() {
        if Some(number) != but && matches!(replica.within(ANSWER).health(SERVICE).await, Ok(SERVING)) {
            return Some(number);
        }
    }
    None
}
