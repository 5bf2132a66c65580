//! Converts backends to members of pools. Pure functions.

use std::{collections::BTreeMap, net::IpAddr};

use cloud_adapter::{driver::VendorError, kit::invalid};
use cloud_api_proto::v1alpha1::{Backend, IpFamily};

use crate::{api::requests::NewMember, port::Transport};

/// The largest weight of a member. Source: Octavia, `MAX_WEIGHT`.
const WEIGHT_MAX: u32 = 256;
/// Maximum length of a name in characters. Source: Octavia API reference.
const NAME_MAX: usize = 255;

/// The backends and their addresses. Only addresses of the load balancer's IP families are included, in the order of these families.
pub(super) struct Hosts {
    hosts: Vec<Host>,
    subnet: Option<String>,
}

struct Host {
    name: String,
    weight: u32,
    addresses: Vec<IpAddr>,
}

impl Hosts {
    pub(super) fn read(
        backends: &[Backend],
        families: &[IpFamily],
        subnet: Option<&String>,
    ) -> Result<Self, VendorError> {
        let hosts = backends.iter().map(|backend| host(backend, families)).collect::<Result<_, _>>()?;
        Ok(Self { hosts, subnet: subnet.cloned() })
    }

    /// For TCP, Octavia is a proxy and reaches members of either IP family, so one member for each node is enough. UDP and SCTP packets
    /// keep their IP family, so each family needs its own members.
    pub(super) fn members(
        &self,
        transport: Transport,
        node_port: u16,
        monitor_port: Option<u16>,
    ) -> BTreeMap<(IpAddr, u16), NewMember> {
        let most = match transport {
            Transport::Tcp => 1,
            Transport::Udp | Transport::Sctp => usize::MAX,
        };
        let member = |host: &Host, address| NewMember {
            name: host.name.clone(),
            address,
            protocol_port: node_port,
            weight: host.weight,
            // Octavia probes the member's own port by default, so this port is not set.
            monitor_port: monitor_port.filter(|port| *port != node_port),
            subnet_id: self.subnet.clone(),
        };
        let addresses = self
            .hosts
            .iter()
            .flat_map(|host| host.addresses.iter().take(most).map(move |address| (host, *address)));
        addresses.map(|(host, address)| ((address, node_port), member(host, address))).collect()
    }
}

fn host(backend: &Backend, families: &[IpFamily]) -> Result<Host, VendorError> {
    let field = |name: &str| format!("backends[{}].{name}", backend.provider_id);
    let weight = match (backend.draining, backend.weight) {
        (true, _) => 0,
        (false, None) => 1,
        (false, Some(weight)) => weight,
    };
    if weight > WEIGHT_MAX {
        return Err(invalid(
            field("weight"),
            format!("invalid weight {weight}: the maximum is {WEIGHT_MAX}"),
        ));
    }
    let read = |text: &String| match text.parse() {
        Ok(address) => Ok(address),
        Err(error) => Err(invalid(field("addresses"), format!("{text:?}: {error}"))),
    };
    let all = backend.addresses.iter().map(read).collect::<Result<Vec<IpAddr>, _>>()?;
    let of = |family: &IpFamily| {
        all.iter().find(|address| address.is_ipv4() == (*family == IpFamily::Ipv4)).copied()
    };
    let addresses = families.iter().filter_map(of).collect();
    Ok(Host { name: backend.node_name.chars().take(NAME_MAX).collect(), weight, addresses })
}
