//! Computes the writes that bring the cloud to the desired state. The functions make no vendor calls and read no clock.
//!
//! Additions come before removals, so that traffic is not interrupted. Only a listener whose protocol changes is deleted before it is
//! recreated. The tag that marks the load balancer as complete is written last. If a load balancer is created with all its listeners and
//! pools in one call, it has this tag from the start. A second tag then shows that its floating IP is still missing.

mod floating_ips;
mod node_access;
mod pools;
mod shared;
#[cfg(test)]
mod tests;
mod wanted;

use std::collections::BTreeSet;

use cloud_adapter::{
    driver::{DesiredLoadBalancer, LoadBalancerRecord, RouteChanges, VendorError},
    kit::{self, Part},
};
use cloud_api_proto::v1alpha1::Fence;
use ipnet::IpNet;

use self::{
    node_access::NodeAccess,
    pools::{create_pool, pool_changes},
    shared::{Role, Unmarked},
    wanted::{Wanted, WantedPort},
};
use crate::{
    api::{
        requests::{CreateLoadBalancer, ListenerSettings, NewListener, Timeouts},
        responses::{Balancer, Listener},
    },
    load_balancers::{
        detail::{Detail, PENDING, PENDING_DELETE, PoolTree},
        guards::Guards,
        settings::{Creation, Site},
    },
    ownership::{self, GoNames, Marks, Sharing},
    port::Port,
    step::Step,
};

/// Returns the missing writes, in the sequence in which they must be made. The list is empty if the load balancer is in sync.
///
/// A new load balancer costs one write, and another write for its floating IP. An existing load balancer costs one write for each pool
/// whose members change.
pub(crate) fn plan(
    desired: &DesiredLoadBalancer,
    fence: &Fence,
    observed: Option<&LoadBalancerRecord<Detail>>,
    site: &Site<'_>,
) -> Result<Vec<Step>, VendorError> {
    let there = observed.and_then(|record| Some((record.detail.balancer.as_ref()?, &record.detail)));
    let Some((balancer, tree)) = there else {
        let wanted = Wanted::read(desired, site)?;
        return Goal::new(desired, fence, &wanted, site, None).creation();
    };
    match Role::of(desired, balancer)? {
        Role::Owner => {
            // Consent that is withdrawn ends at once, even if everything else in the request is refused.
            if let Some(tags) = ownership::withdrawn(desired, &balancer.tags) {
                return Ok(vec![Step::AdoptLoadBalancer { id: balancer.id.clone(), tags }]);
            }
            let mut wanted = Wanted::read(desired, site)?;
            let fixed = wanted.vip.fixed(&desired.spec, &wanted.parameters, balancer)?;
            let is_strange = ownership::owner(&balancer.tags).is_none()
                && !GoNames::of(&desired.adopter()).made(&balancer.name)
                && !kit::names_of(&desired.key)(&balancer.name);
            let unmarked = if is_strange || ownership::is_adopted(&balancer.tags) {
                wanted.tags.extend(ownership::adopting(&balancer.tags));
                Unmarked::Stay
            } else {
                Unmarked::TakenOver
            };
            let taken = shared::leave_taken_ports(desired, unmarked, balancer, tree, &mut wanted.ports);
            Goal::new(desired, fence, &wanted, site, Some(balancer)).changes(
                balancer,
                tree,
                fixed.or(taken).or_else(|| floating_ips::not_kept(desired, site)),
            )
        }
        Role::Sharer => {
            shared::check_open(balancer)?;
            ownership::check_room(&balancer.id, &balancer.name, &balancer.tags, &desired.key)?;
            let desired = &shared::narrowed(desired, balancer, tree)?;
            let mut wanted = Wanted::shared(desired, site)?;
            let taken = shared::leave_taken_ports(desired, Unmarked::Stay, balancer, tree, &mut wanted.ports);
            if let Some(refusal) = taken.as_ref().filter(|_| wanted.ports.is_empty())
                && ownership::user(&balancer.tags, Some(&desired.key)).is_none()
            {
                return Err(refusal.clone());
            }
            Goal::new(desired, fence, &wanted, site, Some(balancer)).share(balancer, tree, taken)
        }
    }
}

/// Returns the plan for a load balancer that replaces `former`, which is being deleted. The new load balancer gets the same private
/// addresses, as far as its subnets are the same.
///
/// The addresses are free by then, because Octavia deletes the port together with the old load balancer.
pub(crate) fn plan_again(
    desired: &DesiredLoadBalancer,
    fence: &Fence,
    former: &LoadBalancerRecord<Detail>,
    site: &Site<'_>,
) -> Result<Vec<Step>, VendorError> {
    let mut wanted = Wanted::read(desired, site)?;
    if let Some(balancer) = &former.detail.balancer {
        wanted.vip.inherit(balancer);
    }
    Goal::new(desired, fence, &wanted, site, None).creation()
}

/// Returns the steps that delete a load balancer. If other users remain, the steps only remove this user. The deletion is one write,
/// because Octavia also deletes all listeners and pools. The floating IP needs another write unless it is kept. Access to the nodes is
/// removed first. The list is empty while the deletion is in progress.
///
/// The floating IP is deleted after the load balancer. If the deletion of the load balancer fails, the load balancer therefore keeps
/// serving. A floating IP without a record is deleted first, because its owner would be unknown after the deletion of the load balancer.
pub(crate) fn plan_deletion(observed: &LoadBalancerRecord<Detail>, guards: Option<&Guards>) -> Vec<Step> {
    let delete = match &observed.detail.balancer {
        Some(balancer) if balancer.provisioning_status == PENDING_DELETE => return Vec::new(),
        Some(balancer) => Some(shared::deletion(observed, balancer)),
        None => None,
    };
    if let Some(steps) = shared::leaving(observed, guards) {
        return steps;
    }
    let first = floating_ips::releases_of_go(observed).into_iter().chain(shared::inheritance(observed));
    let first = first.chain(node_access::closing(observed, guards)).chain(shared::closing(observed));
    let last = floating_ips::releases(observed).into_iter().chain(shared::last_addresses(observed));
    first.chain(delete).chain(last).collect()
}

/// Returns the steps that release an adopted load balancer. The steps delete the owner's listeners and pools, and then remove the owner's
/// tags. The listeners and pools of other users stay, and so do the addresses that the load balancer had before the adoption.
pub(crate) fn plan_release(observed: &LoadBalancerRecord<Detail>, guards: Option<&Guards>) -> Vec<Step> {
    let Some(balancer) = &observed.detail.balancer else { return plan_deletion(observed, guards) };
    let Some(key) = &observed.summary.key else { return Vec::new() };
    if balancer.provisioning_status.starts_with(PENDING) {
        return Vec::new();
    }
    let mut steps = shared::own_parts(observed, |name, tags| {
        ownership::is_part_of(key, &balancer.name, Marks { name, tags })
    });
    steps.extend(node_access::closing(observed, guards));
    steps.extend(floating_ips::releases(observed));
    steps.push(Step::ReleaseLoadBalancer { id: balancer.id.clone() });
    steps
}

/// Returns all route changes in one step, because a router accepts many changes at once.
pub(crate) fn plan_routes(changes: &RouteChanges) -> Vec<Step> {
    vec![Step::ChangeRoutes(changes.clone())]
}

/// The desired state of a load balancer, for its owner or for an owner that shares the load balancer.
struct Goal<'a> {
    desired: &'a DesiredLoadBalancer,
    fence: &'a Fence,
    wanted: &'a Wanted,
    site: &'a Site<'a>,
    pool_tags: Vec<String>,
    /// The tags of listeners. If the former cloud controller manager named the load balancer, the tags include that controller's own tag.
    /// Without this tag, that controller would not recognise the listener.
    listener_tags: Vec<String>,
}

impl<'a> Goal<'a> {
    fn new(
        desired: &'a DesiredLoadBalancer,
        fence: &'a Fence,
        wanted: &'a Wanted,
        site: &'a Site<'a>,
        there: Option<&Balancer>,
    ) -> Self {
        let name = match there {
            None => ownership::balancer_name(desired),
            Some(there) => ownership::new_name(desired, &there.name).unwrap_or_else(|| there.name.clone()),
        };
        let of_go = ownership::is_of_go(&name);
        let also_of_go = of_go.then(|| GoNames::of(&desired.adopter()).name);
        let pool_tags = vec![ownership::part_tag(&desired.key)];
        let listener_tags = pool_tags.iter().cloned().chain(also_of_go).collect();
        Self { desired, fence, wanted, site, pool_tags, listener_tags }
    }

    fn creation(&self) -> Result<Vec<Step>, VendorError> {
        let Wanted { vip, tags, ports, .. } = self.wanted;
        let spec = &self.desired.spec;
        let said = |text: &String| Some(text.clone()).filter(|text| !text.is_empty());
        let at_once = self.site.options.load_balancer_creation == Creation::AtOnce;
        let complete = ownership::missing(tags, &self.desired.hash, self.fence, &[]).unwrap_or_default();
        let owner = &self.desired.owner;
        let create = CreateLoadBalancer {
            name: ownership::balancer_name(self.desired),
            description: format!("{} {}/{}", owner.kind, owner.namespace, owner.name)
                .chars()
                .take(255)
                .collect(),
            provider: self.site.options.load_balancer_provider.clone(),
            vip_subnet_id: vip.subnet.clone(),
            beside: vip.beside.clone(),
            vip_network_id: vip.network.clone(),
            vip_address: vip.address,
            additional_vips: vip.additional.clone(),
            flavor_id: said(&spec.size),
            availability_zone: said(&spec.zone),
            tags: if at_once { complete.clone() } else { ownership::signed(tags, self.fence, &[]) },
            listeners: ports
                .iter()
                .filter(|_| at_once)
                .map(|(port, wanted)| self.whole(*port, wanted))
                .collect(),
        };
        let mut steps = vec![Step::CreateLoadBalancer(create.into())];
        if !at_once {
            for (port, wanted) in ports {
                steps.extend(create_pool(Part::Coming, *port, &wanted.pool, self.pool_tags.clone()));
                steps.push(self.create_listener(Part::Coming, *port, wanted, Part::Coming));
            }
        }
        steps.extend(floating_ips::changes(self.desired, self.wanted, None, self.site)?);
        steps.extend(self.site.options.manage_security_groups.then_some(Step::OpenNodes(None)));
        if !at_once {
            steps.push(Step::CompleteLoadBalancer { id: Part::Coming, tags: complete });
        }
        Ok(steps)
    }

    /// Returns the missing writes for the owner. `fixed` is the reason why the desired state cannot be reached, if there is one. In this
    /// case, the load balancer is not marked as complete, and `fixed` is returned when no other write is left.
    fn changes(
        &self,
        balancer: &Balancer,
        tree: &Detail,
        fixed: Option<VendorError>,
    ) -> Result<Vec<Step>, VendorError> {
        let tags = &self.wanted.tags;
        let mut steps = Vec::new();
        // The tags are written first, so that no other owner can adopt the load balancer, and another adapter process recognises its owner.
        if ownership::owner(&balancer.tags).is_none_or(|(key, _)| key != self.desired.key)
            || ownership::is_given_up(&balancer.tags)
        {
            let tags = ownership::signed(tags, self.fence, &balancer.tags);
            steps.push(Step::AdoptLoadBalancer { id: balancer.id.clone(), tags });
        }
        let with_person = floating_ips::stays_with_person(self.desired, self.wanted, balancer, tree);
        // The owner's tags are updated, even if the other changes cannot be completed.
        if steps.is_empty() && (fixed.is_some() || with_person.is_some()) {
            let signed = ownership::unfinished(tags, self.fence, &balancer.tags);
            steps.extend(signed.map(|tags| Step::AdoptLoadBalancer { id: balancer.id.clone(), tags }));
        }
        let (ports, refusal) = self.ports(Role::Owner, balancer, tree);
        steps.extend(ports);
        if with_person.is_none() {
            steps.extend(floating_ips::changes(
                self.desired,
                self.wanted,
                Some((balancer, tree)),
                self.site,
            )?);
        }
        let fixed = fixed.or(with_person);
        // An adopted load balancer keeps its name, because the controller that created the load balancer finds it by this name.
        let adopts = tags.contains(&ownership::adopted());
        let name = ownership::new_name(self.desired, &balancer.name).filter(|_| !adopts);
        steps.extend(name.map(|name| Step::RenameLoadBalancer { id: balancer.id.clone(), name }));
        let complete = ownership::missing(tags, &self.desired.hash, self.fence, &balancer.tags);
        let complete = complete.filter(|_| fixed.is_none());
        let id = Part::Known(balancer.id.clone());
        steps.extend(complete.map(|tags| Step::CompleteLoadBalancer { id, tags }));
        match fixed.or(refusal) {
            Some(refusal) if steps.is_empty() => Err(refusal),
            Some(_) | None => Ok(steps),
        }
    }

    /// Returns the missing writes of an owner that shares the load balancer. Only the listeners and pools of this owner change. `taken` is
    /// the error about ports that other users already use, if any. In this case, the share is not marked as complete.
    fn share(
        &self,
        balancer: &Balancer,
        tree: &Detail,
        taken: Option<VendorError>,
    ) -> Result<Vec<Step>, VendorError> {
        let (id, tags, key) = (&balancer.id, &balancer.tags, &self.desired.key);
        let claim = Sharing::claim(self.desired, self.fence)?;
        if ownership::user(&balancer.tags, Some(key)).is_none() {
            claim.check_proof(id, &balancer.name, tags)?;
        }
        let mut steps = Vec::new();
        // The tags are written first, so that no other owner deletes the load balancer, and another adapter process finds the sharer's
        // listeners and pools.
        if ownership::user(&balancer.tags, Some(key)).is_none() {
            let sharing = Box::new(claim.clone());
            steps.push(Step::ShareLoadBalancer { id: id.clone(), sharing, complete: false });
        }
        let (ports, refusal) = self.ports(Role::Sharer, balancer, tree);
        steps.extend(ports);
        let complete = claim.complete(&balancer.name, &self.desired.hash, tags).map(Box::new);
        let complete = complete.filter(|_| taken.is_none());
        steps.extend(complete.map(|sharing| Step::ShareLoadBalancer {
            id: id.clone(),
            sharing,
            complete: true,
        }));
        match taken.or(refusal) {
            Some(refusal) if steps.is_empty() => Err(refusal),
            Some(_) | None => Ok(steps),
        }
    }

    /// Returns the missing writes for listeners, pools and their access to the nodes, and the error for changes that are not possible.
    fn ports(&self, role: Role, balancer: &Balancer, tree: &Detail) -> (Vec<Step>, Option<VendorError>) {
        let user = shared::user_id(balancer, &self.desired.key, role);
        let access = NodeAccess::plan(self.desired, self.wanted, &user, balancer, tree, self.site);
        let mut steps: Vec<Step> = access.opening.into_iter().collect();
        let mut used = BTreeSet::new();
        for (port, wanted) in &self.wanted.ports {
            let listener = tree.listeners.iter().find(|listener| listener.port() == Some(*port));
            let change = PortChange { goal: self, balancer, port: *port, wanted, listener, tree };
            steps.extend(change.steps(&mut used));
        }
        steps.extend(self.removals(role, balancer, tree, &used));
        steps.extend(access.closing);
        (steps, access.refusal)
    }

    /// Returns the steps that delete listeners and pools which are no longer needed. Listeners come first, because Octavia refuses to
    /// delete a pool that a listener uses. Listeners and pools of other owners stay.
    fn removals(&self, role: Role, balancer: &Balancer, tree: &Detail, used: &BTreeSet<&str>) -> Vec<Step> {
        let go = match role {
            Role::Owner => balancer.name.clone(),
            Role::Sharer => GoNames::of(&self.desired.adopter()).proven().unwrap_or_default().to_owned(),
        };
        let is_ours =
            |name: &str, tags: &[String]| ownership::is_part_of(&self.desired.key, &go, Marks { name, tags });
        let (mut steps, mut kept) = (Vec::new(), used.clone());
        for listener in &tree.listeners {
            match listener.port() {
                Some(port) if self.wanted.ports.contains_key(&port) => (),
                Some(port) if is_ours(&listener.name, &listener.tags) => {
                    steps.push(Step::DeleteListener { id: listener.id.clone(), port });
                }
                Some(_) | None => kept.extend(listener.default_pool_id.as_deref()),
            }
        }
        let pools = tree.pools.iter().map(|tree| &tree.pool);
        let pools = pools.filter(|pool| !kept.contains(pool.id.as_str()) && is_ours(&pool.name, &pool.tags));
        steps.extend(pools.map(|pool| Step::DeletePool { id: pool.id.clone(), name: pool.name.clone() }));
        steps
    }

    fn listener(&self, port: Port, wanted: &WantedPort) -> NewListener {
        NewListener {
            name: port.name(),
            protocol: wanted.protocol,
            protocol_port: port.number,
            settings: ListenerSettings { tags: Some(self.listener_tags.clone()), ..wanted.settings.clone() },
            default_pool: None,
        }
    }

    fn whole(&self, port: Port, wanted: &WantedPort) -> NewListener {
        let pool = pools::whole(port, &wanted.pool, self.pool_tags.clone());
        NewListener { default_pool: Some(pool), ..self.listener(port, wanted) }
    }

    fn create_listener(&self, balancer: Part, port: Port, wanted: &WantedPort, pool: Part) -> Step {
        Step::CreateListener { balancer, port, listener: self.listener(port, wanted).into(), pool }
    }
}

/// A desired port, and the listener and pool of this port on an existing load balancer.
struct PortChange<'a> {
    goal: &'a Goal<'a>,
    balancer: &'a Balancer,
    port: Port,
    wanted: &'a WantedPort,
    listener: Option<&'a Listener>,
    tree: &'a Detail,
}

impl<'a> PortChange<'a> {
    /// Returns the steps for the port, and adds the pool that the port keeps to `used`. A pool is complete before a listener uses it.
    fn steps(&self, used: &mut BTreeSet<&'a str>) -> Vec<Step> {
        let balancer = || Part::Known(self.balancer.id.clone());
        let (mut steps, pool) = match self.pool() {
            Some(tree) => {
                used.insert(&tree.pool.id);
                let tags = missing_tags(&self.goal.pool_tags, &tree.pool.tags);
                (pool_changes(tree, &self.wanted.pool, tags), Part::Known(tree.pool.id.clone()))
            }
            None => {
                let tags = self.goal.pool_tags.clone();
                (create_pool(balancer(), self.port, &self.wanted.pool, tags), Part::Coming)
            }
        };
        match self.listener {
            None => steps.push(self.goal.create_listener(balancer(), self.port, self.wanted, pool)),
            // A port can have only one listener, and the protocol of a listener is immutable, so the listener is deleted first.
            Some(listener) if listener.protocol != self.wanted.protocol => {
                steps.push(Step::DeleteListener { id: listener.id.clone(), port: self.port });
                steps.push(self.goal.create_listener(balancer(), self.port, self.wanted, pool));
            }
            Some(listener) => steps.extend(self.listener_change(listener, pool)),
        }
        steps
    }

    /// Returns the listener's pool if its protocol is the desired one. The protocol of a pool is immutable. Otherwise, this function
    /// returns the pool that was created to replace the listener's pool.
    fn pool(&self) -> Option<&'a PoolTree> {
        let fits = |tree: &&PoolTree| tree.pool.protocol == self.wanted.pool.protocol;
        let current = self.listener.and_then(|listener| listener.default_pool_id.as_deref());
        let mut pools = self.tree.pools.iter();
        if let Some(pool) = pools.find(|tree| current == Some(&tree.pool.id)).filter(fits) {
            return Some(pool);
        }
        let ours = ownership::part_tag(&self.goal.desired.key);
        let is_taken =
            |id: &str| self.tree.listeners.iter().any(|one| one.default_pool_id.as_deref() == Some(id));
        self.tree.pools.iter().filter(fits).find(|tree| {
            tree.pool.name == self.port.name() && tree.pool.tags.contains(&ours) && !is_taken(&tree.pool.id)
        })
    }

    fn listener_change(&self, there: &Listener, pool: Part) -> Option<Step> {
        let tags = missing_tags(&self.goal.listener_tags, &there.tags);
        let change = ListenerSettings { tags, ..difference(&self.wanted.settings, there) };
        let pool = Some(pool)
            .filter(|pool| *pool == Part::Coming || pool.id().ok() != there.default_pool_id.as_deref());
        if change == ListenerSettings::default() && pool.is_none() {
            return None;
        }
        Some(Step::UpdateListener { id: there.id.clone(), port: self.port, change: change.into(), pool })
    }
}

/// Returns the new tags of a listener or pool that lacks tags of its owner. With these tags, the adapter can delete the listener or pool
/// when it is no longer needed, even if another client created it.
fn missing_tags(ours: &[String], there: &[String]) -> Option<Vec<String>> {
    let missing: Vec<&String> = ours.iter().filter(|tag| !there.contains(tag)).collect();
    (!missing.is_empty()).then(|| there.iter().chain(missing).cloned().collect())
}

/// Returns the desired settings that differ from the current ones, without tags.
fn difference(wanted: &ListenerSettings, there: &Listener) -> ListenerSettings {
    fn other<T: Clone + PartialEq>(wanted: &Option<T>, there: Option<&T>) -> Option<T> {
        wanted.as_ref().filter(|wanted| there != Some(wanted)).cloned()
    }
    let mut ranges: Vec<IpNet> = there.allowed_cidrs.iter().filter_map(|text| text.parse().ok()).collect();
    ranges.sort();
    let readable = (ranges.len() == there.allowed_cidrs.len()).then_some(&ranges);
    ListenerSettings {
        tags: None,
        connection_limit: other(&wanted.connection_limit, there.connection_limit.as_ref()),
        timeouts: Timeouts {
            client_data: other(&wanted.timeouts.client_data, there.timeout_client_data.as_ref()),
            member_connect: other(&wanted.timeouts.member_connect, there.timeout_member_connect.as_ref()),
            member_data: other(&wanted.timeouts.member_data, there.timeout_member_data.as_ref()),
            tcp_inspect: other(&wanted.timeouts.tcp_inspect, there.timeout_tcp_inspect.as_ref()),
        },
        allowed_cidrs: other(&wanted.allowed_cidrs, readable),
        default_tls_container_ref: other(
            &wanted.default_tls_container_ref,
            there.default_tls_container_ref.as_ref(),
        ),
        sni_container_refs: other(&wanted.sni_container_refs, Some(&there.sni_container_refs)),
        insert_headers: other(&wanted.insert_headers, Some(&there.insert_headers)),
    }
}
