//! The replicas that are known, how each of them is, and which one calls go to. Decides; `health` asks.

mod health;

use std::{collections::BTreeMap, fmt, sync::Arc};

use tokio::sync::{Notify, watch};
use tracing::info;

pub(crate) use self::health::supervise;
use crate::connector::{Address, Line};

/// How a replica is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Health {
    /// Not heard of yet.
    Unknown,
    /// It is there and does not tell whether it serves: worth asking if nobody else serves.
    Silent,
    /// It serves. The number tells the order: who began last, is the leader.
    Serving(u64),
    /// It is there and does not serve: stands by, starts or stops.
    Standby,
    /// It is not there.
    Down(String),
}

impl fmt::Display for Health {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown => f.write_str("not connected yet"),
            Self::Silent => f.write_str("does not tell its health"),
            Self::Serving(_) => f.write_str("serves"),
            Self::Standby => f.write_str("does not serve"),
            Self::Down(why) => write!(f, "is away: {why}"),
        }
    }
}

#[derive(Clone, Debug)]
struct Replica {
    line: Line,
    health: Health,
}

/// How good a replica is as a partner. Higher is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Rank {
    Silent,
    Serving(u64),
}

/// Replicas that were asked in vain. One that has changed since is worth another try.
pub(crate) type Tried = BTreeMap<Address, Rank>;

/// A replica that calls may go to.
#[derive(Clone, Debug)]
pub(crate) struct Pick {
    pub(crate) address: Address,
    pub(crate) rank: Rank,
    pub(crate) line: Line,
}

/// All replicas at one moment.
#[derive(Clone, Debug, Default)]
pub(crate) struct State {
    replicas: BTreeMap<Address, Replica>,
    /// Why it is not known which replicas there are.
    trouble: Option<String>,
    /// How often a replica began to serve.
    terms: u64,
}

impl State {
    /// The best replica that was not tried in vain: the one that began to serve last, else one that does not tell.
    pub(crate) fn pick(&self, tried: &Tried) -> Option<Pick> {
        let ranked = self.replicas.iter().filter_map(|(address, replica)| {
            let rank = replica.rank()?;
            (tried.get(address) != Some(&rank)).then_some((rank, address, replica))
        });
        // Of equals the first.
        let (rank, address, replica) = ranked.rev().max_by_key(|(rank, ..)| *rank)?;
        Some(Pick { address: address.clone(), rank, line: replica.line.clone() })
    }

    /// Whether a better replica than this one came up, while nothing was heard of this one. One that says itself that it does not
    /// serve is there: it answers what it was asked.
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

/// Why nobody serves, with what is known of each.
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
            None if self.replicas.is_empty() => write!(f, "{separator}none is known yet"),
            None => Ok(()),
        }
    }
}

/// What is known of the replicas, shared between those who find out and those who call.
#[derive(Clone, Debug, Default)]
pub(crate) struct Table {
    state: Arc<watch::Sender<State>>,
    /// A connection broke: the replicas may be others now.
    lost: Arc<Notify>,
}

impl Table {
    /// One replica that is always asked, whatever it says of itself.
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
