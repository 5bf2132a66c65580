//! Names by which any process recognises the load balancers of an owner. Tags also belong in this module.

use cloud_adapter::driver::DesiredLoadBalancer;
use cloud_api_proto::v1alpha1::LoadBalancerKey;
use sha2::{Digest as _, Sha256};

/// Maximum length of a name in the cloud, in bytes.
const NAME_MAX: usize = 63;
/// Number of digits of the digest in a name.
const NAME_DIGEST: usize = 10;
/// Length of a digest, in bytes.
const DIGEST: usize = 16;

/// Builds the name of a new load balancer, which is readable, limited in length, and unique for the key.
#[cfg_attr(not(test), expect(dead_code, reason = "used by the plan of a new load balancer"))]
pub(crate) fn balancer_name(desired: &DesiredLoadBalancer) -> String {
    let DesiredLoadBalancer { key, owner, cluster_name, .. } = desired;
    let digest = name_digest(key);
    let words = format!("{cluster_name}-{}-{}", owner.namespace, owner.name);
    let plain =
        words.chars().map(|one| if one.is_ascii_alphanumeric() { one.to_ascii_lowercase() } else { '-' });
    let readable: String = plain.take(NAME_MAX.saturating_sub(digest.len() + 1)).collect();
    format!("{}-{digest}", readable.trim_matches('-'))
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
