//! Packs actions into calls of bounded size.

use std::collections::BTreeSet;

use cloud_api_proto::v1alpha1::{NextHop, Owner, RouteDelete, RouteKey, RouteUpsert};
use ipnet::IpNet;

use crate::config::ClusterCidrs;
use crate::plan::route::NextHop as Via;
use crate::plan::{Creation, Removal};

/// Maximum number of routes per call. Source: contract, `ApplyRoutesRequest.upserts`.
pub(crate) const ROUTES_MAX: usize = 200;

#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Batch<'a> {
    pub(crate) creations: Vec<&'a Creation>,
    pub(crate) removals: Vec<&'a Removal>,
}

impl Batch<'_> {
    /// Returns the cluster's CIDRs, and the pod CIDRs of these actions outside of the cluster's CIDRs. An adapter creates no route outside
    /// of the returned CIDRs.
    pub(crate) fn cidrs(&self, cluster: &ClusterCidrs) -> Vec<String> {
        let creations = self.creations.iter().map(|creation| creation.claim.to);
        let asked = creations.chain(self.removals.iter().map(|removal| removal.to));
        let outside: BTreeSet<IpNet> = asked.filter(|to| !cluster.contain(to)).collect();
        cluster.iter().chain(outside).map(|cidr| cidr.to_string()).collect()
    }

    pub(crate) fn upserts(&self, cluster_id: &str) -> Vec<RouteUpsert> {
        let upsert = |creation: &&Creation| RouteUpsert {
            key: Some(RouteKey {
                cluster_id: cluster_id.to_owned(),
                node_uid: creation.claim.node_uid.clone(),
                destination: creation.claim.to.to_string(),
            }),
            next_hop: Some(next_hop(&creation.via)),
            owner: Some(Owner {
                kind: "Node".to_owned(),
                namespace: String::new(),
                name: creation.node_name.clone(),
                uid: creation.claim.node_uid.clone(),
            }),
        };
        self.creations.iter().map(upsert).collect()
    }

    pub(crate) fn deletes(&self, cluster_id: &str) -> Vec<RouteDelete> {
        let delete = |removal: &&Removal| RouteDelete {
            key: Some(RouteKey {
                cluster_id: cluster_id.to_owned(),
                node_uid: removal.node_uid.clone().unwrap_or_default(),
                destination: removal.to.to_string(),
            }),
            vendor_id: removal.vendor_id.clone(),
            // The adapter need not check the next hop of a route with the owner tag.
            next_hop: removal.via.as_ref().map(next_hop),
        };
        self.removals.iter().map(delete).collect()
    }
}

fn next_hop(via: &Via) -> NextHop {
    NextHop {
        provider_id: via.provider_id.clone().unwrap_or_default(),
        address: via.address.map(|address| address.to_string()).unwrap_or_default(),
        interface: String::new(),
    }
}

/// Packs all actions into as few calls as possible, new routes first.
pub(crate) fn batches<'a>(creations: &[&'a Creation], removals: &[&'a Removal]) -> Vec<Batch<'a>> {
    let mut batches: Vec<Batch<'a>> = creations
        .chunks(ROUTES_MAX)
        .map(|creations| Batch { creations: creations.to_vec(), removals: Vec::new() })
        .collect();
    let room = batches.last().map_or(0, |last| ROUTES_MAX.saturating_sub(last.creations.len()));
    let (fitting, rest) = removals.split_at(room.min(removals.len()));
    if let Some(last) = batches.last_mut() {
        last.removals = fitting.to_vec();
    }
    let rest =
        rest.chunks(ROUTES_MAX).map(|removals| Batch { creations: Vec::new(), removals: removals.to_vec() });
    batches.extend(rest);
    batches
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Cause;
    use crate::plan::tests::{cluster, node, settled};

    #[test]
    fn call_has_the_cidrs_of_the_cluster_and_those_outside() {
        let nodes = [node("a").pods("10.244.1.0/24").pods("10.99.1.0/24"), node("b").pods("10.99.2.0/24")];
        let plan = settled(&nodes, &[]);
        let cidrs =
            Batch { creations: plan.creations.iter().collect(), removals: Vec::new() }.cidrs(&cluster());
        assert_eq!(cidrs, ["10.244.0.0/16", "fd00:244::/48", "10.99.1.0/24", "10.99.2.0/24"]);
    }

    #[test]
    fn calls_are_full_and_create_first() {
        let plan = settled(&[node("a").pods("10.244.1.0/24")], &[]);
        let removal = Removal {
            cause: Cause::Unasked,
            vendor_id: "1".to_owned(),
            to: plan.creations[0].claim.to,
            node_uid: Some("gone".to_owned()),
            via: None,
        };
        for (n_lays, n_removals, sizes) in [
            (0, 0, vec![]),
            (1, 0, vec![(1, 0)]),
            (0, 1, vec![(0, 1)]),
            (200, 0, vec![(200, 0)]),
            (200, 1, vec![(200, 0), (0, 1)]),
            (201, 250, vec![(200, 0), (1, 199), (0, 51)]),
            (0, 401, vec![(0, 200), (0, 200), (0, 1)]),
        ] {
            let batches = batches(&vec![&plan.creations[0]; n_lays], &vec![&removal; n_removals]);
            let found: Vec<_> = batches.iter().map(|b| (b.creations.len(), b.removals.len())).collect();
            assert_eq!(found, sizes, "{n_lays} and {n_removals}");
        }
    }
}
