//! The known replicas, their health, and the choice of the replica to call. The module `health` watches the replicas, and this module
//! chooses.

mod health;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::Arc,
};

use tokio::sync::{Notify, watch};
use tracing::info;

pub(crate) use self::health::supervise;
use crate::connector::{Address, Line};

/// The result of discovery.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Found {
    /// The last known replicas, even if discovery has failed since.
    pub(crate) addresses: BTreeSet<Address>,
    /// The error of the last discovery, or `None` if the last discovery succeeded.
    pub(crate) trouble: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Health {
    /// The replica has not reported yet.
    Unknown,
    /// The replica is reachable but does not implement the health service. It is called only if no other replica serves.
    Silent,
    /// The replica serves. The number is higher the later a replica began to serve; the replica with the highest number is the leader.
    Serving(u64),
    /// The replica is reachable but does not serve: it is a standby, starting or stopping.
    Standby,
    /// The replica is not reachable.
    Down(String),
}

impl fmt::Display for Health {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown => f.write_str("not connected yet"),
            Self::Silent => f.write_str("does not report its health"),
            Self::Serving(_) => f.write_str("serves"),
            Self::Standby => f.write_str("does not serve"),
            Self::Down(why) => write!(f, "is not reachable: {why}"),
        }
    }
}

#[derive(Clone, Debug)]
struct Replica {
    line: Line,
    health: Health,
}

/// Preference for a replica. A higher rank is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Rank {
    /// The replica reports that it does not serve. It is called only because its refusal may name the cause.
    NotServing,
    Silent,
    Serving(u64),
}

/// Replicas that failed during a call, with their rank at that time. A replica whose rank has changed since is tried again.
pub(crate) type Tried = BTreeMap<Address, Rank>;

#[derive(Clone, Debug)]
pub(crate) struct Pick {
    pub(crate) address: Address,
    pub(crate) rank: Rank,
    pub(crate) line: Line,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct State {
    replicas: BTreeMap<Address, Replica>,
    /// The error of the last discovery, if it failed.
    trouble: Option<String>,
    /// How often any replica began to serve.
    terms: u64,
}

impl State {
    /// Returns the best replica that was not tried yet. The best is the serving replica that began to serve last. If no replica serves, it
    /// is a replica that does not report its health.
    pub(crate) fn pick(&self, tried: &Tried) -> Option<Pick> {
        let ranked = self.replicas.iter().filter_map(|(address, replica)| {
            let rank = replica.rank()?;
            (tried.get(address) != Some(&rank)).then_some((rank, address, replica))
        });
        // If several ranks are equal, this returns the replica with the first address.
        let (rank, address, replica) = ranked.rev().max_by_key(|(rank, ..)| *rank)?;
        Some(Pick { address: address.clone(), rank, line: replica.line.clone() })
    }

    /// Returns a replica that reports that it does not serve and that was not asked for the cause yet.
    pub(crate) fn pick_not_serving(&self, asked: &BTreeSet<Address>) -> Option<Pick> {
        let mut replicas = self.replicas.iter().filter(|(address, _)| !asked.contains(*address));
        let (address, replica) = replicas.find(|(_, replica)| replica.health == Health::Standby)?;
        Some(Pick { address: address.clone(), rank: Rank::NotServing, line: replica.line.clone() })
    }

    /// Whether a better replica appeared while the called replica has not responded. False if the called replica reports that it does not
    /// serve, because such a replica is reachable and will answer the call.
    pub(crate) fn has_replaced(&self, pick: &Pick, tried: &Tried) -> bool {
        let there = self.replicas.get(&pick.address).is_some_and(|it| it.health == Health::Standby);
        let better = |best: Pick| best.address != pick.address && best.rank > pick.rank;
        !there && self.pick(tried).is_some_and(better)
    }

    fn report(&mut self, address: &Address, health: Health) -> bool {
        let Some(replica) = self.replicas.get_mut(address) else { return false };
        let health = match (health, &replica.health) {
            (Health::Serving(_), Health::Serving(term)) => Health::Serving(*term),
            (Health::Serving(_), _) => {
                self.terms += 1;
                info!(replica = %address, "This replica of the cloud adapter serves");
                Health::Serving(self.terms)
            }
            (health, _) => health,
        };
        let changed = replica.health != health;
        replica.health = health;
        changed
    }
}

impl Replica {
    fn rank(&self) -> Option<Rank> {
        match self.health {
            Health::Serving(term) => Some(Rank::Serving(term)),
            Health::Silent => Some(Rank::Silent),
            Health::Unknown | Health::Standby | Health::Down(_) => None,
        }
    }
}

/// Writes that no replica serves, with the state of each replica and the error of the last discovery.
impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("no replica of the cloud adapter serves")?;
        let mut separator = ": ";
        for (address, replica) in &self.replicas {
            write!(f, "{separator}{address} {}", replica.health)?;
            separator = "; ";
        }
        match &self.trouble {
            Some(trouble) => write!(f, "{separator}{trouble}"),
            None if self.replicas.is_empty() => write!(f, "{separator}no replica is known yet"),
            None => Ok(()),
        }
    }
}

/// The state of the replicas, shared by the tasks that update it and the calls.
#[derive(Clone, Debug, Default)]
pub(crate) struct Table {
    state: Arc<watch::Sender<State>>,
    /// Notified when a connection broke, because the set of replicas may have changed.
    lost: Arc<Notify>,
}

impl Table {
    /// Creates a table with one replica that is always called, whatever its health.
    pub(crate) fn of(address: Address, line: Line) -> Self {
        let replica = Replica { line, health: Health::Silent };
        let state = State { replicas: [(address, replica)].into(), ..State::default() };
        Self { state: Arc::new(watch::Sender::new(state)), lost: Arc::default() }
    }

    pub(crate) fn watch(&self) -> watch::Receiver<State> {
        self.state.subscribe()
    }

    /// Waits until a connection breaks.
    pub(crate) async fn lost(&self) {
        self.lost.notified().await;
    }

    fn insert(&self, address: Address, line: Line) {
        let replica = Replica { line, health: Health::Unknown };
        self.state.send_modify(|state| drop(state.replicas.insert(address, replica)));
    }

    fn remove(&self, address: &Address) {
        self.state.send_modify(|state| drop(state.replicas.remove(address)));
    }

    fn trouble(&self, trouble: Option<String>) {
        self.state.send_if_modified(|state| {
            let changed = state.trouble != trouble;
            state.trouble = trouble;
            changed
        });
    }

    fn report(&self, address: &Address, health: Health) {
        if matches!(health, Health::Down(_)) {
            self.lost.notify_one();
        }
        self.state.send_if_modified(|state| state.report(address, health));
    }
}

#[cfg(test)]
mod tests;
