//! Tags by which any process recognises the objects of a cluster. All of them begin with `cloud_api_proto::DOMAIN`.

use std::collections::BTreeMap;

use cloud_adapter::{
    driver::{DesiredLoadBalancer, Namespaces, Origin, WantedRoute, read_fence, write_fence},
    kit::is_outdated,
};
use cloud_api_proto::{
    DOMAIN,
    v1alpha1::{Fence, LoadBalancerKey, Owner, RouteKey},
};

pub(crate) type Tags = BTreeMap<String, String>;

const ADOPTED: &str = "adopted";

fn tag(word: &str) -> String {
    format!("{DOMAIN}/{word}")
}

/// Returns the hash of the last state that was applied completely. The hash is empty if no state was applied completely.
pub(crate) fn hash(tags: &Tags) -> &str {
    tags.get(&tag("hash")).map_or("", String::as_str)
}

/// The fence of the last writer that set tags.
pub(crate) fn fence(tags: &Tags) -> Option<Fence> {
    read_fence(tags.get(&tag("fence"))?)
}

/// Returns the owner of a load balancer. Fields whose tags were removed are empty. Returns `None` if there are no owner tags.
pub(crate) fn owner(tags: &Tags) -> Option<(LoadBalancerKey, Owner)> {
    tags.get(&tag("cluster-id")).or(tags.get(&tag("owner-uid")))?;
    let read = |word| tags.get(&tag(word)).cloned().unwrap_or_default();
    let key = LoadBalancerKey { cluster_id: read("cluster-id"), owner_uid: read("owner-uid") };
    let owner = Owner {
        kind: read("owner-kind"),
        namespace: read("owner-namespace"),
        name: read("owner-name"),
        uid: read("owner-uid"),
    };
    Some((key, owner))
}

/// Whether the load balancer was created for its owner, or existed before.
pub(crate) fn origin(tags: &Tags) -> Origin {
    if tags.get(&tag("origin")).is_some_and(|it| it == ADOPTED) { Origin::Adopted } else { Origin::Created }
}

pub(crate) fn adoptable_by(tags: &Tags) -> Namespaces {
    Namespaces::read(tags.get(&tag("adopt")).map(String::as_str))
}

/// The tags of a complete load balancer, without the fence.
pub(crate) fn complete(desired: &DesiredLoadBalancer) -> Tags {
    let DesiredLoadBalancer { key, owner, spec, hash, .. } = desired;
    let ours = [
        ("cluster-id", &key.cluster_id),
        ("owner-uid", &key.owner_uid),
        ("owner-kind", &owner.kind),
        ("owner-namespace", &owner.namespace),
        ("owner-name", &owner.name),
        ("hash", hash),
    ];
    let users = spec.tags.clone().into_iter();
    users.chain(ours.map(|(word, value)| (tag(word), value.clone()))).collect()
}

/// Returns the tags of an incomplete load balancer, which do not include the hash.
pub(crate) fn half_built(desired: &DesiredLoadBalancer) -> Tags {
    let mut tags = complete(desired);
    tags.remove(&tag("hash"));
    tags
}

/// Returns the tags that the first step of an adoption writes, for a load balancer that existed before its owner.
pub(crate) fn adopted(desired: &DesiredLoadBalancer) -> Tags {
    let mut tags = half_built(desired);
    tags.insert(tag("origin"), ADOPTED.to_owned());
    tags
}

/// Returns the tags that remain when an adopted load balancer is released: the tags of other writers, and the permission to adopt.
pub(crate) fn released(there: &Tags) -> Tags {
    let prefix = tag("");
    let others = there.iter().filter(|(key, _)| !key.starts_with(&prefix) || **key == tag("adopt"));
    others.map(|(key, value)| (key.clone(), value.clone())).collect()
}

/// The tags to write: `tags`, the fence, and the existing tags of other writers.
pub(crate) fn signed(tags: Tags, fence: &Fence, there: &Tags) -> Tags {
    let mut all = there.clone();
    all.remove(&tag("hash"));
    all.extend(tags);
    all.extend(write_fence(fence).map(|text| (tag("fence"), text)));
    all
}

/// Returns whether the load balancer has the wanted tags. Hashes of different versions cannot be compared and count as equal.
pub(crate) fn is_complete(there: &Tags, wanted: &Tags) -> bool {
    let is_equal = |(key, value): (&String, &String)| *key == tag("hash") || there.get(key) == Some(value);
    wanted.iter().all(is_equal) && !is_outdated(hash(there), hash(wanted))
}

pub(crate) fn route_tags(route: &WantedRoute) -> Tags {
    let key = route.upsert.key.clone().unwrap_or_default();
    let ours = [("cluster-id", key.cluster_id), ("node-uid", key.node_uid)];
    signed(ours.map(|(word, value)| (tag(word), value)).into(), &route.fence, &Tags::new())
}

/// Returns the key of a route, or `None` if there are no owner tags.
pub(crate) fn route_key(tags: &Tags, destination: &str) -> Option<RouteKey> {
    Some(RouteKey {
        cluster_id: tags.get(&tag("cluster-id"))?.clone(),
        node_uid: tags.get(&tag("node-uid"))?.clone(),
        destination: destination.to_owned(),
    })
}
