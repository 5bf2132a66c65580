//! Which writer speaks: so that a stale one cannot undo what a newer one did.

use std::sync::atomic::{AtomicU64, Ordering};

use cloud_api_proto::v1alpha1::Fence;
use controller_core::Clock;

/// There is one shard as yet.
const SCOPE: &str = "route-controller/0";

/// Numbers the mutations of this process.
///
/// The epoch is the wall clock's second at the start: without a lease it is what grows from one process to the next. A clock that
/// is set back makes the adapter refuse this process until its time has come again: the tags of routes outlive a restart.
#[derive(Debug)]
pub(crate) struct Fencing {
    epoch: u64,
    sequence: AtomicU64,
}

impl Fencing {
    pub(crate) fn starting_at(clock: &Clock) -> Self {
        let epoch = u64::try_from(clock.now().as_second()).unwrap_or_default();
        Self { epoch, sequence: AtomicU64::new(0) }
    }

    /// The fence of the next mutation.
    pub(crate) fn next(&self) -> Fence {
        let sequence = self.sequence.fetch_add(1, Ordering::Relaxed).saturating_add(1);
        Fence { scope: SCOPE.to_owned(), epoch: self.epoch, sequence }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_mutation_and_each_later_process_is_newer() {
        let at = |time: &str| Fencing::starting_at(&Clock::starting_at(time.parse().expect("a time")));
        let (first, second) = (at("2026-01-01T00:00:00Z"), at("2026-01-01T00:00:01Z"));
        let fences = [first.next(), first.next(), second.next()];
        assert!(fences.is_sorted_by(|a, b| (a.epoch, a.sequence) < (b.epoch, b.sequence)), "{fences:?}");
    }
}
