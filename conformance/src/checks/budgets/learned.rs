//! Verifies the adapter with a vendor whose limit is lower than the limit in the adapter's configuration.

use std::time::Duration;

use super::load;
use crate::checks::prelude::*;

/// The bucket of route writes.
const FAMILY: &str = "network";
/// Fraction of the configured rate that the vendor allows.
const PART: f64 = 0.4;
const BURST: u32 = 10;
/// The largest tolerated fraction of throttled calls after the rate has settled. It is not zero, because the adapter tries higher rates
/// from time to time.
const THROTTLED_MAX: f64 = 0.05;
/// The number of throttled calls that is tolerated even if the total number of calls is small.
const ALWAYS_TOLERATED: f64 = 2.0;
/// The smallest fraction of the allowed rate that the adapter must use. Most adapters use more; the tolerance is for busy hosts.
const USED_MIN: f64 = 0.5;

/// adapter_service.proto, `Budget.rate`: an adapter with a constant load is throttled. It soon sends about as many calls as the vendor
/// allows, so few calls are throttled.
pub(super) async fn settles(cx: &Context) -> Verdict {
    let [machine] = &cx.these_machines().await?;
    let bucket = cx.params().limits.buckets.get(FAMILY);
    let bucket = bucket.ok_or_else(|| Stop::skipped("limits.buckets has no bucket `network`"))?;
    let proxy = cx.proxy()?;
    let timings = &cx.params().timings;
    let in_bucket = |call: &Call| bucket.calls.matches(&call.method, &call.path);
    let begun = proxy.mark();
    let (allowed, mark) = load::under(load::routes(cx, machine), async {
        tokio::time::sleep(timings.load).await;
        // A slow vendor may keep the adapter from using its whole bucket even without throttling, so measure the rate first.
        let unlimited = passed(&proxy.since(begun).only(in_bucket)) / timings.load.as_secs_f64();
        let allowed = bucket.rate.min(unlimited) * PART;
        expect::that(allowed > 0.0, "creating and deleting routes makes vendor calls", || "none".to_owned())?;
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
        "{} calls in total, {} throttled; after settling {passed} passed and {throttled} throttled",
        all.len(),
        count(&all) - self::passed(&all)
    ));
    let learned = throttled <= (THROTTLED_MAX * count(&settled)).max(ALWAYS_TOLERATED);
    expect::that(learned, "after some time the vendor throttles few calls", || settled.to_string())?;
    let used = passed / (allowed * timings.load.as_secs_f64());
    expect::that(used >= USED_MIN, "the adapter uses the rate that the vendor allows", || {
        format!("{:.0} % of {allowed:.1} calls/s over {} s", used * 100.0, timings.load.as_secs())
    })
}

fn passed(calls: &Calls) -> f64 {
    count(&calls.only(|call| call.status.is_some_and(|status| status != 429)))
}

fn count(calls: &Calls) -> f64 {
    u32::try_from(calls.len()).unwrap_or(u32::MAX).into()
}
