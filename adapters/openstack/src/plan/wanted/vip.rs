//! Determines the load balancer's own addresses. The functions have no side effects.

use std::{collections::BTreeSet, net::IpAddr};

use cloud_adapter::{
    driver::{DesiredLoadBalancer, Fault, VendorError},
    kit::{RECREATE, invalid},
};
use cloud_api_proto::v1alpha1::{Backend, IpFamily, LoadBalancerSpec, load_balancer_spec::Scheme};

use crate::{
    api::{
        requests::{Neighbour, NewVip},
        responses::Balancer,
    },
    load_balancers::settings::LoadBalancerOptions,
    parameters::{Parameters, network_field},
};

const FAMILIES: &str = "spec.ip_families";

/// The addresses of the load balancer, with the primary one first.
#[derive(Clone, Debug, Default)]
pub(in crate::plan) struct Vip {
    pub(in crate::plan) subnet: Option<String>,
    pub(in crate::plan) network: Option<String>,
    /// The node whose subnet is used if neither a subnet nor a network is configured.
    pub(in crate::plan) beside: Option<Neighbour>,
    pub(in crate::plan) address: Option<IpAddr>,
    pub(in crate::plan) additional: Vec<NewVip>,
    /// The set of IP families, in no order. `true` means IPv4.
    families: BTreeSet<bool>,
}

impl Vip {
    /// Reads the desired addresses. Requested addresses are VIPs, except public IPv4 addresses, which are floating IPs.
    pub(super) fn read(
        desired: &DesiredLoadBalancer,
        parameters: &Parameters,
        options: &LoadBalancerOptions,
    ) -> Result<Self, VendorError> {
        let spec = &desired.spec;
        let families: Vec<IpFamily> = spec.ip_families().collect();
        let asked = requested(spec, &families)?;
        let own = |family: IpFamily| {
            let v4 = family == IpFamily::Ipv4;
            let floating = v4 && spec.scheme() != Scheme::Internal;
            asked.iter().find(|address| address.is_ipv4() == v4 && !floating).copied()
        };
        if spec.subnets.len() > families.len() {
            let text = format!(
                "too many: expected one for each of the {} IP families, in the same order",
                families.len()
            );
            return Err(invalid("spec.subnets", text));
        }
        let mut vip = Self::default();
        for (at, family) in families.iter().enumerate() {
            vip.families.insert(*family == IpFamily::Ipv4);
            let (value, flag, default) = match family {
                // The configured default subnet may not be in the network that the Service sets.
                IpFamily::Ipv4 => {
                    let default = options.subnet_id.as_ref().filter(|_| parameters.network.is_none());
                    ("subnetId", "subnet-id", default)
                }
                IpFamily::Ipv6 => ("ipv6SubnetId", "ipv6-subnet-id", options.ipv6_subnet_id.as_ref()),
                IpFamily::Unspecified => {
                    return Err(invalid("spec.ip_families", "unknown IP family: use one of: IPV4, IPV6"));
                }
            };
            let said = spec.subnets.get(at);
            let subnet = said.or(default).cloned();
            let missing = || {
                let text = format!(
                    "has no subnet for IP family {}: set one, or set adapter.openstack.loadBalancers.{value} (--{flag})",
                    at + 1
                );
                invalid("spec.subnets", text)
            };
            if at > 0 {
                let subnet_id = subnet.ok_or_else(missing)?;
                vip.additional.push(NewVip { subnet_id, ip_address: own(*family) });
                continue;
            }
            let network = match (&parameters.network, said) {
                (None, Some(_)) => None,
                (said, _) => said.as_ref().or(options.network_id.as_ref()),
            };
            vip.network = network.filter(|_| *family == IpFamily::Ipv4).cloned();
            if subnet.is_none() && vip.network.is_none() {
                let beside = neighbour(&desired.backends).filter(|_| *family == IpFamily::Ipv4);
                vip.beside = Some(beside.ok_or_else(missing)?);
            }
            vip.subnet = subnet;
            vip.address = own(*family);
        }
        Ok(vip)
    }

    /// Requests the addresses of the former load balancer, unless the Service requests other addresses or the subnets differ.
    pub(in crate::plan) fn inherit(&mut self, former: &Balancer) {
        let same_subnet = self.subnet.is_some() && self.subnet == former.vip_subnet_id;
        let same_network =
            self.subnet.is_none() && self.network.is_some() && self.network == former.vip_network_id;
        let guessed = self.beside.is_some();
        let address =
            former.vip_address.filter(|one| self.families.contains(&one.is_ipv4()) && can_be_chosen(one));
        if self.address.is_none() && address.is_some() && (same_subnet || same_network || guessed) {
            self.address = address;
            // Within a network, each address is in only one subnet.
            self.subnet.clone_from(&former.vip_subnet_id);
            self.beside = self.beside.take().filter(|_| self.subnet.is_none());
        }
        for vip in self.additional.iter_mut().filter(|vip| vip.ip_address.is_none()) {
            let there =
                former.additional_vips.iter().find(|there| there.subnet_id.as_ref() == Some(&vip.subnet_id));
            vip.ip_address = there.and_then(|there| there.ip_address).filter(can_be_chosen);
        }
    }

    /// Returns an error, [`Fault::Immutable`], that names the fields whose differences cannot be applied to an existing load balancer.
    /// `None`: there are no such differences.
    pub(in crate::plan) fn fixed(
        &self,
        spec: &LoadBalancerSpec,
        parameters: &Parameters,
        there: &Balancer,
    ) -> Result<Option<VendorError>, VendorError> {
        let mut fields = Vec::new();
        let first = there.vip_address.iter();
        let vips: BTreeSet<IpAddr> = first
            .chain(there.additional_vips.iter().filter_map(|vip| vip.ip_address.as_ref()))
            .copied()
            .collect();
        // A load balancer without an address was never completely created, and its initial settings are not known.
        if !vips.is_empty() && vips.iter().map(IpAddr::is_ipv4).collect::<BTreeSet<_>>() != self.families {
            fields.push(FAMILIES.to_owned());
        }
        let asked =
            self.address.iter().chain(self.additional.iter().filter_map(|vip| vip.ip_address.as_ref()));
        if !vips.is_empty() && !asked.into_iter().all(|address| vips.contains(address)) {
            fields.push("spec.requested_addresses".to_owned());
        }
        let subnets = there.additional_vips.iter().filter_map(|vip| vip.subnet_id.as_deref());
        let subnets: Vec<&str> = there.vip_subnet_id.as_deref().into_iter().chain(subnets).collect();
        let other = |asked: &str, there: Option<&str>| !asked.is_empty() && there != Some(asked);
        let network = parameters.network.as_deref().unwrap_or_default();
        let differs = [
            ("spec.subnets".to_owned(), spec.subnets.iter().any(|asked| !subnets.contains(&asked.as_str()))),
            (network_field(), other(network, there.vip_network_id.as_deref())),
            ("spec.size".to_owned(), other(&spec.size, there.flavor_id.as_deref())),
            ("spec.zone".to_owned(), other(&spec.zone, there.availability_zone.as_deref())),
        ];
        fields.extend(differs.into_iter().filter(|(_, differs)| *differs).map(|(field, _)| field));
        if fields.is_empty() {
            return Ok(None);
        }
        let text =
            format!("{}: cannot change on load balancer {}: {}", fields.join(", "), there.id, RECREATE);
        let ends = fields.iter().any(|field| field == FAMILIES);
        let error = VendorError { fields, ..VendorError::new(Fault::Immutable, text) };
        if ends { Err(error) } else { Ok(Some(error)) }
    }
}

/// Returns the first node with an IPv4 address. Nodes are sorted, so all Services use the same node.
fn neighbour(backends: &[Backend]) -> Option<Neighbour> {
    let of = |backend: &Backend| {
        let mut addresses = backend.addresses.iter().filter_map(|text| text.parse().ok());
        let address = addresses.find(IpAddr::is_ipv4)?;
        Some(Neighbour { provider_id: backend.provider_id.clone(), address })
    };
    backends.iter().find_map(of)
}

/// Returns whether clients can choose an address. Neutron refuses an address that is derived from a port's MAC address (SLAAC). Such an
/// address has `ff:fe` in the middle. Source: RFC 4291, appendix A.
fn can_be_chosen(address: &IpAddr) -> bool {
    match address {
        IpAddr::V4(_) => true,
        IpAddr::V6(six) => six.octets().get(11..13) != Some(&[0xff, 0xfe]),
    }
}

fn requested(spec: &LoadBalancerSpec, families: &[IpFamily]) -> Result<Vec<IpAddr>, VendorError> {
    let mut asked: Vec<IpAddr> = Vec::new();
    for (at, text) in spec.requested_addresses.iter().enumerate() {
        let field = format!("spec.requested_addresses[{at}]");
        let address: IpAddr = text.parse().map_err(|error| invalid(&field, format!("{text:?}: {error}")))?;
        let family = if address.is_ipv4() { IpFamily::Ipv4 } else { IpFamily::Ipv6 };
        if !families.contains(&family) {
            return Err(invalid(
                field,
                format!("{address} is of an IP family that is not in spec.ip_families"),
            ));
        }
        if asked.iter().any(|one| one.is_ipv4() == address.is_ipv4()) {
            return Err(invalid(
                field,
                format!("{address} is the second address of its IP family: only one of each is allowed"),
            ));
        }
        asked.push(address);
    }
    Ok(asked)
}
