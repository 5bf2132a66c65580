//! What a sweep found of security groups: which are ours, which machines' ports are in them, and what is missing. Pure but for its memory.
//!
//! A cluster has one group for all its load balancers, and each rule in it says for which one it was made. Neutron takes no two equal
//! rules, so others may need it as well, such as that of a health check's port: a rule goes when nobody needs it. The ports of machines are
//! in the group as long as it is there. So a node that joins costs one write however many Services there are, and the project's quota of
//! groups is not used up by them.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    sync::{Arc, Mutex, PoisonError},
};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use jiff::{SignedDuration, Timestamp};

use super::{
    answers::{Balancer, GuardedPort, Member, SecurityGroup, SecurityRule, Subnet},
    guard_drift::Drift,
    requests::NewRule,
};
use crate::{
    ownership,
    step::{Port, Transport},
};

/// Rules that Neutron gives to a new group are made with it, in one transaction, and nobody else has seen it by then.
const MADE_WITH_IT: SignedDuration = SignedDuration::from_secs(3);

/// The subnets that were asked for, by ID. `None`: nobody shows it to this project.
pub(crate) type Subnets = BTreeMap<String, Option<IpNet>>;

/// What the last sweep found.
#[derive(Clone, Debug, Default)]
pub(crate) struct Guards {
    /// The project's load balancers, by ID, but for those on the way out.
    pub(super) balancers: BTreeSet<String>,
    /// Those of them that are ours, by ID.
    pub(super) users: BTreeMap<String, User>,
    /// Ours, of all clusters.
    pub(super) groups: Vec<SecurityGroup>,
    /// Ports of machines, by the machine's ID.
    pub(super) ports: BTreeMap<String, Vec<GuardedPort>>,
    pub(super) subnets: Subnets,
    pub(crate) drift: Drift,
}

/// A load balancer, as far as security groups count.
#[derive(Clone, Debug)]
pub(crate) struct User {
    pub(super) cluster_id: String,
    /// Whether it can be changed: one in ERROR is not.
    pub(super) is_active: bool,
    /// What its members need, as they are. `None`: nobody knows all members.
    pub(super) needs: Option<Needs>,
    /// Those of its members.
    pub(super) addresses: BTreeSet<IpAddr>,
}

/// What is remembered of security groups.
#[derive(Debug, Default)]
pub(crate) struct KnownGuards {
    last: Mutex<Option<Arc<Guards>>>,
    /// A subnet never gets other addresses.
    subnets: Mutex<Subnets>,
    /// Held by who writes: all load balancers of a cluster share a group, and all groups of a port are written at once.
    pub(super) turn: tokio::sync::Mutex<()>,
}

impl KnownGuards {
    /// What the last sweep found. `None`: nothing yet, or nobody wants to know.
    pub(crate) fn last(&self) -> Option<Arc<Guards>> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn learn(&self, found: Guards) {
        let mut found = Guards { subnets: self.subnets(), ..found };
        found.drift = Drift::of(&found);
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(found.into());
    }

    /// Notes what a load balancer was let through for: it relies on others' rules from now on, too.
    pub(super) fn learn_user(&self, balancer: &str, cluster_id: &str, needs: &Needs) {
        let subnets = self.subnets();
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let last = Arc::make_mut(last.get_or_insert_default());
        let (cluster_id, needs) = (cluster_id.to_owned(), Some(needs.clone()));
        let user = User { cluster_id, is_active: true, needs, addresses: BTreeSet::new() };
        last.balancers.insert(balancer.to_owned());
        last.users.insert(balancer.to_owned(), user);
        last.subnets = subnets;
    }

    pub(super) fn subnets(&self) -> Subnets {
        self.subnets.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// That one was not told is remembered, too.
    pub(super) fn learn_subnets(&self, asked: &[String], found: Vec<Subnet>) {
        let mut known = self.subnets.lock().unwrap_or_else(PoisonError::into_inner);
        for id in asked {
            known.entry(id.clone()).or_default();
        }
        known.extend(found.into_iter().map(|one| (one.id, Some(one.cidr))));
    }
}

/// From where packets come.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Source {
    /// The load balancer, which has an address there. By the subnet's ID.
    Subnet(String),
    /// The same, where each member says by which subnet it is reached: then that of the load balancer's own address counts only if it is
    /// shown. One in a network of somebody else's, which it has nothing but its address from, mostly is not.
    IfShown(String),
    /// Whoever speaks IPv4 or IPv6: the load balancer passes the clients' addresses on.
    AnyV4,
    AnyV6,
}

/// What a load balancer needs of the nodes' ports.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Needs {
    /// Node ports.
    pub(crate) ports: BTreeSet<Port>,
    pub(crate) from: BTreeSet<Source>,
    /// Those of health checks. The load balancer alone probes them, never its clients.
    pub(crate) probes: BTreeSet<Port>,
    pub(crate) probed_from: BTreeSet<Source>,
}

impl Needs {
    /// What a load balancer's members need. `passes_clients_on`: packets come from the clients' addresses.
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
            // Without probes the addresses of the subnets are not needed.
            needs.probed_from.clear();
        }
        needs
    }

    /// Whether it needs what a rule lets in, or may do: of a subnet nobody knows the addresses.
    fn include(&self, there: &SecurityRule, subnets: &Subnets) -> bool {
        let rules = self.rules(subnets);
        !rules.are_all() || rules.known.iter().any(|rule| rule.is(there))
    }

    /// The rules of it, as far as subnets are known.
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

/// What a load balancer's members need, as rules.
#[derive(Clone, Debug)]
pub(crate) struct Rules {
    pub(crate) known: BTreeSet<Rule>,
    /// Subnets that nobody has asked for yet.
    pub(crate) unasked: Vec<String>,
    /// Subnets that nobody shows this project.
    pub(crate) hidden: Vec<String>,
}

impl Rules {
    /// Whether it needs no others.
    pub(crate) fn are_all(&self) -> bool {
        self.unasked.is_empty() && self.hidden.is_empty()
    }
}

/// What a rule lets in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Rule {
    port: Port,
    from: IpNet,
}

impl Rule {
    /// What a rule that is there lets in, whoever made it. `None`: something of another kind.
    pub(super) fn of(there: &SecurityRule) -> Option<Self> {
        let transport = Transport::named(there.protocol.as_deref()?)?;
        let number = u16::try_from(there.port_range_min?).ok()?;
        let alone = there.port_range_max == there.port_range_min && there.remote_group_id.is_none();
        let from: IpNet = there.remote_ip_prefix.as_deref()?.parse().ok()?;
        let rule = Self { port: Port { transport, number }, from: from.trunc() };
        (there.direction == "ingress" && alone).then_some(rule)
    }

    /// Whether the rule that is there lets in just this, whoever made it.
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
    /// Whether it was made for this load balancer.
    pub(crate) fn is_of(&self, balancer: &str) -> bool {
        ownership::balancer_of(&self.description).is_some_and(|of| of == balancer)
    }

    /// Whether it bears our mark.
    fn is_ours(&self) -> bool {
        ownership::balancer_of(&self.description).is_some()
    }
}

impl SecurityGroup {
    /// Whether Neutron gave a rule to the group with the create: those that let all be sent, and what an operator has told it to give to
    /// every group. What anybody adds later is theirs.
    pub(crate) fn was_given(&self, rule: &SecurityRule) -> bool {
        let read = |text: &Option<String>| text.as_deref()?.parse::<Timestamp>().ok();
        let (Some(made), Some(group)) = (read(&rule.created_at), read(&self.created_at)) else {
            return false;
        };
        !rule.is_ours() && made.duration_since(group) <= MADE_WITH_IT
    }
}

/// The group of a cluster. Should an answer that was lost have left a second one, the one that is used.
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
    /// Subnets without which a load balancer does not reach its members, and which nobody shows this project.
    pub(super) fn hidden<'a>(&'a self, subnets: &'a Subnets) -> impl Iterator<Item = String> + 'a {
        let needs = self.users.values().filter_map(|user| user.needs.as_ref());
        needs.flat_map(|needs| needs.rules(subnets).hidden)
    }

    /// The group of a cluster.
    pub(crate) fn group(&self, cluster_id: &str) -> Option<&SecurityGroup> {
        in_use(&self.groups, cluster_id)
    }

    /// Subnets that were asked for.
    pub(crate) fn subnets(&self) -> &Subnets {
        &self.subnets
    }

    /// Whether a rule was made for a load balancer that is gone. Never one that bears no mark of ours.
    pub(crate) fn is_left(&self, rule: &SecurityRule) -> bool {
        ownership::balancer_of(&rule.description).is_some_and(|of| !self.balancers.contains(&of))
    }

    /// Whether another load balancer of the cluster needs what a rule lets in. One whose members nobody knows may do.
    pub(crate) fn is_needed(&self, rule: &SecurityRule, (cluster_id, but): (&str, &str)) -> bool {
        let others = self.users.iter().filter(|(id, user)| *id != but && user.cluster_id == cluster_id);
        others
            .into_iter()
            .any(|(_, user)| user.needs.as_ref().is_none_or(|needs| needs.include(rule, &self.subnets)))
    }

    /// Whether the cluster has no other load balancer than this.
    pub(crate) fn is_alone(&self, cluster_id: &str, balancer: &str) -> bool {
        self.users.iter().all(|(id, user)| id == balancer || user.cluster_id != cluster_id)
    }

    /// The ports of a machine that have one of these addresses and are not in a group, by ID.
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

    /// A Service names the port of its health checks: clients must not reach it on the nodes.
    #[test]
    fn probes_are_let_in_from_the_load_balancer_alone() {
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
