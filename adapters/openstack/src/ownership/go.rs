//! Recognises load balancers of the former cloud controller manager, openstack-cloud-controller-manager, by its names and tags. Pure
//! functions.
//!
//! Source: openstack-cloud-controller-manager, `GetLoadBalancerName` and `getLoadBalancerLegacyName`; cloud-provider,
//! `DefaultLoadBalancerName`.

use std::collections::BTreeSet;

use cloud_adapter::driver::{Adopter, Heritage, Inheritance};

use super::Marks;

/// The prefix of the names that the former controller gives to load balancers, and of its tags.
const PREFIX: &str = "kube_service_";
/// The maximum length of the former controller's names, in bytes.
const NAME_MAX: usize = 255;
/// The maximum length of the former controller's names before 2019, in bytes.
const LEGACY_NAME_MAX: usize = 32;

/// The names that the former controller gives to the load balancer of a Service. The Service may take over that load balancer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct GoNames {
    /// The name `kube_service_<cluster>_<namespace>_<name>`, which is also the tag of the Service.
    pub(crate) name: String,
    /// The name `a<uid>`, where the UID has no dashes. This name is unique for a Service.
    legacy: String,
    /// Whether `name` proves ownership. The name in `legacy` always proves ownership, because this name contains the UID.
    inheritance: Inheritance,
}

impl GoNames {
    pub(crate) fn of(adopter: &Adopter) -> Self {
        let Adopter { key, owner, cluster_name, inheritance } = adopter;
        let name = cut(format!("{PREFIX}{cluster_name}_{}_{}", owner.namespace, owner.name), NAME_MAX);
        let legacy = cut(format!("a{}", key.owner_uid.replace('-', "")), LEGACY_NAME_MAX);
        Self { name, legacy, inheritance: *inheritance }
    }

    /// Whether it is certain that the former controller created the load balancer of this name for the Service.
    pub(crate) fn made(&self, balancer: &str) -> bool {
        balancer == self.legacy || self.proven().is_some_and(|name| name == balancer)
    }

    /// Returns the name, if this name proves that a load balancer, a listener or a pool belongs to the Service.
    pub(crate) fn proven(&self) -> Option<&str> {
        Some(self.name.as_str()).filter(|_| self.inheritance == Inheritance::ByName)
    }

    /// Returns the relation between the Service and a load balancer with this name and these tags. None of the tags is an owner tag.
    pub(crate) fn heritage(&self, balancer: &str, tags: &[String]) -> Heritage {
        let mut users: BTreeSet<&str> =
            tags.iter().map(String::as_str).filter(|tag| tag.starts_with(PREFIX)).collect();
        // Before the former controller used tags, the name alone identified the owner.
        if balancer.starts_with(PREFIX) {
            users.insert(balancer);
        }
        if balancer == self.legacy {
            users.insert(&self.name);
        }
        let mine = users.remove(self.name.as_str());
        // The name contains the UID of another Service.
        if is_legacy(balancer) && balancer != self.legacy {
            users.insert(balancer);
        }
        match (mine, users.is_empty()) {
            (false, true) => Heritage::Unrelated,
            // The load balancer was created for this Service. Other Services that share the load balancer keep using it.
            (true, _) if self.made(balancer) => Heritage::Sole,
            (true, _) if self.proven().is_none() => Heritage::Unproven(format!(
                "{} may stand for a Service of any cluster with the same cluster name: the \
                 operator must confirm with a grant `former` that no other cluster in the project has \
                 this name",
                self.name
            )),
            // The load balancer has the Service's tag but another name. It was therefore created for another Service, and this Service
            // shares it.
            (true, _) => Heritage::Shared(format!(
                "{} uses the load balancer of another Service: set lb.cloudadapter.dev/id of this \
                 Service to the load balancer's ID, and lb.cloudadapter.dev/adopt: shared",
                self.name
            )),
            (false, false) => {
                let users: Vec<&str> = users.into_iter().collect();
                Heritage::Others(format!(
                    "openstack-cloud-controller-manager uses the load balancer for {}, but this Service is {}: \
                    remove the tags if the load balancer is not in use",
                    users.join(", "),
                    self.name
                ))
            }
        }
    }
}

pub(crate) fn is_balancer(name: &str) -> bool {
    name.starts_with(PREFIX) || is_legacy(name)
}

pub(super) fn is_user(tag: &str) -> bool {
    tag.starts_with(PREFIX)
}

/// Returns the namespace of the Service from one of the Service's names or tags. Names of namespaces and Services contain no underscores.
pub(super) fn namespace_of(text: &str) -> Option<&str> {
    let (rest, _service) = text.strip_prefix(PREFIX)?.rsplit_once('_')?;
    rest.rsplit_once('_').map(|(_cluster, namespace)| namespace)
}

/// Returns the tag of the Service for which the former controller created a load balancer with this name.
pub(super) fn tag_of<'a>(name: &str, tags: &'a [String]) -> Option<&'a str> {
    let mut users = tags.iter().map(String::as_str).filter(|tag| is_user(tag));
    if !is_legacy(name) {
        return users.find(|tag| *tag == name);
    }
    // A legacy name contains only a UID. If the load balancer has only one tag, this tag belongs to the Service with that UID. If the load
    // balancer has several tags, the owner is not known.
    let first = users.next();
    first.filter(|_| users.next().is_none())
}

/// Returns whether the former controller created a listener or pool with this name and these tags for the load balancer. Before that
/// controller used tags, it used names such as `listener_0_<balancer>`.
pub(super) fn is_part(balancer: &str, Marks { name, tags }: Marks<'_>) -> bool {
    let of_name = || {
        let rest = ["listener_", "pool_", "monitor_"].iter().find_map(|kind| name.strip_prefix(kind));
        // The former controller truncates long names.
        let is_cut = name.len() == NAME_MAX;
        rest.and_then(|rest| rest.split_once('_'))
            .is_some_and(|(_, of)| of == balancer || (is_cut && balancer.starts_with(of)))
    };
    is_balancer(balancer) && (tags.iter().any(|tag| tag == balancer) || of_name())
}

/// Returns whether a name consists of `a` and 31 hexadecimal digits of a UID.
fn is_legacy(name: &str) -> bool {
    name.len() == LEGACY_NAME_MAX
        && name.strip_prefix('a').is_some_and(|rest| rest.bytes().all(|one| one.is_ascii_hexdigit()))
}

/// Truncates a text by bytes, as Go does, but drops a character that would be split.
fn cut(mut text: String, max: usize) -> String {
    while text.len() > max {
        text.pop();
    }
    text
}

#[cfg(test)]
mod tests {
    use cloud_api_proto::v1alpha1::{LoadBalancerKey, Owner};

    use super::*;

    const UID: &str = "7c1ff02e-0c8b-4c6e-9c39-b1b1a0d0c001";
    const WEB: &str = "kube_service_prod_shop_web";
    const API: &str = "kube_service_prod_shop_api";
    const LEGACY: &str = "a7c1ff02e0c8b4c6e9c39b1b1a0d0c00";

    fn names(cluster: &str, name: &str) -> GoNames {
        let word = |word: &str| word.to_owned();
        GoNames::of(&Adopter {
            key: LoadBalancerKey { cluster_id: word("c-1"), owner_uid: word(UID) },
            owner: Owner { namespace: word("shop"), name: word(name), ..Owner::default() },
            cluster_name: word(cluster),
            inheritance: Inheritance::ByName,
        })
    }

    #[test]
    fn names_match_those_of_the_former_ccm() {
        assert_eq!(
            names("prod", "web"),
            GoNames { name: WEB.to_owned(), legacy: LEGACY.to_owned(), inheritance: Inheritance::ByName }
        );
        assert_eq!([WEB, "kube_service_my_cluster_shop_web"].map(namespace_of), [Some("shop"); 2]);
        assert!(is_balancer(WEB) && is_balancer(LEGACY) && !is_balancer("prod-shop-web-0123456789"));
        let long = names(&"c".repeat(300), "web").name;
        assert_eq!((long.len(), long.ends_with('c')), (NAME_MAX, true));
        let wide = names(&"ä".repeat(200), "web").name;
        assert_eq!(wide.len(), NAME_MAX, "13 ASCII characters and 121 of two bytes");
    }

    #[test]
    fn heritage_is_decided_by_name_and_tags() {
        enum Is {
            Sole,
            Shared,
            Others,
            Unrelated,
        }
        for (what, balancer, tags, wanted) in [
            ("created for this Service", WEB, &[WEB][..], Is::Sole),
            ("created for this Service, before tags were used", WEB, &[], Is::Sole),
            ("created for this Service, with a user's tag", WEB, &[WEB, "team=a"], Is::Sole),
            ("legacy name", LEGACY, &[], Is::Sole),
            ("legacy name, tagged later", LEGACY, &[WEB], Is::Sole),
            ("created for this Service, shared with another Service", WEB, &[WEB, API], Is::Sole),
            ("created for another Service, shared with this one", API, &[API, WEB], Is::Shared),
            (
                "created for another Service before tags were used, shared with this one",
                API,
                &[WEB],
                Is::Shared,
            ),
            ("created by a user, shared with this Service", "mine", &[WEB], Is::Shared),
            ("created by a user, shared with another Service", "mine", &[API], Is::Others),
            ("another's", API, &[API], Is::Others),
            ("created for another Service, legacy name", "a8c1ff02e0c8b4c6e9c39b1b1a0d0c00", &[], Is::Others),
            ("created in another cluster", "kube_service_test_shop_web", &[], Is::Others),
            ("a user's", "mine", &["team=a"], Is::Unrelated),
        ] {
            let tags: Vec<String> = tags.iter().map(|tag| (*tag).to_owned()).collect();
            let reported = names("prod", "web").heritage(balancer, &tags);
            let right = match wanted {
                Is::Sole => reported == Heritage::Sole,
                Is::Shared => {
                    matches!(&reported, Heritage::Shared(why) if why.contains(WEB) && why.contains("adopt: shared"))
                }
                Is::Others => matches!(&reported, Heritage::Others(why) if why.contains("remove the tags")),
                Is::Unrelated => reported == Heritage::Unrelated,
            };
            assert!(right, "{what}: {reported:?}");
        }
    }

    /// Another cluster of the project may have the same cluster name.
    #[test]
    fn names_prove_nothing_without_a_grant() {
        let names = GoNames { inheritance: Inheritance::ByUid, ..names("prod", "web") };
        assert!(!names.made(WEB) && names.made(LEGACY));
        for (balancer, tags) in
            [(WEB, &[][..]), (WEB, &[WEB]), (WEB, &[WEB, API]), (API, &[API, WEB]), ("mine", &[WEB])]
        {
            let tags: Vec<String> = tags.iter().map(|tag| (*tag).to_owned()).collect();
            let reported = names.heritage(balancer, &tags);
            assert!(
                matches!(&reported, Heritage::Unproven(why) if why.contains(WEB)),
                "{balancer} {tags:?}: {reported:?}"
            );
        }
        assert_eq!(names.heritage(LEGACY, &[]), Heritage::Sole, "a UID is unique for a Service");
    }

    #[test]
    fn parts_are_recognised_by_tag_and_name() {
        let long = format!("{WEB}{}", "x".repeat(NAME_MAX - WEB.len()));
        let cut_name: String = format!("listener_0_{long}").chars().take(NAME_MAX).collect();
        for (what, balancer, name, tags, wanted) in [
            ("tagged", WEB, "l", &[WEB][..], true),
            ("created before tags were used", WEB, "listener_0_kube_service_prod_shop_web", &[], true),
            ("legacy name", LEGACY, &format!("pool_12_{LEGACY}"), &[], true),
            ("cut", &long, &cut_name, &[], true),
            ("part of another Service on a shared load balancer", WEB, "l", &[API], false),
            ("named for another Service", WEB, "listener_0_kube_service_prod_shop_api", &[], false),
            ("part on a user's load balancer", "mine", "listener_0_mine", &["mine"], false),
        ] {
            let tags: Vec<String> = tags.iter().map(|tag| (*tag).to_owned()).collect();
            assert_eq!(is_part(balancer, Marks { name, tags: &tags }), wanted, "{what}");
        }
    }
}
