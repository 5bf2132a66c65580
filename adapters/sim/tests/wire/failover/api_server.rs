//! The fake API server of the controllers with one Lease, as the chart creates it. Each replica has its own port, which the test can block.

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

/// Returns the holder of the Lease.
pub(crate) fn holder(kube: &FakeKube) -> Option<String> {
    kube.get::<Lease>(&lease())?.spec?.holder_identity
}

fn lease() -> ObjectName {
    ObjectName::namespaced("kube-system", "cloud-adapter")
}
