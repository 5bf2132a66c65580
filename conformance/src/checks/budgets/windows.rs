//! Verifies the number of calls in any window of time.

use super::load;
use crate::checks::{budget, prelude::*};

/// adapter_service.proto, `Budget`: no window of time contains more vendor calls than the burst and the rate allow, whatever callers
/// request. Work still continues.
pub(super) async fn bound_holds(cx: &Context) -> Verdict {
    let [machine] = &cx.these_machines().await?;
    let proxy = cx.proxy()?;
    let (mark, time) = (proxy.mark(), cx.params().timings.load);
    let lasts = || async {
        tokio::time::sleep(time).await;
        Ok(())
    };
    load::under(load::everything(cx, machine), lasts()).await?;
    if cx.can("routes") {
        // This load only changes routes, so nearly all calls are of one family.
        load::under(load::routes(cx, machine), lasts()).await?;
    }
    let calls = proxy.since(mark);
    cx.note(format!("{} vendor calls in {} s", calls.len(), time.as_secs_f64()));
    expect::that(!calls.is_empty(), "live reads and changes cause vendor calls", || "none".to_owned())?;
    budget::kept(cx, &calls)
}
