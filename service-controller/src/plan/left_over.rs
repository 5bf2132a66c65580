//! What becomes of a load balancer of this cluster whose Service is gone, or wants none and carries no finalizer of ours. Pure.
//!
//! That a mirror shows no Service proves nothing; the API server's live word does, and only with a reason to believe that the load
//! balancer is ours to remove: this process asked for it, or its Service is there and wants none. Without one it is an orphan: told,
//! and removed only if the flags say so, after a while, and never many at once.

use std::time::Duration;

use super::{
    Step,
    cloud::{Balancer, State},
    memory::Memory,
};

/// Between the word that it is an orphan and the removal, at least: so that all others are known as such, too.
const PAUSE: Duration = Duration::from_secs(10);

/// What the API server says, live, of the Service that a load balancer was made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// It is there and wants one, or our finalizer holds it: the mirror is behind.
    Ours,
    /// It is there and wants none.
    WantsNone,
    /// It is another's.
    Others,
    /// There is no such Service.
    Gone,
}

/// What becomes of orphans.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Orphans {
    /// They are told, and stay.
    #[default]
    Report,
    /// They go when they were orphans for so long.
    DeleteAfter(Duration),
}

/// What to do about one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It may be asked for the removal at once; should it fail, it is this that does.
    Remove(Step),
    /// The same, if the brake lets it and the API server knows its UID under no name.
    RemoveOrphan,
    /// It is told, and looked at again after a while, if at all.
    Report(Option<Duration>),
    /// The mirror will tell.
    Wait,
    /// It is none of our business.
    Leave,
}

/// IDs of what is there and does not go already.
pub(crate) fn there(cloud: &[Balancer]) -> Vec<String> {
    cloud.iter().filter(|it| it.state != State::Deleting).map(|it| it.vendor_id.clone()).collect()
}

/// Judges one load balancer, or several of one Service.
pub(crate) fn judge(standing: Standing, memory: &Memory, orphans: Orphans, now: Duration) -> Verdict {
    match (standing, orphans) {
        (Standing::Ours, _) => Verdict::Wait,
        (Standing::Others, _) => Verdict::Leave,
        (Standing::WantsNone, _) => Verdict::Remove(Step::Sync),
        (Standing::Gone, _) if memory.made || memory.removes() => Verdict::Remove(Step::LeftOver),
        (Standing::Gone, Orphans::Report) => Verdict::Report(None),
        (Standing::Gone, Orphans::DeleteAfter(age)) => {
            match age.checked_sub(memory.orphan_for(now)).filter(|rest| !rest.is_zero()) {
                Some(rest) => Verdict::Report(Some(rest.max(PAUSE))),
                None if memory.is_orphan_told() => Verdict::RemoveOrphan,
                None => Verdict::Report(Some(PAUSE)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::plan::{
        cloud::Removal,
        service::{Class, Service},
    };

    #[test]
    fn only_what_is_proven_goes() {
        let (hour, now) = (Duration::from_hours(1), Duration::from_hours(2));
        let unknown = Memory::default();
        let made = Memory::of_one_that_was_made();
        let orphan = |since, told| {
            let mut memory = Memory::default();
            memory.orphan_doubt(since);
            if told {
                memory.tell_orphan();
            }
            memory
        };
        let (report, delete) = (Orphans::Report, Orphans::DeleteAfter(hour));
        let rows = [
            (Standing::Ours, &made, delete, Verdict::Wait),
            (Standing::Others, &made, delete, Verdict::Leave),
            (Standing::WantsNone, &unknown, report, Verdict::Remove(Step::Sync)),
            (Standing::Gone, &made, report, Verdict::Remove(Step::LeftOver)),
            (Standing::Gone, &unknown, report, Verdict::Report(None)),
            (Standing::Gone, &orphan(Duration::ZERO, true), report, Verdict::Report(None)),
            (Standing::Gone, &unknown, delete, Verdict::Report(Some(hour))),
            (Standing::Gone, &orphan(now - hour / 4, true), delete, Verdict::Report(Some(hour * 3 / 4))),
            (Standing::Gone, &orphan(now - hour, true), delete, Verdict::RemoveOrphan),
            (Standing::Gone, &orphan(now - hour, false), delete, Verdict::Report(Some(PAUSE))),
        ];
        for (standing, memory, orphans, want) in rows {
            assert_eq!(judge(standing, memory, orphans, now), want, "{standing:?} {memory:?} {orphans:?}");
        }
    }

    /// Anything that may happen to what is remembered; tells whether this process has something of its own at the cloud then.
    fn happens(memory: &mut Memory, event: u8, now: Duration, ours: bool) -> bool {
        let answer = |state| Removal { state, why: String::new(), retry_after: None };
        let other = Service { class: Class::Others, ..Service::default() };
        match event {
            0 => {
                *memory = memory.begun();
                memory.removed = false;
            }
            1 => drop(memory.removing()),
            2 if memory.removes() => drop(memory.removal(&Step::Sync, &answer(State::Absent))),
            3 => drop(memory.removal(&Step::Sync, &answer(State::Deleting))),
            4 if memory.removed => drop(memory.released()),
            5 => drop(memory.orphan_doubt(now)),
            6 => drop(memory.tell_orphan()),
            7 => memory.calm(),
            8 => memory.observe(&other, Some(&[]), now),
            9 => *memory = Memory::default(),
            _ => drop(memory.orphan_went(event.is_multiple_of(2))),
        }
        match event {
            0 | 1 => true,
            9 => false,
            2 | 4 => ours && !memory.removed && *memory != Memory::default(),
            _ => ours,
        }
    }

    proptest! {
        /// Whatever was and whenever it is asked: what is wanted or another's stays, and without a proof nothing goes that was not asked
        /// for.
        #[test]
        fn nothing_goes_without_a_proof(
            standing in 0..4_usize,
            events in prop::collection::vec((0..12_u8, 0..100_u64), 0..24),
            age in prop::option::of(0..7200_u64),
        ) {
            let standing = [Standing::Ours, Standing::WantsNone, Standing::Others, Standing::Gone][standing];
            let orphans = age.map_or(Orphans::Report, |age| Orphans::DeleteAfter(Duration::from_secs(age)));
            let (mut memory, mut now, mut ours) = (Memory::default(), Duration::ZERO, false);
            for (event, seconds) in events {
                now += Duration::from_secs(seconds);
                ours = happens(&mut memory, event, now, ours);
                let verdict = judge(standing, &memory, orphans, now);
                let goes = matches!(verdict, Verdict::Remove(_) | Verdict::RemoveOrphan);
                match (standing, orphans) {
                    (Standing::Ours | Standing::Others, _) => prop_assert!(!goes, "{:?}", verdict),
                    (Standing::WantsNone, _) => prop_assert_eq!(verdict, Verdict::Remove(Step::Sync)),
                    (Standing::Gone, Orphans::Report) => prop_assert!(!goes || ours, "{:?}", verdict),
                    (Standing::Gone, Orphans::DeleteAfter(age)) => {
                        let old = memory.orphan_for(now) >= age && memory.is_orphan_told();
                        prop_assert!(!goes || ours || (old && verdict == Verdict::RemoveOrphan), "{:?}", verdict);
                    }
                }
            }
        }
    }
}
