//! Computes the writes that bring the cloud to the desired state. A pure function: it makes no vendor calls and reads no clock.
//!
//! Additions come before removals, so that traffic is not interrupted. The tag that marks an object as complete comes last.

use std::collections::{BTreeMap, BTreeSet};

use cloud_adapter::{
    driver::{DesiredLoadBalancer, Fault, LoadBalancerRecord, RouteChanges, VendorError},
    kit,
};
use cloud_api_proto::v1alpha1::{Fence, IpFamily, LoadBalancerState};

use crate::{
    load_balancers::{Detail, Listener, Member},
    step::{NewListener, NewLoadBalancer, NewPool, Step},
    tags,
};

/// Maximum length of a name in the cloud, in bytes.
const NAME_MAX: usize = 63;

/// Returns the missing writes in order. The list is empty if the load balancer is in sync.
///
/// # Errors
/// Returns an error if this cloud cannot provide a setting, or cannot change a setting in place.
pub(crate) fn plan(
    desired: &DesiredLoadBalancer,
    fence: &Fence,
    observed: Option<&LoadBalancerRecord<Detail>>,
) -> Result<Vec<Step>, VendorError> {
    let (families, ports) = (families(desired), ports(desired)?);
    // The ID is empty before the load balancer exists. The later steps are then only shown to users, and they are planned again when the ID
    // is known.
    let nothing = Detail::default();
    let there = observed.map_or(&nothing, |record| &record.detail);
    let mut steps = match observed {
        None => vec![Step::CreateLoadBalancer(NewLoadBalancer {
            name: kit::balancer_name(desired, NAME_MAX),
            scheme: "internet",
            families,
            tags: tags::signed(tags::half_built(desired), fence, &there.tags),
            client_token: kit::key_digest(&desired.key),
        })],
        Some(_) if there.families != families => {
            let text = format!("spec.ip_families: load balancer {} has {:?}", there.id, there.families);
            return Err(VendorError::new(Fault::Immutable, text).in_field("spec.ip_families"));
        }
        Some(record) if record.belongs_to(&desired.key) => Vec::new(),
        // On adoption, the owner tags are written first, so that no other owner takes the load balancer in between.
        Some(_) => {
            let is_its_own = kit::names_of(&desired.key)(&there.name);
            let tags = if is_its_own { tags::half_built(desired) } else { tags::adopted(desired) };
            vec![Step::Tag { id: there.id.clone(), tags: tags::signed(tags, fence, &there.tags) }]
        }
    };
    steps.extend(additions(&ports, there));
    steps.extend(removals(&ports, there));
    let complete = tags::complete(desired);
    if !tags::is_complete(&there.tags, &complete) {
        let tags = tags::signed(complete, fence, &there.tags);
        steps.push(Step::Tag { id: there.id.clone(), tags });
    }
    Ok(steps)
}

/// Returns the deletion of a load balancer with all its parts. The plan is empty if the cloud is already deleting the load balancer.
pub(crate) fn plan_deletion(observed: &LoadBalancerRecord<Detail>) -> Vec<Step> {
    if observed.summary.state() == LoadBalancerState::Deleting {
        return Vec::new();
    }
    vec![Step::DeleteLoadBalancer { id: observed.summary.vendor_id.clone() }]
}

/// Returns the steps that release an adopted load balancer. They delete its ports, all of which belong to the owner since the adoption, and
/// then the owner's tags. The plan is empty while the cloud is changing the load balancer.
pub(crate) fn plan_release(observed: &LoadBalancerRecord<Detail>) -> Vec<Step> {
    if !matches!(observed.summary.state(), LoadBalancerState::Active | LoadBalancerState::Error) {
        return Vec::new();
    }
    let there = &observed.detail;
    let mut steps = removals(&Ports::new(), there);
    steps.push(Step::Tag { id: there.id.clone(), tags: tags::released(&there.tags) });
    steps
}

/// Returns the route changes as a single vendor call, because the runtime passes no more changes than fit into one call.
pub(crate) fn plan_routes(changes: &RouteChanges) -> Vec<Step> {
    vec![Step::ChangeRoutes(changes.clone())]
}

/// The members of each port's pool, by port.
type Ports = BTreeMap<u32, BTreeSet<Member>>;

fn families(desired: &DesiredLoadBalancer) -> Vec<String> {
    let family = |family| if family == IpFamily::Ipv6 { "ipv6" } else { "ipv4" };
    desired.spec.ip_families().map(|one| family(one).to_owned()).collect()
}

fn ports(desired: &DesiredLoadBalancer) -> Result<Ports, VendorError> {
    let mut ports = Ports::new();
    for (at, listener) in desired.spec.listeners.iter().enumerate() {
        let field = format!("spec.listeners[{at}].node_port");
        let missing = || {
            let text = format!("{field}: is missing: this cloud reaches pods through node ports");
            VendorError::new(Fault::Invalid, text).in_field(&field)
        };
        ports.insert(listener.port, members(desired, listener.node_port.ok_or_else(missing)?));
    }
    Ok(ports)
}

/// Returns the members of the pool for a port: each backend with its addresses in the IP families of the load balancer.
fn members(desired: &DesiredLoadBalancer, port: u32) -> BTreeSet<Member> {
    let mut members = BTreeSet::new();
    for backend in desired.backends.iter() {
        let weight = if backend.draining { 0 } else { backend.weight.unwrap_or(1) };
        for address in &backend.addresses {
            let family = if address.contains(':') { IpFamily::Ipv6 } else { IpFamily::Ipv4 };
            if desired.spec.ip_families().any(|one| one == family) {
                members.insert(Member { address: address.clone(), port, weight });
            }
        }
    }
    members
}

fn additions(ports: &Ports, there: &Detail) -> Vec<Step> {
    let mut steps = Vec::new();
    for (port, members) in ports {
        let members: Vec<Member> = members.iter().cloned().collect();
        match there.listeners.iter().find(|listener| listener.port == *port) {
            None => {
                let pool = NewPool { protocol: "TCP", members };
                let listener = NewListener { protocol: "TCP", port: *port, pool };
                steps.push(Step::CreateListener { balancer: there.id.clone(), listener });
            }
            Some(listener) => steps.extend(member_change(listener, members, there)),
        }
    }
    steps
}

fn member_change(listener: &Listener, members: Vec<Member>, there: &Detail) -> Option<Step> {
    let pool = there.pools.iter().find(|pool| Some(&pool.id) == listener.pool_id.as_ref())?;
    let observed: BTreeSet<&Member> = pool.members.iter().collect();
    let same = observed == members.iter().collect();
    (!same).then(|| Step::SetMembers { pool: pool.id.clone(), members })
}

/// Listeners are deleted first, because the cloud refuses to delete a pool that a listener uses.
fn removals(ports: &Ports, there: &Detail) -> Vec<Step> {
    let (kept, gone): (Vec<&Listener>, Vec<&Listener>) =
        there.listeners.iter().partition(|listener| ports.contains_key(&listener.port));
    let mut steps: Vec<Step> =
        gone.iter().map(|one| Step::DeleteListener { id: one.id.clone(), port: one.port }).collect();
    let used: BTreeSet<&String> = kept.iter().filter_map(|listener| listener.pool_id.as_ref()).collect();
    let unused = there.pools.iter().filter(|pool| !used.contains(&pool.id));
    steps.extend(unused.map(|pool| Step::DeletePool { id: pool.id.clone() }));
    steps
}
