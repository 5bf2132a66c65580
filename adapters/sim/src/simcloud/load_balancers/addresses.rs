//! Virtual IPs. Records which load balancer has which address, and allocates free addresses.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use serde_json::json;

use super::super::error::ApiError;
use super::super::model::{IpFamily, Scheme};
use super::super::requests::CreateLoadBalancer;

/// The addresses in use, and the serial number of each address's load balancer.
#[derive(Debug, Default)]
pub(super) struct Addresses {
    used: BTreeMap<IpAddr, u64>,
    /// The number of addresses that were allocated so far from each range.
    last: BTreeMap<(bool, IpFamily), u32>,
}

impl Addresses {
    pub(super) fn check_free(&self, wanted: &[IpAddr]) -> Result<(), ApiError> {
        match wanted.iter().find(|address| self.used.contains_key(*address)) {
            None => Ok(()),
            Some(address) => {
                let message = format!("address {address} belongs to another load balancer");
                Err(ApiError::conflict("address_in_use", message).with(json!({ "address": address })))
            }
        }
    }

    /// Allocates the addresses that a load balancer requested, and free addresses for its other IP families.
    pub(super) fn assign(&mut self, serial: u64, request: &CreateLoadBalancer) {
        for &family in &request.families {
            let wanted = request.vips.iter().copied().find(|address| IpFamily::of(*address) == family);
            let address = wanted.unwrap_or_else(|| self.choose(request.scheme, family));
            self.used.insert(address, serial);
        }
    }

    /// Returns the next free address. A released address is reused only after the end of the range is reached.
    fn choose(&mut self, scheme: Scheme, family: IpFamily) -> IpAddr {
        let internal = scheme == Scheme::Internal;
        loop {
            let last = self.last.entry((internal, family)).or_default();
            *last = last.checked_rem(RANGE).unwrap_or_default().saturating_add(1);
            let address = nth(internal, family, *last);
            if !self.used.contains_key(&address) {
                return address;
            }
        }
    }

    /// Returns the addresses of a load balancer, IPv4 first.
    pub(super) fn of(&self, serial: u64) -> Vec<IpAddr> {
        self.used.iter().filter(|(_, owner)| **owner == serial).map(|(address, _)| *address).collect()
    }

    pub(super) fn release(&mut self, serial: u64) {
        self.used.retain(|_, owner| *owner != serial);
    }
}

/// The number of addresses in each range. It is larger than the number of load balancers that a test creates.
const RANGE: u32 = (1 << 17) - 2;

/// Returns address number `n` of a range. 198.18.0.0/15 (RFC 2544) and 2001:db8:1::/64 (RFC 3849) represent the internet. 10.128.0.0/15 and
/// fd00:1::/64 represent the project's network.
fn nth(internal: bool, family: IpFamily, n: u32) -> IpAddr {
    match (internal, family) {
        (false, IpFamily::Ipv4) => v4([198, 18, 0, 0], n),
        (true, IpFamily::Ipv4) => v4([10, 128, 0, 0], n),
        (false, IpFamily::Ipv6) => v6([0x2001, 0xdb8, 1, 0, 0, 0, 0, 0], n),
        (true, IpFamily::Ipv6) => v6([0xfd00, 1, 0, 0, 0, 0, 0, 0], n),
    }
}

fn v4(base: [u8; 4], n: u32) -> IpAddr {
    Ipv4Addr::from(u32::from_be_bytes(base).saturating_add(n)).into()
}

fn v6(base: [u16; 8], n: u32) -> IpAddr {
    Ipv6Addr::from(u128::from(Ipv6Addr::from(base)).saturating_add(n.into())).into()
}

/// Validates all fields whose validity does not depend on other load balancers.
pub(super) fn check(request: &CreateLoadBalancer) -> Result<(), ApiError> {
    let mut families = request.families.clone();
    families.sort_unstable();
    families.dedup();
    if families.is_empty() || families.len() != request.families.len() {
        return Err(ApiError::invalid("families", "must name ipv4, ipv6 or both, each once"));
    }
    let mut wanted: Vec<_> = request.vips.iter().copied().map(IpFamily::of).collect();
    wanted.sort_unstable();
    wanted.dedup();
    if wanted.len() != request.vips.len() {
        return Err(ApiError::invalid("vips", "must have at most one address of each family"));
    }
    if wanted.iter().any(|family| !families.contains(family)) {
        return Err(ApiError::invalid("vips", "has an address of a family that `families` does not name"));
    }
    Ok(())
}
