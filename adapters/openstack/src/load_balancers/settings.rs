//! Configuration of load balancers, and the features of the cloud's Octavia.

use std::sync::Arc;

use clap::{Args, ValueEnum};

use super::{
    guards::Guards,
    kept::{self, Kept},
};
use crate::api::version::Version;

/// The provider OVN, which supports neither proxies nor timeouts.
const OVN: &str = "ovn";

/// Defaults for load balancers and their addresses. A setting of a Service takes precedence.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct LoadBalancerOptions {
    /// ID of the subnet for the IPv4 addresses of load balancers. If neither this flag nor --network-id is set, the subnet of the first
    /// node is used
    #[arg(long, value_name = "ID", help_heading = "Load balancers")]
    pub(crate) subnet_id: Option<String>,
    /// ID of the subnet for their IPv6 addresses; for dual stack, it must be in the network of the IPv4 subnet. Without this flag, load
    /// balancers have no IPv6 addresses
    #[arg(long, value_name = "ID", help_heading = "Load balancers")]
    pub(crate) ipv6_subnet_id: Option<String>,
    /// ID of the network for their IPv4 addresses, in which Octavia chooses the subnet
    #[arg(long, value_name = "ID", help_heading = "Load balancers")]
    pub(crate) network_id: Option<String>,
    /// ID of the subnet through which load balancers reach the nodes. Without this flag, they use the subnet of their own address, or the
    /// router of that subnet
    #[arg(long, value_name = "ID", help_heading = "Load balancers")]
    pub(crate) member_subnet_id: Option<String>,
    /// ID of the external network of floating IPs. Without this flag, the only external network is used, which costs a call for each
    /// floating IP
    #[arg(long, value_name = "ID", help_heading = "Load balancers")]
    pub(crate) floating_network_id: Option<String>,
    /// ID of the subnet of floating IPs. Without this flag, Neutron chooses the subnet
    #[arg(long, value_name = "ID", help_heading = "Load balancers")]
    pub(crate) floating_subnet_id: Option<String>,
    /// Octavia provider, such as amphora or ovn. Without this flag, the cloud's default provider is used
    #[arg(long, value_name = "NAME", help_heading = "Load balancers")]
    pub(crate) load_balancer_provider: Option<String>,
    /// Whether a load balancer is created in one call or part by part
    #[arg(long, value_name = "HOW", default_value = "at-once", help_heading = "Load balancers")]
    pub(crate) load_balancer_creation: Creation,
    /// Maximum number of floating IPs per namespace that stay because of the annotation on-delete: keep-address (default 10)
    #[arg(long, value_name = "N", help_heading = "Load balancers")]
    pub(crate) kept_addresses_per_namespace: Option<u32>,
    /// Let packets of load balancers through to the nodes: the adapter manages a security group for the cluster and adds it to the ports of
    /// the nodes
    #[arg(long, help_heading = "Load balancers")]
    pub(crate) manage_security_groups: bool,
}

/// The calls that create a load balancer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Creation {
    /// With all its parts in one call
    #[default]
    AtOnce,
    /// Part by part, for providers that cannot create all parts in one call
    PartByPart,
}

/// Load balancing algorithms, as pairs of the value in the adapter API and Octavia's value. The first pair is the default.
type Algorithms = &'static [(&'static str, &'static str)];

impl LoadBalancerOptions {
    pub(crate) fn most_kept(&self) -> u32 {
        self.kept_addresses_per_namespace.unwrap_or(kept::MOST)
    }

    pub(crate) fn is_ovn(&self) -> bool {
        self.load_balancer_provider.as_deref() == Some(OVN)
    }

    /// Returns the algorithms of the provider. Source: Octavia, Feature Matrix for provider drivers. A provider that is not in this matrix
    /// is assumed to support all algorithms.
    pub(crate) fn algorithms(&self) -> Algorithms {
        const ALL: [(&str, &str); 4] = [
            ("round-robin", "ROUND_ROBIN"),
            ("least-connections", "LEAST_CONNECTIONS"),
            ("source-ip", "SOURCE_IP"),
            ("source-ip-port", "SOURCE_IP_PORT"),
        ];
        const OF_AMPHORA: [(&str, &str); 3] = [ALL[0], ALL[1], ALL[2]];
        const OF_OVN: [(&str, &str); 1] = [ALL[3]];
        match self.load_balancer_provider.as_deref() {
            Some(OVN) => &OF_OVN,
            None | Some("amphora" | "octavia") => &OF_AMPHORA,
            Some(_) => &ALL,
        }
    }
}

/// The facts that planning needs in addition to the desired and the observed state.
#[derive(Clone, Debug)]
pub(crate) struct Site<'a> {
    pub(crate) options: &'a LoadBalancerOptions,
    pub(crate) version: Version,
    /// The state of security groups, or `None` if security groups are not managed or their state is not known yet.
    pub(crate) guards: Option<&'a Guards>,
    pub(crate) kept: Arc<Kept>,
}

impl Site<'_> {
    /// Returns the capabilities for load balancers. A capability that offers a choice comes with its possible values.
    pub(crate) fn capabilities(&self) -> Vec<(&'static str, Option<String>)> {
        let algorithms: Vec<&str> = self.options.algorithms().iter().map(|(word, _)| *word).collect();
        let plain = |name| (name, None);
        let mut can: Vec<_> = [
            "loadbalancers",
            "lb.internal",
            "lb.session-affinity",
            "lb.udp",
            "lb.mixed-protocols",
            "lb.reserved-ip",
            "lb.address-pool",
            "lb.keep-address",
            "lb.subnets",
            "lb.name",
            "lb.shared",
            "lb.in-place-update",
            "lb.ownership-tags",
        ]
        .map(plain)
        .into();
        can.push(("lb.algorithm", Some(algorithms.join(","))));
        if !self.options.is_ovn() {
            can.extend(["lb.source-ranges", "lb.health-check.http", "lb.tls", "lb.size"].map(plain));
            can.extend(["lb.connect-timeout", "lb.connection-limit"].map(plain));
            can.push(("lb.listener-protocol", Some("http,https".to_owned())));
            let versions = if self.version >= Version::PROXY_V2 { "v1,v2" } else { "v1" };
            can.push(("lb.proxy-protocol", Some(versions.to_owned())));
            can.extend((self.version >= Version::ZONES).then_some(plain("lb.zone")));
        }
        if self.version >= Version::SCTP {
            can.push(plain("lb.sctp"));
        }
        if self.version >= Version::ADDITIONAL_VIPS && self.options.ipv6_subnet_id.is_some() {
            can.push(plain("lb.dual-stack"));
        }
        can
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unsupported_capabilities_are_not_listed() {
        let can = |options: &LoadBalancerOptions, minor, name| {
            let site = Site { options, version: Version::v2(minor), guards: None, kept: Arc::default() };
            site.capabilities().iter().any(|(there, _)| *there == name)
        };
        let plain = LoadBalancerOptions::default();
        let (ipv6, ovn) = (Some("x".to_owned()), Some("ovn".to_owned()));
        let both = LoadBalancerOptions { ipv6_subnet_id: ipv6, ..plain.clone() };
        let ovn = LoadBalancerOptions { load_balancer_provider: ovn, ..plain.clone() };
        for (options, minor, name, wanted) in [
            (&plain, 30, "lb.source-ranges", true),
            (&ovn, 30, "lb.source-ranges", false),
            (&ovn, 30, "lb.tls", false),
            (&ovn, 30, "lb.size", false),
            (&ovn, 30, "lb.listener-protocol", false),
            (&ovn, 30, "lb.address-pool", true),
            (&plain, 13, "lb.zone", false),
            (&plain, 14, "lb.zone", true),
            (&plain, 22, "lb.sctp", false),
            (&plain, 23, "lb.sctp", true),
            (&plain, 30, "lb.dual-stack", false),
            (&both, 25, "lb.dual-stack", false),
            (&both, 26, "lb.dual-stack", true),
        ] {
            assert_eq!(can(options, minor, name), wanted, "{name} at 2.{minor}");
        }
    }

    #[test]
    fn capability_values_depend_on_the_provider() {
        for (provider, minor, name, wanted) in [
            (None, 30, "lb.algorithm", "round-robin,least-connections,source-ip"),
            (Some("ovn"), 30, "lb.algorithm", "source-ip-port"),
            (Some("f5"), 30, "lb.algorithm", "round-robin,least-connections,source-ip,source-ip-port"),
            (None, 21, "lb.proxy-protocol", "v1"),
            (None, 22, "lb.proxy-protocol", "v1,v2"),
        ] {
            let load_balancer_provider = provider.map(str::to_owned);
            let options = LoadBalancerOptions { load_balancer_provider, ..LoadBalancerOptions::default() };
            let can =
                Site { options: &options, version: Version::v2(minor), guards: None, kept: Arc::default() }
                    .capabilities();
            let values = can.into_iter().find(|(there, _)| *there == name).and_then(|(_, values)| values);
            assert_eq!(values.as_deref(), Some(wanted), "{provider:?} {name}");
        }
    }
}
