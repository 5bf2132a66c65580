//! Gives load balancers access to the nodes, and revokes that access. For this, the driver manages the cluster's security group, its rules,
//! and the ports in it.
//!
//! Only one write runs at a time. Each write reads the group first, because an earlier write may have created, filled or emptied the group.
//! A write replaces all groups of a port, provided that the port's revision has not changed, so that changes by other clients are not
//! undone.

use cloud_adapter::{driver::VendorError, vendor::Session};
use cloud_api_proto::v1alpha1::LoadBalancerKey;

use super::guards::{Needs, Rule, in_use};
use crate::{
    OpenStackDriver,
    api::responses::{GuardedPort, SecurityGroup, SecurityRule},
    client::{Page, security_groups::GuardedPorts},
    ownership,
};

/// Maximum number of IDs in the URL of one request.
const AT_ONCE: usize = 50;

/// The access to the nodes that a load balancer lacks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Opening {
    pub(crate) key: LoadBalancerKey,
    pub(crate) balancer: String,
    pub(crate) needs: Needs,
    /// IDs of rules that belong to deleted load balancers and are no longer needed.
    pub(crate) left: Vec<String>,
    /// IDs of nodes' ports that are not in the group.
    pub(crate) ports: Vec<String>,
}

/// The access that a load balancer no longer needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Closing {
    pub(crate) cluster_id: String,
    /// The load balancer's ID, or an empty string if the load balancer no longer exists.
    pub(crate) balancer: String,
    /// IDs of rules that no other load balancer needs.
    pub(crate) rules: Vec<String>,
}

impl OpenStackDriver {
    /// Gives a load balancer access to its nodes, from all known subnets.
    ///
    /// The cost is 1 read of the group, 1 write for all new rules, and 1 write for each rule of a deleted load balancer. There is also 1
    /// read for each 50 ports outside the group, and 1 write for each of these ports. The first call in a cluster costs 3 additional
    /// writes, and the first call with a subnet costs 1 additional read.
    pub(crate) async fn open_nodes(&self, session: &Session, opening: &Opening) -> Result<(), VendorError> {
        let Opening { key: LoadBalancerKey { cluster_id, owner_uid }, balancer, needs, left, ports } =
            opening;
        let _turn = self.balancers.guards.turn.lock().await;
        let unasked = needs.rules(&self.balancers.guards.subnets()).unasked;
        self.learn_subnets(session, &unasked).await?;
        let rules = needs.rules(&self.balancers.guards.subnets()).known;
        self.balancers.guards.learn_user(balancer, cluster_id, needs);
        // No subnet is visible, so there are no rules to create. The plan returns the error that names these subnets.
        if rules.is_empty() {
            return Ok(());
        }
        let group = self.group_to_fill(session, cluster_id).await?;
        let is_needed = |there: &&SecurityRule| rules.iter().any(|rule| rule.is(there));
        let is_left = |there: &&SecurityRule| left.contains(&there.id) && !is_needed(there);
        for rule in group.security_group_rules.iter().filter(is_left) {
            self.client.delete_rule(session, &rule.id).await?;
        }
        let there = |rule: &&Rule| group.security_group_rules.iter().any(|there| rule.is(there));
        let description = ownership::rule_description(balancer, owner_uid);
        let missing = rules.iter().filter(|rule| !there(rule));
        let missing: Vec<_> = missing.map(|rule| rule.request(&group.id, &description)).collect();
        if !missing.is_empty() {
            self.client.create_rules(session, &missing).await?;
        }
        for ids in ports.chunks(AT_ONCE) {
            for port in self.guarded_ports(session, GuardedPorts::These(ids)).await? {
                if port.port_security_enabled && !port.is_in(&group.id) {
                    let groups = [port.security_groups.as_slice(), std::slice::from_ref(&group.id)].concat();
                    self.client.replace_groups(session, &port, &groups).await?;
                }
            }
        }
        Ok(())
    }

    /// Returns the group of the cluster, after Neutron's initial rules were deleted. A port in the group then gets only the access that the
    /// load balancers' rules grant.
    async fn group_to_fill(&self, session: &Session, cluster_id: &str) -> Result<SecurityGroup, VendorError> {
        let groups = self.groups_of(session, cluster_id).await?;
        let (mut group, given): (SecurityGroup, Vec<SecurityRule>) = match in_use(&groups, cluster_id) {
            Some(group) => {
                let given = group.security_group_rules.iter().filter(|rule| group.was_given(rule));
                (group.clone(), given.cloned().collect())
            }
            None => {
                let (name, description) =
                    (ownership::group_name(cluster_id), ownership::group_description(cluster_id));
                let made = self.client.create_security_group(session, &name, &description).await?;
                let given = made.security_group_rules.clone();
                (made, given)
            }
        };
        for rule in &given {
            self.client.delete_rule(session, &rule.id).await?;
        }
        group.security_group_rules.retain(|rule| !given.contains(rule));
        Ok(group)
    }

    /// Removes access that a load balancer no longer needs. If the group contains no other rules, this function removes all ports from the
    /// group and deletes the group. The rules stay until then, because they show which load balancer the access belongs to.
    ///
    /// The cost is 1 read of the group and 1 write for each rule. If the group is deleted, the cost is 2 reads, 1 write for each port and 1
    /// write for the group.
    pub(crate) async fn close_nodes(&self, session: &Session, closing: &Closing) -> Result<(), VendorError> {
        let Closing { cluster_id, balancer, rules } = closing;
        let _turn = self.balancers.guards.turn.lock().await;
        // Another load balancer may have started to rely on these rules after the plan was computed.
        let known = self.balancers.guards.last().unwrap_or_default();
        let goes =
            |rule: &&SecurityRule| rules.contains(&rule.id) && !known.is_needed(rule, cluster_id, balancer);
        for group in self.groups_of(session, cluster_id).await? {
            let there = &group.security_group_rules;
            // The group stays, because it contains rules of other load balancers or clients.
            if there.iter().any(|rule| !goes(&rule) && !group.was_given(rule)) {
                for rule in there.iter().filter(goes) {
                    self.client.delete_rule(session, &rule.id).await?;
                }
                continue;
            }
            for port in self.guarded_ports(session, GuardedPorts::In(&group.id)).await? {
                let others: Vec<String> =
                    port.security_groups.iter().filter(|one| **one != group.id).cloned().collect();
                self.client.replace_groups(session, &port, &others).await?;
            }
            self.client.delete_security_group(session, &group.id).await?;
        }
        Ok(())
    }

    /// Reads the CIDRs of subnets. Cost: 1 read for each 50 subnets.
    pub(super) async fn learn_subnets(&self, session: &Session, ids: &[String]) -> Result<(), VendorError> {
        for ids in ids.chunks(AT_ONCE) {
            let found = self.client.list_subnets(session, ids).await?;
            self.balancers.guards.learn_subnets(ids, found);
        }
        Ok(())
    }

    async fn groups_of(
        &self,
        session: &Session,
        cluster_id: &str,
    ) -> Result<Vec<SecurityGroup>, VendorError> {
        // The groups are found by their description, because any client may change a group's name.
        let description = ownership::group_description(cluster_id);
        let page = self.client.list_security_groups(session, Some(&description), None, None).await?;
        let is_ours =
            |group: &SecurityGroup| ownership::cluster_of(&group.description).as_deref() == Some(cluster_id);
        Ok(page.items.into_iter().filter(is_ours).collect())
    }

    async fn guarded_ports(
        &self,
        session: &Session,
        which: GuardedPorts<'_>,
    ) -> Result<Vec<GuardedPort>, VendorError> {
        let Page { items: mut ports, mut next } =
            self.client.list_guarded_ports(session, which, None, None).await?;
        while let Some(query) = next {
            let page = self.client.list_guarded_ports(session, which, Some(&query), None).await?;
            if page.next.as_ref() == Some(&query) {
                return Err(VendorError::nonsense("the listing of the ports returned the same page again"));
            }
            ports.extend(page.items);
            next = page.next;
        }
        Ok(ports)
    }
}
