//! The nuisances that are always on, as one value that the admin API shows and changes.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::error::ApiError;
use super::operation::{Family, Operation};
pub use super::quota::Quotas;

/// The largest page that can be set.
pub const PAGE_MAX: usize = 500;

/// How the cloud behaves. Times are milliseconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    /// How long answers take.
    pub latency: Latency,
    /// How often callers may call; what is not listed is not limited.
    pub rate_limits: BTreeMap<LimitedBy, RateLimit>,
    /// After how long readers see what was created, changed or deleted.
    pub consistency_ms: u64,
    /// How long load balancers take to follow.
    pub provisioning: Provisioning,
    /// How many of each kind there may be.
    pub quotas: Quotas,
    /// The largest page that a listing answers.
    pub page_size_max: PageSize,
}

/// How long answers take. The work itself is done when the request arrives, as if the way back were slow.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Latency {
    /// For operations that are not listed.
    pub default_ms: u64,
    /// Up to this much is added, by the seed.
    pub jitter_ms: u64,
    /// For some operations.
    pub operations: BTreeMap<Operation, u64>,
}

/// What a limit covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LimitedBy {
    /// All calls.
    Account,
    /// Calls of [`Family::Identity`].
    Identity,
    /// Calls of [`Family::Compute`].
    Compute,
    /// Calls of [`Family::Loadbalancer`].
    Loadbalancer,
    /// Calls of [`Family::Network`].
    Network,
}

impl LimitedBy {
    /// The limits that a call of this family counts against.
    pub(super) const fn of(family: Family) -> [Self; 2] {
        let own = match family {
            Family::Identity => Self::Identity,
            Family::Compute => Self::Compute,
            Family::Loadbalancer => Self::Loadbalancer,
            Family::Network => Self::Network,
        };
        [Self::Account, own]
    }
}

/// A token bucket.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RateLimit {
    /// Calls a second in the long run, more than 0.
    pub rate: f64,
    /// Calls that may come at once after a pause, at least 1.
    pub burst: u32,
}

/// How long load balancers take to follow.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Provisioning {
    /// From the order to ACTIVE.
    pub create_ms: u64,
    /// For any change of the load balancer or of what is below it.
    pub update_ms: u64,
    /// From the order to gone.
    pub delete_ms: u64,
}

impl Default for Provisioning {
    fn default() -> Self {
        Self { create_ms: 300, update_ms: 100, delete_ms: 100 }
    }
}

/// A number of items, 1..=[`PAGE_MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PageSize(pub usize);

impl Default for PageSize {
    fn default() -> Self {
        Self(PAGE_MAX)
    }
}

impl Settings {
    /// The time between a write and its visibility.
    pub(super) const fn lag(&self) -> Duration {
        Duration::from_millis(self.consistency_ms)
    }

    /// A copy with `change` merged in as RFC 7396 says: objects field by field, `null` goes back to the default.
    pub(super) fn patched(&self, change: &Value) -> Result<Self, ApiError> {
        if !change.is_object() {
            return Err(ApiError::invalid("body", "must be an object with the settings to change"));
        }
        let mut merged = serde_json::to_value(self).map_err(|error| ApiError::invalid("body", error))?;
        merge(&mut merged, change);
        let settings: Self =
            serde_json::from_value(merged).map_err(|error| ApiError::invalid("body", error))?;
        settings.check()?;
        Ok(settings)
    }

    fn check(&self) -> Result<(), ApiError> {
        for limit in self.rate_limits.values() {
            // Slower than once in 11 days is an outage, and a fault rule says that better.
            if !limit.rate.is_finite() || limit.rate < 1e-6 {
                return Err(ApiError::invalid("rate_limits.*.rate", "must be a number of at least 0.000001"));
            }
            if limit.burst == 0 {
                return Err(ApiError::invalid("rate_limits.*.burst", "must be at least 1"));
            }
        }
        if !(1..=PAGE_MAX).contains(&self.page_size_max.0) {
            return Err(ApiError::invalid("page_size_max", format!("must be 1 to {PAGE_MAX}")));
        }
        Ok(())
    }
}

fn merge(target: &mut Value, change: &Value) {
    let (Value::Object(target), Value::Object(change)) = (&mut *target, change) else {
        target.clone_from(change);
        return;
    };
    for (key, value) in change {
        if value.is_null() {
            target.remove(key);
        } else {
            merge(target.entry(key.clone()).or_insert(Value::Null), value);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_change_touches_only_what_it_names() {
        let settings = Settings::default();
        let slow = settings.patched(&json!({ "latency": { "operations": { "ListRoutes": 40 } } })).unwrap();
        assert_eq!(slow.latency.operations, BTreeMap::from([(Operation::ListRoutes, 40)]));
        let both = slow.patched(&json!({ "rate_limits": { "compute": { "rate": 2, "burst": 5 } } })).unwrap();
        assert_eq!(both.latency, slow.latency);
        let back = both.patched(&json!({ "latency": { "operations": { "ListRoutes": null } } })).unwrap();
        assert_eq!(back.rate_limits[&LimitedBy::Compute].burst, 5);
        assert_eq!(back.latency, settings.latency);
    }

    #[test]
    fn a_wrong_setting_is_refused_and_named() {
        for (change, named) in [
            (json!({ "latencies": {} }), "latencies"),
            (json!({ "latency": { "operations": { "ListInstance": 1 } } }), "ListInstance"),
            (json!({ "rate_limits": { "compute": { "rate": 0, "burst": 5 } } }), "rate"),
            (json!({ "rate_limits": { "compute": { "rate": 1, "burst": 0 } } }), "burst"),
            (json!({ "page_size_max": 501 }), "page_size_max"),
            (json!({ "consistency_ms": -1 }), "-1"),
            (json!([]), "body"),
        ] {
            let error = Settings::default().patched(&change).unwrap_err();
            assert!(error.message.contains(named), "{change}: {error}");
        }
    }
}
