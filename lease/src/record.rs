//! What a Lease says, as far as an election cares, and the bodies of its patches.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::coordination::v1::Lease,
    apimachinery::pkg::apis::meta::v1::{MicroTime, Time},
    jiff::Timestamp,
};
use serde_json::{Value, json};

use crate::{
    candidate::Acquisition,
    settings::{Settings, Timing},
};

/// What a Lease says. A Lease without a spec is one that nobody holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// Who holds it. `None`: nobody, or it was given back.
    pub holder: Option<String>,
    /// How often it changed hands.
    pub transitions: u32,
    /// When the Lease was made, on the API server's clock.
    pub created: Option<Timestamp>,
    /// When it changed hands last, as its holder says. Greater each time: see [`Record::epoch`].
    pub acquired: Option<Timestamp>,
    /// Its last holder gave it back, and relies on it no more. A Lease that somebody else emptied does not say so.
    pub released: bool,
    /// Sets this Lease apart from others of its name.
    pub uid: String,
    /// When the holder says that it renewed it. Compared with nobody's clock: a change is a sign of life.
    pub renewed: Option<Timestamp>,
    /// The version that a patch must find. Changes for more reasons than an election has.
    pub version: String,
    /// Who would like to have it of its holder, or was given it by the last one.
    pub wanted_by: Option<String>,
    /// Over how many shards whoever took it divides the work. `None`: it did not say, so over one.
    pub shards: Option<u16>,
    /// Up to this many Leases of another division may still be held.
    pub before: Option<u16>,
}

impl Record {
    /// Names the term that the holder is in: greater than that of every term before.
    ///
    /// The second in which the Lease changed hands, on the clock of who took it, or one more than the epoch before, if that is greater
    /// (`acquireTime`). While the Lease lives no clock matters: who takes it has seen the epoch before, and of two that have seen the
    /// same one, one is refused. A Lease that was deleted, restored or replaced has forgotten; then the clock makes up for it. Nobody
    /// takes such a Lease before its duration is over (but one that says that nobody ever held it), so the clocks of two machines would
    /// have to differ by more than that for one epoch to be given twice, or a lesser one. It then lasts no longer than the difference:
    /// each new process tries with a later one.
    ///
    /// Earlier releases counted from the Lease's creation: whatever they reached is passed.
    #[must_use]
    pub fn epoch(&self) -> u64 {
        let second = |at: Option<Timestamp>| at.and_then(|at| u64::try_from(at.as_second()).ok());
        let made = second(self.created).unwrap_or_default();
        second(self.acquired).unwrap_or_default().max(made.saturating_add(self.transitions.into()))
    }

    /// Whether nobody ever held it, as far as it tells: so the chart makes it.
    pub(crate) fn is_untouched(&self) -> bool {
        (&self.holder, self.transitions, self.acquired, self.renewed) == (&None, 0, None, None)
    }

    /// Whether an election sees a difference.
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

/// Over how many shards whoever took the Lease divides the work, and what else may be in force.
///
/// A release that knows nothing of shards leaves what others wrote: that is of an earlier term, and tells only what to look at.
fn division(notes: &BTreeMap<String, String>, transitions: u32) -> (Option<u16>, Option<u16>) {
    let before = notes.get(BEFORE).map(|text| shards(text));
    let Some(text) = notes.get(SHARDS) else { return (None, before) };
    let (number, term) = text.split_once('@').unwrap_or((text, ""));
    let said = shards(number);
    if term == transitions.to_string() { (Some(said), before) } else { (None, before.max(Some(said))) }
}

/// The number of shards as the annotation has it, for the term in which the Lease changed hands so many times.
pub(crate) fn shards_in_term(shards: u16, transitions: u32) -> String {
    format!("{shards}@{transitions}")
}

/// What cannot be read may mean any number: then all Leases that there can be are looked at.
fn shards(text: &str) -> u16 {
    text.parse().ok().filter(|shards| (1..=MOST_SHARDS).contains(shards)).unwrap_or(MOST_SHARDS)
}

/// Each is a Lease that every replica looks at.
pub(crate) const MOST_SHARDS: u16 = 64;
/// Names who would like to have the Lease. Stays when it is given back for that, and goes when it is taken.
pub(crate) const WANTED_BY: &str = "cloudadapter.dev/wanted-by";
/// Over how many shards the work is divided, and in which term of the Lease that was said: `8@5`, the fifth.
pub(crate) const SHARDS: &str = "cloudadapter.dev/shards";
/// On the first shard's Lease, until nobody can hold one of the division before any more.
pub(crate) const BEFORE: &str = "cloudadapter.dev/shards-before";

/// The name of a shard's Lease, by that of the first one.
pub(crate) fn name_of(first: &str, at: usize) -> String {
    if at == 0 { first.to_owned() } else { format!("{first}-{at}") }
}

/// Annotations to set, or to remove.
pub(crate) type Notes = BTreeMap<&'static str, Option<String>>;

/// Adds them to the body of a patch.
pub(crate) fn with_notes(mut body: Value, notes: &Notes) -> Value {
    if let (Some(metadata), false) =
        (body.get_mut("metadata").and_then(Value::as_object_mut), notes.is_empty())
    {
        metadata.insert("annotations".into(), json!(notes));
    }
    body
}

/// Changes nothing else.
pub(crate) fn note(version: &str, notes: &Notes) -> Value {
    with_notes(json!({ "metadata": { "resourceVersion": version } }), notes)
}

/// What a Lease says of its duration once it was given back. Source: client-go, leaderelection.go, `release`.
const RELEASED: i32 = 1;

/// Takes the lease. Merged into the Lease of a version, or the whole of a new one.
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

/// Now, or the second after `epoch`, if that is later.
fn acquired_at(now: Timestamp, epoch: u64) -> Timestamp {
    let next = i64::try_from(epoch.saturating_add(1)).ok();
    let next = next.and_then(|second| Timestamp::from_second(second).ok()).unwrap_or(Timestamp::MAX);
    now.max(next)
}

/// Keeps it.
pub(crate) fn renewal(timing: &Timing, version: &str, at: Timestamp) -> Value {
    json!({
        "metadata": { "resourceVersion": version },
        "spec": { "leaseDurationSeconds": timing.whole_seconds(), "renewTime": MicroTime(at) },
    })
}

/// Gives it back, and says so.
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
    fn a_number_of_shards_counts_in_the_term_that_it_was_written_in() {
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
    fn a_lease_that_was_given_back_differs_from_one_that_was_emptied() {
        let released = |spec: Value| {
            let lease = serde_json::from_value::<Lease>(json!({ "metadata": {}, "spec": spec }));
            Record::from(lease.expect("a Lease")).released
        };
        let given_back = release("7", Timestamp::UNIX_EPOCH);
        assert!(released(given_back["spec"].clone()));
        assert!(released(json!({ "holderIdentity": "", "leaseDurationSeconds": 1 })), "by client-go");
        assert!(!released(json!({ "holderIdentity": "", "leaseDurationSeconds": 15 })), "by hand");
        assert!(!released(json!({ "holderIdentity": "a", "leaseDurationSeconds": 1 })), "held");
    }

    /// The epoch of whoever takes a Lease at this time, after these epochs.
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
    fn a_term_is_greater_than_all_before_whatever_the_clock_and_the_lease_say() {
        let noon = 1_767_268_800;
        assert_eq!(taken("2026-01-01T12:00:00Z", 0), noon, "a Lease that knows nothing");
        assert_eq!(taken("2026-01-01T12:00:00.9Z", noon - 1), noon);
        assert_eq!(taken("2026-01-01T12:00:00.9Z", noon), noon + 1, "twice in a second");
        assert_eq!(taken("2025-01-01T12:00:00Z", noon), noon + 1, "a clock that is late");
    }

    #[test]
    fn a_term_is_greater_than_those_that_earlier_releases_counted() {
        let created = Some("2026-01-01T00:00:00Z".parse().expect("a time"));
        let acquired = Some("2026-01-01T00:30:00Z".parse().expect("a time"));
        let before = Record { created, acquired, transitions: 5000, ..Record::default() }.epoch();
        assert_eq!(before, 1_767_225_600 + 5000);
        assert_eq!(taken("2026-01-01T00:40:00Z", before), before + 1);
    }
}
