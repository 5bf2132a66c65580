//! Decides what to do about a load balancer of this cluster whose Service is gone, or needs no load balancer and does not have this
//! controller's finalizer.
//!
//! A Service that is missing in the cache proves nothing. A deletion needs a live answer of the API server and proof of ownership: this
//! process created the load balancer, or its Service exists and needs none. Any other is an orphan: it is reported, and deleted if a user
//! releases it by name, or gradually after some time if the flags say so.

use std::{collections::BTreeMap, time::Duration};

use super::{
    Operation,
    cloud::{Balancer, State},
    memory::Memory,
    service::ServiceId,
};

/// Maximum number of keys that are read. Users release orphans one by one, so they do not need more.
pub(crate) const MOST_RELEASES: usize = 1000;

/// Minimum time between the report of an orphan and its deletion, so that all other orphans are found first.
const PAUSE: Duration = Duration::from_secs(10);

/// Live answer of the API server about the Service for which a load balancer was created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// The Service exists and needs a load balancer or has this controller's finalizer, so the cache lags behind.
    Ours,
    /// The Service exists and needs no load balancer.
    WantsNone,
    /// Another controller manages the Service.
    Others,
    /// The Service does not exist.
    Gone,
}

/// How orphans are handled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Orphans {
    /// Orphans are reported and kept.
    #[default]
    Report,
    /// Orphans are deleted after this time.
    DeleteAfter(Duration),
}

/// The released orphans: the UID of the former Service, and its `NAMESPACE/NAME`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Releases(BTreeMap<String, String>);

/// Whether an orphan was released.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Release {
    /// The orphan was not released.
    #[default]
    None,
    /// The orphan was released and may be deleted.
    Given,
    /// The orphan was released under this name, which differs from the name in its tags.
    Misnamed(String),
}

impl Releases {
    /// Reads the ConfigMap, up to the maximum number of keys.
    pub(crate) fn read(data: BTreeMap<String, String>) -> Self {
        let trimmed = |(uid, name): (String, String)| (uid, name.trim().to_owned());
        Self(data.into_iter().take(MOST_RELEASES).map(trimmed).collect())
    }

    /// The release of the load balancer that was created for this Service.
    pub(crate) fn of(&self, id: &ServiceId) -> Release {
        match self.0.get(&id.uid) {
            None => Release::None,
            Some(name) if *name == id.to_string() => Release::Given,
            Some(name) => Release::Misnamed(name.clone()),
        }
    }

    /// Whether both have the same entry for this UID.
    pub(crate) fn agrees(&self, other: &Self, uid: &str) -> bool {
        self.0.get(uid) == other.0.get(uid)
    }
}

/// The decision about a leftover load balancer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Delete it now. If the deletion fails, this step is reported.
    Remove(Operation),
    /// Delete it if the deletion brake allows that and no Service has the UID in its tags.
    RemoveOrphan,
    /// Delete it without the brake, because a user released it, unless a Service has the UID in its tags.
    RemoveReleased,
    /// Report it, and check it again after this time, if a time is given.
    Report(Option<Duration>),
    /// Do nothing: the cache will show the Service.
    Wait,
    /// Do nothing: it belongs to another controller.
    Leave,
}

/// IDs of the load balancers that are not being deleted.
pub(crate) fn there(cloud: &[Balancer]) -> Vec<String> {
    cloud.iter().filter(|it| it.state != State::Deleting).map(|it| it.vendor_id.clone()).collect()
}

/// Decides about the load balancers of one Service.
pub(crate) fn judge(
    standing: Standing,
    memory: &Memory,
    (orphans, release): (Orphans, &Release),
    now: Duration,
) -> Verdict {
    match (standing, orphans) {
        (Standing::Ours, _) => Verdict::Wait,
        (Standing::Others, _) => Verdict::Leave,
        (Standing::WantsNone, _) => Verdict::Remove(Operation::Sync),
        // A deletion that has begun continues, whatever its reason was.
        (Standing::Gone, _) if memory.removes() => Verdict::Remove(Operation::LeftOver),
        (Standing::Gone, _) if *release == Release::Given => Verdict::RemoveReleased,
        (Standing::Gone, _) if memory.made => Verdict::Remove(Operation::LeftOver),
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
    fn only_proven_leftovers_are_deleted() {
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
            (Standing::WantsNone, &unknown, report, Verdict::Remove(Operation::Sync)),
            (Standing::Gone, &made, report, Verdict::Remove(Operation::LeftOver)),
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
            (Standing::WantsNone, &unknown, Verdict::Remove(Operation::Sync)),
            (Standing::Gone, &unknown, Verdict::RemoveReleased),
            (Standing::Gone, &made, Verdict::RemoveReleased),
            (Standing::Gone, &goes, Verdict::Remove(Operation::LeftOver)),
        ];
        for (standing, memory, want) in rows {
            for orphans in [report, delete] {
                let verdict = judge(standing, memory, (orphans, &Release::Given), now);
                assert_eq!(verdict, want, "{standing:?} {memory:?} {orphans:?}");
            }
        }
    }

    #[test]
    fn release_must_match_uid_and_tagged_name() {
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

    /// Applies an event to the memory. Returns whether this process has a load balancer of its own in the cloud afterwards.
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
                drop(memory.removal(&Operation::Sync, &answer(State::Absent), Duration::ZERO));
            }
            3 => drop(memory.removal(&Operation::Sync, &answer(State::Deleting), Duration::ZERO)),
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
        /// For every history, a load balancer that is needed or belongs to another controller is kept, even if it was released, and nothing
        /// is deleted without a release or a proof.
        // Behaviour: S17
        #[test]
        fn nothing_is_deleted_without_proof(
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
                    (Standing::WantsNone, _) => prop_assert_eq!(verdict, Verdict::Remove(Operation::Sync)),
                    (Standing::Gone, _) if release == Release::Given => {
                        let begun = memory.removes() && verdict == Verdict::Remove(Operation::LeftOver);
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
