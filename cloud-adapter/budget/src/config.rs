//! What an operator may set. Checked by whoever reads the file; everything here is taken as it is.

use std::{collections::BTreeMap, time::Duration};

use crate::Class;

/// The whole configuration of the scheduler.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Whether limits hold or are only counted.
    pub mode: Mode,
    /// Buckets by name: `account`, families, `<family>:<operation>`. A family without one gets [`BucketConfig::unconfigured`].
    pub buckets: BTreeMap<String, BucketConfig>,
    /// Part of each burst that is kept for calls that may use the reserve, 0 to 1.
    pub reserve: f64,
    /// Part of the vendor's own count that is left to people and other tools, 0 to 1. Needs [`crate::Hint`].
    pub free_floor: f64,
    /// Shares of the classes.
    pub weights: Weights,
    /// Bounds of the queues.
    pub queue: QueueLimits,
    /// Calls in flight, by family; those not named get 16.
    pub concurrency: BTreeMap<String, u32>,
    /// Deadlines of calls. Applied by whoever makes them.
    pub deadline: Deadlines,
    /// When a family is given a rest.
    pub breaker: BreakerLimits,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            mode: Mode::Enforce,
            buckets: BTreeMap::new(),
            reserve: 0.3,
            free_floor: 0.2,
            weights: Weights::default(),
            queue: QueueLimits::default(),
            concurrency: BTreeMap::new(),
            deadline: Deadlines::default(),
            breaker: BreakerLimits::default(),
        }
    }
}

/// Whether limits hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// They do.
    #[default]
    Enforce,
    /// What would have been delayed is counted and not delayed.
    Shadow,
}

/// One token bucket.
#[derive(Clone, Debug, PartialEq)]
pub struct BucketConfig {
    /// The bucket that also pays, beside the family of the call. `None`: `account`, if there is one and this is not it.
    pub parent: Option<String>,
    /// Calls a second and at once; the ceiling of the adaptive rate.
    pub limit: RateLimit,
    /// How the rate follows the vendor. `None`: it does not.
    pub adaptive: Option<Adaptive>,
}

impl BucketConfig {
    /// What a family gets that nobody configured: slow, and never "unlimited".
    #[must_use]
    pub fn unconfigured() -> Self {
        Self { parent: None, limit: RateLimit { rate: 5.0, burst: 10 }, adaptive: Some(Adaptive::default()) }
    }
}

/// Calls a second, and calls at once after a rest.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RateLimit {
    /// Calls a second, above 0.
    pub rate: f64,
    /// Calls at once, at least 1.
    pub burst: u32,
}

impl RateLimit {
    /// From a vendor's limit of `limit` calls in any window of `window`, so that no window ever holds more than `safety` of
    /// them: rate = (limit x safety - burst) / window. `None` if the burst alone is too much.
    #[must_use]
    pub fn within(limit: f64, window: Duration, burst: u32, safety: f64) -> Option<Self> {
        let rate = (limit * safety - f64::from(burst)) / window.as_secs_f64();
        (rate > 0.0 && rate.is_finite()).then_some(Self { rate, burst })
    }
}

/// How a rate follows a vendor that throttles.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Adaptive {
    /// The rate never falls below it, calls a second.
    pub floor: f64,
    /// What a throttle leaves of the rate, 0 to 1.
    pub decrease: f64,
}

impl Default for Adaptive {
    fn default() -> Self {
        Self { floor: 0.2, decrease: 0.7 }
    }
}

/// Shares of the classes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Weights {
    /// Of [`Class::Traffic`].
    pub traffic: u32,
    /// Of [`Class::Interactive`].
    pub interactive: u32,
    /// Of [`Class::Lifecycle`].
    pub lifecycle: u32,
    /// Of [`Class::Background`].
    pub background: u32,
}

impl Default for Weights {
    fn default() -> Self {
        Self { traffic: 8, interactive: 8, lifecycle: 3, background: 1 }
    }
}

impl Weights {
    /// The share of a class, at least 1: no class starves.
    #[must_use]
    pub fn of(&self, class: Class) -> u32 {
        let weight = match class {
            Class::Traffic => self.traffic,
            Class::Interactive => self.interactive,
            Class::Lifecycle => self.lifecycle,
            Class::Background => self.background,
        };
        weight.max(1)
    }
}

/// Bounds of the queues, in calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueLimits {
    /// In all.
    pub total: usize,
    /// Of one class of one controller.
    pub per_leaf: usize,
    /// About one object.
    pub per_object: usize,
}

impl Default for QueueLimits {
    fn default() -> Self {
        Self { total: 8192, per_leaf: 2048, per_object: 32 }
    }
}

/// Deadlines of calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deadlines {
    /// Of a request that names none.
    pub default: Duration,
    /// No request gets more.
    pub max: Duration,
}

impl Default for Deadlines {
    fn default() -> Self {
        Self { default: Duration::from_secs(30), max: Duration::from_mins(1) }
    }
}

/// When a family is given a rest.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BreakerLimits {
    /// The time that is looked at.
    pub window: Duration,
    /// Calls in it, before anything is concluded.
    pub min_calls: u32,
    /// Part of them that failed, 0 to 1.
    pub failure_ratio: f64,
    /// The first rest.
    pub open: Duration,
    /// The longest rest; each failed probe doubles it.
    pub open_max: Duration,
}

impl Default for BreakerLimits {
    fn default() -> Self {
        Self {
            window: Duration::from_secs(30),
            min_calls: 20,
            failure_ratio: 0.5,
            open: Duration::from_secs(15),
            open_max: Duration::from_mins(2),
        }
    }
}
