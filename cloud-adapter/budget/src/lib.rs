//! Who may call the vendor next: token buckets, fair queueing, adaptive rates and breakers.
//!
//! Pure: no I/O, no clock, no threads. Whoever drives it says what time it is ([`Time`]), hands calls in, asks for the next
//! one, and reports what came of it. The same inputs give the same decisions, so everything is tested in virtual time.

#[cfg_attr(not(test), expect(dead_code, reason = "the scheduler is to be built upon it"))]
mod adaptive;
mod answer;
#[cfg_attr(not(test), expect(dead_code, reason = "the scheduler is to be built upon it"))]
mod breaker;
mod call;
mod config;
mod report;
mod time;

pub use self::{
    answer::{Answer, Hint, Outcome},
    call::{Call, Class, Refusal, RefusalReason, Ticket},
    config::{
        Adaptive, BreakerLimits, BucketConfig, Config, Deadlines, Mode, QueueLimits, RateLimit, Weights,
    },
    report::{BreakerState, BucketReport, LeafReport, Report},
    time::Time,
};
