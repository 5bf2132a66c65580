//! State of the scheduler, for status streams and metrics.

use std::time::Duration;

use crate::{Class, Time};

/// The complete state of the scheduler at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    /// The state of the buckets, by name.
    pub buckets: Vec<BucketReport>,
    /// The state of the families.
    pub breakers: Vec<(String, BreakerState)>,
    /// The state of the circuit breaker of the credentials.
    pub credentials: Option<BreakerState>,
    /// The state of the leaves that have been used.
    pub leaves: Vec<LeafReport>,
}

/// The state of one bucket.
#[derive(Clone, Debug, PartialEq)]
pub struct BucketReport {
    /// The name of the bucket.
    pub name: String,
    /// Current rate in calls per second.
    pub rate: f64,
    /// Configured rate in calls per second.
    pub ceiling: f64,
    /// Number of calls that may be sent at once now.
    pub tokens: f64,
    /// The rate at which the vendor last throttled.
    pub knee: Option<f64>,
    /// End of the current pause; no call is sent before it.
    pub paused_until: Option<Time>,
    /// Number of calls per second that other clients of the account make.
    pub foreign_rate: f64,
    /// Number of calls that wait for this bucket.
    pub queued: u64,
    /// Number of calls sent so far.
    pub calls: u64,
    /// Number of calls that the vendor throttled, as the response status showed.
    pub throttled: u64,
    /// Number of times that the vendor's count was lower than the local count.
    pub corrected: u64,
    /// Shadow mode: number of calls that the limits would have delayed.
    pub would_delay: u64,
    /// Shadow mode: the sum of the delays that the limits would have caused.
    pub would_delay_for: Duration,
}

/// State of a circuit breaker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BreakerState {
    /// All calls pass.
    Closed,
    /// No call passes before `retry_at`.
    Open {
        /// Time at which the next call is tried.
        retry_at: Time,
    },
    /// One call at a time passes, to test the vendor.
    HalfOpen,
}

/// State of one leaf, that is, of a class of a controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeafReport {
    /// The class of the calls.
    pub class: Class,
    /// The controller that makes the calls.
    pub controller: &'static str,
    /// Number of queued calls.
    pub queued: u64,
}

/// Calls of one leaf (a class of a controller) that the same bucket delays.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueReport {
    /// The bucket that delays the calls the longest.
    pub bucket: String,
    /// The class of the calls.
    pub class: Class,
    /// The controller that makes the calls.
    pub controller: &'static str,
    /// Number of queued calls.
    pub queued: u64,
    /// Time for which the oldest call has waited.
    pub oldest: Duration,
}
