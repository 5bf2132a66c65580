//! A clock that is set.

use crate::{
    check::{Stop, Verdict},
    checks::{bud, budget},
    context::Context,
    hooks::Hook,
};

/// An hour on, back, and an hour into the past and back: at the end the clock is as it was.
const JUMPS: [&str; 4] = ["3600", "-3600", "-3600", "3600"];

/// adapter_service.proto, `Budget`: a clock that jumps gives no calls away, and stops none.
pub(super) async fn jumps(cx: &Context) -> Verdict {
    let machines = cx.machines(1).await?;
    let machine = machines.first().ok_or_else(|| Stop::skipped("there is no machine"))?;
    let proxy = cx.proxy()?;
    let mark = proxy.mark();
    bud::under(bud::everything(cx, machine), async {
        for seconds in JUMPS {
            cx.hook(Hook::JumpClock, &[("SECONDS", seconds)]).await?;
            let jumped = proxy.mark();
            let wants = format!("vendor calls go on when the clock jumps by {seconds} s");
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
