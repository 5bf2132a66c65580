//! Records the objects that a check may have created, so that they are deleted no matter how the check ends.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use cloud_api_proto::v1alpha1::{
    ApplyRoutesRequest, DeleteLoadBalancerRequest, EnsureLoadBalancerRequest, RouteDelete,
};

use crate::hooks::Hook;

/// The record of one check. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tracker(Arc<Mutex<Made>>);

/// Objects that were created, or may have been created.
#[derive(Clone, Debug, Default)]
pub(crate) struct Made {
    pub(crate) balancers: BTreeMap<(String, String), DeleteLoadBalancerRequest>,
    /// Routes by cluster, node, destination and next-hop instance.
    pub(crate) routes: BTreeMap<[String; 4], RouteDelete>,
    /// Commands that undo other commands, the latest last.
    pub(crate) undo: Vec<Undo>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Undo {
    pub(crate) hook: Hook,
    pub(crate) variables: Vec<(&'static str, String)>,
}

impl Tracker {
    fn made(&self) -> MutexGuard<'_, Made> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records a load balancer before the call is sent, because the outcome may stay unknown.
    pub(crate) fn ensure(&self, request: &EnsureLoadBalancerRequest) {
        let Some(key) = request.key.clone().filter(|_| !request.dry_run) else { return };
        let EnsureLoadBalancerRequest { context, owner, .. } = request.clone();
        let removal =
            DeleteLoadBalancerRequest { context, key: Some(key.clone()), owner, ..Default::default() };
        self.made().balancers.insert((key.cluster_id, key.owner_uid), removal);
    }

    pub(crate) fn apply(&self, request: &ApplyRoutesRequest) {
        if request.dry_run {
            return;
        }
        let mut made = self.made();
        for upsert in &request.upserts {
            let Some(key) = upsert.key.clone() else { continue };
            let removal = RouteDelete {
                key: Some(key.clone()),
                next_hop: upsert.next_hop.clone(),
                ..RouteDelete::default()
            };
            let machine = upsert.next_hop.clone().unwrap_or_default().provider_id;
            made.routes.insert([key.cluster_id, key.node_uid, key.destination, machine], removal);
        }
    }

    pub(crate) fn undo_by(&self, hook: Hook, variables: Vec<(&'static str, String)>) {
        self.made().undo.push(Undo { hook, variables });
    }

    /// Unregisters the command, because the check itself removed the object.
    pub(crate) fn undone(&self, hook: Hook, value: &str) {
        let names = |undo: &Undo| undo.hook == hook && undo.variables.iter().any(|(_, held)| held == value);
        self.made().undo.retain(|undo| !names(undo));
    }

    pub(crate) fn take(&self) -> Made {
        std::mem::take(&mut *self.made())
    }
}

#[cfg(test)]
mod tests {
    use cloud_api_proto::v1alpha1::{RouteKey, RouteUpsert};

    use super::*;

    #[test]
    fn routes_of_two_nodes_to_one_destination_are_both_tracked() {
        let upsert = |node: &str| {
            let destination = "10.0.0.0/28".to_owned();
            let key = RouteKey { cluster_id: "c".to_owned(), node_uid: node.to_owned(), destination };
            RouteUpsert { key: Some(key), ..RouteUpsert::default() }
        };
        let tracker = Tracker::default();
        for node in ["a", "b", "a"] {
            tracker.apply(&ApplyRoutesRequest { upserts: vec![upsert(node)], ..Default::default() });
        }
        assert_eq!(tracker.take().routes.len(), 2);
    }
}
