//! Finds differences between the rules of security groups and the access that load balancers need. Such differences are caused by changes
//! of other clients, or by interrupted writes. The functions have no side effects.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use cloud_api_proto::v1alpha1::LoadBalancerKey;

use super::guards::{Drift, Guards, Rule, User};
use crate::{
    api::responses::{SecurityGroup, SecurityRule},
    ownership,
};

pub(super) fn drift(guards: &Guards) -> Drift {
    let mut drift = Drift::default();
    let users = guards.users.values().map(|user| user.cluster_id.as_str());
    let groups = guards.groups.iter().filter_map(|group| ownership::cluster_of(&group.description));
    let clusters: BTreeSet<String> = users.map(str::to_owned).chain(groups).collect();
    for cluster_id in clusters {
        Cluster::of(guards, &cluster_id).tell(&mut drift);
    }
    drift
}

/// The security group of a cluster, prepared for the comparison with the needs of each load balancer.
struct Cluster<'a> {
    guards: &'a Guards,
    id: &'a str,
    open: BTreeSet<Rule>,
    /// The rules, by the load balancer for which they were created.
    rules: BTreeMap<String, Vec<&'a SecurityRule>>,
    /// Whether the load balancer's packets reach an address of a node, by address. The value is `true` if the group permits the packets or
    /// does not affect the address.
    reached: BTreeMap<IpAddr, bool>,
}

impl<'a> Cluster<'a> {
    fn of(guards: &'a Guards, id: &'a str) -> Self {
        let group = guards.group(id);
        let there = group.map(|group: &SecurityGroup| group.security_group_rules.as_slice());
        let mut rules: BTreeMap<String, Vec<&SecurityRule>> = BTreeMap::new();
        for rule in there.unwrap_or_default() {
            if let Some(balancer) = ownership::balancer_of(&rule.description) {
                rules.entry(balancer).or_default().push(rule);
            }
        }
        let mut reached = BTreeMap::new();
        for port in guards.ports.values().flatten() {
            let open = !port.port_security_enabled || group.is_some_and(|group| port.is_in(&group.id));
            for address in port.fixed_ips.iter().filter_map(|one| one.ip_address) {
                *reached.entry(address).or_insert(false) |= open;
            }
        }
        let open = there.unwrap_or_default().iter().filter_map(Rule::of).collect();
        Self { guards, id, open, rules, reached }
    }

    fn tell(&self, drift: &mut Drift) {
        let users = || self.guards.users.iter().filter(|(_, user)| user.cluster_id == self.id);
        drift.balancers.extend(users().filter(|(id, user)| self.differs(id, user)).map(|(id, _)| id.clone()));
        let of_no_use = |rule: &&&SecurityRule| !self.guards.is_needed(rule, self.id, "");
        let left = self.rules.iter().filter(|(balancer, _)| !self.guards.balancers.contains(*balancer));
        let left: Vec<&SecurityRule> =
            left.flat_map(|(_, rules)| rules.iter().filter(of_no_use)).copied().collect();
        if !left.is_empty() {
            // It is enough to mark one load balancer as different, because its next plan deletes all rules that are left.
            let mut able = users().filter(|(_, user)| user.is_active);
            drift.balancers.extend(able.next().map(|(id, _)| id.clone()));
        }
        let owners: BTreeSet<String> =
            left.iter().filter_map(|rule| ownership::owner_of(&rule.description)).collect();
        let key = |owner_uid| LoadBalancerKey { cluster_id: self.id.to_owned(), owner_uid };
        drift.left.extend(owners.into_iter().map(key));
    }

    fn differs(&self, balancer: &str, user: &User) -> bool {
        let Some(needs) = &user.needs else { return false };
        let rules = needs.rules(&self.guards.subnets);
        let own = self.rules.get(balancer).into_iter().flatten();
        let is_needed = |there: &SecurityRule| {
            rules.known.iter().any(|rule| rule.is(there)) || self.guards.is_needed(there, self.id, balancer)
        };
        !rules.are_all()
            || !rules.known.is_subset(&self.open)
            || user.addresses.iter().any(|address| self.reached.get(address) == Some(&false))
            || own.into_iter().any(|there| !is_needed(there))
    }
}
