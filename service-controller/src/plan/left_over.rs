//! Decides what to do about a load balancer of this cluster whose Service is gone or no longer managed. A Service is no longer managed if
//! it needs no load balancer and does not have this controller's finalizer.
//!
//! A Service that is missing in the cache proves nothing. A deletion requires a live answer of the API server and proof of ownership. The
//! proof is that this process created the load balancer, or that its Service exists and needs no load balancer. Any other load balancer is
//! an orphan, which the controller reports. An orphan is deleted if a user releases it by name, or after some time if the flags request
//! that.

use std::{collections::BTreeMap, time::Duration};

use super::{
    Fact, Operation,
    cloud::{Balancer, State},
    memory::{Event, Memory, Topic},
    service::ServiceId,
};

/// Maximum number of ConfigMap keys that are read. Users release orphans one by one, so they do not need more.
pub(crate) const MOST_RELEASES: usize = 1000;

/// Minimum time between the report of an orphan and its deletion. All other orphans are found within this time.
const PAUSE: Duration = Duration::from_secs(10);

/// Live answer of the API server about the Service for which a load balancer was created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// The Service exists, and needs a load balancer or has this controller's finalizer. The cache lags behind.
    Ours,
    /// The Service exists and needs no load balancer.
    WantsNone,
    /// Another controller manages the Service.
    Others,
    Gone,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Orphans {
    /// Orphans are reported and kept.
    #[default]
    Report,
    /// Orphans are deleted after this time.
    DeleteAfter(Duration),
}

/// The released orphans, as the UID and the `NAMESPACE/NAME` of the former Service.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Releases(BTreeMap<String, String>);

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Release {
    #[default]
    None,
    /// The orphan was released and may be deleted.
    Given,
    /// The orphan was released under this name, which differs from the name in its tags.
    Misnamed(String),
}

impl Releases {
    pub(crate) fn read(data: BTreeMap<String, String>) -> Self {
        let trimmed = |(uid, name): (String, String)| (uid, name.trim().to_owned());
        Self(data.into_iter().take(MOST_RELEASES).map(trimmed).collect())
    }

    /// Returns whether the load balancer that was created for this Service was released.
    pub(crate) fn of(&self, id: &ServiceId) -> Release {
        match self.0.get(&id.uid) {
            None => Release::None,
            Some(name) if *name == id.to_string() => Release::Given,
            Some(name) => Release::Misnamed(name.clone()),
        }
    }

    pub(crate) fn agrees(&self, other: &Self, uid: &str) -> bool {
        self.0.get(uid) == other.0.get(uid)
    }
}

/// The first decision about a Service that is missing in the cache, made before the controller requests the Service from the API server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Check {
    /// Nothing is left to do. The memory is dropped after this time.
    Done(Vec<Fact>, Option<Duration>),
    /// Check again after this time, because the cache may lag behind, or more Services may disappear.
    Wait(Duration),
    /// Do not call the adapter for this time, as the adapter requested.
    Hold(Duration),
    /// Get the Service from the API server, then [`judge`].
    Verify,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Delete the load balancer, if the deletion brake allows that (`braked`). If the deletion fails, `step` is reported.
    Remove { step: Operation, braked: bool },
    /// Delete the load balancer, if the deletion brake allows that and no Service has the UID in the load balancer's tags.
    RemoveOrphan,
    /// Delete the load balancer without the brake, because a user released it, unless a Service has the UID in the load balancer's tags.
    RemoveReleased,
    /// Report the load balancer. Check it again after this time, if a time is given.
    Report(Option<Duration>),
    /// Do nothing, because the cache will show the Service.
    Wait,
    /// Do nothing, because the load balancer belongs to another controller.
    Leave,
}

impl Verdict {
    pub(crate) fn removes(&self) -> bool {
        match self {
            Self::Remove { .. } | Self::RemoveOrphan | Self::RemoveReleased => true,
            Self::Report(_) | Self::Wait | Self::Leave => false,
        }
    }
}

/// IDs of the load balancers that are not being deleted.
pub(crate) fn there(cloud: &[Balancer]) -> Vec<String> {
    cloud.iter().filter(|it| it.state != State::Deleting).map(|it| it.vendor_id.clone()).collect()
}

/// Makes the first decision about a Service that is missing in the cache, and updates its memory.
pub(crate) fn check(memory: &mut Memory, cloud: Option<&[Balancer]>, now: Duration) -> Check {
    memory.reported.resolve(Topic::Wish);
    memory.reported.resolve(Topic::Refused);
    let is_there = !there(cloud.unwrap_or_default()).is_empty();
    let is_removed = memory.is_removed();
    if !is_there && !memory.owned.created && !memory.is_removing() && !is_removed {
        memory.on(Event::InSync { as_requested: false });
        return Check::Done(Vec::new(), memory.pacing.release_lasts(now));
    }
    let outcome = memory.on(Event::ServiceMissing { shown: cloud.map(|_| is_there), now });
    if is_removed {
        return Check::Done(outcome.facts, None);
    }
    let doubt = memory.orphan_doubt(now).map(Check::Wait);
    doubt.or_else(|| memory.pacing.held(now).map(Check::Hold)).unwrap_or(Check::Verify)
}

pub(crate) fn judge(
    standing: Standing,
    memory: &Memory,
    orphans: Orphans,
    release: &Release,
    now: Duration,
) -> Verdict {
    let remove = |step| Verdict::Remove { step, braked: false };
    match (standing, orphans) {
        (Standing::Ours, _) => Verdict::Wait,
        (Standing::Others, _) => Verdict::Leave,
        (Standing::WantsNone, _) => remove(Operation::Sync),
        // A deletion that has begun continues, whatever its reason was.
        (Standing::Gone, _) if memory.is_removing() => remove(Operation::LeftOver),
        (Standing::Gone, _) if *release == Release::Given => Verdict::RemoveReleased,
        // If a user deleted the load balancer, the removal only deletes the remains, so the brake does not apply.
        (Standing::Gone, _) if memory.owned.created => {
            Verdict::Remove { step: Operation::LeftOver, braked: !memory.has_vanished() }
        }
        (Standing::Gone, Orphans::Report) => Verdict::Report(None),
        (Standing::Gone, Orphans::DeleteAfter(age)) => {
            match age.checked_sub(memory.orphan_for(now)).filter(|rest| !rest.is_zero()) {
                Some(rest) => Verdict::Report(Some(rest.max(PAUSE))),
                None if memory.is_orphan_reported() => Verdict::RemoveOrphan,
                None => Verdict::Report(Some(PAUSE)),
            }
        }
    }
}

/// Returns the name in a release that does not match the tags, if the load balancer is kept for that reason.
pub(crate) fn refused_name(release: Release, standing: Standing, memory: &Memory) -> Option<String> {
    match release {
        Release::Misnamed(name)
            if standing == Standing::Gone && !memory.is_removing() && !memory.is_removed() =>
        {
            Some(name)
        }
        Release::None | Release::Given | Release::Misnamed(_) => None,
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

    fn remove(step: Operation, braked: bool) -> Verdict {
        Verdict::Remove { step, braked }
    }

    #[test]
    fn only_proven_leftovers_are_deleted() {
        let (hour, now) = (Duration::from_hours(1), Duration::from_hours(2));
        let unknown = Memory::default();
        let made = Memory::default().with_created();
        let orphan = |since, reported| {
            let mut memory = Memory::default();
            memory.on(Event::ServiceMissing { shown: None, now: since });
            if reported {
                memory.on(Event::OrphanKept(""));
            }
            memory
        };
        let (report, delete) = (Orphans::Report, Orphans::DeleteAfter(hour));
        let mut goes = made.clone();
        goes.on(Event::DeleteCalled { now: Duration::ZERO });
        let rows = [
            (Standing::Ours, &made, delete, Verdict::Wait),
            (Standing::Others, &made, delete, Verdict::Leave),
            (Standing::WantsNone, &unknown, report, remove(Operation::Sync, false)),
            (Standing::Gone, &made, report, remove(Operation::LeftOver, true)),
            (Standing::Gone, &unknown, report, Verdict::Report(None)),
            (Standing::Gone, &orphan(Duration::ZERO, true), report, Verdict::Report(None)),
            (Standing::Gone, &unknown, delete, Verdict::Report(Some(hour))),
            (Standing::Gone, &orphan(now - hour / 4, true), delete, Verdict::Report(Some(hour * 3 / 4))),
            (Standing::Gone, &orphan(now - hour, true), delete, Verdict::RemoveOrphan),
            (Standing::Gone, &orphan(now - hour, false), delete, Verdict::Report(Some(PAUSE))),
        ];
        for (standing, memory, orphans, want) in rows {
            for release in [Release::None, Release::Misnamed("default/other".to_owned())] {
                let verdict = judge(standing, memory, orphans, &release, now);
                assert_eq!(verdict, want, "{standing:?} {memory:?} {orphans:?} {release:?}");
            }
        }
        let rows = [
            (Standing::Ours, &unknown, Verdict::Wait),
            (Standing::Others, &unknown, Verdict::Leave),
            (Standing::WantsNone, &unknown, remove(Operation::Sync, false)),
            (Standing::Gone, &unknown, Verdict::RemoveReleased),
            (Standing::Gone, &made, Verdict::RemoveReleased),
            (Standing::Gone, &goes, remove(Operation::LeftOver, false)),
        ];
        for (standing, memory, want) in rows {
            for orphans in [report, delete] {
                let verdict = judge(standing, memory, orphans, &Release::Given, now);
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

    /// Applies an event to the memory. Returns whether this process owns a load balancer in the cloud afterwards.
    fn happens(memory: &mut Memory, event: u8, now: Duration, ours: bool) -> bool {
        let delete_answered = |memory: &mut Memory, state| {
            let answer =
                Removal { state, why: String::new(), budget: None, failure: None, retry_after: None };
            memory.on(Event::DeleteAnswered { step: &Operation::Sync, answer: &answer, now });
        };
        let other = Service { class: Class::Others, ..Service::default() };
        match event {
            0 => {
                *memory = memory.with_created();
                memory.observe(&Service::default(), None, now);
            }
            1 => drop(memory.on(Event::DeleteCalled { now })),
            2 if memory.is_removing() => delete_answered(memory, State::Absent),
            3 => delete_answered(memory, State::Deleting),
            4 if memory.is_removed() => drop(memory.on(Event::Released)),
            5 => drop(memory.on(Event::ServiceMissing { shown: Some(event.is_multiple_of(2)), now })),
            6 => drop(memory.on(Event::OrphanKept(""))),
            7 => drop(memory.on(Event::InSync { as_requested: false })),
            8 => memory.observe(&other, Some(&[]), now),
            9 => *memory = Memory::default(),
            _ => drop(memory.on(Event::ServiceMissing { shown: Some(event.is_multiple_of(2)), now })),
        }
        match event {
            0 | 1 => true,
            9 => false,
            2 | 4 => ours && !memory.is_removed() && *memory != Memory::default(),
            _ => ours,
        }
    }

    proptest! {
        /// In every history, a load balancer is kept if it is needed or belongs to another controller, even if it was released. Nothing is
        /// deleted without a release or a proof.
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
                let verdict = judge(standing, &memory, orphans, &release, now);
                let goes = verdict.removes();
                prop_assert!(verdict != Verdict::RemoveReleased || release == Release::Given);
                match (standing, orphans) {
                    (Standing::Ours | Standing::Others, _) => prop_assert!(!goes, "{:?}", verdict),
                    (Standing::WantsNone, _) => prop_assert_eq!(verdict, remove(Operation::Sync, false)),
                    (Standing::Gone, _) if release == Release::Given => {
                        let begun = memory.is_removing() && verdict == remove(Operation::LeftOver, false);
                        prop_assert!(begun || verdict == Verdict::RemoveReleased, "{:?}", verdict);
                    }
                    (Standing::Gone, Orphans::Report) => prop_assert!(!goes || ours, "{:?}", verdict),
                    (Standing::Gone, Orphans::DeleteAfter(age)) => {
                        let old = memory.orphan_for(now) >= age && memory.is_orphan_reported();
                        prop_assert!(!goes || ours || (old && verdict == Verdict::RemoveOrphan), "{:?}", verdict);
                    }
                }
            }
        }
    }
}
