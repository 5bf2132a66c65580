//! The fake API server of the controllers. It has one Lease, as the chart creates it, and a port for each replica that the test can block.

use controller_core::{
    mirror::ObjectName,
    testing::{FakeKube, Fault, Verb},
};
use k8s_openapi::{api::coordination::v1::Lease, apimachinery::pkg::apis::meta::v1::ObjectMeta};

/// Creates an API server with a Lease without holder. Creating another Lease is forbidden.
pub(crate) fn start() -> FakeKube {
    let kube = FakeKube::new();
    let ObjectName { namespace, name } = lease();
    let metadata = ObjectMeta { name: Some(name), namespace, ..ObjectMeta::default() };
    kube.put::<Lease>(Lease { metadata, spec: None });
    kube.order(Fault::status(403).on(Verb::Create, "leases"));
    kube
}

pub(crate) fn holder(kube: &FakeKube) -> Option<String> {
    kube.get::<Lease>(&lease())?.spec?.holder_identity
}

fn lease() -> ObjectName {
    ObjectName::namespaced("kube-system", "cloud-adapter")
}
