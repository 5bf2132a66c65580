//! Names and digests by which any process recognises the load balancers of an owner.

use cloud_api_proto::v1alpha1::LoadBalancerKey;
use sha2::{Digest as _, Sha256};

use crate::driver::{DesiredLoadBalancer, wished_name};

/// Maximum length of generated names, in bytes.
const NAME_MAX: usize = 63;
/// Number of digits of the digest in a generated name.
const NAME_DIGEST: usize = 10;
/// Length of a digest, in bytes.
const DIGEST: usize = 16;

/// Returns the name of a new load balancer. This is the requested name, with at most `longest` bytes, or else a readable name of limited
/// length that is unique for the key.
pub fn balancer_name(desired: &DesiredLoadBalancer, longest: usize) -> String {
    let DesiredLoadBalancer { key, owner, cluster_name, spec, .. } = desired;
    let digest = name_digest(key);
    if !spec.name.is_empty() {
        return wished_name(&spec.name, &digest, longest);
    }
    let words = format!("{cluster_name}-{}-{}", owner.namespace, owner.name);
    let plain =
        words.chars().map(|one| if one.is_ascii_alphanumeric() { one.to_ascii_lowercase() } else { '-' });
    let readable: String = plain.take(NAME_MAX.saturating_sub(digest.len() + 1)).collect();
    format!("{}-{digest}", readable.trim_matches('-'))
}

/// Returns a function that tells whether a name belongs to a key. Only the digest is compared, because the readable part may have been
/// different.
pub fn names_of(key: &LoadBalancerKey) -> impl Fn(&str) -> bool + use<> {
    let digest = name_digest(key);
    move |name| name.rsplit_once('-').is_some_and(|(_, last)| last == digest)
}

fn name_digest(key: &LoadBalancerKey) -> String {
    key_digest(key).chars().take(NAME_DIGEST).collect()
}

/// Returns the digest of a key. Every process computes the same digest, so the digest can be the idempotency token of a create.
pub fn key_digest(key: &LoadBalancerKey) -> String {
    digest(&[&key.cluster_id, &key.owner_uid])
}

/// Computes the digest of several words: 32 hexadecimal digits, for fingerprints.
pub fn digest(words: &[&str]) -> String {
    let mut digest = Sha256::new();
    for word in words {
        // The lengths separate the words, so that different lists have different digests.
        digest.update(word.len().to_be_bytes());
        digest.update(word);
    }
    digest.finalize().iter().take(DIGEST).map(|byte| format!("{byte:02x}")).collect()
}

/// Returns whether a hash in the cloud differs from [`DesiredLoadBalancer::hash`]. Returns false for a hash of another version. The driver
/// then compares the fields, and the hash alone causes no write.
pub fn is_outdated(there: &str, wanted: &str) -> bool {
    let version = |hash: &str| hash.split_once('-').map(|(version, _)| version.to_owned());
    there.is_empty() || (there != wanted && version(there) == version(wanted))
}

#[cfg(test)]
mod tests {
    use cloud_api_proto::v1alpha1::{LoadBalancerSpec, Owner};

    use super::*;
    use crate::driver::Inheritance;

    fn desired(uid: &str, name: &str) -> DesiredLoadBalancer {
        DesiredLoadBalancer {
            key: LoadBalancerKey { cluster_id: "c".to_owned(), owner_uid: uid.to_owned() },
            owner: Owner { namespace: "shop".to_owned(), name: name.to_owned(), ..Owner::default() },
            cluster_name: "Prod_1".to_owned(),
            inheritance: Inheritance::ByName,
            spec: LoadBalancerSpec::default(),
            backends: [].into(),
            hash: String::new(),
        }
    }

    #[test]
    fn names_are_readable_and_recognised_by_the_key() {
        let (web, long) = (desired("u1", "web"), desired("u2", &"x".repeat(200)));
        let name = |desired: &DesiredLoadBalancer| balancer_name(desired, 255);
        assert!(name(&web).starts_with("prod-1-shop-web-"), "{}", name(&web));
        assert_eq!(name(&long).len(), NAME_MAX);
        assert!(names_of(&web.key)(&name(&desired("u1", "renamed"))));
        assert!(!names_of(&web.key)(&name(&long)));
        assert!(!names_of(&web.key)("web"));
    }

    #[test]
    fn digest_depends_on_word_boundaries() {
        assert_ne!(digest(&["ab", "c"]), digest(&["a", "bc"]));
        assert_eq!(digest(&[]).len(), 2 * DIGEST);
    }

    #[test]
    fn hashes_of_two_versions_cannot_be_compared() {
        for (there, outdated) in [("1-a", false), ("1-b", true), ("2-b", false), ("", true)] {
            assert_eq!(is_outdated(there, "1-a"), outdated, "{there}");
        }
    }
}
