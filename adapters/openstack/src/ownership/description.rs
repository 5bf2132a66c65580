//! Records the owner of a floating IP in its description, because the call that creates a floating IP cannot set tags. Pure functions.

use std::collections::BTreeMap;

use cloud_adapter::{
    driver::{Adopter, DesiredLoadBalancer, Inheritance, VendorError},
    kit::{digest, invalid},
};
use cloud_api_proto::{
    DOMAIN,
    v1alpha1::{LoadBalancerKey, Owner, load_balancer_spec::AddressRetention},
};

/// Maximum length of a description in characters. Source: Neutron API reference.
const DESCRIPTION_MAX: usize = 255;
/// Prefix of the description of floating IPs of the former cloud controller manager.
const GO_DESCRIPTION: &str = "Floating IP for Kubernetes external service ";

const CLUSTER_ID: &str = "cluster-id";
const OWNER_UID: &str = "owner-uid";
const SERVICE: &str = "service";
const KEEP: &str = "keep";
const POOL: &str = "pool";
const ASKED: &str = "asked";
/// Number of digits of a digest that replaces a name.
const SHORT: usize = 8;

/// The record in a floating IP's description. The format is JSON, such as
/// `{"cloudadapter.dev/cluster-id":"...","cloudadapter.dev/owner-uid":"...",...}`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Description {
    cluster_id: String,
    owner_uid: String,
    /// The name of the owner for display, such as `shop/web`.
    service: String,
    /// Whether the floating IP stays when the load balancer is deleted.
    pub(crate) keep: bool,
    /// The address pool as the Service named it, or an empty string if the Service named no pool.
    pub(crate) pool: String,
    /// The description before the Service claimed the floating IP. `Some` means that the floating IP existed in the project before the
    /// Service requested it. Such a floating IP is never deleted. When the Service releases the floating IP, this earlier description is
    /// restored.
    pub(crate) asked: Option<String>,
}

/// The request of a Service for a floating IP that already exists in the project.
#[derive(Clone, Debug, PartialEq)]
pub struct Claim {
    pub(crate) adopter: Adopter,
    pub(crate) pool: String,
    /// Whether the Service sets `on-delete: delete`. If so, the address is deleted with the Service, even if an earlier Service kept the
    /// address.
    pub(crate) releases: bool,
}

impl Claim {
    pub(crate) fn of(desired: &DesiredLoadBalancer) -> Self {
        let releases = desired.spec.address_retention() == AddressRetention::Release;
        Self { adopter: desired.adopter(), pool: desired.spec.address_pool.clone(), releases }
    }

    /// Returns the record of a floating IP after the claim. `text` is its description before the claim.
    pub(crate) fn of_one_that_says(&self, text: &str) -> Result<Description, String> {
        let Adopter { key, owner, .. } = &self.adopter;
        let service = format!("{}/{}", owner.namespace, owner.name);
        let claimed = Description {
            cluster_id: key.cluster_id.clone(),
            owner_uid: key.owner_uid.clone(),
            service: service.clone(),
            ..Description::default()
        };
        match Description::read(text) {
            Some(there) if there.key() == *key => Ok(there),
            Some(there)
                if there.keep
                    && there.cluster_id == key.cluster_id
                    && is_service(&there.service, &service) =>
            {
                let asked = (!self.releases).then(String::new);
                Ok(Description { keep: !self.releases, pool: there.pool, asked, ..claimed })
            }
            Some(there) if there.cluster_id == key.cluster_id => {
                Err("belongs to another Service of this cluster".to_owned())
            }
            Some(there) => Err(format!("belongs to a Service of cluster {}", there.cluster_id)),
            None if Description::is_of_go(text) => {
                if self.is_of_go(text) {
                    Ok(Description { pool: self.pool.clone(), ..claimed })
                } else {
                    Err("belongs to another Service according to its description".to_owned())
                }
            }
            None => Ok(Description { asked: Some(text.to_owned()), ..claimed }),
        }
    }

    /// Whether the former cloud controller manager created the floating IP for this Service.
    fn is_of_go(&self, text: &str) -> bool {
        let Adopter { owner, cluster_name, inheritance, .. } = &self.adopter;
        let rest = text.strip_prefix(GO_DESCRIPTION).unwrap_or_default();
        *inheritance == Inheritance::ByName
            && rest == format!("{}/{} from cluster {cluster_name}", owner.namespace, owner.name)
    }
}

impl Description {
    /// Returns the record of a floating IP that is created for a load balancer or adopted.
    pub(crate) fn of(desired: &DesiredLoadBalancer, keep: bool) -> Self {
        let DesiredLoadBalancer { key, owner, .. } = desired;
        Self {
            cluster_id: key.cluster_id.clone(),
            owner_uid: key.owner_uid.clone(),
            service: format!("{}/{}", owner.namespace, owner.name),
            keep,
            pool: desired.spec.address_pool.clone(),
            asked: None,
        }
    }

    /// Formats the record. If the text is too long, the earlier description is shortened first. If that is not enough, the pool is left
    /// out. Finally, the name of the Service is replaced by short digests of its namespace and of its full name.
    pub(crate) fn write(&self) -> Result<String, VendorError> {
        let key = |word: &str| format!("{DOMAIN}/{word}");
        let (before, short) = (self.asked.clone(), short_service(&self.service));
        let mut words = BTreeMap::from([
            (key(CLUSTER_ID), self.cluster_id.as_str()),
            (key(OWNER_UID), &self.owner_uid),
            (key(SERVICE), &self.service),
        ]);
        if self.keep {
            words.insert(key(KEEP), "true");
        }
        if !self.pool.is_empty() {
            words.insert(key(POOL), &self.pool);
        }
        let text = |words: &BTreeMap<String, &str>| {
            serde_json::to_string(words).map_err(|error| VendorError::nonsense(error.to_string()))
        };
        for too_long in ["", POOL, SERVICE] {
            words.remove(&key(too_long));
            if too_long == SERVICE {
                words.insert(key(SERVICE), &short);
            }
            let mut before = before.clone();
            loop {
                let mut words = words.clone();
                words.extend(before.as_deref().map(|text| (key(ASKED), text)));
                let text = text(&words)?;
                if text.chars().count() <= DESCRIPTION_MAX {
                    return Ok(text);
                }
                if before.as_mut().and_then(String::pop).is_none() {
                    break;
                }
            }
        }
        let text =
            format!("too long: the description of a floating IP has at most {DESCRIPTION_MAX} characters");
        Err(invalid("key", text))
    }

    /// Parses a description. Returns `None` if it is not a record of an adapter.
    pub(crate) fn read(text: &str) -> Option<Self> {
        let mut words: BTreeMap<String, String> = serde_json::from_str(text).ok()?;
        let mut word = |word: &str| words.remove(&format!("{DOMAIN}/{word}"));
        Some(Self {
            cluster_id: word(CLUSTER_ID)?,
            owner_uid: word(OWNER_UID)?,
            service: word(SERVICE).unwrap_or_default(),
            keep: word(KEEP).as_deref() == Some("true"),
            pool: word(POOL).unwrap_or_default(),
            asked: word(ASKED),
        })
    }

    pub(crate) fn made_from(self, pool: String) -> Self {
        Self { pool, ..self }
    }

    pub(crate) fn not_kept(self) -> Self {
        Self { keep: false, ..self }
    }

    pub(crate) fn of_another(self, key: &LoadBalancerKey, owner: &Owner) -> Self {
        Self {
            cluster_id: key.cluster_id.clone(),
            owner_uid: key.owner_uid.clone(),
            service: format!("{}/{}", owner.namespace, owner.name),
            ..self
        }
    }

    pub(crate) fn key(&self) -> LoadBalancerKey {
        LoadBalancerKey { cluster_id: self.cluster_id.clone(), owner_uid: self.owner_uid.clone() }
    }

    pub(crate) fn owner(&self) -> Owner {
        let (namespace, name) = self.service.split_once('/').unwrap_or_default();
        Owner {
            kind: "Service".to_owned(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            uid: self.owner_uid.clone(),
        }
    }

    /// Whether the former cloud controller manager created the floating IP with this description for a load balancer.
    pub(crate) fn is_of_go(text: &str) -> bool {
        text.starts_with(GO_DESCRIPTION)
    }
}

pub(crate) fn short_namespace(namespace: &str) -> String {
    format!("#{}", digest(&[namespace]).chars().take(SHORT).collect::<String>())
}

fn short_service(service: &str) -> String {
    let namespace = service.split_once('/').map(|(namespace, _)| namespace).unwrap_or_default();
    format!("{}/{}", short_namespace(namespace), digest(&[service]).chars().take(SHORT).collect::<String>())
}

/// Returns whether a record belongs to this Service, whose name may be recorded in full or in the short form.
fn is_service(recorded: &str, service: &str) -> bool {
    recorded == service || recorded == short_service(service)
}

#[cfg(test)]
mod tests {
    use cloud_adapter::driver::Fault;

    use super::*;

    fn description(uid: &str, service: &str, keep: bool) -> Description {
        let (cluster_id, owner_uid) = ("c-1".to_owned(), uid.to_owned());
        let pool = if keep { "dmz".to_owned() } else { String::new() };
        Description { cluster_id, owner_uid, service: service.to_owned(), keep, pool, asked: None }
    }

    #[test]
    fn description_round_trip() {
        for keep in [true, false] {
            let ours = description("u-1", "shop/web", keep);
            assert_eq!(Description::read(&ours.write().expect("short")), Some(ours.clone()));
            assert_eq!((ours.owner().namespace.as_str(), ours.owner().name.as_str()), ("shop", "web"));
        }
        for text in ["", "my address", "{}", "[]", r#"{"cloudadapter.dev/cluster-id":"c-1"}"#] {
            assert_eq!(Description::read(text), None, "{text}");
        }
        assert!(Description::is_of_go(
            "Floating IP for Kubernetes external service shop/web from cluster prod"
        ));
    }

    fn claim(uid: &str, namespace: &str, name: &str) -> Claim {
        let word = |word: &str| word.to_owned();
        let owner = Owner { namespace: word(namespace), name: word(name), ..Owner::default() };
        let key = LoadBalancerKey { cluster_id: word("c-1"), owner_uid: word(uid) };
        Claim {
            adopter: Adopter { key, owner, cluster_name: word("prod"), inheritance: Inheritance::ByName },
            pool: String::new(),
            releases: false,
        }
    }

    #[test]
    fn address_of_another_owner_is_never_claimed() {
        let written =
            |uid: &str, service: &str, keep| description(uid, service, keep).write().expect("short");
        let of_go = |whose: &str| format!("{GO_DESCRIPTION}{whose}");
        let mut unproven = claim("u-1", "shop", "web");
        unproven.adopter.inheritance = Inheritance::ByUid;
        for (what, text, claim, allowed) in [
            (
                "the record of this Service",
                written("u-1", "shop/web", false),
                claim("u-1", "shop", "web"),
                true,
            ),
            (
                "another Service of its namespace",
                written("u-2", "shop/api", false),
                claim("u-1", "shop", "web"),
                false,
            ),
            (
                "unattached; belongs to a deleted Service",
                written("u-2", "shop/web", false),
                claim("u-1", "shop", "web"),
                false,
            ),
            ("kept for this Service", written("u-2", "shop/web", true), claim("u-1", "shop", "web"), true),
            (
                "kept for another Service",
                written("u-2", "shop/web", true),
                claim("u-1", "evil", "web"),
                false,
            ),
            (
                "created for it by the former CCM",
                of_go("shop/web from cluster prod"),
                claim("u-1", "shop", "web"),
                true,
            ),
            (
                "created for another Service by the former CCM",
                of_go("shop/web from cluster prod"),
                claim("u-1", "evil", "web"),
                false,
            ),
            ("names prove nothing without a grant", of_go("shop/web from cluster prod"), unproven, false),
            (
                "created in another cluster",
                of_go("shop/web from cluster test"),
                claim("u-1", "shop", "web"),
                false,
            ),
            ("a user's", "mine".to_owned(), claim("u-1", "shop", "web"), true),
        ] {
            assert_eq!(claim.of_one_that_says(&text).is_ok(), allowed, "{what}");
        }
    }

    /// The IDs in this record have their usual length, and the names have the maximum length.
    #[test]
    fn kept_address_returns_to_a_service_with_a_long_name() {
        let (namespace, name) = ("n".repeat(63), "s".repeat(63));
        let of = |uid: char, namespace: &str| {
            let mut claim = claim(&uid.to_string().repeat(36), namespace, &name);
            claim.adopter.key.cluster_id = "c".repeat(36);
            claim
        };
        let made = of('a', &namespace).of_one_that_says("").expect("free");
        let mut text = Description { keep: true, asked: None, ..made }.write().expect("short names");
        for uid in ['b', 'd', 'e'] {
            assert!(of(uid, &"m".repeat(63)).of_one_that_says(&text).is_err(), "the namespace differs");
            let kept = of(uid, &namespace).of_one_that_says(&text).expect("kept for this Service");
            text = kept.write().expect("short names");
            assert!(Description::read(&text).is_some_and(|read| read.keep), "{text}");
        }
    }

    #[test]
    fn earlier_description_is_restored() {
        let claimed = claim("u-1", "shop", "web").of_one_that_says("a user's \"own\"").expect("free");
        let read = Description::read(&claimed.write().expect("short")).expect("a record");
        assert_eq!((read.asked.as_deref(), read.keep), (Some("a user's \"own\""), false));
        let long = claim("u-1", "shop", "web").of_one_that_says(&"x".repeat(250)).expect("free");
        let read = Description::read(&long.write().expect("cut")).expect("a record");
        assert!(read.asked.is_some_and(|text| !text.is_empty() && text.len() < 250));
        assert_eq!(read.service, "shop/web");
    }

    #[test]
    fn service_name_is_shortened_for_the_key() {
        let long = description("u-1", &"x".repeat(250), false);
        let written = long.write().expect("no earlier description");
        let short = short_service(&"x".repeat(250));
        assert_eq!(Description::read(&written), Some(description("u-1", &short, false)));
        assert_eq!(
            description(&"u".repeat(250), "", false).write().expect_err("too long").fault,
            Fault::Invalid
        );
    }
}
