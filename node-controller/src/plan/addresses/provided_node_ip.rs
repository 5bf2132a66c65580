//! Implements the annotation `alpha.kubernetes.io/provided-node-ip`, which selects and orders the cloud's addresses.
//!
//! Kubelets and users rely on every detail of this rule; the table in the tests defines it.

use std::net::IpAddr;

use super::Address;

/// Why the annotation cannot be applied.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Error {
    /// The value is neither an IP address nor two of them with one comma in between.
    #[error(
        "{0:?} is invalid: expected an IP address, or two addresses of different families separated by a comma"
    )]
    NotAnAddress(String),
    /// More than two addresses, or two of one family.
    #[error(
        "{0:?} has too many addresses, or two of the same family: expected an IP address, or two \
    addresses of different families separated by a comma"
    )]
    NotAPair(String),
    /// `0.0.0.0` or `::` together with another address.
    #[error("{0:?} contains an unspecified address together with another address")]
    Unspecified(String),
    /// The cloud does not list the address.
    #[error("the cloud lists no address {0} for this node")]
    Unknown(IpAddr),
}

/// Orders and filters the cloud's addresses according to the annotation's value.
///
/// For each provided IP in turn, the result lists every equal address of any type. All addresses of the types that matched no provided IP
/// follow. The cloud's spelling is kept.
pub(super) fn apply(value: &str, cloud: &[Address]) -> Result<Vec<Address>, Error> {
    let provided = parse(value)?;
    let mut kept = Vec::new();
    for ip in provided {
        let equal = |address: &&Address| address_ip(&address.address) == Some(ip);
        let before = kept.len();
        kept.extend(cloud.iter().filter(equal).cloned());
        if kept.len() == before {
            return Err(Error::Unknown(ip));
        }
    }
    let matched: Vec<String> = kept.iter().map(|address| address.type_.clone()).collect();
    kept.extend(cloud.iter().filter(|address| !matched.contains(&address.type_)).cloned());
    Ok(kept)
}

fn parse(value: &str) -> Result<Vec<IpAddr>, Error> {
    let parts: Result<Vec<IpAddr>, Error> = value
        .split(',')
        .map(|part| address_ip(part).ok_or_else(|| Error::NotAnAddress(value.to_owned())))
        .collect();
    let ips = parts?;
    match ips.as_slice() {
        [_one] => Ok(ips),
        [first, second] if first.is_unspecified() || second.is_unspecified() => {
            Err(Error::Unspecified(value.to_owned()))
        }
        [first, second] if first.is_ipv4() != second.is_ipv4() => Ok(ips),
        _ => Err(Error::NotAPair(value.to_owned())),
    }
}

/// Parses an address as Kubernetes does. Leading zeros are ignored in groups and in octets, and octets are decimal. An IPv4-mapped IPv6
/// address counts as IPv4.
fn address_ip(text: &str) -> Option<IpAddr> {
    let ip: IpAddr = text.parse().or_else(|_error| without_leading_zeros(text).parse()).ok()?;
    Some(ip.to_canonical())
}

fn without_leading_zeros(text: &str) -> String {
    let short = |part: &str| match part.trim_start_matches('0') {
        "" if !part.is_empty() => "0".to_owned(),
        rest => rest.to_owned(),
    };
    let group = |group: &str| group.split('.').map(short).collect::<Vec<_>>().join(".");
    text.split(':').map(group).collect::<Vec<_>>().join(":")
}

#[cfg(test)]
mod tests;
