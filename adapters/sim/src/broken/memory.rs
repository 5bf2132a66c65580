//! State shared by the modules with faults, including state that a correct adapter stores in the cloud.

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

/// The cluster and the owner of a load balancer.
pub(crate) type Key = (String, String);

pub(crate) fn key(key: &LoadBalancerKey) -> Key {
    (key.cluster_id.clone(), key.owner_uid.clone())
}

#[derive(Debug, Default)]
pub(crate) struct Memory {
    count: AtomicU64,
    notes: Mutex<Notes>,
}

/// The state of the faults. Each field is used by one or two faults. Each entry is keyed by a load balancer's key, an ID or a destination.
/// The key belongs to one cluster, so concurrent requests for other clusters are not affected.
#[derive(Debug, Default)]
pub(crate) struct Notes {
    /// The load balancers that received at least one Ensure.
    pub(crate) seen: BTreeSet<Key>,
    /// Load balancers with an Ensure in progress.
    pub(crate) busy: BTreeSet<Key>,
    /// Load balancers that were requested, and are not known to be complete.
    pub(crate) unfinished: BTreeSet<Key>,
    /// Names of load balancers that are to be created, with the time of the last attempt.
    pub(crate) creates: BTreeMap<String, Instant>,
    /// Load balancers whose caller closed its connection during the creation.
    pub(crate) cut: BTreeSet<Key>,
    /// Number of responses with state ACTIVE, by load balancer.
    pub(crate) finished: BTreeMap<Key, u64>,
    /// Load balancers whose Ensure failed during an outage of the vendor.
    pub(crate) given_up: BTreeSet<Key>,
    /// The owner's UID in the first request, keyed by cluster, namespace and name.
    pub(crate) owners: BTreeMap<(String, String, String), String>,
    /// The instances that existed, keyed by provider ID.
    pub(crate) instances: BTreeSet<String>,
    /// The instances that existed before the last listing, but were missing in it because it was empty.
    pub(crate) vanished: BTreeSet<String>,
    /// The owner's name in the first request.
    pub(crate) names: BTreeMap<Key, String>,
    /// The stored answers, keyed by request.
    pub(crate) answers: BTreeMap<Vec<u8>, EnsureLoadBalancerResponse>,
    /// The load balancers that a request named, keyed by ID.
    pub(crate) claims: BTreeMap<String, LoadBalancerKey>,
    /// The routes that a request named, keyed by destination.
    pub(crate) routes: BTreeMap<String, RouteKey>,
    pub(crate) networks: BTreeSet<IpNet>,
    /// The tags that a correct adapter would have written to the cloud, keyed by the load balancer's ID or name.
    pub(crate) tags: BTreeMap<String, Tags>,
    /// The listener of each pool, and the port of that listener.
    pub(crate) listeners: BTreeMap<String, (String, Port)>,
    /// The pools whose listener was updated unnecessarily.
    pub(crate) touched: BTreeSet<String>,
    /// Whether the flags require callers to authenticate.
    pub(crate) callers_prove: bool,
    pub(crate) secret: Option<SecretString>,
}

impl Memory {
    /// Returns a different number on each call.
    pub(crate) fn count(&self) -> u64 {
        self.count.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn notes(&self) -> MutexGuard<'_, Notes> {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
