//! Names by which any process recognises the load balancers of an owner. The module `tags` defines their tags, and `description` the
//! corresponding record of a floating IP.

mod description;
mod go;
mod security_groups;
mod sharers;
mod tags;

use cloud_adapter::driver::{DesiredLoadBalancer, wished_name};
use cloud_api_proto::v1alpha1::LoadBalancerKey;
use sha2::{Digest as _, Sha256};

pub(crate) use self::{
    description::{Claim, Description, short_namespace},
    go::{GoNames, is_balancer as is_of_go},
    security_groups::{balancer_of, cluster_of, group_description, group_name, owner_of, rule_description},
    sharers::{
        Sharing, User, beside_others, check_room, is_at_home, is_closed, is_given_up, is_guest, is_left,
        is_used_by_others, leave, may_go, other_user, sharer_fence, sharer_hash, sharer_id, sharers,
        shares_by_consent, stays_for_others, users, users_of_go,
    },
    tags::{
        Expectation, Tags, adoptable_by, adopted, adopting, applied_hash, expects_floating_ip, fence,
        is_adopted, is_part_of, is_part_of_go, missing, owner, part_tag, released, shared_with, signed,
        unfinished, wanted, withdrawn,
    },
};

/// Maximum length of generated names, in bytes.
const NAME_MAX: usize = 63;
/// Maximum length of a name in the cloud, in bytes. Source: Octavia API reference.
const WISH_MAX: usize = 255;
/// Number of digits of the digest in a generated name.
const NAME_DIGEST: usize = 10;
/// Length of a digest, in bytes.
const DIGEST: usize = 16;

/// Returns the name of a new load balancer: the configured name; or else a readable name of limited length that is unique for the key.
pub(crate) fn balancer_name(desired: &DesiredLoadBalancer) -> String {
    let DesiredLoadBalancer { key, owner, cluster_name, spec, .. } = desired;
    let digest = name_digest(key);
    if !spec.name.is_empty() {
        return wished_name(&spec.name, &digest, WISH_MAX);
    }
    let words = format!("{cluster_name}-{}-{}", owner.namespace, owner.name);
    let plain =
        words.chars().map(|one| if one.is_ascii_alphanumeric() { one.to_ascii_lowercase() } else { '-' });
    let readable: String = plain.take(NAME_MAX.saturating_sub(digest.len() + 1)).collect();
    format!("{}-{digest}", readable.trim_matches('-'))
}

/// Returns the new name of an existing load balancer, if a name is configured and differs.
///
/// A name given by the former cloud controller manager does not change, so that this controller could still find the load balancer after a
/// rollback.
pub(crate) fn new_name(desired: &DesiredLoadBalancer, there: &str) -> Option<String> {
    let wished = !desired.spec.name.is_empty() && !is_of_go(there);
    wished.then(|| balancer_name(desired)).filter(|name| name != there)
}

/// Whether a name belongs to a key. Compares only the digest, because the readable part may have been different.
pub(crate) fn names_of(key: &LoadBalancerKey) -> impl Fn(&str) -> bool + use<> {
    let digest = name_digest(key);
    move |name| name.rsplit_once('-').is_some_and(|(_, last)| last == digest)
}

fn name_digest(key: &LoadBalancerKey) -> String {
    digest(&[&key.cluster_id, &key.owner_uid]).chars().take(NAME_DIGEST).collect()
}

/// Computes the digest of several words, used for fingerprints.
pub(crate) fn digest(words: &[&str]) -> String {
    let mut digest = Sha256::new();
    for word in words {
        // The lengths separate the words, so that different lists have different digests.
        digest.update(word.len().to_be_bytes());
        digest.update(word);
    }
    digest.finalize().iter().take(DIGEST).map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use cloud_api_proto::v1alpha1::{LoadBalancerSpec, Owner};

    use super::*;

    fn desired(uid: &str, name: &str) -> DesiredLoadBalancer {
        DesiredLoadBalancer {
            key: LoadBalancerKey { cluster_id: "c".to_owned(), owner_uid: uid.to_owned() },
            owner: Owner { namespace: "shop".to_owned(), name: name.to_owned(), ..Owner::default() },
            cluster_name: "Prod_1".to_owned(),
            inheritance: cloud_adapter::driver::Inheritance::ByName,
            spec: LoadBalancerSpec::default(),
            backends: Arc::from([]),
            hash: String::new(),
        }
    }

    #[test]
    fn names_are_readable_and_recognised_by_the_key() {
        let (web, long) = (desired("u1", "web"), desired("u2", &"x".repeat(200)));
        assert!(balancer_name(&web).starts_with("prod-1-shop-web-"), "{}", balancer_name(&web));
        assert_eq!(balancer_name(&long).len(), NAME_MAX);
        assert!(names_of(&web.key)(&balancer_name(&desired("u1", "renamed"))));
        assert!(!names_of(&web.key)(&balancer_name(&long)));
    }
}
