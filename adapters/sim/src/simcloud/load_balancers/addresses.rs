//! Virtual addresses: records which load balancer has which address, and allocates free addresses.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use serde_json::json;

use super::super::error::ApiError;
use super::super::model::{IpFamily, Scheme};
use super::super::requests::CreateLoadBalancer;

/// Addresses in use, each with the serial of its load balancer.
#[derive(Debug, Default)]
pub(super) struct Addresses {
    used: BTreeMap<IpAddr, u64>,
    /// Number of addresses allocated so far from each range.
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

    /// Allocates the addresses that a load balancer requested, and free ones for its other families.
    pub(super) fn assign(&mut self, serial: u64, request: &CreateLoadBalancer) {
        for &family in &request.families {
            let wanted = request.vips.iter().copied().find(|address| IpFamily::of(*address) == family);
            let address = wanted.unwrap_or_else(|| self.choose(request.scheme, family));
            self.used.insert(address, serial);
        }
    }

    /// The next free address. Released addresses are reused as late as possible: only at the end of the range.
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

    /// The families in order, IPv4 first.
    pub(super) fn of(&self, serial: u64) -> Vec<IpAddr> {
        self.used.iter().filter(|(_, owner)| **owner == serial).map(|(address, _)| *address).collect()
    }

    pub(super) fn release(&mut self, serial: u64) {
        self.used.retain(|_, owner| *owner != serial);
    }
}

/// Addresses in each range; more than the load balancers that a test creates.
const RANGE: u32 = (1 << 17) - 2;

/// 198.18.0.0/15 (RFC 2544) and 2001:db8:1::/64 (RFC 3849) represent the internet, 10.128.0.0/15 and fd00:1::/64 the project's network.
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

/// Validates everything that does not depend on other load balancers.
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
