//! Crashes the adapter after each of its writes.

use std::pin::pin;

use futures::future::{Either, select};

use super::made_once::{balancer, none, number, one, undisturbed};
use crate::checks::prelude::*;

/// load_balancer_service.proto, `EnsureLoadBalancer` and `DeleteLoadBalancer`: a process dies after any vendor write of a creation or
/// deletion. The next process finds all objects. There is exactly one load balancer after the creation, and none after the deletion.
pub(super) async fn after_every_write(cx: &Context) -> Verdict {
    let machines = cx.machines(2).await?;
    let usual = undisturbed(cx, &machines).await?;
    for n in 1..=usual.builds {
        let web = balancer(cx, n, &machines);
        cx.put(&web).await?;
        die_at(cx, n, cx.settle(&web)).await?;
        cx.converge(&web).await?;
        one(cx, &web, &usual, &format!("killed during creation, write {n} of {}", usual.builds)).await?;
        cx.remove(&web).await?;
        none(cx, &usual, &format!("killed after write {n} of {}, then deleted", usual.builds)).await?;
    }
    for n in 1..=usual.removes {
        let web = balancer(cx, n, &machines);
        cx.converge(&web).await?;
        die_at(cx, n, cx.remove(&web)).await?;
        cx.remove(&web).await?;
        none(cx, &usual, &format!("killed during deletion, write {n} of {}", usual.removes)).await?;
    }
    Ok(())
}

/// Kills the adapter after the vendor has executed the n-th write of `work`, but before it answers. Then starts the adapter again.
async fn die_at<T>(cx: &Context, n: usize, work: impl Future<Output = Result<T, Stop>>) -> Verdict {
    let held = cx.proxy()?.inject(Rule::writes().nth(number(n)), Action::HoldAfter);
    let reached = held.reached(cx.params().timings.converge);
    match select(pin!(reached), pin!(work)).await {
        Either::Left((reached, _work)) => reached?,
        // With a fault, `work` may need fewer writes than without. Then the adapter is killed after `work` is done, and the result must
        // still be right.
        Either::Right((done, _reached)) => {
            done?;
            cx.note(format!("there was no vendor write {n}"));
        }
    }
    cx.process().kill().await?;
    drop(held);
    cx.process().start().await?;
    Ok(())
}
