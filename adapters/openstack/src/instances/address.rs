//! Computes the addresses of an instance, in the sequence in which a Node shows them. The functions have no side effects.
//!
//! The rules are those of the former cloud controller manager, so that a migration does not change the InternalIP of a Node. Source:
//! cloud-provider-openstack, `nodeAddresses`.

use std::net::IpAddr;

use cloud_adapter::kit::add_address;
use cloud_api_proto::v1alpha1::{InstanceAddress, instance_address::Type};
use ipnet::IpNet;

use crate::api::server::{NetworkAddress, Port, Server};

/// The key in a server's metadata whose value is the server's host name.
const HOSTNAME: &str = "hostname";
const ACTIVE: &str = "ACTIVE";
const FLOATING: &str = "floating";

/// Settings that map networks to types of addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Networking {
    /// Networks whose addresses become ExternalIPs.
    pub(crate) public: Vec<String>,
    /// The networks whose addresses become InternalIPs. If the list is empty, these are all networks that are not public.
    pub(crate) internal: Vec<String>,
    /// CIDRs whose addresses come first, in the sequence of this list. Other addresses keep their sequence.
    pub(crate) sort_order: Vec<IpNet>,
    pub(crate) ipv6: Ipv6,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Ipv6 {
    #[default]
    Reported,
    LeftOut,
}

struct Shown<'a> {
    networking: &'a Networking,
    addresses: Vec<(Type, String)>,
}

impl Shown<'_> {
    /// Adds an address if it is new. Skips invalid addresses and addresses of a disabled IP family.
    fn add(&mut self, kind: Type, text: &str) {
        let Ok(ip) = text.parse::<IpAddr>() else { return };
        if ip.is_ipv6() && self.networking.ipv6 == Ipv6::LeftOut {
            return;
        }
        // Canonical forms are compared, because services write the same IPv6 address in several ways.
        let one = (kind, ip.to_string());
        if !self.addresses.contains(&one) {
            self.addresses.push(one);
        }
    }

    fn remove(&mut self, text: &str) {
        let Ok(ip) = text.parse::<IpAddr>() else { return };
        let text = ip.to_string();
        self.addresses.retain(|(_, one)| *one != text);
    }
}

/// Returns all addresses of an instance. `ports` are the ports of the instance, in the sequence that Neutron returns.
pub(super) fn addresses(server: &Server, ports: &[&Port], networking: &Networking) -> Vec<InstanceAddress> {
    let mut shown = Shown { networking, addresses: Vec::new() };
    let active = ports.iter().filter(|port| port.status == ACTIVE);
    for fixed in active.flat_map(|port| &port.fixed_ips) {
        shown.add(Type::InternalIp, &fixed.ip_address);
    }
    shown.add(Type::ExternalIp, &server.access_v4);
    shown.add(Type::ExternalIp, &server.access_v6);
    if let Some(hostname) = server.metadata.get(HOSTNAME).filter(|hostname| !hostname.is_empty()) {
        shown.addresses.push((Type::Hostname, hostname.clone()));
    }
    // The addresses are sorted by the networks' names, because the map is sorted by name.
    for (network, of_it) in &server.addresses {
        for NetworkAddress { addr, kind } in of_it {
            by_network(&mut shown, network, kind, addr);
        }
    }
    let order = &networking.sort_order;
    // The sort is stable, so that addresses of equal rank keep their sequence.
    shown.addresses.sort_by_key(|(_, text)| rank(order, text));
    reported(&shown.addresses, server)
}

fn by_network(shown: &mut Shown<'_>, network: &str, kind: &str, address: &str) {
    let named = |names: &[String]| names.iter().any(|name| name == network);
    if kind == FLOATING {
        shown.add(Type::ExternalIp, address);
    } else if named(&shown.networking.public) {
        // The address of a port in a public network is not internal.
        shown.remove(address);
        shown.add(Type::ExternalIp, address);
    } else if shown.networking.internal.is_empty() || named(&shown.networking.internal) {
        shown.add(Type::InternalIp, address);
    } else {
        shown.remove(address);
    }
}

/// Returns the rank of an address. Lower ranks come first.
fn rank(order: &[IpNet], text: &str) -> usize {
    let ip = text.parse::<IpAddr>().ok();
    order.iter().position(|net| ip.is_some_and(|ip| net.contains(&ip))).unwrap_or(order.len())
}

fn reported(addresses: &[(Type, String)], server: &Server) -> Vec<InstanceAddress> {
    let mut reported = Vec::with_capacity(addresses.len());
    for (kind, text) in addresses {
        add_address(&mut reported, *kind, text, server.network_of(text).unwrap_or_default());
    }
    reported
}
