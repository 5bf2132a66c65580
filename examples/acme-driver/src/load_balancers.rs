//! Load balancers: reads the listing page by page. Each load balancer includes all its parts.

use cloud_adapter::{
    driver::{Collection, Cursor, LoadBalancerRecord, Page, VendorError},
    vendor::Session,
};
use cloud_api_proto::v1alpha1::{
    LoadBalancer, LoadBalancerAddress, LoadBalancerState, VendorIds,
    load_balancer_address::{IpMode, Value},
};
use serde::{Deserialize, Serialize};

use crate::{
    AcmeDriver,
    tags::{self, Tags},
};

#[derive(Debug, Deserialize)]
pub(crate) struct Balancers {
    load_balancers: Vec<Detail>,
    next: Option<String>,
}

/// A load balancer as the cloud returns it, with all that the plan compares.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct Detail {
    pub(crate) id: String,
    pub(crate) name: String,
    status: String,
    /// `ipv4` or `ipv6`.
    pub(crate) families: Vec<String>,
    vips: Vec<String>,
    pub(crate) tags: Tags,
    pub(crate) listeners: Vec<Listener>,
    pub(crate) pools: Vec<Pool>,
    created_at: String,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
pub(crate) struct Listener {
    pub(crate) id: String,
    /// `TCP` or `UDP`.
    protocol: String,
    pub(crate) port: u32,
    pub(crate) pool_id: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
pub(crate) struct Pool {
    pub(crate) id: String,
    pub(crate) members: Vec<Member>,
}

/// A target of a pool. With weight 0 it gets no new connections.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
pub struct Member {
    pub(crate) address: String,
    pub(crate) port: u32,
    pub(crate) weight: u32,
}

impl Collection<LoadBalancerRecord<Detail>> for AcmeDriver {
    async fn list_page(
        &self,
        session: &Session,
        cursor: Option<&Cursor>,
        size: Option<u32>,
    ) -> Result<Page<LoadBalancerRecord<Detail>>, VendorError> {
        let cursor = cursor.map(Cursor::at);
        let Balancers { load_balancers, next } =
            self.client.list_load_balancers(session, cursor, size).await?;
        let items = load_balancers.into_iter().map(record).collect();
        Ok(Page { items, next: next.map(Cursor::from), total: None })
    }
}

fn record(tree: Detail) -> LoadBalancerRecord<Detail> {
    let state = match tree.status.as_str() {
        "ACTIVE" => LoadBalancerState::Active,
        "ERROR" => LoadBalancerState::Error,
        "PENDING_DELETE" => LoadBalancerState::Deleting,
        pending if pending.starts_with("PENDING_") => LoadBalancerState::Pending,
        // An unknown status is neither success nor absence.
        _ => LoadBalancerState::Unspecified,
    };
    let address = |vip: &String| LoadBalancerAddress {
        value: Some(Value::Ip(vip.clone())),
        ip_mode: IpMode::Vip.into(),
        ports: Vec::new(),
    };
    let word = |one: &Listener| format!("{}/{}", one.protocol.to_ascii_lowercase(), one.port);
    let members = tree.pools.iter().map(|pool| pool.members.len()).sum::<usize>();
    let (key, owner) = tags::owner(&tree.tags).unzip();
    let summary = LoadBalancer {
        vendor_id: tree.id.clone(),
        key,
        owner,
        state: state.into(),
        addresses: tree.vips.iter().map(address).collect(),
        applied_hash: tags::hash(&tree.tags).to_owned(),
        vendor_ids: Some(VendorIds { ids: [("loadbalancer".to_owned(), tree.id.clone())].into() }),
        listeners: tree.listeners.iter().map(word).collect(),
        backends: u32::try_from(members).unwrap_or(u32::MAX),
        name: tree.name.clone(),
        created_at: tree.created_at.parse().ok(),
        fence: tags::fence(&tree.tags),
    };
    let (origin, adoptable_by) = (tags::origin(&tree.tags), tags::adoptable_by(&tree.tags));
    LoadBalancerRecord { origin, adoptable_by, ..LoadBalancerRecord::new(summary, tree) }
}
