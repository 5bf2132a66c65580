//! Settings of the scheduler. The code that reads the configuration file validates them; this crate does not.

use std::{collections::BTreeMap, time::Duration};

use crate::Class;

/// The whole configuration of the scheduler.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Whether the limits are enforced. Otherwise the scheduler only counts the delays that they would cause.
    pub mode: Mode,
    /// Buckets by name: `account`, families, `<family>:<operation>`. A family without a bucket gets [`BucketConfig::unconfigured`].
    pub buckets: BTreeMap<String, BucketConfig>,
    /// Share of each burst that is kept for calls whose field `reserve` is set, 0 to 1.
    pub reserve: f64,
    /// Share of the vendor's limit that is left to users and other tools, 0 to 1. Requires [`crate::Hint`].
    pub free_floor: f64,
    /// Weights of the classes.
    pub weights: Weights,
    /// Upper bounds of the queues.
    pub queue: QueueLimits,
    /// Maximum number of calls in flight per family; 16 for families without an entry.
    pub concurrency: BTreeMap<String, u32>,
    /// Deadlines of calls. Applied by the code that makes the calls, not by this crate.
    pub deadline: Deadlines,
    /// Conditions under which the circuit breaker of a family opens.
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

/// Whether limits are enforced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Limits are enforced.
    #[default]
    Enforce,
    /// Delays that the limits would cause are counted, but not enforced.
    Shadow,
}

/// One token bucket.
#[derive(Clone, Debug, PartialEq)]
pub struct BucketConfig {
    /// Parent bucket, from which a call also takes its tokens. `None`: `account`, if that exists and is not this bucket.
    pub parent: Option<String>,
    /// Rate and burst; the rate is the upper bound of the adaptive rate.
    pub limit: RateLimit,
    /// How the rate adapts to the vendor. `None`: the rate is fixed.
    pub adaptive: Option<Adaptive>,
}

impl BucketConfig {
    /// Limit of a family that is not configured: slow, but never unlimited.
    #[must_use]
    pub fn unconfigured() -> Self {
        Self { parent: None, limit: RateLimit { rate: 5.0, burst: 10 }, adaptive: Some(Adaptive::default()) }
    }
}

/// Sustained rate and burst.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RateLimit {
    /// Calls per second, above 0.
    pub rate: f64,
    /// Number of calls that may be sent at once, at least 1.
    pub burst: u32,
}

impl RateLimit {
    /// Limit that sends at most `safety` of the vendor's `limit` calls in any window of length `window`: rate = (limit x safety - burst) /
    /// window. `None` if the burst alone exceeds `limit` x `safety`.
    #[must_use]
    pub fn within(limit: f64, window: Duration, burst: u32, safety: f64) -> Option<Self> {
        let rate = (limit * safety - f64::from(burst)) / window.as_secs_f64();
        (rate > 0.0 && rate.is_finite()).then_some(Self { rate, burst })
    }
}

/// How a rate adapts to a vendor that throttles.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Adaptive {
    /// Lower bound of the rate, in calls per second.
    pub floor: f64,
    /// Factor by which a throttle reduces the rate, 0 to 1.
    pub decrease: f64,
}

impl Default for Adaptive {
    fn default() -> Self {
        Self { floor: 0.2, decrease: 0.7 }
    }
}

/// Weights with which the classes share a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Weights {
    /// Weight of [`Class::Traffic`].
    pub traffic: u32,
    /// Weight of [`Class::Interactive`].
    pub interactive: u32,
    /// Weight of [`Class::Lifecycle`].
    pub lifecycle: u32,
    /// Weight of [`Class::Background`].
    pub background: u32,
}

impl Default for Weights {
    fn default() -> Self {
        Self { traffic: 8, interactive: 8, lifecycle: 3, background: 1 }
    }
}

impl Weights {
    /// The weight of a class. At least 1, so that no class starves.
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

/// Upper bounds of the queues, in calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueLimits {
    /// Maximum number of queued calls in total.
    pub total: usize,
    /// Maximum number of queued calls per leaf, that is, per class of one controller.
    pub per_leaf: usize,
    /// Maximum number of queued calls per object.
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
    /// Default deadline of requests that set none.
    pub default: Duration,
    /// Longest deadline.
    pub max: Duration,
}

impl Default for Deadlines {
    fn default() -> Self {
        Self { default: Duration::from_secs(30), max: Duration::from_mins(1) }
    }
}

/// Conditions under which the circuit breaker of a family opens.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BreakerLimits {
    /// Length of the time window in which calls are counted.
    pub window: Duration,
    /// Minimum number of calls in the window before the breaker may open.
    pub min_calls: u32,
    /// Share of failed calls that opens the breaker, 0 to 1.
    pub failure_ratio: f64,
    /// Duration of the first period in which the breaker is open.
    pub open: Duration,
    /// Duration of the longest period in which the breaker is open. Each failed probe doubles the duration, up to this limit.
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
