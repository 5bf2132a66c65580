//! Which writer speaks: so that a stale one cannot undo what a newer one did.

use std::sync::atomic::{AtomicU64, Ordering};

use cloud_api_proto::v1alpha1::Fence;
use controller_core::start::Term;

/// There is one shard as yet.
const SCOPE: &str = "route-controller/0";

/// Numbers the mutations of this process.
#[derive(Debug)]
pub(crate) struct Fencing {
    term: Term,
    sequence: AtomicU64,
}

impl Fencing {
    pub(crate) fn new(term: Term) -> Self {
        Self { term, sequence: AtomicU64::new(0) }
    }

    /// The fence of the next mutation.
    pub(crate) fn next(&self) -> Fence {
        let sequence = self.sequence.fetch_add(1, Ordering::Relaxed).saturating_add(1);
        Fence { scope: SCOPE.to_owned(), epoch: self.term.epoch(), sequence }
    }
}

#[cfg(test)]
mod tests {
    use controller_core::Clock;

    use super::*;

    #[test]
    fn each_mutation_and_each_later_process_is_newer() {
        let at = |time: &str| {
            let clock = Clock::starting_at(time.parse().expect("a time"));
            Fencing::new(Term::of_one_process(&clock, "u"))
        };
        let (first, second) = (at("2026-01-01T00:00:00Z"), at("2026-01-01T00:00:01Z"));
        let fences = [first.next(), first.next(), second.next()];
        assert!(fences.is_sorted_by(|a, b| (a.epoch, a.sequence) < (b.epoch, b.sequence)), "{fences:?}");
    }
}
