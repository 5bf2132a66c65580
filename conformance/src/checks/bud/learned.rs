//! A vendor that allows less than the adapter was told.

use std::time::Duration;

use super::load;
use crate::{
    check::{Stop, Verdict},
    context::Context,
    expect,
    proxy::{Action, Call, Calls, Rule},
};

/// The bucket of route writes.
const FAMILY: &str = "network";
/// What the vendor allows of the configured rate.
const PART: f64 = 0.4;
/// Calls that the vendor allows at once.
const BURST: u32 = 10;
/// Of the calls after the rate has settled, so many may be throttled: it looks upwards now and then …
const THROTTLED_MAX: f64 = 0.05;
/// … and where there are few calls, so often.
const LOOKS_MAX: f64 = 2.0;
/// Of what the vendor allows, so much is used at least. Most adapters use more; machines are busy.
const USED_MIN: f64 = 0.5;

/// adapter_service.proto, `Budget.rate`: an adapter that always has something to send, and is throttled, soon sends about what the vendor
/// allows, and is hardly throttled any more.
pub(super) async fn settles(cx: &Context) -> Verdict {
    let machines = cx.machines(1).await?;
    let machine = machines.first().ok_or_else(|| Stop::skipped("there is no machine"))?;
    let bucket = cx.params().limits.buckets.get(FAMILY);
    let bucket =
        bucket.ok_or_else(|| Stop::skipped("limits.buckets: there is none of the network family"))?;
    let proxy = cx.proxy()?;
    let timings = &cx.params().timings;
    let in_bucket = |call: &Call| bucket.calls.matches(&call.method, &call.path);
    let begun = proxy.mark();
    let (allowed, mark) = load::under(load::routes(cx, machine), async {
        tokio::time::sleep(timings.load).await;
        // A vendor that answers slowly is not asked as often as the bucket would let pass, even without a limit.
        let unlimited = passed(&proxy.since(begun).only(in_bucket)) / timings.load.as_secs_f64();
        let allowed = bucket.rate.min(unlimited) * PART;
        expect::that(allowed > 0.0, "routes that come and go make vendor calls", || "none".to_owned())?;
        let limit = Action::Limit { every: Duration::from_secs_f64(allowed.recip()), burst: BURST };
        let _limit = proxy.inject(Rule::all().calls(bucket.calls.clone()), limit);
        tokio::time::sleep(timings.settle).await;
        let mark = proxy.mark();
        tokio::time::sleep(timings.load).await;
        Ok((allowed, mark))
    })
    .await?;
    let (all, settled) = (proxy.since(begun).only(in_bucket), proxy.since(mark).only(in_bucket));
    let (passed, throttled) = (passed(&settled), count(&settled) - passed(&settled));
    cx.note(format!(
        "{} calls in all, {} throttled; then {passed} passed and {throttled} throttled",
        all.len(),
        count(&all) - self::passed(&all)
    ));
    let learned = throttled <= (THROTTLED_MAX * count(&settled)).max(LOOKS_MAX);
    expect::that(learned, "after a while the vendor hardly throttles any more", || settled.to_string())?;
    let used = passed / (allowed * timings.load.as_secs_f64());
    expect::that(used >= USED_MIN, "what the vendor allows is used", || {
        format!("{:.0} % of {allowed:.1} calls/s over {} s", used * 100.0, timings.load.as_secs())
    })
}

/// Calls that the vendor took.
fn passed(calls: &Calls) -> f64 {
    count(&calls.only(|call| call.status.is_some_and(|status| status != 429)))
}

fn count(calls: &Calls) -> f64 {
    u32::try_from(calls.len()).unwrap_or(u32::MAX).into()
}
