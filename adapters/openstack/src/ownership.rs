//! Defines the names by which any process recognises the load balancers of an owner. The module `tags` defines the tags of these load
//! balancers, and `description` the corresponding record of a floating IP.

mod description;
mod go;
mod security_groups;
mod sharers;
mod tags;

use cloud_adapter::{driver::DesiredLoadBalancer, kit};

pub(crate) use self::{
    description::{Claim, Description, short_namespace},
    go::{GoNames, is_balancer as is_of_go},
    security_groups::{balancer_of, cluster_of, group_description, group_name, owner_of, rule_description},
    sharers::{
        Sharing, User, beside_others, check_room, is_at_home, is_closed, is_given_up, is_guest, is_left,
        is_used_by_others, leave, may_go, other_user, sharer_fence, sharer_hash, sharer_id, sharers,
        shares_by_consent, stays_for_others, user, users, users_of_go,
    },
    tags::{
        Expectation, Tags, adoptable_by, adopted, adopting, applied_hash, expects_floating_ip, fence,
        is_adopted, is_part_of, is_part_of_go, missing, owner, part_tag, released, shared_with, signed,
        unfinished, wanted, withdrawn,
    },
};

/// The name and the tags of a listener or pool, which identify its owner.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Marks<'a> {
    pub(crate) name: &'a str,
    pub(crate) tags: &'a [String],
}

/// Maximum length of a name in the cloud, in bytes. Source: Octavia API reference.
const NAME_MAX: usize = 255;

pub(crate) fn balancer_name(desired: &DesiredLoadBalancer) -> String {
    kit::balancer_name(desired, NAME_MAX)
}

/// Returns the new name of an existing load balancer, if a name is configured that differs from the existing name.
///
/// A name that the former cloud controller manager has chosen does not change. After a rollback, that controller must find the load
/// balancer by this name.
pub(crate) fn new_name(desired: &DesiredLoadBalancer, there: &str) -> Option<String> {
    let wished = !desired.spec.name.is_empty() && !is_of_go(there);
    wished.then(|| balancer_name(desired)).filter(|name| name != there)
}
