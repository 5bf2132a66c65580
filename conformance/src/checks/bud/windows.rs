//! What may be sent in any time.

use super::load;
use crate::{
    check::{Stop, Verdict},
    checks::budget,
    context::Context,
    expect,
};

/// adapter_service.proto, `Budget`: whatever callers ask for, in any window of time there are no more vendor calls than the burst and what
/// the rate adds; and work goes on.
pub(super) async fn bound_holds(cx: &Context) -> Verdict {
    let machines = cx.machines(1).await?;
    let machine = machines.first().ok_or_else(|| Stop::skipped("there is no machine"))?;
    let proxy = cx.proxy()?;
    let (mark, time) = (proxy.mark(), cx.params().timings.load);
    let lasts = || async {
        tokio::time::sleep(time).await;
        Ok(())
    };
    load::under(load::everything(cx, machine), lasts()).await?;
    if cx.can("routes") {
        // One family alone: the most calls that callers can bring about.
        load::under(load::routes(cx, machine), lasts()).await?;
    }
    let calls = proxy.since(mark);
    cx.note(format!("{} vendor calls in {} s", calls.len(), time.as_secs_f64()));
    expect::that(!calls.is_empty(), "live reads and changes make vendor calls", || "none".to_owned())?;
    budget::kept(cx, &calls)
}
