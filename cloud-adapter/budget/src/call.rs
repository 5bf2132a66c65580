//! A call that wants to be sent, and why one may not be.

use std::{sync::Arc, time::Duration};

use crate::Time;

/// How urgent a call is. The order is that of shedding: background work goes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// Resync, drift repair, orphan scans, tag rewrites, label refresh.
    Background,
    /// Existence and shutdown of nodes that are not ready, polls of pending work.
    Lifecycle,
    /// A user waits.
    Interactive,
    /// Packets wait.
    Traffic,
}

impl Class {
    /// All, least urgent first.
    pub const ALL: [Self; 4] = [Self::Background, Self::Lifecycle, Self::Interactive, Self::Traffic];

    /// The word in configuration and metrics.
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

/// One vendor request that wants to be sent.
#[derive(Clone, Debug)]
pub struct Call {
    /// The bucket of the operation's family, such as `compute`.
    pub family: &'static str,
    /// The vendor's word for the operation; a bucket `<family>:<operation>` applies if one is configured.
    pub operation: &'static str,
    /// How urgent it is.
    pub class: Class,
    /// Whose queue it stands in; with the class it names a leaf. A closed set of words.
    pub controller: &'static str,
    /// Whether it may spend the burst reserve.
    pub reserve: bool,
    /// In whose name, such as the namespace of a Service: namespaces of one leaf take turns. Empty: the cluster's.
    pub namespace: Arc<str>,
    /// What it is about, such as a load balancer's key: objects of one namespace take turns.
    pub object: Arc<str>,
    /// Tokens that it takes, at least 1. More than the burst of a bucket: it waits until it is paid for.
    pub cost: u32,
    /// When its answer is of no use any more. `None`: never.
    pub deadline: Option<Time>,
    /// Whether it finds out if the credentials are good: the only kind of call that passes while they are not.
    pub self_check: bool,
}

/// Names a queued or running call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// A call that is not going to be sent.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{message}")]
pub struct Refusal {
    /// What kind.
    pub reason: RefusalReason,
    /// For people.
    pub message: String,
    /// When to come back, jitter included.
    pub retry_after: Duration,
}

/// Why a call is not going to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RefusalReason {
    /// The wait would pass the deadline.
    Budget,
    /// Too much waits already, or it was shed for something more urgent.
    QueueFull,
    /// The breaker of the family is open.
    BreakerOpen,
    /// The breaker of the credentials is open: the vendor rejects them.
    Rejected,
    /// The vendor asked for a pause that lasts beyond the deadline.
    Throttled,
}

impl RefusalReason {
    /// The word in metrics.
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
