//! Translates objects of the cloud to those of the contract. Pure functions.

use std::{collections::BTreeMap, net::IpAddr, time::SystemTime};

use cloud_adapter::{
    driver::{LoadBalancerRecord, Origin},
    kit,
};
use cloud_api_proto::v1alpha1::{
    Instance, InstanceAddress, InstanceState, LoadBalancer, LoadBalancerAddress, LoadBalancerState, NextHop,
    PortStatus, Protocol, Route, RouteOwner, RouteState, Scope, VendorIds,
    instance_address::{self, Type},
    load_balancer_address::{self, IpMode},
};
use jiff::Timestamp;

use crate::{
    SCHEME, ownership,
    responses::{self, Read},
    simcloud::model::{
        AddressKind, InstanceStatus, IpFamily, ListenerProtocol, PoolProtocol, Project, ProvisioningStatus,
        RouteStatus, Tags,
    },
};

/// The error on a listener's port while the listener is in the vendor's error state.
const PORT_FAILED: &str = "ListenerFailed";

/// Prefix of instance tags that become labels of the Node. The rest of the tag's key is the label's key.
const LABEL: &str = "label/";

/// The scope's fingerprint includes the endpoint, because two simulated clouds may have projects with the same name.
pub(crate) fn scope(project: Project, endpoint: &str) -> Scope {
    let Project { account, project, region } = project;
    let fingerprint = kit::digest(&[&account, &project, &region, endpoint]);
    Scope { account, project, region, endpoint: endpoint.to_owned(), fingerprint }
}

pub(crate) fn instance(machine: &responses::Instance) -> Instance {
    let mut instance = Instance {
        provider_id: kit::provider_id(SCHEME, &machine.region, &machine.id),
        name: machine.name.clone(),
        state: instance_state(&machine.status).into(),
        addresses: addresses(&machine.addresses),
        instance_type: machine.instance_type.clone(),
        region: machine.region.clone(),
        zone: machine.zone.clone(),
        extra_labels: labels(&machine.tags),
        created_at: Some(time(machine.created_at)),
        vendor_state: machine.status.word(),
        fingerprint: String::new(),
    };
    instance.fingerprint = fingerprint(&instance);
    instance
}

fn labels(tags: &Tags) -> BTreeMap<String, String> {
    let labels = tags.iter().filter_map(|(key, value)| Some((key.strip_prefix(LABEL)?, value)));
    labels.map(|(key, value)| (key.to_owned(), value.clone())).collect()
}

fn instance_state(status: &Read<InstanceStatus>) -> InstanceState {
    match status.known() {
        None => InstanceState::Unknown,
        Some(InstanceStatus::Building) => InstanceState::Starting,
        Some(InstanceStatus::Running) => InstanceState::Running,
        Some(InstanceStatus::Stopping) => InstanceState::Stopping,
        Some(InstanceStatus::Stopped) => InstanceState::Stopped,
        Some(InstanceStatus::ShuttingDown) => InstanceState::Terminating,
        Some(InstanceStatus::Terminated) => InstanceState::Terminated,
        Some(InstanceStatus::Error) => InstanceState::Error,
    }
}

/// Translates addresses. Omits invalid addresses and unknown kinds, because a Node must not show them.
fn addresses(addresses: &[responses::Address]) -> Vec<InstanceAddress> {
    let mut translated: Vec<InstanceAddress> = Vec::with_capacity(addresses.len());
    for one in addresses {
        if let Some(kind) = one.kind.known() {
            kit::add_address(&mut translated, address_type(*kind), &one.address, &one.network);
        }
    }
    translated
}

fn address_type(kind: AddressKind) -> Type {
    match kind {
        AddressKind::Internal => Type::InternalIp,
        AddressKind::External => Type::ExternalIp,
        AddressKind::Hostname => Type::Hostname,
        AddressKind::InternalDns => Type::InternalDns,
        AddressKind::ExternalDns => Type::ExternalDns,
    }
}

/// Returns a hash of what a Node shows: addresses, labels, and the state, which decides the shutdown taint. Times and the vendor's name of
/// the state are left out.
fn fingerprint(instance: &Instance) -> String {
    let state = instance.state.to_string();
    let mut words = vec![
        instance.provider_id.as_str(),
        &instance.name,
        &state,
        &instance.instance_type,
        &instance.region,
        &instance.zone,
    ];
    let addresses: Vec<String> = instance.addresses.iter().map(address_word).collect();
    words.extend(addresses.iter().map(String::as_str));
    words.extend(instance.extra_labels.iter().flat_map(|(key, value)| [key.as_str(), value]));
    kit::digest(&words)
}

fn address_word(address: &InstanceAddress) -> String {
    let value = match &address.value {
        Some(instance_address::Value::Ip(text) | instance_address::Value::Name(text)) => text,
        None => "",
    };
    format!("{} {} {value}", address.r#type, address.network)
}

pub(crate) fn load_balancer(tree: responses::LoadBalancer) -> LoadBalancerRecord<responses::LoadBalancer> {
    let (key, owner) = ownership::balancer_owner(&tree.tags).unzip();
    let backends = tree.pools.iter().map(|pool| pool.members.len()).sum::<usize>();
    let summary = LoadBalancer {
        vendor_id: tree.id.clone(),
        key,
        owner,
        state: balancer_state(&tree).into(),
        addresses: vips(&tree),
        applied_hash: ownership::applied_hash(&tree.tags).to_owned(),
        vendor_ids: Some(vendor_ids(&tree)),
        listeners: tree.listeners.iter().map(listener_word).collect(),
        backends: u32::try_from(backends).unwrap_or(u32::MAX),
        name: tree.name.clone(),
        created_at: Some(time(tree.created_at)),
        fence: ownership::fence(&tree.tags),
    };
    let origin = if ownership::is_adopted(&tree.tags) { Origin::Adopted } else { Origin::Created };
    let adoptable_by = ownership::adoptable_by(&tree.tags);
    LoadBalancerRecord { origin, adoptable_by, ..LoadBalancerRecord::new(summary, tree) }
}

fn balancer_state(tree: &responses::LoadBalancer) -> LoadBalancerState {
    match tree.status.known() {
        None => LoadBalancerState::Unspecified,
        Some(ProvisioningStatus::PendingCreate | ProvisioningStatus::PendingUpdate) => {
            LoadBalancerState::Pending
        }
        Some(ProvisioningStatus::PendingDelete) => LoadBalancerState::Deleting,
        Some(ProvisioningStatus::Error) => LoadBalancerState::Error,
        Some(ProvisioningStatus::Active) => {
            let children = tree.listeners.iter().map(|listener| &listener.status);
            let mut children = children.chain(tree.pools.iter().map(|pool| &pool.status));
            if children.any(|status| status.is(&ProvisioningStatus::Error)) {
                LoadBalancerState::Degraded
            } else {
                LoadBalancerState::Active
            }
        }
    }
}

/// Sorts the addresses in the order of the requested families.
fn vips(tree: &responses::LoadBalancer) -> Vec<LoadBalancerAddress> {
    let rank = |address: IpAddr| {
        tree.families.iter().position(|family| family.is(&IpFamily::of(address))).unwrap_or(usize::MAX)
    };
    let mut vips = tree.vips.clone();
    vips.sort_by_key(|address| rank(*address));
    // With the PROXY protocol, traffic from pods must pass through the load balancer. Otherwise the header would be missing.
    let proxied = tree.pools.iter().any(|pool| pool.protocol.is(&PoolProtocol::Proxy));
    let mode = if proxied { IpMode::Proxy } else { IpMode::Vip };
    let ports: Vec<PortStatus> = tree.listeners.iter().filter_map(failed_port).collect();
    let address = |vip: IpAddr| LoadBalancerAddress {
        value: Some(load_balancer_address::Value::Ip(vip.to_string())),
        ip_mode: mode.into(),
        ports: ports.clone(),
    };
    vips.into_iter().map(address).collect()
}

fn failed_port(listener: &responses::Listener) -> Option<PortStatus> {
    let protocol = match listener.protocol.known()? {
        ListenerProtocol::Tcp => Protocol::Tcp,
        ListenerProtocol::Udp => Protocol::Udp,
        ListenerProtocol::Sctp => Protocol::Sctp,
    };
    listener.status.is(&ProvisioningStatus::Error).then(|| PortStatus {
        port: listener.port.into(),
        protocol: protocol.into(),
        error: Some(PORT_FAILED.to_owned()),
    })
}

fn vendor_ids(tree: &responses::LoadBalancer) -> VendorIds {
    let mut ids = vec![("loadbalancer".to_owned(), tree.id.clone())];
    for listener in &tree.listeners {
        let word = listener_word(listener);
        ids.extend(listener.pool_id.iter().map(|pool| (format!("pool/{word}"), pool.clone())));
        ids.push((format!("listener/{word}"), listener.id.clone()));
    }
    VendorIds { ids: ids.into_iter().collect() }
}

fn listener_word(listener: &responses::Listener) -> String {
    format!("{}/{}", listener.protocol.word().to_ascii_lowercase(), listener.port)
}

/// Translates a route. The runtime derives the owner from the key, because the owner depends on the requesting cluster.
pub(crate) fn route(entry: &responses::Route, region: &str) -> Route {
    let destination = entry.destination.trunc().to_string();
    // After the instance is deleted, the cloud still lists it as the next hop.
    let gone = entry.status.known() == Some(&RouteStatus::Blackhole);
    let machine = entry.next_hop_instance.as_deref().filter(|_| !gone);
    let next_hop = NextHop {
        provider_id: machine.map(|machine| kit::provider_id(SCHEME, region, machine)).unwrap_or_default(),
        address: entry.next_hop_address.map(|address| address.to_string()).unwrap_or_default(),
        interface: String::new(),
    };
    let state = match entry.status.known() {
        None => RouteState::Unspecified,
        Some(RouteStatus::Active) => RouteState::Active,
        // The route forwards no packets, and only a new route fixes that.
        Some(RouteStatus::Blackhole | RouteStatus::Error) => RouteState::Blackhole,
    };
    Route {
        vendor_id: entry.id.clone(),
        key: ownership::route_key(&entry.tags, &destination),
        destination,
        next_hop: Some(next_hop),
        table: entry.table.clone(),
        state: state.into(),
        owner: RouteOwner::Unspecified.into(),
        fence: ownership::fence(&entry.tags),
    }
}

fn time(at: Timestamp) -> prost_types::Timestamp {
    SystemTime::from(at).into()
}

#[cfg(test)]
mod tests;
