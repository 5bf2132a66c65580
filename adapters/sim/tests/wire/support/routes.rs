//! Builds requests for routes that lead from the pod CIDR of `node-n` to the instance `i-000m`.

use cloud_api_proto::v1alpha1::{
    ApplyRoutesRequest, Fence, NextHop, Owner, RouteDelete, RouteKey, RouteUpsert,
};

use super::{context, wanted::CLUSTER};

pub(crate) const CLUSTER_CIDR: &str = "10.244.0.0/16";

pub(crate) fn route_key(node: u32) -> RouteKey {
    let destination = format!("10.244.{node}.0/24");
    RouteKey { cluster_id: CLUSTER.into(), node_uid: format!("node-{node}"), destination }
}

pub(crate) fn upsert(node: u32, instance: u32) -> RouteUpsert {
    let provider_id = format!("sim://sim-1/i-{instance:04}");
    let uid = format!("node-{node}");
    RouteUpsert {
        key: Some(route_key(node)),
        next_hop: Some(NextHop { provider_id, ..NextHop::default() }),
        owner: Some(Owner { kind: "Node".into(), name: uid.clone(), uid, ..Owner::default() }),
    }
}

pub(crate) fn delete(node: u32) -> RouteDelete {
    RouteDelete { key: Some(route_key(node)), ..RouteDelete::default() }
}

pub(crate) fn routes() -> ApplyRoutesRequest {
    ApplyRoutesRequest {
        context: Some(context()),
        fence: Some(Fence { scope: "route-controller/0".into(), epoch: 1, sequence: 1 }),
        cluster_cidrs: vec![CLUSTER_CIDR.into()],
        ..ApplyRoutesRequest::default()
    }
}
