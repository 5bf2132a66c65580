//! Names by which load balancers are found again, by another process too. Tags are in `tags`, and what says the same of a floating IP
//! in `description`.

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
        unfinished, wanted, withdraws,
    },
};

/// Bytes of the names that are made here.
const NAME_MAX: usize = 63;
/// Bytes of a name at the cloud. Source: Octavia API reference.
const WISH_MAX: usize = 255;
/// Letters of the digest that are written into names.
const NAME_DIGEST: usize = 10;
/// Bytes of a digest that are told.
const DIGEST: usize = 16;

/// The name of a new load balancer: the one that is wished for; else readable, limited, and another one for each key.
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

/// The name that one which is there gets, if it is wished for and another.
///
/// A name that the Go cloud controller manager gives stays: by it that one finds its load balancers, should it come back.
pub(crate) fn new_name(desired: &DesiredLoadBalancer, there: &str) -> Option<String> {
    let wished = !desired.spec.name.is_empty() && !is_of_go(there);
    wished.then(|| balancer_name(desired)).filter(|name| name != there)
}

/// Recognises the names of a key: the readable part may have been another one.
pub(crate) fn names_of(key: &LoadBalancerKey) -> impl Fn(&str) -> bool + use<> {
    let digest = name_digest(key);
    move |name| name.rsplit_once('-').is_some_and(|(_, last)| last == digest)
}

fn name_digest(key: &LoadBalancerKey) -> String {
    digest(&[&key.cluster_id, &key.owner_uid]).chars().take(NAME_DIGEST).collect()
}

/// A short word for many, such as a fingerprint.
pub(crate) fn digest(words: &[&str]) -> String {
    let mut digest = Sha256::new();
    for word in words {
        // With its length, so that no two lists of words look the same.
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
    fn a_name_is_readable_and_recognised_by_its_key_alone() {
        let (web, long) = (desired("u1", "web"), desired("u2", &"x".repeat(200)));
        assert!(balancer_name(&web).starts_with("prod-1-shop-web-"), "{}", balancer_name(&web));
        assert_eq!(balancer_name(&long).len(), NAME_MAX);
        assert!(names_of(&web.key)(&balancer_name(&desired("u1", "renamed"))));
        assert!(!names_of(&web.key)(&balancer_name(&long)));
    }
}
