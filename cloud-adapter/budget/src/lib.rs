//! Decides which call goes to the vendor next: token buckets, fair queueing, adaptive rates and circuit breakers. The crate is made for a
//! client that shares the rate limit of one account among many kinds of work.
//!
//! The crate is pure: it has no I/O, no clock and no threads. The caller passes the time ([`Time`]), submits calls, asks for the next call
//! and reports the result. Equal inputs give equal decisions, so all tests use virtual time.
//!
//! - A [`Call`] takes tokens from all buckets of its path or from none. The path consists of the buckets `account`, `<family>`, and
//!   `<family>:<operation>` if configured. In any window, a bucket admits at most burst + rate x window calls, even while rates change.
//! - Calls wait in leaves, one for each [`Class`] of a controller. Leaves share each bucket by weight (start-time fair queueing),
//!   namespaces in a leaf take turns, objects in a namespace take turns, and calls about one object stay in order. No call starves, and no
//!   capacity is unused while a call may be sent. Part of each burst is reserved for calls with [`Call::reserve`].
//! - A call that would be too late is refused at once, with a retry time at which the caller will be admitted. A queued call that
//!   becomes too late is refused and never sent. A call shared by several callers has the highest of their priorities, and each caller
//!   can learn whether the call will be too late for that caller.
//! - Queues are bounded. A full queue drops (sheds) the least urgent call; among equally urgent calls, the newest call of the namespace
//!   with the most calls.
//! - When the vendor throttles, the bucket pauses and its rate adapts. When a family fails, or the credentials are rejected, a circuit
//!   breaker opens.
//!
//! The crate deliberately does not coalesce, cache, batch or retry calls (except one throttled call), because this is cheaper before the
//! calls reach the budget.
//!
//! # Usage
//! After each input, call [`Scheduler::next`] until it returns [`Decision::Wait`], and again at the time in that decision.
//!
//! ```
//! use std::{collections::BTreeMap, sync::Arc, time::Duration};
//!
//! use cloud_budget::{
//!     BucketConfig, Call, CallResult, Class, Config, Decision, Outcome, RateLimit, Scheduler, Time,
//! };
//!
//! // 3,600 calls an hour, of which a tenth stays unused.
//! let limit = RateLimit::within(3_600.0, Duration::from_hours(1), 60, 0.9).ok_or("burst too large")?;
//! let account = BucketConfig { parent: None, limit, adaptive: None };
//! let config = Config { buckets: BTreeMap::from([("account".to_owned(), account)]), ..Config::default() };
//! let mut scheduler = Scheduler::new(config, Time::ZERO);
//!
//! let ticket = scheduler.submit(Time::ZERO, Call {
//!     family: "compute",
//!     operation: "GetInstance",
//!     class: Class::Interactive,
//!     controller: "node-controller",
//!     reserve: false,
//!     namespace: Arc::from(""),
//!     object: Arc::from("node-1"),
//!     cost: 1,
//!     deadline: Some(Time::ZERO + Duration::from_secs(30)),
//!     self_check: false,
//! })?;
//! assert_eq!(scheduler.next(Time::ZERO), Decision::Send { ticket, waited: Duration::ZERO });
//! // The caller of the scheduler sends the request to the vendor here.
//! let later = Time::ZERO + Duration::from_millis(80);
//! let answer = CallResult { outcome: Outcome::Answered, latency: Duration::from_millis(80), hint: None };
//! scheduler.answered(later, ticket, answer);
//! assert_eq!(scheduler.next(later), Decision::Wait(None));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod adaptive;
mod breaker;
mod bucket;
mod call;
mod call_result;
mod chance;
mod config;
mod decision;
mod fair_queueing;
mod families;
mod forecast;
mod gcra;
mod latency;
mod queue;
mod report;
mod scheduler;
mod time;
mod tree;
mod wait;

pub use self::{
    call::{Call, Class, Refusal, RefusalReason, Ticket},
    call_result::{CallResult, Hint, Outcome},
    config::{
        Adaptive, BreakerLimits, BucketConfig, Config, Deadlines, Mode, QueueLimits, RateLimit, Weights,
    },
    decision::{AfterCall, Decision},
    report::{BreakerState, BucketReport, LeafReport, QueueReport, Report},
    scheduler::Scheduler,
    time::Time,
    wait::BudgetWait,
};
