//! Floating IPs that stay in the project when their Services go, by namespace: each holds a part of the project's quota for ever, so that
//! a namespace has a number of them.

use std::collections::BTreeMap;

use cloud_api_proto::v1alpha1::{LoadBalancerKey, Owner};

use super::answers::FloatingIp;
use crate::ownership::{Description, short_namespace};

/// Maximum for a namespace, where the operator sets none.
pub(crate) const MOST: u32 = 10;

/// What the last sweep found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Kept(BTreeMap<(String, String), Vec<LoadBalancerKey>>);

impl Kept {
    pub(super) fn of<'a>(floating_ips: impl IntoIterator<Item = &'a FloatingIp>) -> Self {
        let mut kept = Self::default();
        let records = floating_ips.into_iter().filter_map(|ip| Description::read(&ip.description));
        for record in records.filter(|record| record.keep) {
            let key = record.key();
            let namespace = (key.cluster_id.clone(), record.owner().namespace);
            kept.0.entry(namespace).or_default().push(key);
        }
        kept
    }

    /// Whether the namespace of an owner has as many as it may have. A key that keeps one already goes on, also where there are more by
    /// now than the bound: its address would be deleted with its Service.
    pub(crate) fn is_full(&self, key: &LoadBalancerKey, owner: &Owner, most: u32) -> bool {
        let of = |namespace: String| self.0.get(&(key.cluster_id.clone(), namespace)).into_iter().flatten();
        let all: Vec<_> = of(owner.namespace.clone()).chain(of(short_namespace(&owner.namespace))).collect();
        all.len() >= usize::try_from(most).unwrap_or(usize::MAX) && !all.contains(&key)
    }
}
