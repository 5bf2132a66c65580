//! Who wrote what of a Service, by `metadata.managedFields`: whose its finalizer is, and whose its addresses are.

use std::collections::BTreeSet;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ManagedFieldsEntry, ObjectMeta};

use super::Reading;
use crate::{
    CONTROLLER,
    plan::service::{FINALIZER, Holder},
};

/// Where `metadata.managedFields` says who wrote a load balancer's addresses.
const STATUS: [&str; 3] = ["f:status", "f:loadBalancer", "f:ingress"];

/// Words in the names of programs that may have made a load balancer.
const CONTROLLERS: [&str; 4] = ["controller", "manager", "operator", "ccm"];

/// Whether we put the finalizer there, and nobody else has written the status since.
///
/// The class that would tell is gone with the type. Another's controller may have found the finalizer there and rely on it: what its
/// load balancer has for addresses is written under its own name, and so it stays though the API server empties the status.
pub(super) fn is_held_by_us(meta: &ObjectMeta, reading: &Reading) -> bool {
    let finalizer = holders(meta, &finalizer_path());
    let ours = |name: &&str| reading.writes_as(name);
    !finalizer.is_empty() && finalizer.iter().all(ours) && holders(meta, &STATUS).iter().all(ours)
}

/// Who put the finalizer there.
///
/// Controllers of load balancers patch the status with it, as `k8s.io/cloud-provider` does, or bear a telling name; and what they made
/// stands in the status under their name. Where those without a class are another's, whatever holds them is, too.
pub(super) fn holder(meta: &ObjectMeta, reading: &Reading) -> Holder {
    let finalizer: Vec<&ManagedFieldsEntry> = entries(meta, &finalizer_path()).collect();
    let names: BTreeSet<&str> = finalizer.iter().filter_map(|entry| entry.manager.as_deref()).collect();
    let by_author = |entry: &&ManagedFieldsEntry| {
        entry.subresource.as_deref().unwrap_or_default().is_empty()
            && !entry.manager.as_deref().is_some_and(is_named_as_a_controller)
    };
    let no_address = holders(meta, &STATUS).iter().all(|name| reading.writes_as(name));
    if finalizer.is_empty() {
        Holder::Unknown
    } else if finalizer.iter().all(by_author) && no_address && reading.classes.unclassed {
        Holder::Author
    } else {
        Holder::Others(names.into_iter().collect::<Vec<_>>().join(" and "))
    }
}

/// Whether somebody wrote the addresses, and none of us did.
pub(super) fn has_another_ones_ingress(meta: &ObjectMeta) -> bool {
    let writers = holders(meta, &STATUS);
    !writers.is_empty() && !writers.iter().any(|writer| writer.starts_with(CONTROLLER))
}

/// Tests of controllers are clients as any other.
fn is_named_as_a_controller(manager: &str) -> bool {
    !manager.ends_with(".test") && CONTROLLERS.iter().any(|word| manager.contains(word))
}

fn finalizer_path() -> [String; 3] {
    ["f:metadata".to_owned(), "f:finalizers".to_owned(), format!("v:\"{FINALIZER}\"")]
}

/// Who wrote the field at this path of `metadata.managedFields`.
fn holders<'a, P: AsRef<str>>(meta: &'a ObjectMeta, path: &[P]) -> Vec<&'a str> {
    entries(meta, path).filter_map(|entry| entry.manager.as_deref()).collect()
}

fn entries<'a, P: AsRef<str>>(
    meta: &'a ObjectMeta,
    path: &[P],
) -> impl Iterator<Item = &'a ManagedFieldsEntry> {
    meta.managed_fields.iter().flatten().filter(move |entry| {
        let fields = entry.fields_v1.as_ref().map(|fields| &fields.0);
        let mut path = path.iter().map(AsRef::as_ref);
        path.try_fold(fields, |fields, key| fields?.get(key).map(Some)).is_some_and(|it| it.is_some())
    })
}
