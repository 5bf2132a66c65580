//! The cached state of security groups.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, PoisonError},
};

use super::{
    guard_drift::drift,
    guards::{Guards, Needs, Subnets, User},
};
use crate::api::responses::Subnet;

#[derive(Debug, Default)]
pub(crate) struct KnownGuards {
    last: Mutex<Option<Arc<Guards>>>,
    /// The CIDR of a subnet never changes.
    subnets: Mutex<Subnets>,
    /// The lock that is held during writes. All load balancers of a cluster share a group, and a write replaces all groups of a port.
    pub(super) turn: tokio::sync::Mutex<()>,
}

impl KnownGuards {
    /// Returns the state of security groups in the last listing. Returns `None` if no listing has ended yet, or if security groups are not
    /// managed.
    pub(crate) fn last(&self) -> Option<Arc<Guards>> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn learn(&self, found: Guards) {
        let mut found = Guards { subnets: self.subnets(), ..found };
        found.drift = drift(&found);
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(found.into());
    }

    /// Records the access that a load balancer has been given. From now on, this load balancer may rely on rules that were created for
    /// other load balancers.
    pub(super) fn learn_user(&self, balancer: &str, cluster_id: &str, needs: &Needs) {
        let subnets = self.subnets();
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let last = Arc::make_mut(last.get_or_insert_default());
        let (cluster_id, needs) = (cluster_id.to_owned(), Some(needs.clone()));
        let user = User { cluster_id, is_active: true, needs, addresses: BTreeSet::new() };
        last.balancers.insert(balancer.to_owned());
        last.users.insert(balancer.to_owned(), user);
        last.subnets = subnets;
    }

    pub(super) fn subnets(&self) -> Subnets {
        self.subnets.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn learn_subnets(&self, asked: &[String], found: Vec<Subnet>) {
        let mut known = self.subnets.lock().unwrap_or_else(PoisonError::into_inner);
        for id in asked {
            known.entry(id.clone()).or_default();
        }
        known.extend(found.into_iter().map(|one| (one.id, Some(one.cidr))));
    }
}
