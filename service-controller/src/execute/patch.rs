//! The three writes to a Service, all of them patches of `services/status`: the only write that our role allows.
//!
//! The status subresource takes a Service's metadata too. Each patch is a strategic merge that carries only what is ours:
//! finalizers merge entry by entry, so others keep theirs whatever happens meanwhile. The UID guards against a Service that
//! was deleted and made again under the same name: the API server refuses to change it.

use serde_json::{Value, json};

use crate::{
    mirror::kubernetes::to_ingress,
    plan::service::{FINALIZER, Ingress, ServiceId},
};

/// Our finalizer, beside those that are there.
pub(crate) fn add_finalizer(id: &ServiceId) -> Value {
    json!({"metadata": {"uid": id.uid, "finalizers": [FINALIZER]}})
}

/// The whole list of addresses: it is atomic, so what stood there before is replaced.
pub(crate) fn status(id: &ServiceId, ingress: &[Ingress]) -> Value {
    let ingress: Vec<_> = ingress.iter().map(to_ingress).collect();
    json!({"metadata": {"uid": id.uid}, "status": {"loadBalancer": {"ingress": ingress}}})
}

/// Our finalizer off, exactly ours, and the status empty.
///
/// One write and not two: the Service may be gone as soon as its last finalizer is.
pub(crate) fn release(id: &ServiceId) -> Value {
    json!({
        "metadata": {"uid": id.uid, "$deleteFromPrimitiveList/finalizers": [FINALIZER]},
        "status": {"loadBalancer": {"ingress": null}},
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id() -> ServiceId {
        ServiceId { namespace: "shop".to_owned(), name: "web".to_owned(), uid: "u-1".to_owned() }
    }

    #[test]
    fn a_finalizer_is_added_beside_the_others() {
        let want = json!({"metadata": {"uid": "u-1", "finalizers": ["service.kubernetes.io/load-balancer-cleanup"]}});
        assert_eq!(add_finalizer(&id()), want);
    }

    #[test]
    fn only_our_finalizer_is_taken_off_and_the_status_emptied() {
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
    fn the_status_holds_what_the_adapter_said_and_nothing_else() {
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
