//! Tags of a load balancer and of its listeners and pools, such as `cloudadapter.dev/owner-uid=...`. The functions have no side effects.

use std::collections::BTreeSet;

use cloud_adapter::{
    driver::{DesiredLoadBalancer, Namespaces, VendorError, read_fence, write_fence},
    kit::{self, is_outdated},
};
use cloud_api_proto::{
    DOMAIN,
    v1alpha1::{Fence, LoadBalancerKey, Owner},
};

use super::{Marks, go};

/// Maximum length of a tag in characters. Source: Octavia API reference.
pub(super) const TAG_MAX: usize = 255;

pub(super) const CLUSTER_ID: &str = "cluster-id";
pub(super) const CLUSTER_NAME: &str = "cluster-name";
pub(super) const OWNER_KIND: &str = "owner-kind";
pub(super) const OWNER_NAMESPACE: &str = "owner-namespace";
pub(super) const OWNER_NAME: &str = "owner-name";
const OWNER_UID: &str = "owner-uid";
/// The tag with the hash of the spec that was last applied completely.
pub(super) const HASH: &str = "hash";
/// The tag with the fence of the last writer of tags.
pub(super) const FENCE: &str = "fence";
/// The tag with the key of a tag that the user has set. With this key, the adapter can remove the user's tag later.
const USER_TAG: &str = "user-tag";
/// The tag with a namespace whose Services may adopt the load balancer while it has no owner.
const ADOPT: &str = "adopt";
/// The tag with a namespace whose Services may share the load balancer. If the load balancer has an owner, there is one such tag for each
/// namespace.
const SHARE: &str = "share";
/// The tag with a namespace whose Services may share an adopted load balancer, by consent of the user that created the load balancer. This
/// consent is valid in addition to the owner's consent, and stays when the owner releases the load balancer.
const SHARE_BEFORE: &str = "share-before";
/// The tag that marks that the load balancer existed before its owner.
const ORIGIN: &str = "origin";
const ADOPTED: &str = "adopted";
/// The tag that marks that the load balancer is not complete without its floating IP.
const FLOATING_IP: &str = "floating-ip";
const EXPECTED: &str = "expected";

/// The beginning of the tags of owners that share the load balancer. The UID of the owner follows.
pub(super) const SHARER: &str = "sharer";

/// The tags of a load balancer, without hash and fence.
pub(crate) type Tags = BTreeSet<String>;

/// Whether a load balancer is expected to have a floating IP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Expectation {
    FloatingIp,
    None,
}

pub(crate) fn wanted(desired: &DesiredLoadBalancer, expectation: Expectation) -> Result<Tags, VendorError> {
    let DesiredLoadBalancer { key, owner, cluster_name, spec, .. } = desired;
    let mut tags = Tags::new();
    for (word, value) in [(CLUSTER_ID, &key.cluster_id), (OWNER_UID, &key.owner_uid)] {
        let tag = write(word, value);
        if tag.chars().count() > TAG_MAX {
            let text = format!("{word} is too long: a tag with its key has at most {TAG_MAX} characters");
            return Err(kit::invalid("key", text));
        }
        tags.insert(tag);
    }
    // These values are for display only, and therefore truncated if they are long.
    for (word, value) in [
        (CLUSTER_NAME, cluster_name),
        (OWNER_KIND, &owner.kind),
        (OWNER_NAMESPACE, &owner.namespace),
        (OWNER_NAME, &owner.name),
    ] {
        tags.insert(write(word, value).chars().take(TAG_MAX).collect());
    }
    if expectation == Expectation::FloatingIp {
        tags.insert(write(FLOATING_IP, EXPECTED));
    }
    tags.extend(spec.shared_with.iter().map(|namespace| write(SHARE, namespace)));
    for (key, value) in &spec.tags {
        let field = format!("spec.tags[{key}]");
        let invalid = |text: &str| Err(kit::invalid(&field, text));
        let (tag, marker) = (format!("{key}={value}"), write(USER_TAG, key));
        if is_reserved(&tag) {
            return invalid("is reserved for the adapter: choose another key");
        }
        if tag.chars().count() > TAG_MAX || marker.chars().count() > TAG_MAX {
            return invalid("is too long: key and value together have 255 characters, the key 225");
        }
        tags.extend([tag, marker]);
    }
    Ok(tags)
}

/// Returns all tags that mark a load balancer as complete, unless the existing tags already do so.
///
/// Tags of other clients stay. Tags that the user has removed from the desired state are deleted. If only the fence differs, no write is
/// needed.
pub(crate) fn missing(wanted: &Tags, hash: &str, fence: &Fence, there: &[String]) -> Option<Vec<String>> {
    if are_there(wanted, there) && !is_outdated(applied_hash(there), hash) {
        return None;
    }
    let mut tags = signed(wanted, fence, there);
    tags.push(write(HASH, hash));
    Some(tags)
}

/// Returns the tags for a load balancer that cannot be completed. The hash of the last complete change stays as it was recorded.
pub(crate) fn unfinished(wanted: &Tags, fence: &Fence, there: &[String]) -> Option<Vec<String>> {
    if are_there(wanted, there) {
        return None;
    }
    let mut tags = signed(wanted, fence, there);
    tags.extend(there.iter().filter(|tag| value(tag, HASH).is_some()).cloned());
    Some(tags)
}

/// Returns the tags without the consent that the owner withdraws, or `None` if the owner withdraws no consent. The consent of the user that
/// created the load balancer stays.
pub(crate) fn withdrawn(desired: &DesiredLoadBalancer, there: &[String]) -> Option<Vec<String>> {
    let is_owner = owner(there).is_some_and(|(key, _)| key == desired.key);
    let before = |namespaces: &str| there.contains(&write(SHARE_BEFORE, namespaces));
    let named = |namespace: &str| desired.spec.shared_with.iter().any(|it| it == namespace);
    let stays = |tag: &&String| value(tag, SHARE).is_none_or(|it| named(it) || before(it));
    let left: Vec<String> = there.iter().filter(stays).cloned().collect();
    (is_owner && left.len() < there.len()).then_some(left)
}

/// Returns whether all wanted tags exist, and none of the tags that the owner no longer wants.
fn are_there(wanted: &Tags, there: &[String]) -> bool {
    let of_no_use = |tag: &String| {
        let ours = is_owners(tag) && ![HASH, FENCE].iter().any(|word| value(tag, word).is_some());
        (ours || is_former(tag, there)) && !wanted.contains(tag)
    };
    wanted.iter().all(|tag| there.contains(tag)) && !there.iter().any(of_no_use)
}

/// Returns the owner's tags with the fence, and the tags of other clients. Without the hash, the load balancer does not count as complete.
pub(crate) fn signed(wanted: &Tags, fence: &Fence, there: &[String]) -> Vec<String> {
    let foreign =
        there.iter().filter(|tag| !is_owners(tag) && !is_former(tag, there) && !wanted.contains(*tag));
    let fence =
        write_fence(fence).map(|text| write(FENCE, &text)).filter(|tag| tag.chars().count() <= TAG_MAX);
    wanted.iter().chain(foreign).cloned().chain(fence).collect()
}

/// Returns the hash of the spec that was last applied completely, or an empty string if there is no such hash.
pub(crate) fn applied_hash(tags: &[String]) -> &str {
    read(tags, HASH).unwrap_or_default()
}

/// Returns the additional tags of an adopted load balancer. These tags record the adoption, and the consent of the user that created the
/// load balancer.
pub(crate) fn adopting(there: &[String]) -> Tags {
    let word = if is_adopted(there) { SHARE_BEFORE } else { SHARE };
    let consents = there.iter().filter_map(|tag| value(tag, word));
    let both = consents.flat_map(|namespaces| [SHARE, SHARE_BEFORE].map(|word| write(word, namespaces)));
    both.filter(|tag| tag.chars().count() <= TAG_MAX).chain([adopted()]).collect()
}

pub(crate) fn adopted() -> String {
    write(ORIGIN, ADOPTED)
}

pub(crate) fn is_adopted(tags: &[String]) -> bool {
    read(tags, ORIGIN) == Some(ADOPTED)
}

pub(crate) fn adoptable_by(tags: &[String]) -> Namespaces {
    Namespaces::read(tags.iter().filter_map(|tag| value(tag, ADOPT)))
}

pub(crate) fn shared_with(tags: &[String]) -> Namespaces {
    Namespaces::read(tags.iter().filter_map(|tag| value(tag, SHARE)))
}

/// Returns the tags that stay when the owner releases the load balancer. These are the tags of other clients and of Services that share the
/// load balancer. The consent of the user that created the load balancer stays, too.
pub(crate) fn released(there: &[String]) -> Vec<String> {
    let consents = there.iter().filter_map(|tag| value(tag, SHARE_BEFORE));
    let others = there.iter().filter(|tag| !is_owners(tag) && !is_former(tag, there)).cloned();
    others.chain(consents.map(|namespaces| write(SHARE, namespaces))).collect()
}

pub(crate) fn fence(tags: &[String]) -> Option<Fence> {
    read_fence(read(tags, FENCE)?)
}

pub(crate) fn expects_floating_ip(tags: &[String]) -> bool {
    read(tags, FLOATING_IP) == Some(EXPECTED)
}

/// Returns the owner of a load balancer, with empty strings for removed tags. Returns `None` if the load balancer has no owner tags.
pub(crate) fn owner(tags: &[String]) -> Option<(LoadBalancerKey, Owner)> {
    read(tags, CLUSTER_ID).or(read(tags, OWNER_UID))?;
    let text = |word| read(tags, word).unwrap_or_default().to_owned();
    let owner = Owner {
        kind: text(OWNER_KIND),
        namespace: text(OWNER_NAMESPACE),
        name: text(OWNER_NAME),
        uid: text(OWNER_UID),
    };
    Some((LoadBalancerKey { cluster_id: text(CLUSTER_ID), owner_uid: text(OWNER_UID) }, owner))
}

/// Returns whether the former cloud controller manager created a listener or pool for the Service or load balancer with this name.
pub(crate) fn is_part_of_go(name: &str, part: Marks<'_>) -> bool {
    go::is_part(name, part)
}

/// Returns the tag that marks a listener or pool as belonging to this key. The tag is short enough, because a key that is too long was
/// refused with the load balancer.
pub(crate) fn part_tag(key: &LoadBalancerKey) -> String {
    write(OWNER_UID, &key.owner_uid)
}

/// Returns whether a listener or pool belongs to this key. If the former cloud controller manager created the load balancer with this name,
/// its listeners and pools also belong to the key.
///
/// Clusters with the same cluster name get the same names from that controller. A listener or pool with the tag of another key therefore
/// never matches.
pub(crate) fn is_part_of(key: &LoadBalancerKey, balancer: &str, part: Marks<'_>) -> bool {
    match read(part.tags, OWNER_UID) {
        Some(_) => part.tags.contains(&part_tag(key)),
        None => go::is_part(balancer, part),
    }
}

/// Returns whether a tag belongs to the owner. Tags of a sharing owner and the consent to adopt do not belong to the owner.
pub(super) fn is_owners(tag: &str) -> bool {
    is_reserved(tag) && sharer_of(tag).is_none() && value(tag, ADOPT).is_none()
}

pub(super) fn sharer_of(tag: &str) -> Option<&str> {
    let (word, _) = tag.split_once('=')?;
    let rest = word.strip_prefix(DOMAIN)?.strip_prefix('/')?.strip_prefix(SHARER)?;
    rest.strip_prefix('/')?.split_once('/').map(|(uid, _)| uid)
}

fn is_reserved(tag: &str) -> bool {
    tag.strip_prefix(DOMAIN).is_some_and(|rest| rest.starts_with(['/', '=']))
}

/// Returns whether the user has set a tag, now or earlier.
pub(super) fn is_former(tag: &str, there: &[String]) -> bool {
    let mut keys = there.iter().filter_map(|tag| value(tag, USER_TAG));
    keys.any(|key| tag.strip_prefix(key).is_some_and(|rest| rest.starts_with('=')))
}

pub(super) fn write(word: &str, value: &str) -> String {
    format!("{DOMAIN}/{word}={value}")
}

pub(super) fn read<'a>(tags: &'a [String], word: &str) -> Option<&'a str> {
    tags.iter().find_map(|tag| value(tag, word))
}

pub(super) fn value<'a>(tag: &'a str, word: &str) -> Option<&'a str> {
    tag.strip_prefix(DOMAIN)?.strip_prefix('/')?.strip_prefix(word)?.strip_prefix('=')
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use cloud_api_proto::v1alpha1::LoadBalancerSpec;

    use cloud_adapter::driver::Fault;

    use super::*;

    fn desired(tags: &[(&str, &str)]) -> DesiredLoadBalancer {
        let tags = tags.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        let word = |word: &str| word.to_owned();
        DesiredLoadBalancer {
            key: LoadBalancerKey { cluster_id: word("c-1"), owner_uid: word("u-1") },
            owner: Owner {
                kind: word("Service"),
                namespace: word("shop"),
                name: word("web"),
                uid: word("u-1"),
            },
            cluster_name: word("prod"),
            inheritance: cloud_adapter::driver::Inheritance::ByName,
            spec: LoadBalancerSpec { tags, ..LoadBalancerSpec::default() },
            backends: Arc::from([]),
            hash: word("1-aa"),
        }
    }

    fn tags(user: &[(&str, &str)]) -> Tags {
        wanted(&desired(user), Expectation::None).expect("fits")
    }

    fn writer(epoch: u64) -> Fence {
        Fence { scope: "service-controller/0".into(), epoch, sequence: 1 }
    }

    #[test]
    fn owner_tags_can_be_parsed() {
        let there = signed(&tags(&[("team", "a")]), &writer(7), &[]);
        let wanted = desired(&[]);
        assert_eq!(owner(&there), Some((wanted.key.clone(), wanted.owner)));
        assert_eq!((fence(&there), applied_hash(&there)), (Some(writer(7)), ""));
        let rest: Vec<String> = there.into_iter().filter(|tag| value(tag, OWNER_UID).is_none()).collect();
        let (key, _) = owner(&rest).expect("an owner");
        assert_eq!((key.cluster_id.as_str(), key.owner_uid.as_str()), ("c-1", ""));
        assert_eq!(owner(&["team=a".to_owned()]), None);
    }

    #[test]
    fn complete_tags_are_left_alone() {
        let wanted = tags(&[]);
        let there = missing(&wanted, "1-aa", &writer(1), &[]).expect("no tags yet");
        for (name, hash, epoch, complete) in [
            ("the same", "1-aa", 1, true),
            ("another writer", "1-aa", 2, true),
            ("another version of the hash", "2-bb", 2, true),
            ("another hash", "1-bb", 2, false),
        ] {
            assert_eq!(missing(&wanted, hash, &writer(epoch), &there).is_none(), complete, "{name}");
        }
        let public = super::wanted(&desired(&[]), Expectation::FloatingIp).expect("fits");
        let there = missing(&public, "1-bb", &writer(2), &there).expect("the expected floating IP differs");
        assert!(expects_floating_ip(&there));
        let there =
            missing(&wanted, "1-cc", &writer(2), &there).expect("a floating IP is no longer expected");
        assert!(!expects_floating_ip(&there));
    }

    #[test]
    fn former_user_tags_are_removed_and_foreign_tags_stay() {
        let mut there =
            missing(&tags(&[("team", "a"), ("tier", "gold")]), "1-aa", &writer(1), &[]).expect("new");
        there.push("cost-centre=42".to_owned());
        let wanted = tags(&[("team", "b")]);
        let after = missing(&wanted, "1-bb", &writer(2), &there).expect("differs");
        let has = |tag: &str| after.contains(&tag.to_owned());
        assert_eq!(["team=a", "team=b", "tier=gold", "cost-centre=42"].map(has), [false, true, false, true]);
        assert_eq!(missing(&wanted, "1-bb", &writer(3), &after), None, "settles");
    }

    #[test]
    fn too_long_keys_are_refused_and_names_are_cut() {
        let long = "x".repeat(254);
        for (field, tags) in [
            ("spec.tags[cloudadapter.dev/hash]", [("cloudadapter.dev/hash", "1-fake")]),
            ("spec.tags[a]", [("a", long.as_str())]),
        ] {
            let error = wanted(&desired(&tags), Expectation::None).expect_err(field);
            assert_eq!(error.fields, [field]);
        }
        let mut wide = desired(&[]);
        wide.owner.name.clone_from(&long);
        assert!(wanted(&wide, Expectation::None).expect("cut").iter().all(|tag| tag.len() <= TAG_MAX));
        wide.key.owner_uid = long;
        assert_eq!(wanted(&wide, Expectation::None).expect_err("a key is never cut").fault, Fault::Invalid);
    }

    #[test]
    fn parts_are_recognised_by_tag_or_former_name() {
        let key = desired(&[]).key;
        let go = "kube_service_prod_shop_web";
        for (name, balancer, part, wanted) in [
            ("created for this Service", "x", ("tcp-80", &[part_tag(&key)][..]), true),
            ("created by a user", "x", ("tcp-80", &[]), false),
            ("by the former CCM, tagged", go, ("l", &[go.to_owned()]), true),
            (
                "by the former CCM, before tags were used",
                go,
                ("listener_0_kube_service_prod_shop_web", &[]),
                true,
            ),
            (
                "part of another Service on a shared load balancer",
                go,
                ("l", &["kube_service_prod_shop_api".to_owned()]),
                false,
            ),
            (
                "created for a Service with the same names in another cluster",
                go,
                ("l", &[go.to_owned(), "cloudadapter.dev/owner-uid=another".to_owned()]),
                false,
            ),
        ] {
            assert_eq!(is_part_of(&key, balancer, Marks { name: part.0, tags: part.1 }), wanted, "{name}");
        }
    }
}
