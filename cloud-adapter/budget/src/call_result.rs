//! Outcome of a call, as far as the budget needs to know it.

use std::time::Duration;

/// The result of a call.
#[derive(Clone, Debug)]
pub struct CallResult {
    /// How the call ended.
    pub outcome: Outcome,
    /// Time from sending the request to receiving the whole response.
    pub latency: Duration,
    /// The rate limit that the vendor reported, if any.
    pub hint: Option<Hint>,
}

/// How a call ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The vendor answered, successfully or with a refusal, but without throttling or rejecting the credentials.
    Answered,
    /// The vendor throttled the call.
    Throttled {
        /// Pause that the vendor requested, if any.
        retry_after: Option<Duration>,
        /// Bucket that the vendor named. `None`: the bucket of the family.
        bucket: Option<&'static str>,
    },
    /// The call ended with a 5xx status, a timeout or a failed connection.
    Failed,
    /// The vendor rejected the credentials (401, 403). This alone does not stop other calls; a failed
    /// [`self_check`](crate::Scheduler::self_check) does.
    Unauthorized,
}

/// The state of a rate limit as reported by the vendor. Source: IETF draft "RateLimit header fields for HTTP", and vendor-specific
/// equivalents.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Hint {
    /// Bucket that the count refers to. `None`: the topmost bucket of the call, since most vendors count per account.
    pub bucket: Option<&'static str>,
    /// Number of calls left in this window.
    pub remaining: u64,
    /// Total number of calls in this window, if reported.
    pub limit: Option<u64>,
    /// Time until the window resets, if reported.
    pub reset: Option<Duration>,
}
