//! Computes the writes that bring the cloud to the desired state. The functions make no vendor calls and read no clock.
//!
//! Additions come before removals, so that traffic is never interrupted. The tag that marks completion is last.

mod routes;
#[cfg(test)]
mod tests;
mod wanted;

use std::collections::{BTreeMap, BTreeSet};

use cloud_adapter::{
    driver::{DesiredLoadBalancer, Fault, Heritage, LoadBalancerRecord, VendorError},
    kit::{self, Part, RECREATE},
};
use cloud_api_proto::v1alpha1::Fence;

pub(crate) use self::routes::plan_routes;
use self::wanted::{Wanted, WantedPool, WantedPort};
use crate::{
    heritage, ownership,
    responses::{Listener, LoadBalancer, Pool, Read},
    simcloud::{
        model::{IpFamily, Placement, ProvisioningStatus, Tags},
        requests::{
            Change, CreateListener, CreateLoadBalancer, CreatePool, MemberKey, UpdateListener,
            UpdateLoadBalancer, UpdateMembers, UpdatePool,
        },
    },
    step::{Port, Step},
};

const FAMILIES: &str = "spec.ip_families";

/// Returns the missing writes, in order.
///
/// A new load balancer needs one write, plus one for each port, plus one at the end. An existing load balancer needs one for each pool
/// whose members change.
pub(crate) fn plan(
    desired: &DesiredLoadBalancer,
    fence: &Fence,
    observed: Option<&LoadBalancerRecord<LoadBalancer>>,
    region: &str,
) -> Result<Vec<Step>, VendorError> {
    let mut wanted = Wanted::read(desired, region)?;
    match observed {
        None => Ok(from_scratch(desired, fence, &wanted)),
        Some(record) => {
            let there = &record.detail;
            let is_strange = ownership::balancer_owner(&there.tags).is_none()
                && heritage::of(&desired.adopter())(&there.name) != Heritage::Sole
                && !kit::names_of(&desired.key)(&there.name);
            if is_strange || ownership::is_adopted(&there.tags) {
                wanted.tags.extend([ownership::adopted()]);
            }
            let fixed = fixed(&wanted, &record.detail)?;
            let tags = ownership::missing_tags(&wanted.tags, &desired.hash, fence, &record.detail.tags);
            // Tags must not record a state that cannot be reached.
            let tags = tags.filter(|_| fixed.is_none());
            let steps = changes(desired, &wanted, &record.detail, tags, fence);
            match fixed {
                Some(error) if steps.is_empty() => Err(error),
                Some(_) | None => Ok(steps),
            }
        }
    }
}

/// Returns the steps that delete a load balancer. One write is enough, because the cloud also deletes all listeners and pools. Empty if the
/// deletion is in progress.
pub(crate) fn plan_deletion(observed: &LoadBalancer) -> Vec<Step> {
    if observed.status.is(&ProvisioningStatus::PendingDelete) {
        return Vec::new();
    }
    vec![Step::DeleteLoadBalancer { id: observed.id.clone() }]
}

/// Returns the steps that release an adopted load balancer. The first steps delete its listeners, all of which belong to the owner since
/// the adoption. The last step removes the owner's tags.
pub(crate) fn plan_release(observed: &LoadBalancer) -> Vec<Step> {
    if !observed.status.is(&ProvisioningStatus::Active) && !observed.status.is(&ProvisioningStatus::Error) {
        return Vec::new();
    }
    let listeners = observed
        .listeners
        .iter()
        .filter_map(|listener| Some(Step::DeleteListener { id: listener.id.clone(), port: port(listener)? }));
    let pools = observed.pools.iter();
    let pools = pools.map(|pool| Step::DeletePool { id: pool.id.clone(), name: pool.name.clone() });
    let tags = ownership::released(&observed.tags);
    listeners.chain(pools).chain([tag(Part::Known(observed.id.clone()), tags)]).collect()
}

fn from_scratch(desired: &DesiredLoadBalancer, fence: &Fence, wanted: &Wanted) -> Vec<Step> {
    let create = CreateLoadBalancer {
        name: ownership::balancer_name(desired),
        scheme: wanted.scheme,
        families: wanted.families.clone(),
        vips: wanted.vips.clone(),
        placement: wanted.placement.clone(),
        tags: ownership::signed(&wanted.tags, fence, &Tags::new()),
        client_token: Some(kit::key_digest(&desired.key)),
    };
    let mut steps = vec![Step::CreateLoadBalancer(create.into())];
    steps.extend(wanted.ports.iter().map(|(port, wanted)| create_listener(Part::Coming, *port, wanted)));
    let tags = ownership::missing_tags(&wanted.tags, &desired.hash, fence, &wanted.tags);
    steps.extend(tags.map(|tags| tag(Part::Coming, tags)));
    steps
}

/// Returns an error that names the fields that the vendor cannot change without recreating the load balancer. `None`: no such field
/// differs.
fn fixed(wanted: &Wanted, tree: &LoadBalancer) -> Result<Option<VendorError>, VendorError> {
    let mut fields = Vec::new();
    if tree.scheme.differs(&wanted.scheme) {
        fields.push("spec.scheme");
    }
    let families: Option<BTreeSet<IpFamily>> = tree.families.iter().map(|one| one.known().copied()).collect();
    if families.is_some_and(|there| there != wanted.families.iter().copied().collect()) {
        fields.push(FAMILIES);
    }
    // A load balancer without addresses was never completely created, and its requested addresses are unknown.
    if !tree.vips.is_empty() && wanted.vips.iter().any(|vip| !tree.vips.contains(vip)) {
        fields.push("spec.requested_addresses");
    }
    fields.extend(tree.placement.known().into_iter().flat_map(|there| moved(there, &wanted.placement)));
    if fields.is_empty() {
        return Ok(None);
    }
    let text = format!("{}: cannot change on load balancer {}: {RECREATE}", fields.join(", "), tree.id);
    let error = VendorError {
        fields: fields.iter().map(|field| (*field).to_owned()).collect(),
        ..VendorError::new(Fault::Immutable, text)
    };
    if fields.contains(&FAMILIES) { Err(error) } else { Ok(Some(error)) }
}

fn moved(there: &Placement, wanted: &Placement) -> impl Iterator<Item = &'static str> {
    let rows = [
        ("spec.address_pool", there.address_pool != wanted.address_pool),
        ("spec.subnets", there.subnets != wanted.subnets),
        ("spec.size", there.size != wanted.size),
        ("spec.zone", there.zone != wanted.zone),
    ];
    rows.into_iter().filter(|(_, differs)| *differs).map(|(field, _)| field)
}

/// Returns the changes of an existing load balancer. `tags`: the tags that mark it as complete.
fn changes(
    desired: &DesiredLoadBalancer,
    wanted: &Wanted,
    tree: &LoadBalancer,
    tags: Option<Tags>,
    fence: &Fence,
) -> Vec<Step> {
    let there: BTreeMap<Port, &Listener> =
        tree.listeners.iter().filter_map(|listener| Some((port(listener)?, listener))).collect();
    let mut steps = Vec::new();
    let mut used = BTreeSet::new();
    for (port, wanted) in &wanted.ports {
        match there.get(port) {
            None => steps.push(create_listener(Part::Known(tree.id.clone()), *port, wanted)),
            Some(listener) => {
                let change = PortChange { port: *port, wanted, listener, tree };
                steps.extend(change.steps(&mut used));
            }
        }
    }
    steps.extend(removals(wanted, tree, &used));
    let name = ownership::new_name(desired, &tree.name);
    steps.extend(name.map(|name| Step::RenameLoadBalancer { id: tree.id.clone(), name }));
    if ownership::balancer_owner(&tree.tags).is_some_and(|(key, _)| key == desired.key) {
        steps.extend(tags.map(|tags| tag(Part::Known(tree.id.clone()), tags)));
        return steps;
    }
    // Owner tags come first. After that write, no other owner can adopt the load balancer, and every process recognises it.
    let adopt = |tags| Step::AdoptLoadBalancer {
        id: tree.id.clone(),
        change: UpdateLoadBalancer { name: None, tags: Some(tags) },
    };
    match tags {
        // No other change is needed, so the owner tags already complete the load balancer.
        Some(tags) if steps.is_empty() => vec![adopt(tags)],
        tags => {
            steps.insert(0, adopt(ownership::signed(&wanted.tags, fence, &tree.tags)));
            steps.extend(tags.map(|tags| tag(Part::Known(tree.id.clone()), tags)));
            steps
        }
    }
}

/// Returns the steps that delete unneeded objects. Listeners come first, because the cloud refuses to delete a pool that a listener uses.
/// Objects that this driver cannot read are kept.
fn removals(wanted: &Wanted, tree: &LoadBalancer, used: &BTreeSet<&str>) -> Vec<Step> {
    let unwanted =
        |listener: &&Listener| port(listener).is_some_and(|port| !wanted.ports.contains_key(&port));
    let listeners =
        tree.listeners.iter().filter(unwanted).filter_map(|listener| {
            Some(Step::DeleteListener { id: listener.id.clone(), port: port(listener)? })
        });
    let unreadable = tree.listeners.iter().filter(|listener| port(listener).is_none());
    let kept: BTreeSet<&str> = unreadable.filter_map(|listener| listener.pool_id.as_deref()).collect();
    let pools = tree.pools.iter().filter(|pool| {
        let id = pool.id.as_str();
        !used.contains(id) && !kept.contains(id)
    });
    let pools = pools.map(|pool| Step::DeletePool { id: pool.id.clone(), name: pool.name.clone() });
    listeners.chain(pools).collect()
}

/// The change of an existing port that is still desired.
struct PortChange<'a> {
    port: Port,
    wanted: &'a WantedPort,
    listener: &'a Listener,
    tree: &'a LoadBalancer,
}

impl<'a> PortChange<'a> {
    /// Adds the pool that the port uses to `used`.
    fn steps(&self, used: &mut BTreeSet<&'a str>) -> Vec<Step> {
        let fits = |pool: &&Pool| !pool.protocol.differs(&self.wanted.pool.protocol);
        let has = |pool: &&Pool| self.listener.pool_id.as_deref() == Some(&pool.id);
        if let Some(pool) = self.tree.pools.iter().find(has).filter(fits) {
            used.insert(&pool.id);
            let mut steps = pool_changes(pool, &self.wanted.pool);
            steps.extend(self.listener_change(None));
            return steps;
        }
        // The protocol of a pool is immutable, so a new pool replaces the old pool, which is then deleted.
        let free = |pool: &&Pool| {
            !self.tree.listeners.iter().any(|listener| listener.pool_id.as_deref() == Some(&pool.id))
                && pool.protocol.is(&self.wanted.pool.protocol)
                && pool.name == self.port.name()
        };
        if let Some(pool) = self.tree.pools.iter().find(free) {
            used.insert(&pool.id);
            let mut steps = pool_changes(pool, &self.wanted.pool);
            steps.extend(self.listener_change(Some(Part::Known(pool.id.clone()))));
            return steps;
        }
        let request = create_pool(self.port, &self.wanted.pool).into();
        let create = Step::CreatePool { balancer: self.tree.id.clone(), request };
        std::iter::once(create).chain(self.listener_change(Some(Part::Coming))).collect()
    }

    fn listener_change(&self, pool: Option<Part>) -> Option<Step> {
        let Listener { id, idle_timeout, allowed_cidrs, traffic, .. } = self.listener;
        let allowed: BTreeSet<_> = allowed_cidrs.iter().copied().collect();
        let mut change = UpdateListener::default();
        if *idle_timeout != self.wanted.idle_timeout {
            change.idle_timeout = Some(self.wanted.idle_timeout);
        }
        if allowed != self.wanted.allowed {
            change.allowed_cidrs = Some(self.wanted.allowed.iter().copied().collect());
        }
        if traffic.differs(&self.wanted.traffic) {
            change.traffic = Some(self.wanted.traffic.clone());
        }
        if change == UpdateListener::default() && pool.is_none() {
            return None;
        }
        Some(Step::UpdateListener { id: id.clone(), port: self.port, change, pool })
    }
}

fn pool_changes(pool: &Pool, wanted: &WantedPool) -> Vec<Step> {
    let mut change = UpdatePool::default();
    if pool.algorithm.differs(&wanted.algorithm) {
        change.algorithm = Some(wanted.algorithm);
    }
    if pool.persistence.differs(&wanted.persistence) {
        change.persistence = wanted.persistence.map_or(Change::Clear, Change::Set);
    }
    if pool.health_monitor.differs(&wanted.monitor) {
        change.health_monitor = wanted.monitor.clone().map_or(Change::Clear, Change::Set);
    }
    let mut steps = Vec::new();
    if change != UpdatePool::default() {
        steps.push(Step::UpdatePool { id: pool.id.clone(), name: pool.name.clone(), change });
    }
    steps.extend(member_change(pool, wanted));
    steps
}

/// Returns one write for a pool. It contains only the difference, or all members if that is shorter.
fn member_change(pool: &Pool, wanted: &WantedPool) -> Option<Step> {
    let there: BTreeMap<_, _> = pool
        .members
        .iter()
        .filter_map(Read::known)
        .map(|member| ((member.address, member.port), member))
        .collect();
    let add: Vec<_> = wanted
        .members
        .iter()
        .filter(|(key, member)| there.get(*key) != Some(member))
        .map(|(_, member)| member.clone())
        .collect();
    let gone = there.keys().filter(|key| !wanted.members.contains_key(*key));
    let remove: Vec<_> = gone.map(|&(address, port)| MemberKey { address, port }).collect();
    let (pool, name) = (pool.id.clone(), pool.name.clone());
    let n_changes = add.len().saturating_add(remove.len());
    if n_changes == 0 {
        None
    } else if n_changes < wanted.members.len() {
        Some(Step::UpdateMembers { pool, name, change: UpdateMembers { add, remove } })
    } else {
        Some(Step::SetMembers { pool, name, members: wanted.members.values().cloned().collect() })
    }
}

fn create_listener(balancer: Part, port: Port, wanted: &WantedPort) -> Step {
    let request = CreateListener {
        name: port.name(),
        protocol: port.protocol,
        port: port.number,
        idle_timeout: wanted.idle_timeout,
        allowed_cidrs: wanted.allowed.iter().copied().collect(),
        traffic: wanted.traffic.clone(),
        pool_id: None,
        pool: Some(create_pool(port, &wanted.pool)),
    };
    Step::CreateListener { balancer, request: request.into() }
}

fn create_pool(port: Port, wanted: &WantedPool) -> CreatePool {
    CreatePool {
        name: port.name(),
        protocol: wanted.protocol,
        algorithm: wanted.algorithm,
        persistence: wanted.persistence,
        health_monitor: wanted.monitor.clone(),
        members: wanted.members.values().cloned().collect(),
    }
}

fn tag(balancer: Part, tags: Tags) -> Step {
    Step::UpdateLoadBalancer { balancer, change: UpdateLoadBalancer { name: None, tags: Some(tags) } }
}

pub(crate) fn port(listener: &Listener) -> Option<Port> {
    Some(Port { protocol: *listener.protocol.known()?, number: listener.port })
}
