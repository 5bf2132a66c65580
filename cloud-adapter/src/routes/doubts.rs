//! Destinations whose state is unknown because the answer to a write was lost and reads may not show the write yet.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
};

use cloud_api_proto::Reason;
use ipnet::IpNet;
use tokio::time::Instant;

use super::plan::Verdict;

/// The time of each write with an unknown outcome, by destination. The number of routes limits the number of entries. A listing that
/// reliably shows a write removes the entry of the write.
#[derive(Debug, Default)]
pub(crate) struct Doubts(Mutex<BTreeMap<IpNet, Instant>>);

impl Doubts {
    pub(super) fn note(&self, batch: &[Verdict]) {
        let unknown = |verdict: &&Verdict| {
            verdict.error.as_ref().is_some_and(|error| error.reason == Reason::OutcomeUnknown)
        };
        let now = Instant::now();
        let destinations = batch.iter().filter(unknown).filter_map(|one| one.key.destination.parse().ok());
        self.with(|doubts| doubts.extend(destinations.map(|destination| (destination, now))));
    }

    /// Returns the time since which the state of a destination is unknown.
    pub(super) fn at(&self, destination: IpNet) -> Option<Instant> {
        self.with(|doubts| doubts.get(&destination).copied())
    }

    /// Removes the entries of writes made at `shown` or earlier, because reads now show these writes.
    pub(super) fn forget(&self, shown: Option<Instant>) {
        self.with(|doubts| doubts.retain(|_, at| shown.is_none_or(|shown| *at > shown)));
    }

    fn with<R>(&self, act: impl FnOnce(&mut BTreeMap<IpNet, Instant>) -> R) -> R {
        act(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
