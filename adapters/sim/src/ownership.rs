//! Tags and names by which objects at the vendor are found again, by another process too.

use std::collections::BTreeSet;

use cloud_adapter::driver::{DesiredLoadBalancer, WantedRoute};
use cloud_api_proto::{
    DOMAIN,
    v1alpha1::{LoadBalancerKey, Owner, RouteKey},
};
use sha2::{Digest as _, Sha256};

use crate::simcloud::model::Tags;

/// Bytes of a name at the vendor.
const NAME_MAX: usize = 63;

/// Our tags, each below the domain.
#[derive(Clone, Copy, Debug)]
enum Tag {
    ClusterId,
    ClusterName,
    OwnerKind,
    OwnerNamespace,
    OwnerName,
    OwnerUid,
    /// The hash of what was applied completely last.
    Hash,
    /// The keys of the user's tags, with commas between them: so that those which the user takes back are found.
    UserKeys,
    NodeUid,
    NodeName,
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
            Self::UserKeys => "user-tags",
            Self::NodeUid => "node-uid",
            Self::NodeName => "node-name",
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

/// Whether only we may set a tag of this key.
pub(crate) fn is_reserved(key: &str) -> bool {
    key == DOMAIN || key.strip_prefix(DOMAIN).is_some_and(|rest| rest.starts_with('/'))
}

/// The tags of a load balancer that is not complete yet: without the hash.
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

/// The tags that complete a load balancer, if those that are there do not do.
///
/// Tags that others have put there stay. The user's former ones go.
pub(crate) fn missing_tags(wanted: &Tags, hash: &str, there: &Tags) -> Option<Tags> {
    let former: BTreeSet<&str> =
        Tag::UserKeys.read(there).into_iter().flat_map(|keys| keys.split(',')).collect();
    let taken_back = |key: &str| former.contains(key) && !wanted.contains_key(key);
    let complete = wanted.iter().all(|(key, value)| there.get(key) == Some(value))
        && !there.keys().any(|key| taken_back(key))
        && !is_outdated(applied_hash(there), hash);
    if complete {
        return None;
    }
    let foreign = there.iter().filter(|(key, _)| !is_reserved(key) && !taken_back(key));
    let mut tags: Tags = foreign.map(|(key, value)| (key.clone(), value.clone())).collect();
    tags.extend(wanted.clone());
    tags.insert(Tag::Hash.key(), hash.to_owned());
    Some(tags)
}

/// A hash of another version cannot be compared: then only the fields tell, and nothing is rewritten for its sake.
fn is_outdated(there: &str, wanted: &str) -> bool {
    let version = |hash: &str| hash.split_once('-').map(|(version, _)| version.to_owned());
    there.is_empty() || (there != wanted && version(there) == version(wanted))
}

/// The hash of what was applied completely last; empty: nothing was.
pub(crate) fn applied_hash(tags: &Tags) -> &str {
    Tag::Hash.read(tags).unwrap_or_default()
}

/// Whose load balancer it is. `None` without our tags.
pub(crate) fn balancer_owner(tags: &Tags) -> Option<(LoadBalancerKey, Owner)> {
    let cluster_id = Tag::ClusterId.read(tags)?.to_owned();
    let owner_uid = Tag::OwnerUid.read(tags)?.to_owned();
    let owner = Owner {
        kind: Tag::OwnerKind.text(tags),
        namespace: Tag::OwnerNamespace.text(tags),
        name: Tag::OwnerName.text(tags),
        uid: owner_uid.clone(),
    };
    Some((LoadBalancerKey { cluster_id, owner_uid }, owner))
}

/// The tags of a route.
pub(crate) fn route_tags(route: &WantedRoute) -> Tags {
    let key = route.upsert.key.clone().unwrap_or_default();
    let owner = route.upsert.owner.clone().unwrap_or_default();
    [
        (Tag::ClusterId, key.cluster_id),
        (Tag::ClusterName, route.cluster_name.clone()),
        (Tag::NodeUid, key.node_uid),
        (Tag::NodeName, owner.name),
    ]
    .map(|(tag, value)| (tag.key(), value))
    .into()
}

/// Whose route it is. `None` without our tags.
pub(crate) fn route_key(tags: &Tags, destination: &str) -> Option<RouteKey> {
    Some(RouteKey {
        cluster_id: Tag::ClusterId.read(tags)?.to_owned(),
        node_uid: Tag::NodeUid.read(tags)?.to_owned(),
        destination: destination.to_owned(),
    })
}

/// The name of a new load balancer: readable, limited, and another one for each key.
pub(crate) fn balancer_name(desired: &DesiredLoadBalancer) -> String {
    let DesiredLoadBalancer { key, owner, cluster_name, .. } = desired;
    let digest: String = key_digest(key).chars().take(10).collect();
    let room = NAME_MAX.saturating_sub(digest.len().saturating_add(1));
    let readable: String = [cluster_name, &owner.namespace, &owner.name]
        .map(|word| plain(word))
        .join("-")
        .chars()
        .take(room)
        .collect();
    format!("{}-{digest}", readable.trim_matches('-'))
}

/// Makes a repeated create harmless, also from another process.
pub(crate) fn client_token(key: &LoadBalancerKey) -> String {
    key_digest(key)
}

fn key_digest(key: &LoadBalancerKey) -> String {
    digest(&[&key.cluster_id, &key.owner_uid])
}

/// 32 hexadecimal digits that differ where the words do.
pub(crate) fn digest(words: &[&str]) -> String {
    let mut hash = Sha256::new();
    for word in words {
        // With its length before it, no word runs into the next.
        hash.update(word.len().to_be_bytes());
        hash.update(word);
    }
    hash.finalize().iter().take(16).map(|byte| format!("{byte:02x}")).collect()
}

fn plain(word: &str) -> String {
    word.chars().map(|letter| if letter.is_ascii_alphanumeric() { letter } else { '-' }).collect()
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
            spec: cloud_api_proto::v1alpha1::LoadBalancerSpec { tags, ..Default::default() },
            backends: Vec::new(),
            hash: "1-aa".into(),
        }
    }

    #[test]
    fn whose_it_is_can_be_read_again() {
        let wanted = desired("web", &[]);
        let (key, owner) = balancer_owner(&balancer_tags(&wanted)).expect("ours");
        assert_eq!((key, owner), (wanted.key, wanted.owner));
        assert_eq!(balancer_owner(&Tags::new()), None);
    }

    #[test]
    fn names_are_readable_limited_and_differ() {
        let name = balancer_name(&desired("web", &[]));
        assert!(name.starts_with("prod-shop-web-"), "{name}");
        let long = balancer_name(&desired(&"very-long-".repeat(20), &[]));
        assert_eq!(long.len(), NAME_MAX);
        let mut other = desired("web", &[]);
        other.key.owner_uid = "u-2".into();
        assert_ne!(balancer_name(&other), name);
    }

    #[test]
    fn complete_tags_are_left_alone() {
        let wanted = balancer_tags(&desired("web", &[("team", "a")]));
        let there = missing_tags(&wanted, "1-aa", &wanted).expect("lacks the hash");
        assert_eq!(applied_hash(&there), "1-aa");
        assert_eq!(missing_tags(&wanted, "1-aa", &there), None);
        assert!(missing_tags(&wanted, "1-bb", &there).is_some(), "another hash");
        assert_eq!(
            missing_tags(&wanted, "2-bb", &there),
            None,
            "another version of the hash rewrites nothing"
        );
    }

    #[test]
    fn tags_that_the_user_takes_back_go_and_those_of_others_stay() {
        let before = balancer_tags(&desired("web", &[("team", "a"), ("tier", "gold")]));
        let mut there = missing_tags(&before, "1-aa", &before).expect("lacks the hash");
        there.insert("cost-centre".into(), "42".into());
        let wanted = balancer_tags(&desired("web", &[("team", "b")]));
        let after = missing_tags(&wanted, "1-bb", &there).expect("differs");
        assert_eq!(after.get("team").map(String::as_str), Some("b"));
        assert_eq!(after.get("tier"), None);
        assert_eq!(after.get("cost-centre").map(String::as_str), Some("42"));
        assert_eq!(missing_tags(&wanted, "1-bb", &after), None, "settles");
    }

    #[test]
    fn only_our_own_keys_are_reserved() {
        for (key, wanted) in [
            ("cloudadapter.dev/hash", true),
            ("cloudadapter.dev", true),
            ("cloudadapter.device", false),
            ("team", false),
        ] {
            assert_eq!(is_reserved(key), wanted, "{key}");
        }
    }

    #[test]
    fn words_do_not_run_into_each_other() {
        assert_ne!(digest(&["ab", "c"]), digest(&["a", "bc"]));
    }
}
