//! The four writes to a Service. All are patches of `services/status`, the only write that the controller's role allows.
//!
//! The status subresource also accepts metadata. Each patch is a strategic merge of only the fields that this controller owns. Finalizers
//! are merged by entry, so those of other controllers are kept. The patch contains the UID, so the API server refuses it if the Service was
//! recreated under the same name.

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::{
    mirror::kubernetes::{to_condition, to_ingress},
    plan::{
        conditions::{Condition, Conditions, PORTS_ERROR, READY},
        service::{FINALIZER, Ingress, ServiceId},
    },
};

pub(crate) fn add_finalizer(id: &ServiceId) -> Value {
    json!({"metadata": {"uid": id.uid, "finalizers": [FINALIZER]}})
}

/// Replaces the whole list of addresses, which Kubernetes defines as atomic.
pub(crate) fn status(id: &ServiceId, ingress: &[Ingress]) -> Value {
    let ingress: Vec<_> = ingress.iter().map(to_ingress).collect();
    json!({"metadata": {"uid": id.uid}, "status": {"loadBalancer": {"ingress": ingress}}})
}

/// This is a single write because the Service may be gone as soon as its last finalizer is removed.
pub(crate) fn release(id: &ServiceId) -> Value {
    json!({
        "metadata": {"uid": id.uid, "$deleteFromPrimitiveList/finalizers": [FINALIZER]},
        "status": {"loadBalancer": {"ingress": null}},
    })
}

/// Returns a patch that changes nothing except the conditions that [`with_conditions`] adds.
pub(crate) fn only_conditions(id: &ServiceId) -> Value {
    json!({"metadata": {"uid": id.uid}})
}

/// Adds the changed conditions to a patch. Conditions are merged by type, so other clients keep theirs.
pub(crate) fn with_conditions(
    patch: Value,
    before: &Conditions,
    after: &Conditions,
    now: Timestamp,
) -> Value {
    let rows = [(READY, &before.ready, &after.ready), (PORTS_ERROR, &before.ports, &after.ports)];
    let change = |(name, before, after): (&str, &Option<Condition>, &Option<Condition>)| match after {
        _ if before == after => None,
        Some(after) => Some(json!(to_condition(name, after, now))),
        None => Some(json!({"type": name, "$patch": "delete"})),
    };
    let changes: Vec<Value> = rows.into_iter().filter_map(change).collect();
    let mut patch = patch;
    if !changes.is_empty()
        && let Some(fields) = patch.as_object_mut()
    {
        let status = fields.entry("status").or_insert_with(|| json!({}));
        status.as_object_mut().into_iter().for_each(|it| {
            it.insert("conditions".to_owned(), changes.clone().into());
        });
    }
    patch
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id() -> ServiceId {
        ServiceId { namespace: "shop".to_owned(), name: "web".to_owned(), uid: "u-1".to_owned() }
    }

    #[test]
    fn finalizer_patch_keeps_other_finalizers() {
        let want = json!({"metadata": {"uid": "u-1", "finalizers": ["service.kubernetes.io/load-balancer-cleanup"]}});
        assert_eq!(add_finalizer(&id()), want);
    }

    // Behaviour: S15, W18
    #[test]
    fn release_patch_removes_only_own_finalizer_and_status() {
        let want = json!({
            "metadata": {
                "uid": "u-1",
                "$deleteFromPrimitiveList/finalizers": ["service.kubernetes.io/load-balancer-cleanup"],
            },
            "status": {"loadBalancer": {"ingress": null}},
        });
        assert_eq!(release(&id()), want);
    }

    #[test]
    fn status_patch_contains_only_addresses_of_adapter() {
        let ip = Ingress {
            ip: Some("192.0.2.1".to_owned()),
            ip_mode: Some("VIP".to_owned()),
            ..Ingress::default()
        };
        let name = Ingress { hostname: Some("lb.example.com".to_owned()), ..Ingress::default() };
        let want = json!({
            "metadata": {"uid": "u-1"},
            "status": {"loadBalancer": {"ingress": [
                {"ip": "192.0.2.1", "ipMode": "VIP"},
                {"hostname": "lb.example.com"},
            ]}},
        });
        assert_eq!(status(&id(), &[ip, name]), want);
    }
}
