//! Outcome of a call, as far as the budget needs it.

use std::time::Duration;

/// The result of a call.
#[derive(Clone, Debug)]
pub struct Answer {
    /// How it ended.
    pub outcome: Outcome,
    /// From sending the request to receiving the whole response.
    pub latency: Duration,
    /// The rate limit that the vendor reported, if any.
    pub hint: Option<Hint>,
}

/// How a call ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The vendor answered, including refusals that are neither throttling nor a credential problem.
    Answered,
    /// The vendor throttled the call.
    Throttled {
        /// Requested pause, if the vendor named one.
        retry_after: Option<Duration>,
        /// The bucket that the vendor named. `None`: the bucket of the family.
        bucket: Option<&'static str>,
    },
    /// 5xx status, timeout or failed connection.
    Failed,
    /// The vendor rejected the credentials (401, 403). This alone stops no calls: [`self_check`](crate::Scheduler::self_check) does.
    Unauthorized,
}

/// The state of a rate limit as reported by the vendor. Source: IETF draft "RateLimit header fields for HTTP", and vendor-specific
/// equivalents.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Hint {
    /// The bucket that the count refers to. `None`: the topmost bucket of the call, since most vendors count per account.
    pub bucket: Option<&'static str>,
    /// Calls left in this window.
    pub remaining: u64,
    /// Total calls in this window, if reported.
    pub limit: Option<u64>,
    /// Time until the window resets, if reported.
    pub reset: Option<Duration>,
}
