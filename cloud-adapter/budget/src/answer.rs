//! What came of a call, as far as the budget is concerned.

use std::time::Duration;

/// What came of a call.
#[derive(Clone, Debug)]
pub struct Answer {
    /// How it ended.
    pub outcome: Outcome,
    /// From sending to the whole answer.
    pub latency: Duration,
    /// What the vendor said of its own count, if it did.
    pub hint: Option<Hint>,
}

/// How a call ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The vendor answered; also with a refusal that is no throttle and no credential trouble.
    Answered,
    /// The vendor wants fewer calls.
    Throttled {
        /// How long it wants none at all, if it said so.
        retry_after: Option<Duration>,
        /// The bucket that it named. `None`: the family's.
        bucket: Option<&'static str>,
    },
    /// 5xx, timeout, no connection.
    Failed,
    /// The credentials were rejected (401, 403). Stops nothing by itself: [`self_check`](crate::Scheduler::self_check) does.
    Unauthorized,
}

/// What a vendor says of its own rate limit. Source: IETF draft "RateLimit header fields for HTTP", and vendors' likes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Hint {
    /// The bucket whose count it is. `None`: the topmost one of the call, as vendors mostly count by account.
    pub bucket: Option<&'static str>,
    /// Calls that it still takes in this window.
    pub remaining: u64,
    /// Calls that the window holds, if it said so.
    pub limit: Option<u64>,
    /// Until the window begins anew, if it said so.
    pub reset: Option<Duration>,
}
