//! Finds out from `metadata.managedFields` which clients set the finalizer and the addresses of a Service.

use std::collections::BTreeSet;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ManagedFieldsEntry, ObjectMeta};

use super::Reading;
use crate::{
    CONTROLLER,
    plan::service::{FINALIZER, Holder},
};

/// Path of a load balancer's addresses in `metadata.managedFields`.
const STATUS: [&str; 3] = ["f:status", "f:loadBalancer", "f:ingress"];

/// A field manager is likely to be a controller if its name contains one of these substrings.
const CONTROLLERS: [&str; 4] = ["controller", "manager", "operator", "ccm"];

/// Whether this controller set the finalizer and no other client has written the status since then.
///
/// The class cannot show the owner, because the API server removes the class when the type changes. Another controller may rely on a
/// finalizer that was already set. The addresses that such a controller wrote are recorded under its field manager, even after the API
/// server empties the status.
pub(super) fn is_held_by_us(meta: &ObjectMeta, reading: &Reading) -> bool {
    let finalizer = holders(meta, &finalizer_path());
    let ours = |name: &&str| reading.writes_as(name);
    !finalizer.is_empty() && finalizer.iter().all(ours) && holders(meta, &STATUS).iter().all(ours)
}

/// Returns the other client that set the finalizer.
///
/// A client counts as a load balancer controller if its name shows its role, or if it wrote addresses. A client that set the finalizer
/// through the status subresource, as `k8s.io/cloud-provider` does, counts, too. If Services without a class belong to another controller,
/// the finalizer belongs to that controller, too.
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
        Holder::Others(names.into_iter().collect::<Vec<_>>().join(" or "))
    }
}

pub(super) fn wrote_condition(meta: &ObjectMeta, name: &str, reading: &Reading) -> bool {
    let key = format!("k:{{\"type\":\"{name}\"}}");
    holders(meta, &["f:status", "f:conditions", &key]).iter().any(|writer| reading.writes_as(writer))
}

/// Whether only other clients wrote the addresses.
pub(super) fn has_another_ones_ingress(meta: &ObjectMeta) -> bool {
    let writers = holders(meta, &STATUS);
    !writers.is_empty() && !writers.iter().any(|writer| writer.starts_with(CONTROLLER))
}

/// Whether the name looks like that of a controller. Test binaries of controllers are treated as ordinary clients.
fn is_named_as_a_controller(manager: &str) -> bool {
    !manager.ends_with(".test") && CONTROLLERS.iter().any(|word| manager.contains(word))
}

fn finalizer_path() -> [String; 3] {
    ["f:metadata".to_owned(), "f:finalizers".to_owned(), format!("v:\"{FINALIZER}\"")]
}

/// Names of the field managers that wrote the field at this path of `metadata.managedFields`.
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
