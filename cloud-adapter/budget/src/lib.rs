//! Who may call the vendor next: token buckets, fair queueing, adaptive rates and breakers.
//!
//! Pure: no I/O, no clock, no threads. Whoever drives it says what time it is ([`Time`]), hands calls in, asks for the next
//! one, and reports what came of it. The same inputs give the same decisions, so everything is tested in virtual time.

mod adaptive;
mod answer;
mod breaker;
mod bucket;
mod call;
mod chance;
mod config;
mod decision;
mod families;
mod forecast;
mod gcra;
mod latency;
mod queue;
mod report;
mod scheduler;
mod time;
mod tree;
mod turns;

pub use self::{
    answer::{Answer, Hint, Outcome},
    call::{Call, Class, Refusal, RefusalReason, Ticket},
    config::{
        Adaptive, BreakerLimits, BucketConfig, Config, Deadlines, Mode, QueueLimits, RateLimit, Weights,
    },
    decision::{Decision, Next},
    report::{BreakerState, BucketReport, LeafReport, Report},
    scheduler::Scheduler,
    time::Time,
};
