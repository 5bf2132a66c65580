//! The cost of changes: the number of calls, and how long they take at the adapter's rates.

use std::collections::BTreeMap;

use jiff::SignedDuration;
use serde::{Deserialize, Serialize};
use telemetry::report::{AdapterStatus, Budget, VendorStep};

/// The bucket of the whole vendor account. Each call takes a token from this bucket and one from the bucket of its family.
const ACCOUNT: &str = "account";

/// The cost of the changes in one family.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Price {
    /// The family, such as `loadbalancer`.
    pub family: String,
    /// Number of calls that change something. Reads of the results are not included.
    pub calls: u64,
    /// The current rate, in calls per second. `None` if the adapter's page was not read, or does not show this bucket.
    pub rate: Option<f64>,
    /// The minimum time for the calls. `None` if the time is not known, or if the adapter currently sends no calls.
    pub at_least_seconds: Option<f64>,
}

pub(super) fn of<'a>(
    steps: impl Iterator<Item = &'a VendorStep>,
    adapter: Option<&AdapterStatus>,
) -> Vec<Price> {
    let mut calls: BTreeMap<&str, u64> = BTreeMap::new();
    for step in steps {
        *calls.entry(&step.family).or_default() += 1;
    }
    let price = |(family, calls): (&str, u64)| {
        let budget = adapter.and_then(|adapter| bucket(adapter, family).map(|bucket| (adapter, bucket)));
        Price {
            family: family.to_owned(),
            calls,
            rate: budget.map(|(_, bucket)| bucket.rate),
            at_least_seconds: budget.and_then(|(adapter, bucket)| seconds(calls, bucket, adapter)),
        }
    };
    calls.into_iter().map(price).collect()
}

/// Returns the longest time that any bucket needs. The buckets are those of the families and the shared bucket of the account.
pub(super) fn at_least(price: &[Price], adapter: Option<&AdapterStatus>) -> Option<f64> {
    if price.is_empty() {
        return Some(0.0);
    }
    let calls = price.iter().map(|it| it.calls).sum();
    let shared = adapter.and_then(|adapter| bucket(adapter, ACCOUNT).map(|it| seconds(calls, it, adapter)));
    let own = price.iter().map(|it| it.at_least_seconds);
    own.chain(shared).try_fold(0.0_f64, |longest, next| Some(longest.max(next?)))
}

fn bucket<'a>(adapter: &'a AdapterStatus, name: &str) -> Option<&'a Budget> {
    adapter.budgets.iter().find(|it| it.bucket == name)
}

/// Returns the time until the adapter has sent its queued calls and then these calls, at the current rate. Returns `None` if the adapter
/// currently sends no calls.
fn seconds(calls: u64, bucket: &Budget, adapter: &AdapterStatus) -> Option<f64> {
    #[expect(clippy::cast_precision_loss, reason = "call counts are far below 2^52")]
    let ahead = calls.saturating_add(bucket.queued) as f64 - bucket.tokens;
    let paused = bucket
        .paused_until
        .map_or(0.0, |until| until.duration_since(adapter.at).max(SignedDuration::ZERO).as_secs_f64());
    if ahead <= 0.0 {
        return Some(paused);
    }
    (bucket.rate > 0.0).then(|| paused + ahead / bucket.rate)
}
