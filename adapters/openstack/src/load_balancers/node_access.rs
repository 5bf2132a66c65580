//! Lets load balancers through to the nodes, and shuts the door behind them: the cluster's security group, its rules, and the ports in it.
//!
//! One at a time, and each reads the group first: another load balancer's turn may have made it, filled it or emptied it meanwhile. All
//! groups of a port are written at once: with the revision that was read, so that what somebody changes meanwhile is not undone.

use cloud_adapter::{driver::VendorError, vendor::Session};
use cloud_api_proto::v1alpha1::LoadBalancerKey;

use super::{
    answers::{GuardedPort, SecurityGroup, SecurityRule},
    guards::{Needs, Rule, in_use},
};
use crate::{
    OpenStackDriver,
    client::{Page, security_groups::GuardedPorts},
    ownership,
};

/// IDs that stand in the address of one request.
const AT_ONCE: usize = 50;

/// What a load balancer lacks to reach its nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Opening {
    pub(crate) key: LoadBalancerKey,
    /// The load balancer's ID.
    pub(crate) balancer: String,
    pub(crate) needs: Needs,
    /// Rules that load balancers have left which are gone, and that nobody needs, by ID.
    pub(crate) left: Vec<String>,
    /// Ports of nodes that are not in the group, by ID.
    pub(crate) ports: Vec<String>,
}

/// What a load balancer needs no more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Closing {
    pub(crate) cluster_id: String,
    /// The load balancer's ID. Empty: it is gone.
    pub(crate) balancer: String,
    /// Rules that nobody else needs, by ID.
    pub(crate) rules: Vec<String>,
}

impl OpenStackDriver {
    /// Lets a load balancer reach its nodes, as far as it is known from where.
    ///
    /// Cost: 1 read for the group; 1 write for all rules that come, 1 for each that was left behind; 1 read for each 50 ports that are told to be
    /// outside and 1 write for each that still is. The first time in a cluster 3 writes more, in a subnet 1 read more.
    ///
    /// # Errors
    /// [`Fault::Busy`](cloud_adapter::driver::Fault::Busy) if somebody has changed a port meanwhile: the next look tells.
    pub(crate) async fn open_nodes(&self, session: &Session, opening: &Opening) -> Result<(), VendorError> {
        let Opening { key: LoadBalancerKey { cluster_id, owner_uid }, balancer, needs, left, ports } =
            opening;
        let _turn = self.balancers.guards.turn.lock().await;
        let unasked = needs.rules(&self.balancers.guards.subnets()).unasked;
        self.learn_subnets(session, &unasked).await?;
        let rules = needs.rules(&self.balancers.guards.subnets()).known;
        self.balancers.guards.learn_user(balancer, cluster_id, needs);
        // The plan tells why, once all else is done.
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

    /// The group of the cluster, with nothing in it that Neutron gave it: whoever is in it may do what the other groups allow, and no more
    /// for its sake.
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
                let made = self.client.create_security_group(session, (&name, &description)).await?;
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

    /// Takes away what a load balancer needs no more. If that is all that is in the group, the group goes with it, out of all ports that
    /// are in it: until it is gone, its rules tell whose it is.
    ///
    /// Cost: 1 read for the group, 1 write a rule; with the last ones in place of that 1 read and 1 write a port, and 1 for the group.
    ///
    /// # Errors
    /// As [`Self::open_nodes`].
    pub(crate) async fn close_nodes(&self, session: &Session, closing: &Closing) -> Result<(), VendorError> {
        let Closing { cluster_id, balancer, rules } = closing;
        let _turn = self.balancers.guards.turn.lock().await;
        // Another one's turn may have been meanwhile, which relies on them.
        let known = self.balancers.guards.last().unwrap_or_default();
        let goes =
            |rule: &&SecurityRule| rules.contains(&rule.id) && !known.is_needed(rule, (cluster_id, balancer));
        for group in self.groups_of(session, cluster_id).await? {
            let there = &group.security_group_rules;
            // Others' rules are somebody's, whoever made them.
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

    /// Learns the addresses of subnets. Cost: 1 read for each 50.
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
        // By what tells whose it is, and not by its name, which is anybody's to change.
        let description = ownership::group_description(cluster_id);
        let page = self.client.list_security_groups(session, Some(&description), (None, None)).await?;
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
            self.client.list_guarded_ports(session, which, (None, None)).await?;
        while let Some(query) = next {
            let page = self.client.list_guarded_ports(session, which, (Some(&query), None)).await?;
            if page.next.as_ref() == Some(&query) {
                return Err(VendorError::nonsense("the listing of the ports repeats its page"));
            }
            ports.extend(page.items);
            next = page.next;
        }
        Ok(ports)
    }
}
