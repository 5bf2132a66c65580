//! The state of security groups in a listing. This state covers the groups that clusters own, the ports of servers in these groups, and
//! missing access. The functions have no side effects.
//!
//! A cluster has one security group for all its load balancers, and each rule names the load balancer for which it was created. Neutron
//! refuses duplicate rules, so load balancers share rules, such as the rule for a health check port. A rule is deleted when no load
//! balancer needs it. The ports of servers stay in the group. With a single group, a new node costs only one write, and the project's quota
//! of groups is not exhausted.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use cloud_api_proto::v1alpha1::LoadBalancerKey;
use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use jiff::{SignedDuration, Timestamp};

use crate::{
    api::{
        requests::NewRule,
        responses::{Balancer, GuardedPort, Member, SecurityGroup, SecurityRule},
    },
    ownership,
    port::{Port, Transport},
};

/// The maximum time between the creation of a group and of its initial rules. Neutron creates the group and the rules in one transaction,
/// before any other client sees the group.
const MADE_WITH_IT: SignedDuration = SignedDuration::from_secs(3);

/// The subnets that have been read, by their IDs. `None` means that the subnet is not visible to this project.
pub(crate) type Subnets = BTreeMap<String, Option<IpNet>>;

#[derive(Clone, Debug, Default)]
pub(crate) struct Guards {
    /// The IDs that rules may contain. They are the IDs of load balancers, and of shares (the part of a load balancer that one Service
    /// uses). IDs of load balancers that are being deleted, or whose owner has left, are not included.
    pub(super) balancers: BTreeSet<String>,
    /// Users of load balancers, by the load balancer's ID.
    pub(super) users: BTreeMap<String, User>,
    /// Security groups owned by this or another cluster.
    pub(super) groups: Vec<SecurityGroup>,
    /// Ports of servers, by the server's ID.
    pub(super) ports: BTreeMap<String, Vec<GuardedPort>>,
    pub(super) subnets: Subnets,
    pub(crate) drift: Drift,
}

/// The differences between the rules that exist and the rules that load balancers need.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Drift {
    /// IDs of load balancers with missing or unneeded rules.
    pub(crate) balancers: BTreeSet<String>,
    /// Owners of deleted load balancers whose rules still exist although no load balancer needs them.
    pub(crate) left: Vec<LoadBalancerKey>,
}

/// A user of a load balancer, with the properties that matter for security groups.
#[derive(Clone, Debug)]
pub(crate) struct User {
    pub(super) cluster_id: String,
    /// Whether the load balancer can be changed. A load balancer in the state ERROR cannot be changed.
    pub(super) is_active: bool,
    /// The access that the current members of the load balancer need, or `None` if not all members are known.
    pub(super) needs: Option<Needs>,
    pub(super) addresses: BTreeSet<IpAddr>,
}

/// The source of packets to nodes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Source {
    /// The load balancer, which sends from its address in the subnet with this ID.
    Subnet(String),
    /// The load balancer, as in `Subnet`, but ignored if the subnet is not visible. Each member names the subnet through which it is
    /// reached, so the subnet of the VIP may not matter. A subnet in the network of another tenant, which only provides the VIP, is usually
    /// not visible.
    IfShown(String),
    /// Any IPv4 or IPv6 address, because the load balancer preserves the clients' addresses.
    AnyV4,
    AnyV6,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Needs {
    /// Node ports.
    pub(crate) ports: BTreeSet<Port>,
    pub(crate) from: BTreeSet<Source>,
    /// The ports of health checks. Only the load balancer sends probes to these ports, and its clients never connect to them.
    pub(crate) probes: BTreeSet<Port>,
    pub(crate) probed_from: BTreeSet<Source>,
}

impl Needs {
    /// Returns the access that a load balancer's members need. `passes_clients_on` is set if packets have the clients' source addresses.
    pub(crate) fn of<'a>(
        balancer: &Balancer,
        members: impl IntoIterator<Item = (Transport, &'a Member)>,
        passes_clients_on: bool,
    ) -> Self {
        let additional = balancer.additional_vips.iter().filter_map(|vip| vip.subnet_id.as_ref());
        let own: Vec<String> = balancer.vip_subnet_id.iter().chain(additional).cloned().collect();
        let mut needs = Self::default();
        let mut each_says = true;
        for (transport, member) in members {
            each_says &= member.subnet_id.is_some();
            needs.ports.insert(Port { transport, number: member.protocol_port });
            let probed = member.monitor_port.map(|number| Port { transport: Transport::Tcp, number });
            needs.probes.extend(probed);
            needs.probed_from.extend(member.subnet_id.clone().map(Source::Subnet));
            needs.from.extend(match passes_clients_on {
                true if member.address.is_ipv4() => Some(Source::AnyV4),
                true => Some(Source::AnyV6),
                false => None,
            });
        }
        let source = if each_says { Source::IfShown } else { Source::Subnet };
        needs.probed_from.extend(own.into_iter().map(source));
        if !passes_clients_on {
            needs.from.clone_from(&needs.probed_from);
        } else if needs.probes.is_empty() {
            // If there are no probes, the CIDRs of the subnets are not needed.
            needs.probed_from.clear();
        }
        needs
    }

    /// Returns whether this access needs the rule, or may need it because the CIDR of a subnet is unknown.
    fn include(&self, there: &SecurityRule, subnets: &Subnets) -> bool {
        let rules = self.rules(subnets);
        !rules.are_all() || rules.known.iter().any(|rule| rule.is(there))
    }

    /// Returns the rules for this access, as far as the CIDRs of the subnets are known.
    pub(crate) fn rules(&self, subnets: &Subnets) -> Rules {
        let mut rules = Rules { known: BTreeSet::new(), unasked: Vec::new(), hidden: Vec::new() };
        for source in self.from.union(&self.probed_from) {
            let from: IpNet = match source {
                Source::AnyV4 => Ipv4Net::new_assert(Ipv4Addr::UNSPECIFIED, 0).into(),
                Source::AnyV6 => Ipv6Net::new_assert(Ipv6Addr::UNSPECIFIED, 0).into(),
                Source::Subnet(id) | Source::IfShown(id) => match (subnets.get(id), source) {
                    (Some(Some(cidr)), _) => cidr.trunc(),
                    (Some(None), Source::IfShown(_)) => continue,
                    (Some(None), _) => {
                        rules.hidden.push(id.clone());
                        continue;
                    }
                    (None, _) => {
                        rules.unasked.push(id.clone());
                        continue;
                    }
                },
            };
            let ports = self.ports.iter().filter(|_| self.from.contains(source));
            let probes = self.probes.iter().filter(|_| self.probed_from.contains(source));
            rules.known.extend(ports.chain(probes).map(|port| Rule { port: *port, from }));
        }
        rules
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Rules {
    pub(crate) known: BTreeSet<Rule>,
    /// Subnets that have not been read yet.
    pub(crate) unasked: Vec<String>,
    /// Subnets that are not visible to this project.
    pub(crate) hidden: Vec<String>,
}

impl Rules {
    /// Whether `known` contains all rules. It does if the CIDR of every subnet is known.
    pub(crate) fn are_all(&self) -> bool {
        self.unasked.is_empty() && self.hidden.is_empty()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Rule {
    port: Port,
    from: IpNet,
}

impl Rule {
    /// Returns the access that an existing rule grants, whichever client created the rule. Returns `None` if the rule is of another kind.
    pub(super) fn of(there: &SecurityRule) -> Option<Self> {
        let transport = Transport::named(there.protocol.as_deref()?)?;
        let number = u16::try_from(there.port_range_min?).ok()?;
        let alone = there.port_range_max == there.port_range_min && there.remote_group_id.is_none();
        let from: IpNet = there.remote_ip_prefix.as_deref()?.parse().ok()?;
        let rule = Self { port: Port { transport, number }, from: from.trunc() };
        (there.direction == "ingress" && alone).then_some(rule)
    }

    /// Whether an existing rule grants exactly this access, whichever client created the rule.
    pub(crate) fn is(&self, there: &SecurityRule) -> bool {
        Self::of(there).as_ref() == Some(self)
    }

    pub(super) fn request(self, group: &str, description: &str) -> NewRule {
        NewRule {
            security_group_id: group.to_owned(),
            direction: "ingress",
            ethertype: if self.from.addr().is_ipv4() { "IPv4" } else { "IPv6" },
            protocol: self.port.word(),
            port_range_min: self.port.number,
            port_range_max: self.port.number,
            remote_ip_prefix: self.from,
            description: description.to_owned(),
        }
    }
}

impl SecurityRule {
    pub(crate) fn is_of(&self, balancer: &str) -> bool {
        ownership::balancer_of(&self.description).is_some_and(|of| of == balancer)
    }

    /// Whether an adapter created the rule for a load balancer.
    fn is_ours(&self) -> bool {
        ownership::balancer_of(&self.description).is_some()
    }
}

impl SecurityGroup {
    /// Returns whether Neutron created a rule together with the group. Neutron creates the rules that allow all egress, and the cloud's
    /// default rules for all groups. Rules that were added later belong to other clients.
    pub(crate) fn was_given(&self, rule: &SecurityRule) -> bool {
        let read = |text: &Option<String>| text.as_deref()?.parse::<Timestamp>().ok();
        let (Some(made), Some(group)) = (read(&rule.created_at), read(&self.created_at)) else {
            return false;
        };
        !rule.is_ours() && made.duration_since(group) <= MADE_WITH_IT
    }
}

/// Returns the group of a cluster. If a lost answer has led to a second group, this is the group with more rules.
pub(super) fn in_use<'a>(
    groups: impl IntoIterator<Item = &'a SecurityGroup>,
    cluster_id: &str,
) -> Option<&'a SecurityGroup> {
    let ours = groups
        .into_iter()
        .filter(|one| ownership::cluster_of(&one.description).as_deref() == Some(cluster_id));
    let count = |one: &SecurityGroup| one.security_group_rules.iter().filter(|rule| rule.is_ours()).count();
    ours.max_by_key(|one| (count(one), Reverse(&one.id)))
}

impl Guards {
    /// Returns the subnets that are not visible to this project, but without which a load balancer cannot reach its members.
    pub(super) fn hidden<'a>(&'a self, subnets: &'a Subnets) -> impl Iterator<Item = String> + 'a {
        let needs = self.users.values().filter_map(|user| user.needs.as_ref());
        needs.flat_map(|needs| needs.rules(subnets).hidden)
    }

    pub(crate) fn group(&self, cluster_id: &str) -> Option<&SecurityGroup> {
        in_use(&self.groups, cluster_id)
    }

    pub(crate) fn subnets(&self) -> &Subnets {
        &self.subnets
    }

    /// Returns whether a rule was created for a load balancer that no longer exists. The result is always `false` for rules of other
    /// clients.
    pub(crate) fn is_left(&self, rule: &SecurityRule) -> bool {
        ownership::balancer_of(&rule.description).is_some_and(|of| !self.balancers.contains(&of))
    }

    /// Returns whether another load balancer of the cluster needs a rule, or may need it because its members are not known.
    pub(crate) fn is_needed(&self, rule: &SecurityRule, cluster_id: &str, but: &str) -> bool {
        let others = self.users.iter().filter(|(id, user)| *id != but && user.cluster_id == cluster_id);
        others
            .into_iter()
            .any(|(_, user)| user.needs.as_ref().is_none_or(|needs| needs.include(rule, &self.subnets)))
    }

    /// Whether the cluster has no other load balancer.
    pub(crate) fn is_alone(&self, cluster_id: &str, balancer: &str) -> bool {
        self.users.iter().all(|(id, user)| id == balancer || user.cluster_id != cluster_id)
    }

    /// Returns the IDs of a server's ports that have one of these addresses and are not in the group.
    pub(crate) fn outside<'a>(
        &'a self,
        machine: &str,
        addresses: &'a BTreeSet<IpAddr>,
        group: Option<&'a str>,
    ) -> impl Iterator<Item = &'a str> {
        let has = |port: &&GuardedPort| {
            port.fixed_ips.iter().filter_map(|one| one.ip_address).any(|one| addresses.contains(&one))
        };
        let is_in = move |port: &GuardedPort| group.is_some_and(|group| port.is_in(group));
        let ports = self.ports.get(machine).into_iter().flatten();
        ports
            .filter(|port| port.port_security_enabled)
            .filter(has)
            .filter(move |port| !is_in(port))
            .map(|port| port.id.as_str())
    }
}

impl GuardedPort {
    pub(super) fn is_in(&self, group: &str) -> bool {
        self.security_groups.iter().any(|one| one == group)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// A Service can choose the port of its health checks, so clients must not get access to that port of the nodes.
    #[test]
    fn only_the_load_balancer_may_probe_nodes() {
        let balancer = json!({ "id": "lb-1", "name": "web", "provisioning_status": "ACTIVE", "vip_subnet_id": "s-1", "tags": [] });
        let balancer: Balancer = serde_json::from_value(balancer).expect("one");
        let member = json!({ "address": "10.0.0.5", "protocol_port": 30080, "monitor_port": 10256 });
        let member: Member = serde_json::from_value(member).expect("one");
        let subnet: IpNet = "10.0.0.0/24".parse().expect("a range");
        let anywhere: IpNet = "0.0.0.0/0".parse().expect("a range");
        let subnets = Subnets::from([("s-1".to_owned(), Some(subnet))]);
        let let_in = |passes_clients_on| {
            let needs = Needs::of(&balancer, [(Transport::Tcp, &member)], passes_clients_on);
            let rules = needs.rules(&subnets);
            assert!(rules.are_all(), "{rules:?}");
            rules.known.iter().map(|rule| (rule.port.number, rule.from)).collect::<Vec<_>>()
        };
        assert_eq!(let_in(true), [(10256, subnet), (30080, anywhere)]);
        assert_eq!(let_in(false), [(10256, subnet), (30080, subnet)]);
    }
}
