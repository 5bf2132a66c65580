//! Who may call the vendor next: token buckets, fair queueing, adaptive rates and breakers, for a client that shares one
//! account's rate limit among many kinds of work.
//!
//! Pure: no I/O, no clock, no threads. Whoever drives it says what time it is ([`Time`]), hands calls in, asks for the next
//! one, and reports what came of it. The same inputs give the same decisions, so everything is tested in virtual time.
//!
//! - A [`Call`] pays from all buckets of its path or from none: `account`, its family, `<family>:<operation>` if that has
//!   one. In any window a bucket lets at most burst + rate x window pass, also while rates change.
//! - Calls wait in leaves, one for a [`Class`] of a controller. Leaves share each bucket by weight (start-time fair
//!   queueing), the namespaces in a leaf take turns and so do the objects of each, and calls about one object keep their order. Nothing
//!   starves, and nothing is left unused while anything may go. Part of each burst is a reserve for calls that have the right to it.
//! - A call that would be too late is refused at once, with the time to come back; who obeys finds a place. One that
//!   becomes too late while it waits is refused and never sent. A call that others join is raised to the place of the most
//!   urgent of them, and each of them can be told if it comes too late for it. Queues are bounded. What is least urgent is shed
//!   first, and of what is as urgent the newest call of the namespace that has the most.
//! - When the vendor throttles, the bucket pauses and its rate adapts; when a family fails, or the credentials are rejected,
//!   it is given a rest.
//!
//! It deliberately does not coalesce, cache, batch or retry (but for one throttled call): do that before, it is cheaper.
//!
//! # How to drive it
//! After everything that is handed in, ask [`Scheduler::next`] until it says [`Decision::Wait`], and again when the time has
//! come that it names.
//!
//! ```
//! use std::{collections::BTreeMap, sync::Arc, time::Duration};
//!
//! use cloud_budget::{
//!     Answer, BucketConfig, Call, Class, Config, Decision, Outcome, RateLimit, Scheduler, Time,
//! };
//!
//! // 3,600 calls an hour, of which a tenth is left alone.
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
//! // The vendor is asked here, by whoever drives this.
//! let later = Time::ZERO + Duration::from_millis(80);
//! let answer = Answer { outcome: Outcome::Answered, latency: Duration::from_millis(80), hint: None };
//! scheduler.answered(later, ticket, answer);
//! assert_eq!(scheduler.next(later), Decision::Wait(None));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

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
mod wait;

pub use self::{
    answer::{Answer, Hint, Outcome},
    call::{Call, Class, Refusal, RefusalReason, Ticket},
    config::{
        Adaptive, BreakerLimits, BucketConfig, Config, Deadlines, Mode, QueueLimits, RateLimit, Weights,
    },
    decision::{Decision, Next},
    report::{BreakerState, BucketReport, LeafReport, QueueReport, Report},
    scheduler::Scheduler,
    time::Time,
    wait::BudgetWait,
};
