//! Who can say that the right part of the cloud was looked at. Pure.
//!
//! A token for another project sees none of the cluster's instances, and perhaps many of others. So those count that belong to the
//! cluster, and those that were seen before together with what is missing.

use tokio::time::Instant;

use crate::snapshot::Departed;

/// Who was seen in reads that began at one time or later.
#[derive(Debug, Default)]
pub(crate) struct Jury {
    /// Since when each is seen, oldest first.
    all: Vec<Instant>,
    /// The same of those that belong to the cluster.
    members: Vec<Instant>,
}

impl Jury {
    /// From keys and since when they are seen.
    pub(crate) fn of(seen: Vec<(String, Instant)>, is_member: impl Fn(&str) -> bool) -> Self {
        let mut members: Vec<Instant> =
            seen.iter().filter(|(key, _)| is_member(key)).map(|(_, since)| *since).collect();
        let mut all: Vec<Instant> = seen.into_iter().map(|(_, since)| since).collect();
        all.sort_unstable();
        members.sort_unstable();
        Self { all, members }
    }

    /// How many bear witness for one that is missing: those that were there when it was last seen, and those of the cluster.
    pub(crate) fn witnesses(&self, last_seen: Option<Instant>) -> usize {
        let until = |row: &[Instant]| last_seen.map_or(0, |at| row.partition_point(|since| *since <= at));
        until(&self.all) + self.members.len() - until(&self.members)
    }

    /// How many bear witness for one that is itself among them.
    pub(crate) fn others(&self) -> usize {
        self.all.len().saturating_sub(1)
    }
}

/// Whether a passed self-check would prove the absence: it was seen in this scope, and did not vanish with everything else.
pub(crate) fn alone(departed: Option<Departed>) -> bool {
    departed.is_some_and(|one| !one.en_masse)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn strangers_bear_no_witness() {
        #[expect(clippy::disallowed_methods, reason = "only differences matter")]
        let start = Instant::from_std(std::time::Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        let seen = || vec![("old".to_owned(), at(1)), ("new".to_owned(), at(9)), ("ours".to_owned(), at(8))];
        let jury = Jury::of(seen(), |key| key == "ours");
        for (name, last_seen, wanted) in [
            ("was seen with the old one", Some(at(5)), 2),
            ("was seen with all", Some(at(9)), 3),
            ("was seen before all of them: only those of the cluster", Some(at(0)), 1),
            ("was never seen: only those of the cluster", None, 1),
        ] {
            assert_eq!(jury.witnesses(last_seen), wanted, "{name}");
        }
        assert_eq!(Jury::of(seen(), |_| false).witnesses(None), 0, "another project has machines, too");
        assert_eq!(Jury::default().witnesses(Some(at(9))), 0);
    }
}
