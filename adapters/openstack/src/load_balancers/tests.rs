//! These tests check listings that join Octavia and Neutron, and the number of calls that they cost.

mod listing;
mod places;
mod sharing;

use std::collections::BTreeMap;

use cloud_adapter::driver::LoadBalancerRecord;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{Detail, Sweep, join, kept::Kept, known_members::KnownMembers};
use crate::api::responses::Pool;

#[derive(Clone, Debug, Default)]
pub(crate) struct Listings {
    pub(crate) balancers: Vec<Value>,
    pub(crate) listeners: Vec<Value>,
    pub(crate) pools: Vec<Value>,
    pub(crate) monitors: Vec<Value>,
    pub(crate) floating_ips: Vec<Value>,
    /// Members, by the ID of their pool.
    pub(crate) members: BTreeMap<String, Vec<Value>>,
}

pub(crate) fn records(listings: &Listings) -> Vec<LoadBalancerRecord<Detail>> {
    let mut pools: Vec<Pool> = listings.pools.iter().map(read).collect();
    let known = KnownMembers::default();
    for pool in &mut pools {
        let members = listings.members.get(&pool.id).map(Vec::as_slice).unwrap_or_default();
        pool.members =
            (0..members.len()).map(|n| read(&serde_json::json!({ "id": n.to_string() }))).collect();
        known.learn(pool, members.iter().map(read).collect());
    }
    let sweep = Sweep {
        balancers: vec![all(&listings.balancers).into()],
        listeners: vec![all(&listings.listeners).into()],
        pools: vec![pools.into()],
        monitors: vec![all(&listings.monitors).into()],
        floating_ips: vec![all(&listings.floating_ips).into()],
        ..Sweep::default()
    };
    join::records(&sweep, &known, None)
}

pub(crate) fn kept(listings: &Listings) -> Kept {
    Kept::of(&all(&listings.floating_ips))
}

fn all<T: DeserializeOwned>(values: &[Value]) -> Vec<T> {
    values.iter().map(read).collect()
}

fn read<T: DeserializeOwned>(value: &Value) -> T {
    serde_json::from_value(value.clone()).unwrap_or_else(|error| panic!("{error}: {value}"))
}
