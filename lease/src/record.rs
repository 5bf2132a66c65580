//! The fields of a Lease that matter to an election, and the bodies of patches.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::coordination::v1::Lease,
    apimachinery::pkg::apis::meta::v1::{MicroTime, Time},
    jiff::Timestamp,
};
use serde_json::{Value, json};

use crate::settings::{Settings, Timing};

/// The data for an acquisition of the lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Acquisition {
    /// The new value of `leaseTransitions`, higher than the last observed one.
    pub transitions: u32,
    /// The value that the epoch of the new term must exceed.
    pub after: u64,
    /// The version to patch, or `None` if the Lease does not exist and must be created.
    pub version: Option<String>,
}

/// The content of a Lease. A Lease without a spec counts as not held.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// The holder, or `None` if the Lease was released or is not held.
    pub holder: Option<String>,
    /// The number of changes of the holder.
    pub transitions: u32,
    /// Creation time of the Lease, by the API server's clock.
    pub created: Option<Timestamp>,
    /// The time of the last change of the holder, as stated by the holder. Each change of the holder has a later time than the change
    /// before. See [`Record::epoch`].
    pub acquired: Option<Timestamp>,
    /// Whether the last holder released the Lease and no longer relies on it. The value is false if another client emptied the Lease.
    pub released: bool,
    /// The UID of the Lease, which distinguishes this Lease from other Leases of the same name.
    pub uid: String,
    /// The time of the last renewal, as stated by the holder. This time is never compared with a clock. Only a change of the value matters,
    /// because it shows that the holder is alive.
    pub renewed: Option<Timestamp>,
    /// Version that a patch requires. The version also changes for reasons that do not matter to an election.
    pub version: String,
    /// The replica that asks the holder for the Lease, or for which the last holder released the Lease.
    pub wanted_by: Option<String>,
    /// The number of shards that the holder uses. `None` means that the Lease states no number, so there is one shard.
    pub shards: Option<u16>,
    /// At most this many Leases of another division (another number of shards) may still be held. `None`: no such Lease is recorded.
    pub before: Option<u16>,
}

impl Record {
    /// Returns the epoch, which identifies the term of the holder and is higher than the epoch of any earlier term.
    ///
    /// The epoch is the second in which the holder acquired the Lease (`acquireTime`), by the holder's clock. If the previous epoch plus
    /// one is higher, that value is used instead. While the Lease exists, clocks do not matter. Each new holder has observed the previous
    /// epoch, and if two candidates have observed the same epoch, the API server refuses one of them. A Lease that was deleted, restored or
    /// replaced has lost its epoch. No process takes such a Lease before the lease duration is over (except a Lease that was never held).
    /// An epoch could therefore repeat or decrease only while the clocks of two hosts differ by more than the lease duration.
    ///
    /// Earlier versions of this program derived epochs from the creation time of the Lease. The value of `acquireTime` is higher than those
    /// epochs.
    #[must_use]
    pub fn epoch(&self) -> u64 {
        let second = |at: Option<Timestamp>| at.and_then(|at| u64::try_from(at.as_second()).ok());
        let made = second(self.created).unwrap_or_default();
        second(self.acquired).unwrap_or_default().max(made.saturating_add(self.transitions.into()))
    }

    /// Whether no process ever held the Lease, according to the record. The chart creates such a Lease.
    pub(crate) fn is_untouched(&self) -> bool {
        (&self.holder, self.transitions, self.acquired, self.renewed) == (&None, 0, None, None)
    }

    /// Whether the records differ in a field that matters to an election.
    pub(crate) fn differs(&self, other: &Self) -> bool {
        (&self.holder, self.transitions, self.renewed) != (&other.holder, other.transitions, other.renewed)
    }
}

impl From<Lease> for Record {
    fn from(lease: Lease) -> Self {
        let spec = lease.spec.unwrap_or_default();
        let notes = lease.metadata.annotations.unwrap_or_default();
        let holder = spec.holder_identity.filter(|holder| !holder.is_empty());
        let transitions = spec.lease_transitions.and_then(|n| u32::try_from(n).ok()).unwrap_or_default();
        let (shards, before) = division(&notes, transitions);
        Self {
            released: holder.is_none() && spec.lease_duration_seconds == Some(RELEASED),
            holder,
            transitions,
            created: lease.metadata.creation_timestamp.map(|Time(at)| at),
            acquired: spec.acquire_time.map(|MicroTime(at)| at),
            uid: lease.metadata.uid.unwrap_or_default(),
            renewed: spec.renew_time.map(|MicroTime(at)| at),
            version: lease.metadata.resource_version.unwrap_or_default(),
            wanted_by: notes.get(WANTED_BY).filter(|by| !by.is_empty()).cloned(),
            shards,
            before,
        }
    }
}

/// Returns the holder's number of shards. Also returns the maximum number of Leases that replicas with another number of shards may still
/// hold.
///
/// A version without support for shards keeps the annotations that other versions wrote. Such annotations belong to an earlier term and
/// only show which Leases to observe.
fn division(notes: &BTreeMap<String, String>, transitions: u32) -> (Option<u16>, Option<u16>) {
    let before = notes.get(BEFORE).map(|text| shards(text));
    let Some(text) = notes.get(SHARDS) else { return (None, before) };
    let (number, term) = text.split_once('@').unwrap_or((text, ""));
    let stored = shards(number);
    if term == transitions.to_string() { (Some(stored), before) } else { (None, before.max(Some(stored))) }
}

/// Returns the value of the `SHARDS` annotation.
pub(crate) fn shards_in_term(shards: u16, transitions: u32) -> String {
    format!("{shards}@{transitions}")
}

/// Parses a number of shards. If the value is unreadable, the maximum is assumed, so that all possible Leases are observed.
fn shards(text: &str) -> u16 {
    text.parse().ok().filter(|shards| (1..=MOST_SHARDS).contains(shards)).unwrap_or(MOST_SHARDS)
}

/// The maximum number of shards. A limit is needed because every replica reads the Lease of each shard.
pub(crate) const MOST_SHARDS: u16 = 64;
/// The annotation that names the replica that asks for the Lease. The annotation is kept when the Lease is released for that replica, and
/// removed when the Lease is taken.
pub(crate) const WANTED_BY: &str = "cloudadapter.dev/wanted-by";
/// The annotation with the number of shards, and the `leaseTransitions` of the term in which the annotation was written, such as `8@5`.
pub(crate) const SHARDS: &str = "cloudadapter.dev/shards";
/// The annotation with the maximum number of Leases that replicas with another number of shards may still hold. The first shard's Lease has
/// this annotation until no such Lease can be held.
pub(crate) const BEFORE: &str = "cloudadapter.dev/shards-before";

pub(crate) fn name_of(first: &str, at: usize) -> String {
    if at == 0 { first.to_owned() } else { format!("{first}-{at}") }
}

/// The annotations to write. `None` removes the annotation.
pub(crate) type Notes = BTreeMap<&'static str, Option<String>>;

pub(crate) fn with_notes(mut body: Value, notes: &Notes) -> Value {
    if let (Some(metadata), false) =
        (body.get_mut("metadata").and_then(Value::as_object_mut), notes.is_empty())
    {
        metadata.insert("annotations".into(), json!(notes));
    }
    body
}

pub(crate) fn note(version: &str, notes: &Notes) -> Value {
    with_notes(json!({ "metadata": { "resourceVersion": version } }), notes)
}

/// The value of `leaseDurationSeconds` in a released Lease. The value is that of `release` in client-go's leaderelection.go.
const RELEASED: i32 = 1;

/// Returns the body that acquires the lease. The body is a patch for an existing version, or a complete new Lease.
pub(crate) fn acquisition(settings: &Settings, acquisition: &Acquisition, now: Timestamp) -> Value {
    let Acquisition { transitions, after, version } = acquisition;
    json!({
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": { "name": settings.name, "namespace": settings.namespace, "resourceVersion": version },
        "spec": {
            "holderIdentity": settings.identity,
            "leaseDurationSeconds": settings.timing.whole_seconds(),
            "leaseTransitions": transitions,
            "acquireTime": MicroTime(acquired_at(now, *after)),
            "renewTime": MicroTime(now),
        },
    })
}

/// The current time, or the second after `epoch` if that is later.
fn acquired_at(now: Timestamp, epoch: u64) -> Timestamp {
    let next = i64::try_from(epoch.saturating_add(1)).ok();
    let next = next.and_then(|second| Timestamp::from_second(second).ok()).unwrap_or(Timestamp::MAX);
    now.max(next)
}

pub(crate) fn renewal(timing: &Timing, version: &str, at: Timestamp) -> Value {
    json!({
        "metadata": { "resourceVersion": version },
        "spec": { "leaseDurationSeconds": timing.whole_seconds(), "renewTime": MicroTime(at) },
    })
}

pub(crate) fn release(version: &str, at: Timestamp) -> Value {
    json!({
        "metadata": { "resourceVersion": version },
        "spec": { "holderIdentity": null, "leaseDurationSeconds": RELEASED, "renewTime": MicroTime(at) },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn odd_leases_are_read_as_free_ones() {
        let read = |value| Record::from(serde_json::from_value::<Lease>(value).expect("a Lease"));
        for spec in [
            json!(null),
            json!({}),
            json!({ "holderIdentity": "" }),
            json!({ "leaseTransitions": -4, "leaseDurationSeconds": 0 }),
        ] {
            let record = read(json!({ "metadata": { "resourceVersion": "7" }, "spec": spec }));
            assert_eq!(record, Record { version: "7".into(), ..Record::default() });
            assert!(record.is_untouched());
        }
    }

    #[test]
    fn a_number_of_shards_is_valid_in_the_term_that_wrote_it() {
        let read = |shards: &str, before: Option<&str>| {
            let notes = json!({ SHARDS: shards, BEFORE: before });
            let lease = json!({ "metadata": { "annotations": notes }, "spec": { "leaseTransitions": 5 } });
            let mut lease = serde_json::from_value::<Lease>(without_nulls(lease)).expect("a Lease");
            let now = Record::from(lease.clone());
            lease.spec.as_mut().expect("one").lease_transitions = Some(6);
            let later = Record::from(lease);
            ((now.shards, now.before), (later.shards, later.before))
        };
        assert_eq!(read(&shards_in_term(8, 5), None), ((Some(8), None), (None, Some(8))));
        assert_eq!(read("3@5", Some("8")), ((Some(3), Some(8)), (None, Some(8))));
        assert_eq!(read("8@5", Some("3")), ((Some(8), Some(3)), (None, Some(8))));
        for odd in ["8", "8@", "8@4", "@"] {
            let (now, later) = read(odd, None);
            assert!(now.0.is_none() && now.1 >= Some(8) && now == later, "{odd}: {now:?}");
        }
        assert_eq!(read("many@5", None).0, (Some(MOST_SHARDS), None));
    }

    fn without_nulls(mut value: Value) -> Value {
        if let Some(notes) = value.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut) {
            notes.retain(|_, note| !note.is_null());
        }
        value
    }

    #[test]
    fn a_released_lease_differs_from_an_emptied_one() {
        let released = |spec: Value| {
            let lease = serde_json::from_value::<Lease>(json!({ "metadata": {}, "spec": spec }));
            Record::from(lease.expect("a Lease")).released
        };
        let given_back = release("7", Timestamp::UNIX_EPOCH);
        assert!(released(given_back["spec"].clone()));
        assert!(
            released(json!({ "holderIdentity": "", "leaseDurationSeconds": 1 })),
            "released by client-go"
        );
        assert!(!released(json!({ "holderIdentity": "", "leaseDurationSeconds": 15 })), "emptied by hand");
        assert!(!released(json!({ "holderIdentity": "a", "leaseDurationSeconds": 1 })), "held");
    }

    /// Returns the epoch of a process that takes a Lease at the time `now`, if the previous epoch is `after`.
    fn taken(now: &str, after: u64) -> u64 {
        let settings = Settings {
            namespace: "kube-system".into(),
            name: "cloud-adapter".into(),
            identity: "a".into(),
            timing: Timing::default(),
        };
        let acquired = Acquisition { transitions: 1, after, version: None };
        let body = acquisition(&settings, &acquired, now.parse().expect("a time"));
        Record::from(serde_json::from_value::<Lease>(body).expect("a Lease")).epoch()
    }

    #[test]
    fn epochs_increase_with_any_clock_and_lease() {
        let noon = 1_767_268_800;
        assert_eq!(taken("2026-01-01T12:00:00Z", 0), noon, "a Lease without a history");
        assert_eq!(taken("2026-01-01T12:00:00.9Z", noon - 1), noon);
        assert_eq!(taken("2026-01-01T12:00:00.9Z", noon), noon + 1, "two terms in one second");
        assert_eq!(taken("2025-01-01T12:00:00Z", noon), noon + 1, "a clock that is slow");
    }

    #[test]
    fn epochs_exceed_those_of_earlier_releases() {
        let created = Some("2026-01-01T00:00:00Z".parse().expect("a time"));
        let acquired = Some("2026-01-01T00:30:00Z".parse().expect("a time"));
        let before = Record { created, acquired, transitions: 5000, ..Record::default() }.epoch();
        assert_eq!(before, 1_767_225_600 + 5000);
        assert_eq!(taken("2026-01-01T00:40:00Z", before), before + 1);
    }
}
