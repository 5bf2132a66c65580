//! Computes the steps by which a load balancer gets access to nodes behind security groups. Pure functions.
//!
//! Access is granted after a new load balancer is created, when its subnet is known. Access is revoked before the load balancer is deleted.
//! While the load balancer exists, it identifies the owner of the rules, so another process can continue after an interruption.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use cloud_adapter::{
    driver::{DesiredLoadBalancer, LoadBalancerRecord, VendorError},
    kit,
};

use super::wanted::Wanted;
use crate::{
    api::responses::{Balancer, Member, SecurityRule},
    load_balancers::{
        detail::Detail,
        guards::{Guards, Needs},
        node_access::{Closing, Opening},
        settings::Site,
    },
    ownership,
    step::Step,
};

/// The access of a load balancer to its nodes. Each user of a shared load balancer has separate access.
pub(super) struct NodeAccess {
    /// The step that grants missing access. It comes before the steps for members and listeners, so that traffic reaches a new member.
    /// `None`: no access is missing.
    pub(super) opening: Option<Step>,
    /// The step that revokes unneeded access. It comes after the steps for members and listeners. `None`: there is no unneeded access.
    pub(super) closing: Option<Step>,
    /// The reason why the load balancer cannot get access to all nodes. The error is returned after all steps, so it delays no other
    /// change.
    pub(super) refusal: Option<VendorError>,
}

impl NodeAccess {
    /// Returns the changes of the access to the nodes. There are no changes if security groups are not managed.
    pub(super) fn plan(
        desired: &DesiredLoadBalancer,
        wanted: &Wanted,
        user: &str,
        balancer: &Balancer,
        tree: &Detail,
        site: &Site<'_>,
    ) -> Self {
        let Some(guards) = site.guards else {
            return Self { opening: None, closing: None, refusal: None };
        };
        let cluster_id = &desired.key.cluster_id;
        let group = guards.group(cluster_id);
        let there = group.map(|group| group.security_group_rules.as_slice()).unwrap_or_default();
        let needs = needs(wanted, balancer, tree, site);
        let rules = needs.rules(guards.subnets());
        let complete = rules.known.iter().all(|rule| there.iter().any(|there| rule.is(there)));
        let is_needed = |there: &SecurityRule| {
            !rules.are_all()
                || rules.known.iter().any(|rule| rule.is(there))
                || guards.is_needed(there, cluster_id, user)
        };
        // Rules of deleted load balancers are removed first, because they would remain after this load balancer is deleted.
        let left: Vec<&SecurityRule> =
            there.iter().filter(|rule| guards.is_left(rule) && !is_needed(rule)).collect();
        let of_no_use = there.iter().filter(|rule| rule.is_of(user) && !is_needed(rule));

        let addresses = addresses(wanted);
        let group = group.map(|group| group.id.as_str());
        let machines = desired.backends.iter().filter_map(|one| one.provider_id.rsplit('/').next());
        let ports: BTreeSet<&str> =
            machines.flat_map(|machine| guards.outside(machine, &addresses, group)).collect();
        // Without rules, adding ports to the group would grant no access.
        let is_useful = !rules.known.is_empty() || !rules.unasked.is_empty();
        let ports: BTreeSet<&str> = ports.into_iter().filter(|_| is_useful).collect();
        let nothing = complete && rules.unasked.is_empty() && left.is_empty() && ports.is_empty();
        let opening = Opening {
            key: desired.key.clone(),
            balancer: user.to_owned(),
            needs,
            left: left.iter().map(|rule| rule.id.clone()).collect(),
            ports: ports.into_iter().map(str::to_owned).collect(),
        };
        Self {
            opening: (!nothing).then(|| Step::OpenNodes(Some(opening.into()))),
            closing: close(cluster_id, user, of_no_use.map(|rule| rule.id.clone()).collect()),
            refusal: rules.hidden.first().map(|id| hidden(id)),
        }
    }
}

fn hidden(subnet: &str) -> VendorError {
    let text = format!(
        "subnet {subnet}, from which the load balancer reaches its nodes, is not visible to this project"
    );
    kit::invalid("spec.subnets", text)
}

fn close(cluster_id: &str, balancer: &str, rules: Vec<String>) -> Option<Step> {
    let closing = Closing { cluster_id: cluster_id.to_owned(), balancer: balancer.to_owned(), rules };
    (!closing.rules.is_empty()).then_some(Step::CloseNodes(closing))
}

/// Returns the step that revokes the access of a load balancer, which may no longer exist. `None` if no rule is left.
pub(super) fn closing(observed: &LoadBalancerRecord<Detail>, guards: Option<&Guards>) -> Option<Step> {
    let (guards, key) = (guards?, observed.summary.key.as_ref()?);
    let cluster_id = &key.cluster_id;
    let there = observed.detail.balancer.as_ref();
    let balancer = there.map(|one| match ownership::user(&one.tags, Some(key)) {
        Some(user) => user.id(&one.id),
        None => one.id.clone(),
    });
    let balancer = balancer.unwrap_or_default();
    let group = guards.group(cluster_id)?;
    let goes = |rule: &&SecurityRule| {
        (rule.is_of(&balancer) || guards.is_left(rule)) && !guards.is_needed(rule, cluster_id, &balancer)
    };
    let (ours, others): (Vec<_>, Vec<_>) = group.security_group_rules.iter().partition(goes);
    let is_last = others.iter().all(|rule| group.was_given(rule)) && guards.is_alone(cluster_id, &balancer);
    let rules: Vec<String> = ours.iter().map(|rule| rule.id.clone()).collect();
    let closing = Closing { cluster_id: cluster_id.clone(), balancer, rules };
    (!closing.rules.is_empty() || is_last).then_some(Step::CloseNodes(closing))
}

/// Returns the needed access. An existing member keeps its subnet even if another subnet is configured now.
fn needs(wanted: &Wanted, balancer: &Balancer, tree: &Detail, site: &Site<'_>) -> Needs {
    let there = tree.pools.iter().filter_map(|pool| pool.members.as_ref()).flat_map(|all| all.iter());
    let there: BTreeMap<(IpAddr, u16), &Member> =
        there.map(|one| ((one.address, one.protocol_port), one)).collect();
    let mut members = Vec::new();
    for (port, wanted) in &wanted.ports {
        for (at, member) in &wanted.pool.members {
            let subnet_id = there.get(at).map_or(&member.subnet_id, |there| &there.subnet_id);
            let member = Member {
                address: member.address,
                protocol_port: member.protocol_port,
                weight: None,
                monitor_port: member.monitor_port,
                subnet_id: subnet_id.clone(),
            };
            members.push((port.transport, member));
        }
    }
    let members = members.iter().map(|(transport, member)| (*transport, member));
    Needs::of(balancer, members, site.options.is_ovn())
}

fn addresses(wanted: &Wanted) -> BTreeSet<IpAddr> {
    wanted.ports.values().flat_map(|port| port.pool.members.keys()).map(|(address, _)| *address).collect()
}
