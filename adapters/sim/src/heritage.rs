//! Load balancers that a former cloud controller manager created. Their names come from `DefaultLoadBalancerName` of
//! `k8s.io/cloud-provider`, as in `e2e/peer`. Pure functions.

use cloud_adapter::driver::{Adopter, Heritage};

/// Maximum length of the name of a load balancer, in bytes.
const NAME_MAX: usize = 32;

/// Returns a function that compares the name of a load balancer without owner tags with the name for this Service.
pub(crate) fn of(adopter: &Adopter) -> impl Fn(&str) -> Heritage + use<> {
    let own = name(&adopter.key.owner_uid);
    move |there| {
        if there == own {
            // The name contains the Service's UID, so it matches only this Service.
            Heritage::Sole
        } else if is_name(there) {
            Heritage::Others(format!(
                "{there} is the name that cloud controller managers in Go give to the load balancer \
                of another Service (the name for this Service is {own}): rename the load balancer if it \
                is unused"
            ))
        } else {
            Heritage::Unrelated
        }
    }
}

/// Returns the letter `a` and the UID without dashes, cut to [`NAME_MAX`].
fn name(uid: &str) -> String {
    format!("a{}", uid.replace('-', "")).chars().take(NAME_MAX).collect()
}

fn is_name(text: &str) -> bool {
    text.len() == NAME_MAX
        && text.strip_prefix('a').is_some_and(|rest| rest.bytes().all(|one| one.is_ascii_hexdigit()))
}

#[cfg(test)]
mod tests {
    use cloud_api_proto::v1alpha1::{LoadBalancerKey, Owner};

    use super::*;

    #[test]
    fn name_belongs_to_the_uid() {
        let key = LoadBalancerKey {
            cluster_id: "c-1".into(),
            owner_uid: "7c1ff02e-0c8b-4c6e-9c39-b1b1a0d0c001".into(),
        };
        let of_adopter = of(&Adopter {
            key,
            owner: Owner::default(),
            cluster_name: "prod".into(),
            inheritance: cloud_adapter::driver::Inheritance::ByName,
        });
        assert_eq!(of_adopter("a7c1ff02e0c8b4c6e9c39b1b1a0d0c00"), Heritage::Sole);
        assert!(matches!(of_adopter("a8c1ff02e0c8b4c6e9c39b1b1a0d0c00"), Heritage::Others(_)));
        for unrelated in [
            "a7c1ff02e0c8b4c6e9c39b1b1a0d0c001",
            "prod-shop-web-0123456789",
            "a-name-of-thirty-two-letters-ab-",
            "",
        ] {
            assert_eq!(of_adopter(unrelated), Heritage::Unrelated, "{unrelated}");
        }
    }
}
