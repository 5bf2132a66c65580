//! Verifies budgets while the adapter's clock jumps.

use crate::checks::{budget, budgets, prelude::*};

/// One hour forward and back, then one hour back and forward, so that the clock is right at the end.
const JUMPS: [&str; 4] = ["3600", "-3600", "-3600", "3600"];

/// adapter_service.proto, `Budget`: a jump of the clock neither adds tokens nor stops calls.
pub(super) async fn jumps(cx: &Context) -> Verdict {
    let [machine] = &cx.these_machines().await?;
    let proxy = cx.proxy()?;
    let mark = proxy.mark();
    budgets::under(budgets::everything(cx, machine), async {
        for seconds in JUMPS {
            cx.hook(Hook::JumpClock, &[("SECONDS", seconds)]).await?;
            let jumped = proxy.mark();
            let wants = format!("vendor calls continue when the clock jumps by {seconds} s");
            cx.until(cx.params().timings.converge, &wants, || async {
                Ok((!proxy.since(jumped).is_empty()).then_some(()))
            })
            .await?;
            tokio::time::sleep(cx.params().timings.load).await;
        }
        Ok(())
    })
    .await?;
    budget::kept(cx, &proxy.since(mark))
}
