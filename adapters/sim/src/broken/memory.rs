//! What the broken places tell each other, and what they should have kept at the vendor.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use cloud_api_proto::v1alpha1::{EnsureLoadBalancerResponse, LoadBalancerKey, RouteKey};
use ipnet::IpNet;
use secrecy::SecretString;
use tokio::time::Instant;

use crate::{simcloud::model::Tags, step::Port};

/// A load balancer's cluster and owner.
pub(crate) type Key = (String, String);

pub(crate) fn key(key: &LoadBalancerKey) -> Key {
    (key.cluster_id.clone(), key.owner_uid.clone())
}

#[derive(Debug, Default)]
pub(crate) struct Memory {
    count: AtomicU64,
    notes: Mutex<Notes>,
}

/// Each is used by one fault or two. What is remembered is found again by a key, an ID or a destination, which belong to one cluster: what
/// is asked for other clusters at the same time changes nothing.
#[derive(Debug, Default)]
pub(crate) struct Notes {
    /// Ensured at least once.
    pub(crate) seen: BTreeSet<Key>,
    /// An Ensure is under way.
    pub(crate) busy: BTreeSet<Key>,
    /// Asked for, and not known to be there yet.
    pub(crate) unfinished: BTreeSet<Key>,
    /// Names of load balancers that shall be made, and when that was tried last.
    pub(crate) creates: BTreeMap<String, Instant>,
    /// Whose caller hung up.
    pub(crate) cut: BTreeSet<Key>,
    /// How often it was answered ACTIVE.
    pub(crate) finished: BTreeMap<Key, u64>,
    /// Whose Ensure failed while the vendor was away.
    pub(crate) given_up: BTreeSet<Key>,
    /// The owner's UID when it was first asked for, by cluster, namespace and name.
    pub(crate) owners: BTreeMap<(String, String, String), String>,
    /// Instances that were there, by provider ID.
    pub(crate) instances: BTreeSet<String>,
    /// Those of them that the last listing, an empty one, did not have.
    pub(crate) vanished: BTreeSet<String>,
    /// The owner's name when it was first asked for.
    pub(crate) names: BTreeMap<Key, String>,
    /// Answers by request.
    pub(crate) answers: BTreeMap<Vec<u8>, EnsureLoadBalancerResponse>,
    /// Load balancers that somebody named as known, by ID.
    pub(crate) claims: BTreeMap<String, LoadBalancerKey>,
    /// Routes that somebody named, by destination.
    pub(crate) routes: BTreeMap<String, RouteKey>,
    /// The networks of clusters.
    pub(crate) networks: BTreeSet<IpNet>,
    /// Tags that should be at the vendor, by the load balancer's ID or name.
    pub(crate) tags: BTreeMap<String, Tags>,
    /// Listeners with their ports, by pool.
    pub(crate) listeners: BTreeMap<String, (String, Port)>,
    /// Pools whose listener was touched for nothing.
    pub(crate) touched: BTreeSet<String>,
    /// Whether callers were to prove who they are.
    pub(crate) callers_prove: bool,
    /// The vendor's token.
    pub(crate) secret: Option<SecretString>,
}

impl Memory {
    /// Another number each time.
    pub(crate) fn count(&self) -> u64 {
        self.count.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn notes(&self) -> MutexGuard<'_, Notes> {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
