//! The adapter's confirmation of a load balancer, and how the cache differs from the confirmed state.

use std::time::Duration;

use super::{
    super::{
        Ask,
        cloud::{Balancer, EnsureResult, State, listeners},
        service::{Ingress, same_ingress},
        targets::Hosts,
    },
    LAG,
};

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Confirmed {
    /// Digest of the requested settings, without the backends.
    pub(crate) shape: String,
    /// ID of the requested backend set.
    pub(crate) targets: String,
    pub(super) hosts: Hosts,
    pub(crate) state: State,
    pub(crate) applied_hash: String,
    pub(crate) ingress: Vec<Ingress>,
    listeners: Vec<String>,
    backends: Backends,
    /// What the cache showed at the time of the confirmation. The cache may lag behind, so the same difference causes no further call
    /// before [`LAG`] is over.
    seen: Option<Vec<Balancer>>,
    /// Time of the confirmation, since the start of the process.
    at: Duration,
}

/// Number of backends in the cache. The driver decides how many backends a node needs, and the hash does not cover backends. The expected
/// number is therefore taken from the cache as soon as the cache shows the confirmed state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Backends {
    /// The number is not known yet. `before` is the number before the write. The cache may lag behind while it shows that number.
    Unknown {
        before: Option<u32>,
    },
    Shown(u32),
}

impl Confirmed {
    pub(super) fn new(ask: &Ask, answer: &EnsureResult, seen: Option<&[Balancer]>) -> Self {
        let same = |it: &&Balancer| it.applied_hash == answer.applied_hash;
        let before = seen.and_then(|seen| seen.iter().find(same)).filter(|_| answer.steps > 0);
        Self {
            shape: ask.wanted.shape.digest.clone(),
            targets: ask.spec.backend_set_id.clone(),
            hosts: ask.hosts.clone(),
            state: answer.state,
            listeners: listeners(&ask.spec),
            backends: Backends::Unknown { before: before.map(|it| it.backends) },
            seen: seen.map(<[Balancer]>::to_vec),
            at: ask.at,
            applied_hash: answer.applied_hash.clone(),
            ingress: answer.ingress.clone(),
        }
    }

    /// Updates the state from the cache. After the cache has shown the confirmed state, any new difference counts.
    pub(super) fn observe(mut self, cloud: &[Balancer], now: Duration) -> Self {
        if self.difference(cloud).is_some() {
            return self;
        }
        self.seen = None;
        if let (Backends::Unknown { before }, [one]) = (self.backends, cloud)
            && (before != Some(one.backends) || !self.lags(now))
        {
            self.backends = Backends::Shown(one.backends);
        }
        self
    }

    pub(crate) fn is_degraded(&self) -> bool {
        self.state == State::Degraded
    }

    /// How the cache differs from what was confirmed. `None`: no difference, or the adapter was called about exactly this difference.
    pub(crate) fn drift(&self, cloud: &[Balancer], now: Duration) -> Option<String> {
        // A pending load balancer changes again when it is ready. Usually the cache shows the same work that the adapter just confirmed.
        let shown_again = cloud.iter().any(|it| it.state == State::Pending);
        let asked = self.seen.as_deref() == Some(cloud) || shown_again;
        self.difference(cloud).filter(|_| !(asked && self.lags(now)))
    }

    fn lags(&self, now: Duration) -> bool {
        now.saturating_sub(self.at) < LAG
    }

    fn difference(&self, cloud: &[Balancer]) -> Option<String> {
        match cloud {
            [] => Some("the load balancer is gone".to_owned()),
            [one] if one.state != self.state => Some(format!("the load balancer is {}", one.state)),
            [one] if one.applied_hash != self.applied_hash => {
                Some("the load balancer was changed".to_owned())
            }
            [one] if !same_ingress(&one.ingress, &self.ingress) => Some("the addresses changed".to_owned()),
            [one] if !one.listeners.is_empty() && one.listeners != self.listeners => {
                Some("the listeners changed".to_owned())
            }
            [one] => match self.backends {
                Backends::Shown(backends) if backends != one.backends => {
                    Some(format!("the backends changed from {backends} to {}", one.backends))
                }
                Backends::Shown(_) | Backends::Unknown { .. } => None,
            },
            several => Some(format!("there are {} load balancers", several.len())),
        }
    }
}
