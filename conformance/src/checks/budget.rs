//! Verifies limits as the vendor observes them.

use crate::{checks::prelude::*, params::BucketParams};

/// The fraction of the burst that is tolerated. On a busy host, calls that were sent at different times may arrive together.
const BUNCHED: f64 = 0.4;

/// adapter_service.proto, `Budget`: asserts that `calls` stay within each bucket of the parameter file. `calls` must contain all calls
/// since some moment.
pub(super) fn kept(cx: &Context, calls: &Calls) -> Verdict {
    for (name, bucket) in &cx.params().limits.buckets {
        let most = overdraft(calls, bucket);
        let wants = format!(
            "bucket {name} stays within {} calls/s with a burst of {} in every window",
            bucket.rate, bucket.burst
        );
        expect::that(most <= BUNCHED * bucket.burst, &wants, || {
            format!(
                "{most:.1} calls more than the bucket allows in one window, of {} calls in total",
                calls.len()
            )
        })?;
    }
    Ok(())
}

/// Returns the largest number of calls by which a bucket was exceeded. Uses a token bucket, as the vendor would do.
fn overdraft(calls: &Calls, bucket: &BucketParams) -> f64 {
    let covered = |call: &&Call| bucket.calls.matches(&call.method, &call.path);
    let (mut tokens, mut worst, mut last) = (bucket.burst, 0.0_f64, None);
    for at in calls.0.iter().filter(covered).map(|call| call.started) {
        let since = last.map_or(0.0, |last| at.saturating_duration_since(last).as_secs_f64());
        tokens = (tokens + since * bucket.rate).min(bucket.burst) - 1.0;
        worst = worst.max(-tokens);
        last = Some(at);
    }
    worst
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use http::Method;
    use tokio::time::Instant;

    use super::*;
    use crate::params::VendorParams;

    #[test]
    fn overdraft_is_computed_as_in_a_token_bucket() {
        let start = Instant::now();
        let call = |millis| Call {
            started: start + Duration::from_millis(millis),
            ..Call::new(Method::POST, "/routes".to_owned(), &VendorParams::default())
        };
        let bucket = |calls: &str| BucketParams {
            rate: 10.0,
            burst: 2.0,
            calls: regex::Regex::new(calls).expect("is valid").into(),
        };
        for (times, over) in [(vec![0, 0, 100, 200], 0.0), (vec![0, 0, 0, 100, 100], 2.0)] {
            let calls = Calls(times.iter().copied().map(call).collect());
            assert!((overdraft(&calls, &bucket(" /routes")) - over).abs() < 1e-9, "{times:?}");
            assert!(overdraft(&calls, &bucket(" /instances")) < 1e-9);
        }
    }
}
