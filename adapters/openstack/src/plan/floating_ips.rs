//! Computes the steps by which a load balancer gets its desired floating IP. Pure functions.
//!
//! A floating IP is recognised by its description, which is set on creation, and by the port that it is attached to. A retry therefore does
//! not create a second floating IP. A floating IP that is attached to another port is not changed.
//!
//! A floating IP that is replaced is deleted only when its replacement is attached. A request may fail, for example because the address is
//! not reserved or the pool is unreachable. The user can then withdraw the request without losing the old address. For the same reason, a
//! new floating IP is marked as kept only after it is attached.

use std::{collections::BTreeMap, net::IpAddr};

use cloud_adapter::{
    driver::{DesiredLoadBalancer, LoadBalancerRecord, VendorError},
    kit::{self, Part},
};
use cloud_api_proto::v1alpha1::{LoadBalancerKey, load_balancer_spec::AddressRetention};

use super::wanted::{Public, Wanted};
use crate::{
    api::{
        requests::{Former, NewFloatingIp, Target},
        responses::{Balancer, FloatingIp},
    },
    load_balancers::{detail::Detail, settings::Site},
    ownership::{self, Claim, Description},
    step::Step,
};

/// Returns the steps after which the load balancer has the desired floating IP, or no floating IP if none is desired. `there` is the load
/// balancer, or `None` if the load balancer does not exist yet.
pub(super) fn changes(
    desired: &DesiredLoadBalancer,
    wanted: &Wanted,
    there: Option<(&Balancer, &Detail)>,
    site: &Site<'_>,
) -> Result<Vec<Step>, VendorError> {
    let description = Description::of(desired, keeps(desired) && !is_full(desired, site));
    let address = wanted.public.as_ref().and_then(|public| public.address);
    let tree = there.map(|(_, tree)| tree.floating_ips.as_slice()).unwrap_or_default();
    let target = there.and_then(|(balancer, _)| target(balancer));
    let leads_here = |one: &&FloatingIp| {
        target.as_ref().is_some_and(|target| one.port_id.as_ref() == Some(&target.port_id))
    };
    let (mut steps, mut attached) = (Vec::new(), Vec::new());
    for one in tree.iter().filter(leads_here) {
        let (taken, step) = taken_over(one, &description)?;
        attached.push(taken);
        steps.extend(step);
    }
    let attached: Vec<&FloatingIp> = attached.iter().collect();
    let free: Vec<&FloatingIp> =
        tree.iter().filter(|one| one.port_id.is_none() && is_of(one, &desired.key)).collect();
    let fits = |one: &&&FloatingIp| match address {
        Some(address) => one.floating_ip_address == address,
        None => is_from(one, &desired.spec.address_pool),
    };
    let mut used = None;
    // The floating IPs are sorted by ID, because this sequence is the same before and after the floating IPs are detached.
    let mut spare: BTreeMap<&str, &FloatingIp> = BTreeMap::new();
    if let Some(public) = &wanted.public {
        if let Some(kept) = attached.iter().find(fits) {
            used = Some(kept.id.as_str());
            steps.extend(describe(kept, &description, desired.spec.address_retention())?);
            steps.extend(record(kept, desired)?);
        } else {
            let rank = |one: &FloatingIp| rank(one, desired, public);
            let own = free.iter().filter(fits).min_by(|one, other| rank(one).cmp(&rank(other))).copied();
            used = own.map(|one| one.id.as_str());
            let former = attached.iter().chain(&free).find(|one| is_of(one, &desired.key)).copied();
            let claim = Claim::of(desired);
            let retention = desired.spec.address_retention();
            let next =
                AddressChoice { own, address, former, public, description: &description, retention, claim };
            steps.extend(next.steps(&attached, target)?);
            let goes = attached.iter().filter(|one| is_of(one, &desired.key) && !is_kept(one));
            spare.extend(goes.map(|one| (one.id.as_str(), *one)));
        }
    } else {
        // If the load balancer was adopted, other floating IPs belong to the user that created the load balancer.
        let adopts = wanted.tags.contains(&ownership::adopted());
        let goes = attached.iter().filter(|one| !adopts || is_of(one, &desired.key));
        steps.extend(goes.map(|one| release(one, &desired.key)));
    }
    let free = free.iter().filter(|one| used != Some(&one.id) && !is_kept(one));
    spare.extend(free.map(|one| (one.id.as_str(), *one)));
    steps.extend(spare.into_values().map(dismiss));
    Ok(steps)
}

/// Ranks unattached floating IPs. The best is a floating IP from the desired pool, then one from the network of new floating IPs, and then
/// the oldest. The oldest may have been in use. A younger floating IP may be left from a request that could not be met.
fn rank(
    one: &FloatingIp,
    desired: &DesiredLoadBalancer,
    public: &Public,
) -> (bool, bool, Option<String>, String) {
    let made_from = Description::read(&one.description).map(|there| there.pool).unwrap_or_default();
    let elsewhere = public.network.as_ref().is_some_and(|network| *network != one.floating_network_id);
    (made_from != desired.spec.address_pool, elsewhere, one.created_at.clone(), one.id.clone())
}

/// The data that determine which floating IP is attached next.
struct AddressChoice<'a> {
    /// An unattached floating IP that this owner already has.
    own: Option<&'a FloatingIp>,
    /// The requested address, whichever client reserved it.
    address: Option<IpAddr>,
    /// The owner's former floating IP, which the next floating IP replaces.
    former: Option<&'a FloatingIp>,
    public: &'a Public,
    /// The description that the floating IP has when all steps are done.
    description: &'a Description,
    retention: AddressRetention,
    claim: Claim,
}

impl AddressChoice<'_> {
    /// Returns the steps that attach the floating IP. A port has only one floating IP, so other floating IPs are detached, and stay in the
    /// project. Steps that the cloud may refuse come before the detachment.
    fn steps(&self, attached: &[&FloatingIp], target: Option<Target>) -> Result<Vec<Step>, VendorError> {
        let (mut reserve, mut for_reserved, mut describes) = (None, None, None);
        let attach = match (self.own, self.address) {
            (Some(own), _) => {
                describes = describe(own, self.description, self.retention)?;
                let (id, address) = (Part::Known(own.id.clone()), Some(own.floating_ip_address));
                Step::AttachFloatingIp { id, address, target }
            }
            (None, Some(address)) => {
                for_reserved = Some((address, Box::new(self.claim.clone())));
                Step::AttachReserved { address, target, claim: Box::new(self.claim.clone()) }
            }
            (None, None) if attached.is_empty() && self.former.is_none() => {
                Step::CreateFloatingIp { new: self.made(self.description)?, target }
            }
            (None, None) => {
                let description = self.description.write()?;
                let former = self.former.map(|one| Former {
                    id: one.id.clone(),
                    address: one.floating_ip_address,
                    network_id: one.floating_network_id.clone(),
                    description: description.clone(),
                });
                // The floating IP is not marked as kept yet, so that it does not stay in the project if it is never attached.
                let new = self.made(&self.description.clone().not_kept())?;
                reserve = Some(Step::ReserveFloatingIp { new, former });
                describes = self.description.keep.then_some(Step::DescribeFloatingIp {
                    id: Part::Coming,
                    address: None,
                    description,
                });
                Step::AttachFloatingIp { id: Part::Coming, address: None, target }
            }
        };
        let detach = attached.iter().map(|one| detach(one, for_reserved.clone()));
        Ok(reserve.into_iter().chain(detach).chain([attach]).chain(describes).collect())
    }

    fn made(&self, description: &Description) -> Result<NewFloatingIp, VendorError> {
        Ok(NewFloatingIp {
            pool: self.public.pool.clone(),
            floating_network_id: self.public.network.clone(),
            subnet_id: self.public.subnet.clone(),
            description: description.write()?,
        })
    }
}

fn keeps(desired: &DesiredLoadBalancer) -> bool {
    desired.spec.address_retention() == AddressRetention::Keep
}

fn is_full(desired: &DesiredLoadBalancer, site: &Site<'_>) -> bool {
    site.kept.is_full(&desired.key, &desired.owner, site.options.most_kept())
}

/// Returns an error if the address will not be kept because the namespace already keeps the maximum number of addresses. Only keeping the
/// address fails; all other changes are made.
pub(super) fn not_kept(desired: &DesiredLoadBalancer, site: &Site<'_>) -> Option<VendorError> {
    let refusal = || {
        let text = format!(
            "namespace {} already keeps its maximum number of addresses: delete one that is \
             no longer needed, or increase adapter.openstack.loadBalancers.keptAddressesPerNamespace (--kept-addresses-per-namespace)",
            desired.owner.namespace
        );
        kit::invalid("spec.address_retention", text)
    };
    (keeps(desired) && is_full(desired, site)).then(refusal)
}

/// Returns an error if the Service does not get the requested address because the load balancer was adopted with an address that its
/// creator assigned.
pub(super) fn stays_with_person(
    desired: &DesiredLoadBalancer,
    wanted: &Wanted,
    balancer: &Balancer,
    tree: &Detail,
) -> Option<VendorError> {
    let asked = wanted.public.as_ref()?.address?;
    let port = target(balancer)?.port_id;
    let here = tree.floating_ips.iter().find(|one| one.port_id.as_deref() == Some(&port))?;
    let another = here.floating_ip_address != asked && !is_of(here, &desired.key);
    let refusal = || {
        let text = format!(
            "load balancer {} was adopted with floating IP {}: request this floating IP, or detach it",
            balancer.id, here.floating_ip_address
        );
        kit::invalid("spec.requested_addresses", text)
    };
    (wanted.tags.contains(&ownership::adopted()) && another).then(refusal)
}

/// Returns the steps for the floating IPs of a load balancer that is deleted. Floating IPs of its owner are deleted unless they are kept.
pub(super) fn releases(observed: &LoadBalancerRecord<Detail>) -> Vec<Step> {
    let Detail { balancer, floating_ips, .. } = &observed.detail;
    let port = balancer.as_ref().and_then(|balancer| balancer.vip_port_id.as_deref());
    let Some(key) = &observed.summary.key else { return Vec::new() };
    let goes = |one: &&FloatingIp| {
        let here = one.port_id.is_none() || one.port_id.as_deref() == port;
        here && is_of(one, key) && !is_kept(one)
    };
    floating_ips.iter().filter(goes).map(dismiss).collect()
}

/// Returns the steps for deleting a load balancer that has no owner tags. They delete the floating IPs that the former cloud controller
/// manager created for this load balancer.
pub(super) fn releases_of_go(observed: &LoadBalancerRecord<Detail>) -> Vec<Step> {
    let Detail { balancer, floating_ips, .. } = &observed.detail;
    let Some(balancer) = balancer.as_ref().filter(|_| observed.summary.key.is_none()) else {
        return Vec::new();
    };
    if !ownership::is_of_go(&balancer.name) {
        return Vec::new();
    }
    let goes = |one: &&FloatingIp| {
        one.port_id.is_some()
            && one.port_id == balancer.vip_port_id
            && Description::is_of_go(&one.description)
    };
    floating_ips.iter().filter(goes).map(delete).collect()
}

fn target(balancer: &Balancer) -> Option<Target> {
    let port_id = balancer.vip_port_id.clone()?;
    Some(Target { port_id, address: balancer.ipv4()? })
}

/// Records the owner of a floating IP that the former cloud controller manager created. The step comes before all other changes, because
/// the owner would be unknown after them.
fn taken_over(one: &FloatingIp, wanted: &Description) -> Result<(FloatingIp, Option<Step>), VendorError> {
    if !Description::is_of_go(&one.description) {
        return Ok((one.clone(), None));
    }
    // The pool from which the floating IP was created is not known.
    let description = wanted.clone().made_from(String::new()).write()?;
    let taken = FloatingIp { description: description.clone(), ..one.clone() };
    Ok((taken, Some(described(one, description))))
}

/// Updates the record of whether the address is kept. The record of an address that a user reserved does not change. If an earlier Service
/// of this name kept the address, it remains kept until the Service sets `on-delete: delete`.
fn describe(
    one: &FloatingIp,
    wanted: &Description,
    retention: AddressRetention,
) -> Result<Option<Step>, VendorError> {
    let ours = Description::read(&one.description).filter(|there| there.key() == wanted.key());
    let Some(there) = ours.filter(|there| there.keep != wanted.keep) else { return Ok(None) };
    let came_back = there.keep && there.asked.is_some();
    // A user reserved the address, so this Service can neither keep nor delete it.
    if there.asked.is_some() && !(came_back && retention == AddressRetention::Release) {
        return Ok(None);
    }
    // The pool from which the floating IP was created does not change.
    let description = wanted.clone().made_from(there.pool).write()?;
    Ok(Some(described(one, description)))
}

/// Records the owner of an attached floating IP that has no record. This keeps the address reserved for the owner while the load balancer
/// is recreated.
fn record(one: &FloatingIp, desired: &DesiredLoadBalancer) -> Result<Option<Step>, VendorError> {
    if Description::read(&one.description).is_some() {
        return Ok(None);
    }
    let Ok(claimed) = Claim::of(desired).of_one_that_says(&one.description) else { return Ok(None) };
    Ok(Some(described(one, claimed.write()?)))
}

/// Returns the step for an owned floating IP that is no longer needed. If a user reserved it, its earlier description is restored;
/// otherwise it is deleted.
pub(super) fn dismiss(one: &FloatingIp) -> Step {
    match Description::read(&one.description).and_then(|there| there.asked) {
        Some(before) => described(one, before),
        None => delete(one),
    }
}

pub(super) fn described(one: &FloatingIp, description: String) -> Step {
    let (id, address) = (Part::Known(one.id.clone()), Some(one.floating_ip_address));
    Step::DescribeFloatingIp { id, address, description }
}

/// Returns the step for an attached floating IP that the load balancer no longer needs. The floating IP is deleted if it belongs to the
/// owner. If it is kept or a user reserved it, it is only detached and stays in the project.
fn release(one: &FloatingIp, key: &LoadBalancerKey) -> Step {
    let was_there = Description::read(&one.description).is_some_and(|there| there.asked.is_some());
    if is_of(one, key) && !is_kept(one) && !was_there {
        return delete(one);
    }
    detach(one, None)
}

fn detach(one: &FloatingIp, for_reserved: Option<(IpAddr, Box<Claim>)>) -> Step {
    Step::DetachFloatingIp { id: one.id.clone(), address: one.floating_ip_address, for_reserved }
}

pub(super) fn delete(one: &FloatingIp) -> Step {
    Step::DeleteFloatingIp { id: one.id.clone(), address: one.floating_ip_address }
}

/// Returns the unattached floating IPs of a key, except those that are kept.
pub(super) fn of_no_use<'a>(
    all: &'a [FloatingIp],
    key: &'a LoadBalancerKey,
) -> impl Iterator<Item = &'a FloatingIp> {
    all.iter().filter(|one| one.port_id.is_none() && is_of(one, key) && !is_kept(one))
}

pub(super) fn is_of(one: &FloatingIp, key: &LoadBalancerKey) -> bool {
    Description::read(&one.description).is_some_and(|there| there.key() == *key)
}

/// Returns whether a floating IP may come from this pool. It may unless its record names another pool.
fn is_from(one: &FloatingIp, pool: &str) -> bool {
    let made_from = Description::read(&one.description).map(|there| there.pool).unwrap_or_default();
    // A Service may give the pool's name or its ID. If only this form differs, the client detects that when it looks up the pool.
    pool.is_empty() || made_from.is_empty() || made_from == pool || one.floating_network_id == pool
}

pub(super) fn is_kept(one: &FloatingIp) -> bool {
    Description::read(&one.description).is_some_and(|there| there.keep)
}
