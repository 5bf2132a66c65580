//! What is missing until a load balancer has the floating IP that it shall have. Pure.
//!
//! Ours are known by their description, which is set with the create, and by the port that they lead to: repeated tries make no second
//! one. One that leads elsewhere was taken by somebody, and is left alone.

use std::net::IpAddr;

use cloud_adapter::driver::{DesiredLoadBalancer, LoadBalancerRecord, VendorError};
use cloud_api_proto::v1alpha1::{LoadBalancerKey, load_balancer_spec::AddressRetention};

use super::wanted::Wanted;
use crate::{
    load_balancers::{
        Detail,
        answers::{Balancer, FloatingIp},
        requests::{NewFloatingIp, Target},
    },
    ownership::{self, Description},
    step::Step,
};

/// The steps until the load balancer has its floating IP, or none. `there`: `None` if it is not made yet.
pub(super) fn changes(
    desired: &DesiredLoadBalancer,
    wanted: &Wanted,
    there: Option<(&Balancer, &Detail)>,
) -> Result<Vec<Step>, VendorError> {
    let keep = desired.spec.address_retention() == AddressRetention::Keep;
    let description = Description::of(desired, keep);
    let address = wanted.public.as_ref().and_then(|public| public.address);
    let tree = there.map(|(_, tree)| tree.floating_ips.as_slice()).unwrap_or_default();
    let target = there.and_then(|(balancer, _)| target(balancer));
    let leads_here = |one: &&FloatingIp| {
        target.as_ref().is_some_and(|target| one.port_id.as_ref() == Some(&target.port_id))
    };
    let attached: Vec<&FloatingIp> = tree.iter().filter(leads_here).collect();
    let free: Vec<&FloatingIp> =
        tree.iter().filter(|one| one.port_id.is_none() && is_of(one, &desired.key)).collect();
    let fits = |one: &&&FloatingIp| match address {
        Some(address) => one.floating_ip_address == address,
        None => is_from(one, &desired.spec.address_pool),
    };
    let mut steps = Vec::new();
    let mut used = None;
    if let Some(public) = &wanted.public {
        if let Some(kept) = attached.iter().find(fits) {
            used = Some(kept.id.as_str());
            steps.extend(describe(kept, &description)?);
        } else {
            steps.extend(attached.iter().map(|one| release(one, &desired.key)));
            let own = free.iter().find(fits);
            used = own.map(|one| one.id.as_str());
            steps.push(match (own, public.address) {
                (Some(own), _) => attach(own, target.clone()),
                (None, Some(address)) => Step::AttachReserved { address, target: target.clone() },
                (None, None) => {
                    let new = NewFloatingIp {
                        pool: public.pool.clone(),
                        floating_network_id: public.network.clone(),
                        subnet_id: public.subnet.clone(),
                        description: description.write()?,
                    };
                    Step::CreateFloatingIp { new, target: target.clone() }
                }
            });
            if let Some(own) = own {
                steps.extend(describe(own, &description)?);
            }
        }
    } else {
        steps.extend(attached.iter().map(|one| release(one, &desired.key)));
    }
    let spare = free.iter().filter(|one| used != Some(&one.id) && !is_kept(one));
    steps.extend(spare.map(|one| delete(one)));
    Ok(steps)
}

/// What becomes of the floating IPs of a load balancer that goes: ours go with it, unless they are kept.
pub(super) fn releases(observed: &LoadBalancerRecord<Detail>) -> Vec<Step> {
    let Detail { balancer, floating_ips, .. } = &observed.detail;
    let port = balancer.as_ref().and_then(|balancer| balancer.vip_port_id.as_deref());
    let Some(key) = &observed.summary.key else { return Vec::new() };
    let goes = |one: &&FloatingIp| {
        let here = one.port_id.is_none() || one.port_id.as_deref() == port;
        here && is_of(one, key) && !is_kept(one)
    };
    floating_ips.iter().filter(goes).map(delete).collect()
}

/// The same for one without our tags: those that the Go cloud controller manager made for it.
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

/// Where packets of IPv4 come in.
fn target(balancer: &Balancer) -> Option<Target> {
    let port_id = balancer.vip_port_id.clone()?;
    Some(Target { port_id, address: ipv4(balancer)? })
}

/// The load balancer's own IPv4 address.
pub(crate) fn ipv4(balancer: &Balancer) -> Option<IpAddr> {
    let additional = balancer.additional_vips.iter().filter_map(|vip| vip.ip_address);
    balancer.vip_address.into_iter().chain(additional).find(IpAddr::is_ipv4)
}

/// One that the Go cloud controller manager made becomes ours; a given one stays as it is.
fn describe(one: &FloatingIp, wanted: &Description) -> Result<Option<Step>, VendorError> {
    let theirs = Description::read(&one.description);
    let ours = theirs.as_ref().is_some_and(|there| there.key() == wanted.key() && there.keep != wanted.keep);
    if !ours && !Description::is_of_go(&one.description) {
        return Ok(None);
    }
    // What it was made from does not change.
    let mut wanted = wanted.clone();
    wanted.pool = theirs.map(|there| there.pool).unwrap_or_default();
    let (id, address, description) = (one.id.clone(), one.floating_ip_address, wanted.write()?);
    Ok(Some(Step::DescribeFloatingIp { id, address, description }))
}

fn attach(one: &FloatingIp, target: Option<Target>) -> Step {
    Step::AttachFloatingIp { id: one.id.clone(), address: one.floating_ip_address, target }
}

/// Of one that is there: ours goes, a kept or given one stays in the project.
fn release(one: &FloatingIp, key: &LoadBalancerKey) -> Step {
    if is_of(one, key) && !is_kept(one) {
        return delete(one);
    }
    Step::DetachFloatingIp { id: one.id.clone(), address: one.floating_ip_address }
}

fn delete(one: &FloatingIp) -> Step {
    Step::DeleteFloatingIp { id: one.id.clone(), address: one.floating_ip_address }
}

fn is_of(one: &FloatingIp, key: &LoadBalancerKey) -> bool {
    Description::read(&one.description).is_some_and(|there| there.key() == *key)
}

/// Whether it can be from this pool: one that is from another by its description is not, whoever said so.
fn is_from(one: &FloatingIp, pool: &str) -> bool {
    let made_from = Description::read(&one.description).map(|there| there.pool).unwrap_or_default();
    pool.is_empty() || made_from.is_empty() || made_from == pool
}

fn is_kept(one: &FloatingIp) -> bool {
    Description::read(&one.description).is_some_and(|there| there.keep)
}
