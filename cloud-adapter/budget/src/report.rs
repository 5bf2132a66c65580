//! How the scheduler does, for status streams and metrics.

use std::time::Duration;

use crate::{Class, Time};

/// The whole truth at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    /// One a bucket, by name.
    pub buckets: Vec<BucketReport>,
    /// One a family.
    pub breakers: Vec<(String, BreakerState)>,
    /// The breaker of the credentials.
    pub credentials: Option<BreakerState>,
    /// One a leaf that ever was used.
    pub leaves: Vec<LeafReport>,
}

/// One bucket.
#[derive(Clone, Debug, PartialEq)]
pub struct BucketReport {
    /// Its name.
    pub name: String,
    /// Calls a second that it grants now.
    pub rate: f64,
    /// Calls a second that are configured.
    pub ceiling: f64,
    /// Calls that may go at once now.
    pub tokens: f64,
    /// The rate at which throttling was met last.
    pub knee: Option<f64>,
    /// Nothing is sent until then.
    pub paused_until: Option<Time>,
    /// Calls a second that others spend of the same account.
    pub foreign_rate: f64,
    /// Calls that wait for it.
    pub queued: u64,
    /// Calls sent so far.
    pub calls: u64,
    /// Calls throttled so far, as the status said.
    pub throttled: u64,
    /// Times that the vendor's own count made the bucket emptier than ours.
    pub corrected: u64,
    /// Shadow mode: calls that would have been delayed.
    pub would_delay: u64,
    /// Shadow mode: the sum of those delays.
    pub would_delay_for: Duration,
}

/// Whether calls pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BreakerState {
    /// They do.
    Closed,
    /// None does, until then.
    Open {
        /// When the next call is tried.
        retry_at: Time,
    },
    /// One at a time, to find out.
    HalfOpen,
}

/// One queue: a class of a controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeafReport {
    /// The class.
    pub class: Class,
    /// The controller.
    pub controller: &'static str,
    /// Calls that wait.
    pub queued: u64,
}

/// Calls of one class of one controller that the same bucket keeps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueReport {
    /// The bucket: of all that they pay from, the one that keeps them the longest.
    pub bucket: String,
    /// The class.
    pub class: Class,
    /// The controller.
    pub controller: &'static str,
    /// Calls that wait.
    pub queued: u64,
    /// For how long the oldest has waited.
    pub oldest: Duration,
}
