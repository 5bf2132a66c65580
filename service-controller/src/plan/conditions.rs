//! What a reconcile finds out, and the conditions in a Service's status: whether its load balancer is ready, and whether some of its ports fail.

use controller_core::events::gist;
use jiff::Timestamp;

/// Condition type: whether the load balancer serves traffic as the Service requests.
pub(crate) const READY: &str = "cloudadapter.dev/Ready";
/// Condition type: whether the load balancer cannot serve a port. Kubernetes defines this name (KEP-1435).
pub(crate) const PORTS_ERROR: &str = "LoadBalancerPortsError";

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Condition {
    pub(crate) status: bool,
    pub(crate) reason: String,
    pub(crate) message: String,
    /// The `metadata.generation` that the condition is about. `None`: the Service has no generation, because API servers up to Kubernetes
    /// 1.36 do not count the changes of Services.
    pub(crate) generation: Option<i64>,
    /// The time of the last change of the condition's status. `None`: the status changes with this write.
    pub(crate) since: Option<Timestamp>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Conditions {
    pub(crate) ready: Option<Condition>,
    /// The condition about failing ports. `None`: no port fails, or another client wrote the condition.
    pub(crate) ports: Option<Condition>,
    /// Whether this controller wrote the conditions, according to `metadata.managedFields`.
    pub(crate) are_ours: bool,
}

/// What a reconcile found out about the load balancer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Readiness {
    Ready,
    /// The adapter is working on the load balancer, which does not serve traffic as requested yet.
    Pending,
    /// The load balancer waits, is refused or fails. Contains the reason in CamelCase, and the text of the Event.
    Failing(String, String),
}

impl Readiness {
    pub(crate) fn failing(reason: impl Into<String>, text: &str) -> Self {
        Self::Failing(reason.into(), text.to_owned())
    }
}

impl Conditions {
    /// Whether both have the same conditions. Their writers may differ.
    pub(crate) fn same_as(&self, other: &Self) -> bool {
        self.ready == other.ready && self.ports == other.ports
    }
}

impl Condition {
    /// Keeps the former condition if only numbers in the message changed. Keeps the former time if the status is the same.
    pub(crate) fn after(self, before: Option<&Self>) -> Self {
        let Some(before) = before.filter(|it| it.status == self.status) else { return self };
        let same = self.reason == before.reason
            && self.generation == before.generation
            && gist(&self.message) == gist(&before.message);
        if same { before.clone() } else { Self { since: before.since, ..self } }
    }
}
