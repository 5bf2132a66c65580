//! The flag `--cluster-cidr`: the pod CIDRs of the cluster. Unneeded routes outside of these CIDRs are never removed.

use std::fmt;
use std::str::FromStr;

use controller_core::cidr;
use ipnet::IpNet;

/// One CIDR, or one of each address family. All host bits are zero.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ClusterCidrs {
    first: IpNet,
    second: Option<IpNet>,
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Error {
    #[error(
        "no CIDR given: expected one such as 10.244.0.0/16, or two such as 10.244.0.0/16,fd00:10:244::/48"
    )]
    Empty,
    #[error("invalid CIDR {0:?}: expected an address, a slash and a prefix length, such as 10.244.0.0/16")]
    NoCidr(String),
    #[error("{0} CIDRs given: expected at most two, one of IPv4 and one of IPv6")]
    TooMany(usize),
    #[error("{0} and {1} are of the same address family: remove one, or make one of them {2}")]
    SameFamily(IpNet, IpNet, &'static str),
}

impl ClusterCidrs {
    pub(crate) fn contain(&self, net: &IpNet) -> bool {
        self.iter().any(|cluster| cluster.contains(net))
    }

    pub(crate) fn overlap(&self, net: &IpNet) -> bool {
        self.iter().any(|cluster| cluster.contains(net) || net.contains(&cluster))
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = IpNet> {
        [Some(self.first), self.second].into_iter().flatten()
    }

    pub(crate) fn to_strings(&self) -> Vec<String> {
        self.iter().map(|cidr| cidr.to_string()).collect()
    }
}

impl FromStr for ClusterCidrs {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        if text.trim().is_empty() {
            return Err(Error::Empty);
        }
        let cidrs = text.split(',').map(parse).collect::<Result<Vec<_>, _>>()?;
        match *cidrs.as_slice() {
            [] => Err(Error::Empty),
            [first] => Ok(Self { first, second: None }),
            [first, second] if first.addr().is_ipv4() == second.addr().is_ipv4() => {
                let other = if first.addr().is_ipv4() { "IPv6" } else { "IPv4" };
                Err(Error::SameFamily(first, second, other))
            }
            [first, second] => Ok(Self { first, second: Some(second) }),
            _ => Err(Error::TooMany(cidrs.len())),
        }
    }
}

impl fmt::Display for ClusterCidrs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.to_strings().join(","))
    }
}

fn parse(text: &str) -> Result<IpNet, Error> {
    let text = text.trim();
    cidr::parse(text).map_err(|_invalid| Error::NoCidr(text.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    // Behaviour: R5
    #[test]
    fn one_cidr_or_one_of_each_family_is_accepted() {
        for (given, read) in [
            ("10.244.0.0/16", "10.244.0.0/16"),
            ("10.244.0.0/16,fd00:10:244::/48", "10.244.0.0/16,fd00:10:244::/48"),
            ("fd00:10:244::/48,10.244.0.0/16", "fd00:10:244::/48,10.244.0.0/16"),
            ("10.244.0.0/16, fd00:10:244::/48", "10.244.0.0/16,fd00:10:244::/48"),
            ("10.244.7.9/16", "10.244.0.0/16"),
            ("010.244.000.0/16", "10.244.0.0/16"),
        ] {
            let cidrs: ClusterCidrs = given.parse().unwrap_or_else(|error| panic!("{given}: {error}"));
            assert_eq!(cidrs.to_string(), read, "{given}");
        }
    }

    // Behaviour: R20
    #[test]
    fn invalid_cluster_cidrs_are_refused_with_the_fix() {
        for (given, part) in [
            ("", "such as 10.244.0.0/16"),
            ("  ", "such as 10.244.0.0/16"),
            ("10.244.0.0", "invalid CIDR \"10.244.0.0\""),
            ("10.244.0.0/33", "invalid CIDR \"10.244.0.0/33\""),
            ("10.244.0.0/16,", "invalid CIDR \"\""),
            ("10.244.0.0/16;fd00::/48", "invalid CIDR"),
            ("10.244.0.0/16,10.245.0.0/16", "make one of them IPv6"),
            ("fd00::/48,fd01::/48", "make one of them IPv4"),
            ("10.244.0.0/16,fd00::/48,10.245.0.0/16", "3 CIDRs given: expected at most two"),
        ] {
            let error = given.parse::<ClusterCidrs>().expect_err(given).to_string();
            assert!(error.contains(part), "{given}: {error}");
        }
    }

    #[test]
    fn network_is_inside_only_as_a_whole() {
        let cidrs: ClusterCidrs = "10.244.0.0/16,fd00:10:244::/48".parse().expect("valid");
        for (net, inside, overlaps) in [
            ("10.244.0.0/24", true, true),
            ("10.244.255.0/24", true, true),
            ("10.244.0.0/16", true, true),
            ("10.244.0.0/15", false, true),
            ("10.245.0.0/24", false, false),
            ("0.0.0.0/0", false, true),
            ("fd00:10:244:1::/64", true, true),
            ("fd00:10:245::/64", false, false),
        ] {
            let net = net.parse().expect("valid");
            assert_eq!((cidrs.contain(&net), cidrs.overlap(&net)), (inside, overlaps), "{net}");
        }
    }
}
