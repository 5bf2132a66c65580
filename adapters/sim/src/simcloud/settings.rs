//! The settings that affect all calls. The admin API reads and changes them as one value.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::error::ApiError;
use super::operation::{Family, Operation};
pub use super::quota::Quotas;

/// Maximum value of the page size.
pub const PAGE_MAX: usize = 500;

/// How the cloud behaves. Times are in milliseconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    /// Latency of responses.
    pub latency: Latency,
    /// Rate limits. A scope without an entry has no limit.
    pub rate_limits: BTreeMap<LimitedBy, RateLimit>,
    /// The delay until reads show a create, a change or a deletion, in milliseconds.
    pub consistency_ms: u64,
    /// The durations of changes to load balancers.
    pub provisioning: Provisioning,
    /// Quotas for each kind of object.
    pub quotas: Quotas,
    /// Maximum page size of listings.
    pub page_size_max: PageSize,
}

/// The latency of responses. Calls are executed when the request arrives; only the response is slow.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Latency {
    /// Latency of operations that `operations` does not name.
    pub default_ms: u64,
    /// The maximum random addition to the latency. The seed determines the random numbers.
    pub jitter_ms: u64,
    /// The latency of each operation that differs from the default.
    pub operations: BTreeMap<Operation, u64>,
}

/// The scope of a limit.
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

/// The settings of a token bucket.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RateLimit {
    /// The number of calls per second in the long run. It must be more than 0.
    pub rate: f64,
    /// The maximum number of calls in a burst, at least 1.
    pub burst: u32,
}

/// The durations of changes to load balancers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Provisioning {
    /// Time from the request until the load balancer is ACTIVE.
    pub create_ms: u64,
    /// The time for any change of the load balancer or of its listeners, pools and members.
    pub update_ms: u64,
    /// Time from the request until the load balancer is gone.
    pub delete_ms: u64,
}

impl Default for Provisioning {
    fn default() -> Self {
        Self { create_ms: 300, update_ms: 100, delete_ms: 100 }
    }
}

/// A page size, 1..=[`PAGE_MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PageSize(pub usize);

impl Default for PageSize {
    fn default() -> Self {
        Self(PAGE_MAX)
    }
}

impl Settings {
    /// Returns the consistency lag: the time from a write until reads show the write.
    pub(super) const fn lag(&self) -> Duration {
        Duration::from_millis(self.consistency_ms)
    }

    /// Returns a copy of the settings with `change` merged in according to RFC 7396. Objects are merged field by field, and `null` restores
    /// the default.
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
            // Reject lower rates. At less than one call in 11 days, tests should simulate an outage with a fault rule instead.
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
    fn update_changes_only_named_fields() {
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
    fn invalid_setting_is_refused_by_name() {
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
