//! Whose a floating IP is, in its description: it is set with the create, which tags are not. Pure.

use std::collections::BTreeMap;

use cloud_adapter::driver::{DesiredLoadBalancer, Fault, VendorError};
use cloud_api_proto::{
    DOMAIN,
    v1alpha1::{LoadBalancerKey, Owner},
};

/// Characters of a description. Source: Neutron API reference.
const DESCRIPTION_MAX: usize = 255;
/// How the Go cloud controller manager describes its floating IPs.
const GO_DESCRIPTION: &str = "Floating IP for Kubernetes external service ";

const CLUSTER_ID: &str = "cluster-id";
const OWNER_UID: &str = "owner-uid";
const SERVICE: &str = "service";
const KEEP: &str = "keep";
const POOL: &str = "pool";

/// What a floating IP's description says, as JSON: `{"cloudadapter.dev/cluster-id":"...","cloudadapter.dev/owner-uid":"...",...}`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Description {
    cluster_id: String,
    owner_uid: String,
    /// For people: `shop/web`.
    service: String,
    /// It stays when the load balancer goes.
    pub(crate) keep: bool,
    /// What the Service called the pool that it was made from; empty: nobody said.
    pub(crate) pool: String,
}

impl Description {
    /// Of a floating IP that is made for a load balancer, or taken over.
    pub(crate) fn of(desired: &DesiredLoadBalancer, keep: bool) -> Self {
        let DesiredLoadBalancer { key, owner, .. } = desired;
        Self {
            cluster_id: key.cluster_id.clone(),
            owner_uid: key.owner_uid.clone(),
            service: format!("{}/{}", owner.namespace, owner.name),
            keep,
            pool: desired.spec.address_pool.clone(),
        }
    }

    /// The description, without people's part and then the pool if it is too long with them.
    ///
    /// # Errors
    /// [`Fault::Invalid`] if the key alone is too long.
    pub(crate) fn write(&self) -> Result<String, VendorError> {
        let key = |word: &str| format!("{DOMAIN}/{word}");
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
        for too_long in ["", SERVICE, POOL] {
            words.remove(&key(too_long));
            let text =
                serde_json::to_string(&words).map_err(|error| VendorError::nonsense(error.to_string()))?;
            if text.chars().count() <= DESCRIPTION_MAX {
                return Ok(text);
            }
        }
        let text =
            format!("key: is too long: the description of a floating IP has {DESCRIPTION_MAX} characters");
        Err(VendorError::new(Fault::Invalid, text).in_field("key"))
    }

    /// Reads it. `None`: it is not ours.
    pub(crate) fn read(text: &str) -> Option<Self> {
        let mut words: BTreeMap<String, String> = serde_json::from_str(text).ok()?;
        let mut word = |word: &str| words.remove(&format!("{DOMAIN}/{word}"));
        Some(Self {
            cluster_id: word(CLUSTER_ID)?,
            owner_uid: word(OWNER_UID)?,
            service: word(SERVICE).unwrap_or_default(),
            keep: word(KEEP).as_deref() == Some("true"),
            pool: word(POOL).unwrap_or_default(),
        })
    }

    /// The same of one that was made from this pool.
    pub(crate) fn made_from(self, pool: String) -> Self {
        Self { pool, ..self }
    }

    /// The same of one that nobody wants to keep.
    pub(crate) fn not_kept(self) -> Self {
        Self { keep: false, ..self }
    }

    /// The same of another's.
    pub(crate) fn of_another(self, key: &LoadBalancerKey, owner: &Owner) -> Self {
        Self {
            cluster_id: key.cluster_id.clone(),
            owner_uid: key.owner_uid.clone(),
            service: format!("{}/{}", owner.namespace, owner.name),
            ..self
        }
    }

    /// Whose it is.
    pub(crate) fn key(&self) -> LoadBalancerKey {
        LoadBalancerKey { cluster_id: self.cluster_id.clone(), owner_uid: self.owner_uid.clone() }
    }

    /// For whom it was made.
    pub(crate) fn owner(&self) -> Owner {
        let (namespace, name) = self.service.split_once('/').unwrap_or_default();
        Owner {
            kind: "Service".to_owned(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            uid: self.owner_uid.clone(),
        }
    }

    /// Whether the Go cloud controller manager made it for a load balancer.
    pub(crate) fn is_of_go(text: &str) -> bool {
        text.starts_with(GO_DESCRIPTION)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn description(uid: &str, service: &str, keep: bool) -> Description {
        let (cluster_id, owner_uid) = ("c-1".to_owned(), uid.to_owned());
        let pool = if keep { "dmz".to_owned() } else { String::new() };
        Description { cluster_id, owner_uid, service: service.to_owned(), keep, pool }
    }

    #[test]
    fn what_is_written_is_read_and_nothing_else() {
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

    #[test]
    fn peoples_part_makes_room_for_the_key() {
        let long = description("u-1", &"x".repeat(250), false);
        let written = long.write().expect("without it");
        assert_eq!(Description::read(&written), Some(description("u-1", "", false)));
        assert_eq!(
            description(&"u".repeat(250), "", false).write().expect_err("too long").fault,
            Fault::Invalid
        );
    }
}
