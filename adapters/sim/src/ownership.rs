//! Tags and names by which every adapter process recognises objects in the cloud.

use std::collections::BTreeSet;

use cloud_adapter::{
    driver::{DesiredLoadBalancer, Namespaces, WantedRoute, read_fence, write_fence},
    kit::{self, is_outdated},
};
use cloud_api_proto::{
    DOMAIN,
    v1alpha1::{Fence, LoadBalancerKey, Owner, RouteKey},
};

use crate::simcloud::model::Tags;

const ADOPTED: &str = "adopted";
/// The maximum length of a name in the cloud, in bytes.
const NAME_MAX: usize = 63;

/// The adapter's tags, each with the domain as its prefix.
#[derive(Clone, Copy, Debug)]
enum Tag {
    ClusterId,
    ClusterName,
    OwnerKind,
    OwnerNamespace,
    OwnerName,
    OwnerUid,
    /// The hash of the last state that the adapter applied completely.
    Hash,
    /// The fence of the last writer that set tags.
    Fence,
    /// The comma-separated keys of the user's tags. They show the adapter which tags the user has removed from the Service.
    UserKeys,
    NodeUid,
    NodeName,
    /// On a load balancer without owner: the comma-separated namespaces whose Services may adopt it.
    Adopt,
    /// The value `adopted`: the load balancer existed before its owner.
    Origin,
}

impl Tag {
    fn key(self) -> String {
        let word = match self {
            Self::ClusterId => "cluster-id",
            Self::ClusterName => "cluster-name",
            Self::OwnerKind => "owner-kind",
            Self::OwnerNamespace => "owner-namespace",
            Self::OwnerName => "owner-name",
            Self::OwnerUid => "owner-uid",
            Self::Hash => "hash",
            Self::Fence => "fence",
            Self::UserKeys => "user-tags",
            Self::NodeUid => "node-uid",
            Self::NodeName => "node-name",
            Self::Adopt => "adopt",
            Self::Origin => "origin",
        };
        format!("{DOMAIN}/{word}")
    }

    fn read(self, tags: &Tags) -> Option<&str> {
        tags.get(&self.key()).map(String::as_str)
    }

    fn text(self, tags: &Tags) -> String {
        self.read(tags).unwrap_or_default().to_owned()
    }
}

pub(crate) fn is_reserved(key: &str) -> bool {
    key == DOMAIN || key.strip_prefix(DOMAIN).is_some_and(|rest| rest.starts_with('/'))
}

pub(crate) fn is_hash(key: &str) -> bool {
    key == Tag::Hash.key()
}

/// Returns the tags that a load balancer with this key has from its creation on.
pub(crate) fn key_tags(key: &LoadBalancerKey) -> [(String, &str); 2] {
    [(Tag::ClusterId.key(), &key.cluster_id), (Tag::OwnerUid.key(), &key.owner_uid)]
}

/// The tags of a load balancer that is not complete yet: all tags except the hash.
pub(crate) fn balancer_tags(desired: &DesiredLoadBalancer) -> Tags {
    let DesiredLoadBalancer { key, owner, cluster_name, spec, .. } = desired;
    let mut tags: Tags = spec.tags.iter().map(|(key, value)| (key.clone(), value.clone())).collect();
    if !tags.is_empty() {
        let keys: Vec<&str> = tags.keys().map(String::as_str).collect();
        let keys = keys.join(",");
        tags.insert(Tag::UserKeys.key(), keys);
    }
    for (tag, value) in [
        (Tag::ClusterId, &key.cluster_id),
        (Tag::ClusterName, cluster_name),
        (Tag::OwnerKind, &owner.kind),
        (Tag::OwnerNamespace, &owner.namespace),
        (Tag::OwnerName, &owner.name),
        (Tag::OwnerUid, &key.owner_uid),
    ] {
        tags.insert(tag.key(), value.clone());
    }
    tags
}

/// Returns the tags that complete a load balancer. `None` if the existing tags are sufficient.
///
/// The result keeps tags of other writers, and omits former tags of the user. If only the fence differs, no tags are written.
pub(crate) fn missing_tags(wanted: &Tags, hash: &str, fence: &Fence, there: &Tags) -> Option<Tags> {
    let former: BTreeSet<&str> =
        Tag::UserKeys.read(there).into_iter().flat_map(|keys| keys.split(',')).collect();
    let taken_back = |key: &str| former.contains(key) && !wanted.contains_key(key);
    let complete = wanted.iter().all(|(key, value)| there.get(key) == Some(value))
        && !there.keys().any(|key| taken_back(key))
        && !is_outdated(applied_hash(there), hash);
    if complete {
        return None;
    }
    let mut tags = signed(wanted, fence, there);
    tags.retain(|key, _| !taken_back(key));
    tags.insert(Tag::Hash.key(), hash.to_owned());
    Some(tags)
}

pub(crate) fn adopted() -> (String, String) {
    (Tag::Origin.key(), ADOPTED.to_owned())
}

pub(crate) fn is_adopted(tags: &Tags) -> bool {
    Tag::Origin.read(tags) == Some(ADOPTED)
}

pub(crate) fn adoptable_by(tags: &Tags) -> Namespaces {
    Namespaces::read(Tag::Adopt.read(tags))
}

/// Returns the tags that remain after a release: the tags of other writers, and the permission to adopt.
pub(crate) fn released(there: &Tags) -> Tags {
    let former: BTreeSet<&str> =
        Tag::UserKeys.read(there).into_iter().flat_map(|keys| keys.split(',')).collect();
    let others = others(there).filter(|(key, _)| !former.contains(key.as_str()));
    others.map(|(key, value)| (key.clone(), value.clone())).collect()
}

fn others(there: &Tags) -> impl Iterator<Item = (&String, &String)> {
    there.iter().filter(|(key, _)| !is_reserved(key) || **key == Tag::Adopt.key())
}

/// The adapter's tags with the writer's fence, and the existing tags of other writers.
pub(crate) fn signed(wanted: &Tags, fence: &Fence, there: &Tags) -> Tags {
    let foreign = others(there);
    let mut tags: Tags = foreign.map(|(key, value)| (key.clone(), value.clone())).collect();
    tags.extend(wanted.clone());
    tags.extend(write_fence(fence).map(|text| (Tag::Fence.key(), text)));
    tags
}

pub(crate) fn fence(tags: &Tags) -> Option<Fence> {
    read_fence(Tag::Fence.read(tags)?)
}

/// The hash of the last state that the adapter applied completely. Empty: the adapter completed no state yet.
pub(crate) fn applied_hash(tags: &Tags) -> &str {
    Tag::Hash.read(tags).unwrap_or_default()
}

/// The owner of a load balancer; fields whose tag is missing are empty. Returns `None` without owner tags.
pub(crate) fn balancer_owner(tags: &Tags) -> Option<(LoadBalancerKey, Owner)> {
    Tag::ClusterId.read(tags).or(Tag::OwnerUid.read(tags))?;
    let owner_uid = Tag::OwnerUid.text(tags);
    let owner = Owner {
        kind: Tag::OwnerKind.text(tags),
        namespace: Tag::OwnerNamespace.text(tags),
        name: Tag::OwnerName.text(tags),
        uid: owner_uid.clone(),
    };
    Some((LoadBalancerKey { cluster_id: Tag::ClusterId.text(tags), owner_uid }, owner))
}

pub(crate) fn route_tags(route: &WantedRoute) -> Tags {
    let key = route.upsert.key.clone().unwrap_or_default();
    let owner = route.upsert.owner.clone().unwrap_or_default();
    let tags = [
        (Tag::ClusterId, key.cluster_id),
        (Tag::ClusterName, route.cluster_name.clone()),
        (Tag::NodeUid, key.node_uid),
        (Tag::NodeName, owner.name),
    ];
    signed(&tags.map(|(tag, value)| (tag.key(), value)).into(), &route.fence, &Tags::new())
}

/// The owner of a route. Returns `None` without owner tags.
pub(crate) fn route_key(tags: &Tags, destination: &str) -> Option<RouteKey> {
    Some(RouteKey {
        cluster_id: Tag::ClusterId.read(tags)?.to_owned(),
        node_uid: Tag::NodeUid.read(tags)?.to_owned(),
        destination: destination.to_owned(),
    })
}

pub(crate) fn balancer_name(desired: &DesiredLoadBalancer) -> String {
    kit::balancer_name(desired, NAME_MAX)
}

/// Returns the new name of an existing load balancer, if the requested name differs from the current one.
pub(crate) fn new_name(desired: &DesiredLoadBalancer, there: &str) -> Option<String> {
    (!desired.spec.name.is_empty()).then(|| balancer_name(desired)).filter(|name| name != there)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn desired(name: &str, tags: &[(&str, &str)]) -> DesiredLoadBalancer {
        let tags = tags.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        DesiredLoadBalancer {
            key: LoadBalancerKey { cluster_id: "c-1".into(), owner_uid: "u-1".into() },
            owner: Owner {
                kind: "Service".into(),
                namespace: "shop".into(),
                name: name.into(),
                uid: "u-1".into(),
            },
            cluster_name: "prod".into(),
            inheritance: cloud_adapter::driver::Inheritance::ByName,
            spec: cloud_api_proto::v1alpha1::LoadBalancerSpec { tags, ..Default::default() },
            backends: [].into(),
            hash: "1-aa".into(),
        }
    }

    fn writer(epoch: u64) -> Fence {
        Fence { scope: "service-controller/0".into(), epoch, sequence: 1 }
    }

    #[test]
    fn new_fence_alone_causes_no_write() {
        let wanted = balancer_tags(&desired("web", &[]));
        let there = missing_tags(&wanted, "1-aa", &writer(1), &wanted).expect("without the hash");
        assert_eq!(fence(&there), Some(writer(1)));
        assert_eq!(missing_tags(&wanted, "1-aa", &writer(2), &there), None);
        let next = missing_tags(&wanted, "1-bb", &writer(2), &there).expect("another hash");
        assert_eq!(fence(&next), Some(writer(2)));
    }

    #[test]
    fn partial_owner_tags_are_still_read() {
        let mut tags = balancer_tags(&desired("web", &[]));
        tags.remove(&Tag::OwnerUid.key());
        let (key, _) = balancer_owner(&tags).expect("somebody's");
        assert_eq!((key.cluster_id.as_str(), key.owner_uid.as_str()), ("c-1", ""));
    }

    #[test]
    fn owner_tags_can_be_parsed() {
        let wanted = desired("web", &[]);
        let (key, owner) = balancer_owner(&balancer_tags(&wanted)).expect("ours");
        assert_eq!((key, owner), (wanted.key, wanted.owner));
        assert_eq!(balancer_owner(&Tags::new()), None);
    }

    #[test]
    fn complete_tags_are_left_alone() {
        let wanted = balancer_tags(&desired("web", &[("team", "a")]));
        let there = missing_tags(&wanted, "1-aa", &Fence::default(), &wanted).expect("without the hash");
        assert_eq!(applied_hash(&there), "1-aa");
        assert_eq!(missing_tags(&wanted, "1-aa", &writer(2), &there), None);
        assert!(missing_tags(&wanted, "1-bb", &writer(2), &there).is_some(), "another hash");
        assert_eq!(
            missing_tags(&wanted, "2-bb", &writer(2), &there),
            None,
            "another version of the hash causes no write"
        );
    }

    #[test]
    fn former_user_tags_are_removed_and_foreign_tags_stay() {
        let before = balancer_tags(&desired("web", &[("team", "a"), ("tier", "gold")]));
        let mut there = missing_tags(&before, "1-aa", &writer(1), &before).expect("without the hash");
        there.insert("cost-centre".into(), "42".into());
        let wanted = balancer_tags(&desired("web", &[("team", "b")]));
        let after = missing_tags(&wanted, "1-bb", &writer(2), &there).expect("differs");
        assert_eq!(after.get("team").map(String::as_str), Some("b"));
        assert_eq!(after.get("tier"), None);
        assert_eq!(after.get("cost-centre").map(String::as_str), Some("42"));
        assert_eq!(missing_tags(&wanted, "1-bb", &writer(3), &after), None, "settles");
    }

    #[test]
    fn only_adapter_tag_keys_are_reserved() {
        for (key, wanted) in [
            ("cloudadapter.dev/hash", true),
            ("cloudadapter.dev", true),
            ("cloudadapter.device", false),
            ("team", false),
        ] {
            assert_eq!(is_reserved(key), wanted, "{key}");
        }
    }
}
