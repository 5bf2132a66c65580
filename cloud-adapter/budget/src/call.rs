//! A call that a caller wants to send, and the reasons for refusing it.

use std::{sync::Arc, time::Duration};

use crate::Time;

/// Urgency of a call. A full queue drops (sheds) calls of the least urgent class first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// Background work: resync, drift repair, orphan scans, tag rewrites, label refresh.
    Background,
    /// Checks of nodes that are not ready (whether the instance exists or is shut down), and polls of pending work.
    Lifecycle,
    /// A user waits for the result.
    Interactive,
    /// Network traffic depends on the call.
    Traffic,
}

impl Class {
    /// All classes, least urgent first.
    pub const ALL: [Self; 4] = [Self::Background, Self::Lifecycle, Self::Interactive, Self::Traffic];

    /// The name of the class in configuration and metrics.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Background => "background",
            Self::Lifecycle => "lifecycle",
            Self::Interactive => "interactive",
            Self::Traffic => "traffic",
        }
    }
}

/// A vendor request that a caller wants to send.
#[derive(Clone, Debug)]
pub struct Call {
    /// The bucket of the operation's family, such as `compute`.
    pub family: &'static str,
    /// The vendor's name for the operation; a bucket `<family>:<operation>` applies if one is configured.
    pub operation: &'static str,
    /// Urgency of the call.
    pub class: Class,
    /// The controller in whose queue the call waits. Each class of a controller has a separate queue (a leaf). The number of controllers is
    /// bounded.
    pub controller: &'static str,
    /// Whether the call may use the reserve of each bucket.
    pub reserve: bool,
    /// Namespace for which the call is made, such as that of a Service. The namespaces in a leaf take turns. Empty: the cluster itself.
    pub namespace: Arc<str>,
    /// Object for which the call is made, such as a load balancer's key. The objects in a namespace take turns.
    pub object: Arc<str>,
    /// Number of tokens that the call costs, at least 1. A call that costs more than a bucket's burst waits until it can take its tokens.
    pub cost: u32,
    /// Time after which the answer is useless. `None`: the answer is always useful.
    pub deadline: Option<Time>,
    /// Whether the call tests the credentials. Only such calls may be sent while the credentials are rejected.
    pub self_check: bool,
}

/// Identifies a queued or sent call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// The refusal of a call.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{message}")]
pub struct Refusal {
    /// The reason for the refusal.
    pub reason: RefusalReason,
    /// Explanation for users.
    pub message: String,
    /// Delay after which to retry, including jitter.
    pub retry_after: Duration,
}

/// The reason why a call is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RefusalReason {
    /// The call would wait beyond its deadline.
    Budget,
    /// The queue is full, or the call was dropped from the full queue in favour of another call.
    QueueFull,
    /// The circuit breaker of the family is open.
    BreakerOpen,
    /// The circuit breaker of the credentials is open, because the vendor rejects them.
    Rejected,
    /// The vendor requested a pause that ends after the deadline.
    Throttled,
}

impl RefusalReason {
    /// The name of the reason in metrics.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Budget => "budget",
            Self::QueueFull => "queue-full",
            Self::BreakerOpen => "breaker-open",
            Self::Rejected => "credentials",
            Self::Throttled => "throttled",
        }
    }
}
