//! What becomes of a load balancer of this cluster whose Service is gone, or wants none and carries no finalizer of ours. Pure.
//!
//! That a mirror shows no Service proves nothing; the API server's live word does, and only with a reason to believe that the load
//! balancer is ours to remove: this process asked for it, or its Service is there and wants none. Without one it is an orphan: told,
//! and removed only if a person releases it by name, or if the flags say so: then after a while, and never many at once.

use std::{collections::BTreeMap, time::Duration};

use super::{
    Step,
    cloud::{Balancer, State},
    memory::Memory,
    service::ServiceId,
};

/// More keys than this are not read: nobody looks at so many one by one.
pub(crate) const MOST_RELEASES: usize = 1000;

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

/// What people have released: by the UID that a Service had, its `NAMESPACE/NAME`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Releases(BTreeMap<String, String>);

/// What a person has said of an orphan.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Release {
    /// Nothing.
    #[default]
    None,
    /// It may go.
    Given,
    /// The one of this name may go, which is not what its tags say.
    Misnamed(String),
}

impl Releases {
    /// What the ConfigMap says, as far as it is read.
    pub(crate) fn read(data: BTreeMap<String, String>) -> Self {
        let trimmed = |(uid, name): (String, String)| (uid, name.trim().to_owned());
        Self(data.into_iter().take(MOST_RELEASES).map(trimmed).collect())
    }

    /// What is said of the load balancer that was made for this Service.
    pub(crate) fn of(&self, id: &ServiceId) -> Release {
        match self.0.get(&id.uid) {
            None => Release::None,
            Some(name) if *name == id.to_string() => Release::Given,
            Some(name) => Release::Misnamed(name.clone()),
        }
    }

    /// Whether both say the same of this UID.
    pub(crate) fn agrees(&self, other: &Self, uid: &str) -> bool {
        self.0.get(uid) == other.0.get(uid)
    }
}

/// What to do about one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It may be asked for the removal at once; should it fail, it is this that does.
    Remove(Step),
    /// The same, if the brake lets it and the API server knows its UID under no name.
    RemoveOrphan,
    /// The same without the brake: a person has released it.
    RemoveReleased,
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
pub(crate) fn judge(
    standing: Standing,
    memory: &Memory,
    (orphans, release): (Orphans, &Release),
    now: Duration,
) -> Verdict {
    match (standing, orphans) {
        (Standing::Ours, _) => Verdict::Wait,
        (Standing::Others, _) => Verdict::Leave,
        (Standing::WantsNone, _) => Verdict::Remove(Step::Sync),
        // What has begun goes on, whoever said that it may.
        (Standing::Gone, _) if memory.removes() => Verdict::Remove(Step::LeftOver),
        (Standing::Gone, _) if *release == Release::Given => Verdict::RemoveReleased,
        (Standing::Gone, _) if memory.made => Verdict::Remove(Step::LeftOver),
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
        let mut goes = made.clone();
        goes.removing(Duration::ZERO);
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
            for release in [Release::None, Release::Misnamed("default/other".to_owned())] {
                let verdict = judge(standing, memory, (orphans, &release), now);
                assert_eq!(verdict, want, "{standing:?} {memory:?} {orphans:?} {release:?}");
            }
        }
        let rows = [
            (Standing::Ours, &unknown, Verdict::Wait),
            (Standing::Others, &unknown, Verdict::Leave),
            (Standing::WantsNone, &unknown, Verdict::Remove(Step::Sync)),
            (Standing::Gone, &unknown, Verdict::RemoveReleased),
            (Standing::Gone, &made, Verdict::RemoveReleased),
            (Standing::Gone, &goes, Verdict::Remove(Step::LeftOver)),
        ];
        for (standing, memory, want) in rows {
            for orphans in [report, delete] {
                let verdict = judge(standing, memory, (orphans, &Release::Given), now);
                assert_eq!(verdict, want, "{standing:?} {memory:?} {orphans:?}");
            }
        }
    }

    #[test]
    fn a_release_is_for_the_uid_and_the_name_that_the_tags_say() {
        let id = |uid: &str, name: &str| ServiceId {
            namespace: "default".to_owned(),
            name: name.to_owned(),
            uid: uid.to_owned(),
        };
        let read = |entries: &[(&str, &str)]| {
            let entries = entries.iter().map(|(uid, name)| ((*uid).to_owned(), (*name).to_owned()));
            Releases::read(entries.collect())
        };
        let releases = read(&[("u-1", "default/web\n"), ("u-2", "default/api"), ("u-3", "")]);
        assert_eq!(releases.of(&id("u-1", "web")), Release::Given);
        assert_eq!(releases.of(&id("u-2", "web")), Release::Misnamed("default/api".to_owned()));
        assert_eq!(releases.of(&id("u-3", "web")), Release::Misnamed(String::new()));
        assert_eq!(releases.of(&id("u-4", "web")), Release::None);
        assert!(releases.agrees(&read(&[("u-1", "default/web")]), "u-1"));
        assert!(!releases.agrees(&Releases::default(), "u-1"));

        let many = (0..=MOST_RELEASES).map(|n| (format!("u-{n:05}"), "default/web".to_owned())).collect();
        let releases = Releases::read(many);
        let of = |n: usize| releases.of(&id(&format!("u-{n:05}"), "web"));
        assert_eq!((of(MOST_RELEASES - 1), of(MOST_RELEASES)), (Release::Given, Release::None));
    }

    /// Anything that may happen to what is remembered; tells whether this process has something of its own at the cloud then.
    fn happens(memory: &mut Memory, event: u8, now: Duration, ours: bool) -> bool {
        let answer = |state| Removal { state, why: String::new(), budget: None, retry_after: None };
        let other = Service { class: Class::Others, ..Service::default() };
        match event {
            0 => {
                *memory = memory.begun();
                memory.removed = false;
            }
            1 => drop(memory.removing(Duration::ZERO)),
            2 if memory.removes() => {
                drop(memory.removal(&Step::Sync, &answer(State::Absent), Duration::ZERO));
            }
            3 => drop(memory.removal(&Step::Sync, &answer(State::Deleting), Duration::ZERO)),
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
        /// Whatever was and whenever it is asked: what is wanted or another's stays, whoever released it, and without a proof nothing
        /// goes that was not asked for.
        #[test]
        fn nothing_goes_without_a_proof(
            standing in 0..4_usize,
            events in prop::collection::vec((0..12_u8, 0..100_u64), 0..24),
            age in prop::option::of(0..7200_u64),
            release in 0..3_usize,
        ) {
            let release = [Release::None, Release::Misnamed("a/b".to_owned()), Release::Given][release].clone();
            let standing = [Standing::Ours, Standing::WantsNone, Standing::Others, Standing::Gone][standing];
            let orphans = age.map_or(Orphans::Report, |age| Orphans::DeleteAfter(Duration::from_secs(age)));
            let (mut memory, mut now, mut ours) = (Memory::default(), Duration::ZERO, false);
            for (event, seconds) in events {
                now += Duration::from_secs(seconds);
                ours = happens(&mut memory, event, now, ours);
                let verdict = judge(standing, &memory, (orphans, &release), now);
                let goes = !matches!(verdict, Verdict::Report(_) | Verdict::Wait | Verdict::Leave);
                prop_assert!(verdict != Verdict::RemoveReleased || release == Release::Given);
                match (standing, orphans) {
                    (Standing::Ours | Standing::Others, _) => prop_assert!(!goes, "{:?}", verdict),
                    (Standing::WantsNone, _) => prop_assert_eq!(verdict, Verdict::Remove(Step::Sync)),
                    (Standing::Gone, _) if release == Release::Given => {
                        let begun = memory.removes() && verdict == Verdict::Remove(Step::LeftOver);
                        prop_assert!(begun || verdict == Verdict::RemoveReleased, "{:?}", verdict);
                    }
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
