//! State of the scheduler, for status streams and metrics.

use std::time::Duration;

use crate::{Class, Time};

/// The complete state at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    /// The buckets, by name.
    pub buckets: Vec<BucketReport>,
    /// The families.
    pub breakers: Vec<(String, BreakerState)>,
    /// The circuit breaker of the credentials.
    pub credentials: Option<BreakerState>,
    /// The leaves that have been used.
    pub leaves: Vec<LeafReport>,
}

/// One bucket.
#[derive(Clone, Debug, PartialEq)]
pub struct BucketReport {
    /// Its name.
    pub name: String,
    /// Calls per second granted now.
    pub rate: f64,
    /// Configured calls per second.
    pub ceiling: f64,
    /// Calls that may be sent at once now.
    pub tokens: f64,
    /// The rate at which the vendor last throttled.
    pub knee: Option<f64>,
    /// End of the pause in which no call is sent.
    pub paused_until: Option<Time>,
    /// Calls per second that other clients of the account make.
    pub foreign_rate: f64,
    /// Calls that wait for this bucket.
    pub queued: u64,
    /// Calls sent so far.
    pub calls: u64,
    /// Calls throttled so far, by the response status.
    pub throttled: u64,
    /// How often the vendor's count was lower than the local one.
    pub corrected: u64,
    /// Shadow mode: number of calls that would have been delayed.
    pub would_delay: u64,
    /// Shadow mode: the sum of those delays.
    pub would_delay_for: Duration,
}

/// State of a circuit breaker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BreakerState {
    /// All calls pass.
    Closed,
    /// No call passes until `until`.
    Open {
        /// When the next call is tried.
        retry_at: Time,
    },
    /// One call at a time passes, as a test.
    HalfOpen,
}

/// One leaf: a class of a controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeafReport {
    /// The class.
    pub class: Class,
    /// The controller.
    pub controller: &'static str,
    /// Waiting calls.
    pub queued: u64,
}

/// Calls of one class of one controller that the same bucket delays.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueReport {
    /// The bucket that delays the calls the longest.
    pub bucket: String,
    /// The class.
    pub class: Class,
    /// The controller.
    pub controller: &'static str,
    /// Number of waiting calls.
    pub queued: u64,
    /// How long the oldest call has waited.
    pub oldest: Duration,
}
