//! What a Lease says, as far as an election cares, and the bodies of its patches.

use k8s_openapi::{
    api::coordination::v1::Lease, apimachinery::pkg::apis::meta::v1::MicroTime, jiff::Timestamp,
};
use serde_json::{Value, json};

use crate::settings::{Settings, Timing};

/// What a Lease says. A Lease without a spec is one that nobody holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// Who holds it. `None`: nobody, or it was given back.
    pub holder: Option<String>,
    /// How often it changed hands.
    pub transitions: u32,
    /// When the holder says that it renewed it. Compared with nobody's clock: a change is a sign of life.
    pub renewed: Option<Timestamp>,
    /// The version that a patch must find. Changes for more reasons than an election has.
    pub version: String,
}

impl Record {
    /// Whether an election sees a difference.
    pub(crate) fn differs(&self, other: &Self) -> bool {
        (&self.holder, self.transitions, self.renewed) != (&other.holder, other.transitions, other.renewed)
    }
}

impl From<Lease> for Record {
    fn from(lease: Lease) -> Self {
        let spec = lease.spec.unwrap_or_default();
        Self {
            holder: spec.holder_identity.filter(|holder| !holder.is_empty()),
            transitions: spec.lease_transitions.and_then(|n| u32::try_from(n).ok()).unwrap_or_default(),
            renewed: spec.renew_time.map(|MicroTime(at)| at),
            version: lease.metadata.resource_version.unwrap_or_default(),
        }
    }
}

/// Takes the lease for the term `epoch`. Merged into a Lease of this version, or the whole of a new one.
pub(crate) fn acquisition(settings: &Settings, epoch: u32, version: Option<&str>, at: Timestamp) -> Value {
    json!({
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": { "name": settings.name, "namespace": settings.namespace, "resourceVersion": version },
        "spec": {
            "holderIdentity": settings.identity,
            "leaseDurationSeconds": settings.timing.duration.as_secs(),
            "leaseTransitions": epoch,
            "acquireTime": MicroTime(at),
            "renewTime": MicroTime(at),
        },
    })
}

/// Keeps it.
pub(crate) fn renewal(timing: &Timing, version: &str, at: Timestamp) -> Value {
    json!({
        "metadata": { "resourceVersion": version },
        "spec": { "leaseDurationSeconds": timing.duration.as_secs(), "renewTime": MicroTime(at) },
    })
}

/// Gives it back.
pub(crate) fn release(version: &str, at: Timestamp) -> Value {
    json!({
        "metadata": { "resourceVersion": version },
        "spec": { "holderIdentity": null, "renewTime": MicroTime(at) },
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
        }
    }
}
