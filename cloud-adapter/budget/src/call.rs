//! A call that asks to be sent, and the reasons for refusing one.

use std::{sync::Arc, time::Duration};

use crate::Time;

/// Urgency of a call, in the order of shedding: background work is shed first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// Resync, drift repair, orphan scans, tag rewrites, label refresh.
    Background,
    /// Existence and shutdown of nodes that are not ready, polls of pending work.
    Lifecycle,
    /// A user is waiting.
    Interactive,
    /// Network traffic is affected.
    Traffic,
}

impl Class {
    /// All classes, least urgent first.
    pub const ALL: [Self; 4] = [Self::Background, Self::Lifecycle, Self::Interactive, Self::Traffic];

    /// The name in configuration and metrics.
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

/// A vendor request that asks to be sent.
#[derive(Clone, Debug)]
pub struct Call {
    /// The bucket of the operation's family, such as `compute`.
    pub family: &'static str,
    /// The vendor's name for the operation; a bucket `<family>:<operation>` applies if one is configured.
    pub operation: &'static str,
    /// How urgent it is.
    pub class: Class,
    /// The controller in whose queue the call waits; together with the class it identifies a leaf. A closed set of names.
    pub controller: &'static str,
    /// Whether the call may spend the burst reserve.
    pub reserve: bool,
    /// Namespace that the call is made for, such as that of a Service; the namespaces in a leaf take turns. Empty: the cluster itself.
    pub namespace: Arc<str>,
    /// Object that the call is about, such as a load balancer's key; the objects in a namespace take turns.
    pub object: Arc<str>,
    /// Tokens that the call costs, at least 1. A call that costs more than a bucket's burst waits until it is paid.
    pub cost: u32,
    /// Time after which the answer is useless. `None`: never.
    pub deadline: Option<Time>,
    /// Whether the call tests the credentials. Only such calls may be sent while the credentials are rejected.
    pub self_check: bool,
}

/// Identifies a queued or running call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// A refused call.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{message}")]
pub struct Refusal {
    /// The kind of refusal.
    pub reason: RefusalReason,
    /// Explanation for humans.
    pub message: String,
    /// When to retry, jitter included.
    pub retry_after: Duration,
}

/// Why a call is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RefusalReason {
    /// The call would wait beyond its deadline.
    Budget,
    /// The queue is full, or the call was shed for a more urgent one.
    QueueFull,
    /// The circuit breaker of the family is open.
    BreakerOpen,
    /// The circuit breaker of the credentials is open: the vendor rejects them.
    Rejected,
    /// The vendor asked for a pause that ends after the deadline.
    Throttled,
}

impl RefusalReason {
    /// The name in metrics.
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
