//! Counts the cost of one request.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
    time::{Duration, SystemTime},
};

use cloud_api_proto::v1alpha1::{Cost, cost::Source};

use crate::operation::{Family, Operation};

/// Counts the vendor calls of one request.
#[derive(Debug, Default)]
pub struct Meter(Mutex<Count>);

#[derive(Clone, Debug, Default)]
struct Count {
    calls: BTreeMap<Family, u32>,
    queued: Duration,
    coalesced: u32,
}

impl Meter {
    pub(crate) fn count(&self, operation: Operation, queued: Duration) {
        self.with(|count| {
            *count.calls.entry(operation.family).or_default() += 1;
            count.queued += queued;
        });
    }

    /// Whether the meter contains calls that have not been reported in an answer yet.
    pub(crate) fn has_counted(&self) -> bool {
        self.with(|count| !count.calls.is_empty())
    }

    /// Counts a call that was saved because the result of another caller's call was used.
    pub fn coalesced(&self) {
        self.with(|count| count.coalesced += 1);
    }

    /// Moves the counts of another meter to this meter, so that each call is reported in exactly one answer.
    pub fn absorb(&self, other: &Self) {
        let taken = other.with(std::mem::take);
        self.with(|count| {
            for (family, calls) in taken.calls {
                *count.calls.entry(family).or_default() += calls;
            }
            count.queued += taken.queued;
            count.coalesced += taken.coalesced;
        });
    }

    /// Returns the cost as a message of the contract.
    pub fn cost(&self, source: Source, observed_at: Option<SystemTime>) -> Cost {
        let count = self.with(|count| count.clone());
        let source = if count.calls.is_empty() { source } else { Source::Live };
        Cost {
            vendor_calls: count.calls.values().sum(),
            calls_by_family: count
                .calls
                .iter()
                .map(|(family, calls)| (family.word().to_owned(), *calls))
                .collect(),
            queued: prost_types::Duration::try_from(count.queued).ok(),
            coalesced: count.coalesced,
            source: source.into(),
            observed_at: observed_at.map(Into::into),
        }
    }

    fn with<R>(&self, act: impl FnOnce(&mut Count) -> R) -> R {
        act(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
