//! Plans for load balancers that several Services use. The functions have no side effects.
//!
//! Each Service that uses a load balancer is one of its users. A user has its own listeners and pools, and does not change those of other
//! users. The owner has everything else: addresses, floating IP, name. A guest is a user from a namespace other than the owner's. If the
//! owner no longer needs the load balancer but other users do, the owner leaves it without deleting it. The last user then deletes the load
//! balancer, provided that it had an owner.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use cloud_adapter::{
    driver::{DesiredLoadBalancer, Fault, LoadBalancerRecord, VendorError},
    kit,
};
use cloud_api_proto::v1alpha1::{IpFamily, LoadBalancerKey, load_balancer_spec::Scheme};

use super::{floating_ips, node_access, wanted::WantedPort};
use crate::{
    api::responses::{Balancer, FloatingIp, Listener},
    load_balancers::{
        detail::{ACTIVE, Detail, PENDING},
        guards::Guards,
    },
    ownership::{self, Description, GoNames, Marks, User},
    port::Port,
    step::Step,
};

/// The relation of a key to an existing load balancer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// The Service with this key owns everything that does not belong to another user.
    Owner,
    /// The Service with this key owns only its own listeners and pools.
    Sharer,
}

/// What happens to listeners without an owner tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unmarked {
    /// The owner of the load balancer takes over the listeners on the ports that it needs. The load balancer was created for this owner
    /// alone.
    TakenOver,
    /// The listeners belong to the user that created them, and their ports are in use.
    Stay,
}

impl Role {
    pub(super) fn of(desired: &DesiredLoadBalancer, there: &Balancer) -> Result<Self, VendorError> {
        let (key, wanted) = (&desired.key, desired.shares());
        let shares = ownership::sharers(&there.tags).iter().any(|user| user.key == *key);
        let owner = ownership::owner(&there.tags).map(|(key, _)| key);
        let owns = owner.as_ref() == Some(key);
        let fits = match wanted {
            Some(id) => id == there.id,
            None => !shares,
        };
        if !fits && (owns || shares) {
            let field = "spec.load_balancer_id";
            // The owner may also leave the field empty.
            let none = if owns { ", or none" } else { "" };
            let text = format!(
                "{field}: cannot change while the Service has load balancer {}: set this ID{none}; \
                 to use another load balancer, delete the Service and create it again",
                there.id
            );
            return Err(VendorError::new(Fault::Immutable, text).in_field(field));
        }
        // A load balancer that the former cloud controller manager created for a Service belongs to that Service, even if others use it.
        let made = owner.is_none() && GoNames::of(&desired.adopter()).made(&there.name);
        Ok(if owns || wanted.is_none() || (made && !shares) { Self::Owner } else { Self::Sharer })
    }
}

/// Returns the desired state with only the IP families that the load balancer has.
pub(super) fn narrowed(
    desired: &DesiredLoadBalancer,
    there: &Balancer,
    tree: &Detail,
) -> Result<DesiredLoadBalancer, VendorError> {
    let spec = &desired.spec;
    let invalid = |field: &str, text: String| {
        kit::invalid(field, format!("load balancer {}, which the Service shares, {text}", there.id))
    };
    let additional = there.additional_vips.iter().filter_map(|vip| vip.ip_address);
    let vips: Vec<IpAddr> = there.vip_address.into_iter().chain(additional).collect();
    let has = |family: &IpFamily| vips.iter().any(|vip| vip.is_ipv4() == (*family == IpFamily::Ipv4));
    let mut families: Vec<IpFamily> = spec.ip_families().collect();
    if !vips.is_empty() {
        if !families.first().is_some_and(has) {
            return Err(invalid("spec.ip_families", "has no address of the first IP family".to_owned()));
        }
        families.retain(has);
    }
    let public =
        tree.floating_ips.iter().filter(|ip| ip.port_id.is_some() && ip.port_id == there.vip_port_id);
    let public: Vec<IpAddr> = public.map(|ip| ip.floating_ip_address).collect();
    if spec.scheme() == Scheme::Internal
        && (!public.is_empty() || ownership::expects_floating_ip(&there.tags))
    {
        return Err(invalid("spec.scheme", "has a floating IP, but the Service is internal".to_owned()));
    }
    for (at, text) in spec.requested_addresses.iter().enumerate() {
        let asked: Option<IpAddr> = text.parse().ok();
        if !vips.iter().chain(&public).any(|one| Some(*one) == asked) {
            let field = format!("spec.requested_addresses[{at}]");
            return Err(invalid(&field, format!("does not have the address {text}")));
        }
    }
    let mut narrowed = desired.clone();
    narrowed.spec.ip_families = families.into_iter().map(Into::into).collect();
    Ok(narrowed)
}

/// Removes ports that another user has from the desired state. Only the changes of these ports fail; all other changes are made.
///
/// Returns the error, [`Fault::Invalid`], with the ports and their users.
pub(super) fn leave_taken_ports(
    desired: &DesiredLoadBalancer,
    unmarked: Unmarked,
    there: &Balancer,
    tree: &Detail,
    wanted: &mut BTreeMap<Port, WantedPort>,
) -> Option<VendorError> {
    let (mut fields, mut texts) = (Vec::new(), Vec::new());
    for listener in &tree.listeners {
        let Some(port) = listener.port().filter(|port| wanted.contains_key(port)) else { continue };
        let Some(whose) = taken_by(desired, unmarked, there, listener) else { continue };
        wanted.remove(&port);
        let mut asked = desired.spec.listeners.iter();
        let at = asked
            .position(|one| one.port == u32::from(port.number) && transport(one.protocol) == port.word());
        let field = format!("spec.listeners[{}].port", at.unwrap_or_default());
        texts.push(format!(
            "{field}: {port} of load balancer {} is taken by {whose}: use another port, or another load balancer",
            there.id
        ));
        fields.push(field);
    }
    let refusal = VendorError { fields, ..VendorError::new(Fault::Invalid, texts.join("; ")) };
    (!texts.is_empty()).then_some(refusal)
}

/// Returns the user of a listener, if the listener is not available to this Service.
fn taken_by(
    desired: &DesiredLoadBalancer,
    unmarked: Unmarked,
    there: &Balancer,
    listener: &Listener,
) -> Option<String> {
    let part = Marks { name: &listener.name, tags: &listener.tags };
    let users = ownership::users(&there.tags);
    let another = ownership::other_user(&users, &there.name, part, Some(&desired.key));
    if let Some(user) = another {
        return Some(user.text());
    }
    let names = GoNames::of(&desired.adopter());
    let go = names.proven().unwrap_or_default();
    let mut of_go = ownership::users_of_go(&there.name, &there.tags).into_iter();
    if let Some(tag) = of_go.find(|tag| *tag != go && ownership::is_part_of_go(tag, part)) {
        return Some(format!("{tag} of openstack-cloud-controller-manager"));
    }
    let is_own = ownership::is_part_of(&desired.key, go, part);
    (unmarked == Unmarked::Stay && !is_own).then(|| format!("listener {} ({})", listener.name, listener.id))
}

fn transport(protocol: i32) -> &'static str {
    use cloud_api_proto::v1alpha1::Protocol;
    match Protocol::try_from(protocol) {
        Ok(Protocol::Tcp) => "tcp",
        Ok(Protocol::Udp) => "udp",
        Ok(Protocol::Sctp) => "sctp",
        Ok(Protocol::Unspecified) | Err(_) => "",
    }
}

/// Returns the steps that remove a user from a load balancer that other users still need. `None`: the load balancer does not stay.
pub(super) fn leaving(observed: &LoadBalancerRecord<Detail>, guards: Option<&Guards>) -> Option<Vec<Step>> {
    let balancer = observed.detail.balancer.as_ref()?;
    let key = observed.summary.key.as_ref();
    let user = ownership::user(&balancer.tags, key);
    let shares = user.as_ref().is_some_and(|user| user.shares);
    // A load balancer without an owner stays. A guest does not delete the load balancer, but leaves that to Services of the owner's
    // namespace.
    let is_guest =
        user.as_ref().is_some_and(|user| ownership::is_guest(&balancer.name, &balancer.tags, user));
    let stays = shares && (is_guest || !ownership::is_given_up(&balancer.tags));
    if !stays && !ownership::stays_for_others(&balancer.name, &balancer.tags, key) {
        return None;
    }
    if balancer.provisioning_status.starts_with(PENDING) {
        return Some(Vec::new());
    }
    let is_own = |name: &str, tags: &[String]| match &user {
        Some(user) => user.has(&balancer.name, Marks { name, tags }),
        None => ownership::is_part_of_go(&balancer.name, Marks { name, tags }),
    };
    let mut steps = own_parts(observed, is_own);
    steps.extend(node_access::closing(observed, guards));
    if let Some(user) = &user {
        steps.extend(
            floating_ips::of_no_use(&observed.detail.floating_ips, &user.key).map(floating_ips::dismiss),
        );
        steps.extend(given_back(observed, balancer, user));
    }
    steps.push(Step::LeaveLoadBalancer { id: balancer.id.clone(), whose: key.cloned() });
    Some(steps)
}

/// Returns the step that stops guests from changing a load balancer that is about to be deleted while they still use it. Otherwise the
/// deletion would wait for each of their changes.
pub(super) fn closing(observed: &LoadBalancerRecord<Detail>) -> Option<Step> {
    // Octavia does not change tags of a load balancer in ERROR.
    let balancer = observed.detail.balancer.as_ref().filter(|one| one.provisioning_status == ACTIVE)?;
    let owner = ownership::user(&balancer.tags, observed.summary.key.as_ref()).filter(|user| !user.shares)?;
    let shared = ownership::is_used_by_others(&balancer.name, &balancer.tags, Some(&owner.key));
    shared.then(|| Step::LeaveLoadBalancer { id: balancer.id.clone(), whose: Some(owner.key) })
}

/// Returns an error if a load balancer is about to be deleted, so guests must not change it.
pub(super) fn check_open(there: &Balancer) -> Result<(), VendorError> {
    if !ownership::is_closed(&there.name, &there.tags) {
        return Ok(());
    }
    let text = format!(
        "load balancer {} is going to be deleted, because its owner no longer needs it: use another one",
        there.id
    );
    Err(kit::invalid("spec.load_balancer_id", text))
}

/// Returns the steps that delete the listeners and pools for which `is_own` is true. A pool stays if a remaining listener uses it.
pub(super) fn own_parts(
    observed: &LoadBalancerRecord<Detail>,
    is_own: impl Fn(&str, &[String]) -> bool,
) -> Vec<Step> {
    let (mut steps, mut kept) = (Vec::new(), BTreeSet::new());
    for listener in &observed.detail.listeners {
        match listener.port() {
            Some(port) if is_own(&listener.name, &listener.tags) => {
                steps.push(Step::DeleteListener { id: listener.id.clone(), port });
            }
            Some(_) | None => kept.extend(listener.default_pool_id.as_deref()),
        }
    }
    let pools = observed.detail.pools.iter().map(|tree| &tree.pool);
    let pools = pools.filter(|pool| !kept.contains(pool.id.as_str()) && is_own(&pool.name, &pool.tags));
    steps.extend(pools.map(|pool| Step::DeletePool { id: pool.id.clone(), name: pool.name.clone() }));
    steps
}

/// Returns the steps that pass addresses to the last user from the owner's namespace. These are the addresses that the owner left, and
/// those without a record. If an address remains after the load balancer is deleted, the deletion by this user still finds the address by
/// its new record.
pub(super) fn inheritance(observed: &LoadBalancerRecord<Detail>) -> Vec<Step> {
    let Some((balancer, key)) = observed.detail.balancer.as_ref().zip(observed.summary.key.as_ref()) else {
        return Vec::new();
    };
    let is_at_home = |user: &User| ownership::is_at_home(&balancer.name, &balancer.tags, user);
    let Some(user) = ownership::user(&balancer.tags, Some(key)).filter(is_at_home) else { return Vec::new() };
    let others = left_addresses(observed).filter(|ip| !floating_ips::is_of(ip, key));
    others.filter_map(|ip| entrusted(ip, &user)).collect()
}

/// Returns the steps that undo [`inheritance`]. They are needed if the leaving user got these addresses as the last user, but another
/// Service has used the load balancer since.
///
/// The owner gets the addresses back, even if it no longer needs the load balancer. If there is no owner, a user that stays gets them.
fn given_back(observed: &LoadBalancerRecord<Detail>, balancer: &Balancer, goes: &User) -> Vec<Step> {
    let owner = ownership::owner(&balancer.tags).filter(|(key, _)| !key.owner_uid.is_empty());
    let owner = owner.map(|(key, owner)| User { key, owner, go: String::new(), shares: false });
    let others = ownership::users(&balancer.tags).into_iter();
    let Some(adopter) = owner.into_iter().chain(others).find(|one| one.key != goes.key) else {
        return Vec::new();
    };
    let here = |ip: &&FloatingIp| ip.port_id.is_some() && ip.port_id == balancer.vip_port_id;
    let taken = observed
        .detail
        .floating_ips
        .iter()
        .filter(here)
        .filter(|ip| goes.shares && floating_ips::is_of(ip, &goes.key) && !floating_ips::is_kept(ip));
    taken.filter_map(|ip| entrusted(ip, &adopter)).collect()
}

/// Returns the step that records another owner of a floating IP.
fn entrusted(ip: &FloatingIp, to: &User) -> Option<Step> {
    let description = Description::read(&ip.description).unwrap_or_default();
    let description = description.of_another(&to.key, &to.owner).write().ok()?;
    Some(floating_ips::described(ip, description))
}

/// Returns attached floating IPs that are deleted with the load balancer although their records do not name the key. They belong to the
/// former owner or to the former cloud controller manager. A load balancer without a key has none, because its floating IPs are deleted
/// first.
pub(super) fn left_addresses(observed: &LoadBalancerRecord<Detail>) -> impl Iterator<Item = &FloatingIp> {
    let balancer = observed.detail.balancer.as_ref().filter(|_| observed.summary.key.is_some());
    let given_up = balancer.filter(|one| ownership::is_given_up(&one.tags));
    let former = given_up.and_then(|one| ownership::owner(&one.tags)).map(|(key, _)| key);
    let of_go = balancer.is_some_and(|one| ownership::is_of_go(&one.name));
    let port = balancer.and_then(|balancer| balancer.vip_port_id.as_deref());
    observed.detail.floating_ips.iter().filter(move |ip| {
        let goes = match Description::read(&ip.description) {
            Some(one) => !one.keep && Some(one.key()) == former,
            None => of_go && Description::is_of_go(&ip.description),
        };
        goes && port.is_some() && ip.port_id.as_deref() == port
    })
}

/// Returns the ID that security group rules use for this key's share of a load balancer.
pub(super) fn user_id(balancer: &Balancer, key: &LoadBalancerKey, role: Role) -> String {
    match role {
        Role::Owner => balancer.id.clone(),
        Role::Sharer => ownership::sharer_id(&balancer.id, key),
    }
}

pub(super) fn deletion(observed: &LoadBalancerRecord<Detail>, balancer: &Balancer) -> Step {
    let seen = observed.detail.listeners.iter().map(|listener| listener.id.clone()).collect();
    Step::DeleteLoadBalancer { id: balancer.id.clone(), whose: observed.summary.key.clone(), seen }
}

/// Returns the floating IPs that the last user deletes after the load balancer.
pub(super) fn last_addresses(observed: &LoadBalancerRecord<Detail>) -> Vec<Step> {
    let is_own =
        |ip: &FloatingIp| observed.summary.key.as_ref().is_some_and(|key| floating_ips::is_of(ip, key));
    left_addresses(observed).filter(|ip| !is_own(ip)).map(floating_ips::dismiss).collect()
}
