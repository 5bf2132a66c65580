//! Names by which load balancers are found again, by another process too. Tags belong here as well.

use cloud_adapter::driver::DesiredLoadBalancer;
use cloud_api_proto::v1alpha1::LoadBalancerKey;
use sha2::{Digest as _, Sha256};

/// Bytes of a name at the cloud.
const NAME_MAX: usize = 63;
/// Letters of the digest that are written into names.
const NAME_DIGEST: usize = 10;
/// Bytes of a digest that are told.
const DIGEST: usize = 16;

/// The name of a new load balancer: readable, limited, and another one for each key.
#[cfg_attr(not(test), expect(dead_code, reason = "the plan of a new load balancer uses it"))]
pub(crate) fn balancer_name(desired: &DesiredLoadBalancer) -> String {
    let DesiredLoadBalancer { key, owner, cluster_name, .. } = desired;
    let digest = name_digest(key);
    let words = format!("{cluster_name}-{}-{}", owner.namespace, owner.name);
    let plain =
        words.chars().map(|one| if one.is_ascii_alphanumeric() { one.to_ascii_lowercase() } else { '-' });
    let readable: String = plain.take(NAME_MAX.saturating_sub(digest.len() + 1)).collect();
    format!("{}-{digest}", readable.trim_matches('-'))
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
