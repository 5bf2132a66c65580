//! Counts the witnesses that prove that the reads were made in the right scope of the cloud. This module is pure.
//!
//! With a token for another project, reads show none of the cluster's instances, but possibly many other instances. Therefore only
//! instances of the cluster, and instances that were seen before together with the missing instance, are witnesses.

use tokio::time::Instant;

use crate::snapshot::Departed;

/// The instances that reads have shown since a given time: the possible witnesses.
#[derive(Debug, Default)]
pub(crate) struct Witnesses {
    /// The time since which reads have shown each instance, the oldest time first.
    all: Vec<Instant>,
    /// The same times, for instances of the cluster only.
    members: Vec<Instant>,
}

impl Witnesses {
    pub(crate) fn of(seen: Vec<(String, Instant)>, is_member: impl Fn(&str) -> bool) -> Self {
        let mut members: Vec<Instant> =
            seen.iter().filter(|(key, _)| is_member(key)).map(|(_, since)| *since).collect();
        let mut all: Vec<Instant> = seen.into_iter().map(|(_, since)| since).collect();
        all.sort_unstable();
        members.sort_unstable();
        Self { all, members }
    }

    /// Returns the number of witnesses for a missing instance: instances that existed when the missing instance was last seen, and
    /// instances of the cluster.
    pub(crate) fn count(&self, last_seen: Option<Instant>) -> usize {
        let until = |row: &[Instant]| last_seen.map_or(0, |at| row.partition_point(|since| *since <= at));
        until(&self.all) + self.members.len() - until(&self.members)
    }

    /// The number of witnesses for an instance that is itself a witness: all other instances.
    pub(crate) fn others(&self) -> usize {
        self.all.len().saturating_sub(1)
    }
}

/// Returns whether a self-check proves the absence of an instance. It does if the instance was seen in this scope and not all other
/// instances disappeared together with it.
pub(crate) fn alone(departed: Option<Departed>) -> bool {
    departed.is_some_and(|one| !one.en_masse)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn foreign_instances_are_no_witnesses() {
        #[expect(clippy::disallowed_methods, reason = "only differences matter")]
        let start = Instant::from_std(std::time::Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        let seen = || vec![("old".to_owned(), at(1)), ("new".to_owned(), at(9)), ("ours".to_owned(), at(8))];
        let witnesses = Witnesses::of(seen(), |key| key == "ours");
        for (name, last_seen, wanted) in [
            ("seen together with the old one", Some(at(5)), 2),
            ("seen together with all", Some(at(9)), 3),
            ("seen before all of them: only those of the cluster count", Some(at(0)), 1),
            ("never seen: only those of the cluster count", None, 1),
        ] {
            assert_eq!(witnesses.count(last_seen), wanted, "{name}");
        }
        assert_eq!(Witnesses::of(seen(), |_| false).count(None), 0, "another project has instances, too");
        assert_eq!(Witnesses::default().count(Some(at(9))), 0);
    }
}
