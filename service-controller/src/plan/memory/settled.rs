//! The adapter's word that what was asked for is there, and how what its mirror shows differs from that.

use std::time::Duration;

use super::{
    super::{
        Ask,
        cloud::{Answer, Balancer, State, listeners},
        service::{Ingress, same_ingress},
        targets::Hosts,
    },
    LAG,
};

/// What an adapter confirmed.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Settled {
    /// Digest of what was asked for, but for the backends.
    pub(crate) shape: String,
    /// The set of backends that was asked for.
    pub(crate) targets: String,
    /// The nodes in it.
    pub(super) hosts: Hosts,
    pub(crate) state: State,
    pub(crate) applied_hash: String,
    pub(crate) ingress: Vec<Ingress>,
    listeners: Vec<String>,
    backends: Backends,
    /// What the mirror showed at that time. A difference that the adapter has been asked about is not asked about again
    /// before [`LAG`] is over: the mirror may be behind.
    seen: Option<Vec<Balancer>>,
    /// When, since the start of the process.
    at: Duration,
}

/// How many backends the mirror shows. How many one node counts for is the driver's business, and backends are in no hash: so what is
/// right is read off the mirror, once it shows what was confirmed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Backends {
    /// Not shown yet. Those that were shown before they were written: as long as the mirror shows them it may be behind.
    Unknown {
        before: Option<u32>,
    },
    Shown(u32),
}

impl Settled {
    /// What follows from an answer that all is as it was asked for.
    pub(super) fn new(ask: &Ask, answer: Answer, seen: Option<&[Balancer]>) -> Self {
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
            applied_hash: answer.applied_hash,
            ingress: answer.ingress,
        }
    }

    /// Takes note of what the mirror shows: once it has caught up, the next difference is news.
    pub(super) fn observe(&mut self, cloud: &[Balancer], now: Duration) {
        if self.difference(cloud).is_some() {
            return;
        }
        self.seen = None;
        if let (Backends::Unknown { before }, [one]) = (self.backends, cloud)
            && (before != Some(one.backends) || !self.lags(now))
        {
            self.backends = Backends::Shown(one.backends);
        }
    }

    /// How what the mirror shows differs from what was confirmed, unless the adapter was asked about exactly this already.
    pub(super) fn drift(&self, cloud: &[Balancer], now: Duration) -> Option<String> {
        // What is pending will be shown again when it is not: mostly it is the work that was just confirmed as done.
        let shown_again = cloud.iter().any(|it| it.state == State::Pending);
        let asked = self.seen.as_deref() == Some(cloud) || shown_again;
        self.difference(cloud).filter(|_| !(asked && self.lags(now)))
    }

    fn lags(&self, now: Duration) -> bool {
        now.saturating_sub(self.at) < LAG
    }

    fn difference(&self, cloud: &[Balancer]) -> Option<String> {
        match cloud {
            [] => Some("it is gone".to_owned()),
            [one] if one.state != self.state => Some(format!("it is {}", one.state)),
            [one] if one.applied_hash != self.applied_hash => Some("it was changed".to_owned()),
            [one] if !same_ingress(&one.ingress, &self.ingress) => Some("its addresses changed".to_owned()),
            [one] if !one.listeners.is_empty() && one.listeners != self.listeners => {
                Some("its listeners changed".to_owned())
            }
            [one] => match self.backends {
                Backends::Shown(backends) if backends != one.backends => {
                    Some(format!("its backends changed from {backends} to {}", one.backends))
                }
                Backends::Shown(_) | Backends::Unknown { .. } => None,
            },
            several => Some(format!("there are {} of it", several.len())),
        }
    }
}
