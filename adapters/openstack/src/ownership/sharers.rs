//! Records in the tags of a load balancer the owners that share it. The tags have the form `cloudadapter.dev/sharer/<uid>/...`. The
//! functions have no side effects.
//!
//! Octavia replaces all tags at once, and each owner that uses the load balancer adds its own tags to the tags of the other owners. Each
//! write therefore starts from the current tags, and changes only the tags of a single owner.

use std::collections::BTreeSet;

use cloud_adapter::{
    driver::{Adopter, DesiredLoadBalancer, Fault, Inheritance, VendorError, read_fence, write_fence},
    kit::{self, is_outdated},
};
use cloud_api_proto::v1alpha1::{Fence, LoadBalancerKey, Owner};

use super::{
    Marks,
    go::{self, GoNames},
    tags::{
        CLUSTER_ID, CLUSTER_NAME, FENCE, HASH, OWNER_KIND, OWNER_NAME, OWNER_NAMESPACE, SHARER, TAG_MAX,
        is_former, is_owners, owner, part_tag, read, sharer_of, value, write,
    },
};
use crate::api::responses::LiveBalancer;

/// The maximum number of Services that use a load balancer. Each of these Services adds tags to every listing, and its changes wait for the
/// changes of the other Services.
const SERVICES_MAX: usize = 16;

/// The tag that marks that the owner no longer needs the load balancer, but other users still do.
const LEFT: &str = "left";
/// The tag that marks that the former cloud controller manager already let this owner share the load balancer.
const OF_GO: &str = "of-go";
const YES: &str = "true";

/// An owner that uses a load balancer, alone or together with other owners.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct User {
    pub(crate) key: LoadBalancerKey,
    pub(crate) owner: Owner,
    /// The tag that the former cloud controller manager uses for this owner.
    pub(crate) go: String,
    /// Whether this user shares the load balancer. Otherwise, this user is the owner.
    pub(crate) shares: bool,
}

impl User {
    fn of(key: LoadBalancerKey, owner: Owner, cluster_name: &str, shares: bool) -> Self {
        let adopter =
            Adopter { key, owner, cluster_name: cluster_name.to_owned(), inheritance: Inheritance::ByName };
        let go = GoNames::of(&adopter).name;
        Self { key: adopter.key, owner: adopter.owner, go, shares }
    }

    /// Returns the ID of this user's share of a load balancer. For the owner, this is the ID of the load balancer itself.
    pub(crate) fn id(&self, balancer: &str) -> String {
        if self.shares { sharer_id(balancer, &self.key) } else { balancer.to_owned() }
    }

    /// Returns whether a listener or pool belongs to this user. `balancer` is the name of the load balancer.
    pub(crate) fn has(&self, balancer: &str, part: Marks<'_>) -> bool {
        let name = if self.shares { self.go.as_str() } else { balancer };
        super::is_part_of(&self.key, name, part)
    }

    pub(crate) fn text(&self) -> String {
        let Owner { kind, namespace, name, .. } = &self.owner;
        format!("{kind} {namespace}/{name} of cluster {}", self.key.cluster_id)
    }
}

pub(crate) fn sharer_id(balancer: &str, key: &LoadBalancerKey) -> String {
    format!("{balancer}/{}", key.owner_uid)
}

pub(crate) fn user(tags: &[String], key: Option<&LoadBalancerKey>) -> Option<User> {
    users(tags).into_iter().find(|user| Some(&user.key) == key)
}

/// Returns the owner, unless the owner no longer needs the load balancer, and all owners that share the load balancer.
pub(crate) fn users(tags: &[String]) -> Vec<User> {
    let owner = owner(tags).filter(|(key, _)| !is_given_up(tags) && !key.owner_uid.is_empty());
    let cluster_name = read(tags, CLUSTER_NAME).unwrap_or_default();
    let owner = owner.map(|(key, owner)| User::of(key, owner, cluster_name, false));
    owner.into_iter().chain(sharers(tags)).collect()
}

/// Returns all owners that share the load balancer, sorted by their UIDs.
pub(crate) fn sharers(tags: &[String]) -> Vec<User> {
    let uids: BTreeSet<&str> = tags
        .iter()
        .filter_map(|tag| sharer_of(tag))
        .filter(|uid| said(tags, uid, CLUSTER_ID).is_some())
        .collect();
    let sharer = |uid: &str| {
        let text = |word| said(tags, uid, word).unwrap_or_default().to_owned();
        let owner = Owner {
            kind: text(OWNER_KIND),
            namespace: text(OWNER_NAMESPACE),
            name: text(OWNER_NAME),
            uid: uid.to_owned(),
        };
        let key = LoadBalancerKey { cluster_id: text(CLUSTER_ID), owner_uid: uid.to_owned() };
        User::of(key, owner, &text(CLUSTER_NAME), true)
    };
    uids.into_iter().map(sharer).collect()
}

/// Returns the tags of Services that the former cloud controller manager lets use the load balancer. The Service for which the load
/// balancer was created is left out, and so are Services that are already among its [`users`]. `name` is the name of the load balancer.
pub(crate) fn users_of_go<'a>(name: &str, tags: &'a [String]) -> Vec<&'a str> {
    let ours = users(tags);
    let is_known = |tag: &str| ours.iter().any(|user| user.go == tag) || go::tag_of(name, tags) == Some(tag);
    tags.iter().map(String::as_str).filter(|tag| go::is_user(tag) && !is_known(tag)).collect()
}

/// Returns whether the load balancer has users other than `but`. If `but` is `None`, the Service for which the former cloud controller
/// manager created the load balancer does not count.
pub(crate) fn is_used_by_others(name: &str, tags: &[String], but: Option<&LoadBalancerKey>) -> bool {
    // The name identifies that Service until the load balancer has owner tags, or its owner has left.
    let of_go = owner(tags).is_none() && go::is_balancer(name) && !is_given_up(tags);
    users(tags).iter().any(|user| Some(&user.key) != but)
        || !users_of_go(name, tags).is_empty()
        || (of_go && but.is_some())
}

/// Returns whether the load balancer stays after `but` leaves. The addresses never pass to another namespace. A load balancer that has, or
/// had, an owner therefore stays only for Services of the owner's namespace. When the last of these Services leaves, the load balancer is
/// deleted, even if guests still use it.
pub(crate) fn stays_for_others(name: &str, tags: &[String], but: Option<&LoadBalancerKey>) -> bool {
    let Some((home, owner)) = owner(tags).filter(|(_, owner)| !owner.namespace.is_empty()) else {
        return is_used_by_others(name, tags, but);
    };
    let is_at_home =
        |user: &User| user.key.cluster_id == home.cluster_id && user.owner.namespace == owner.namespace;
    users(tags).iter().any(|user| Some(&user.key) != but && is_at_home(user))
        || users_of_go(name, tags).iter().any(|tag| go::namespace_of(tag) == Some(&owner.namespace))
}

/// Returns whether a user is in the namespace for which the load balancer was created, or that namespace is not known.
pub(crate) fn is_at_home(name: &str, tags: &[String], user: &User) -> bool {
    match owner(tags).filter(|(_, owner)| !owner.namespace.is_empty()) {
        Some((home, owner)) => {
            user.key.cluster_id == home.cluster_id && user.owner.namespace == owner.namespace
        }
        None => go::namespace_of(name).is_none_or(|namespace| namespace == user.owner.namespace),
    }
}

/// Returns whether a user is a guest. A guest shares the load balancer from a namespace or cluster other than the owner's, where the
/// owner's namespace is known.
pub(crate) fn is_guest(name: &str, tags: &[String], user: &User) -> bool {
    user.shares
        && owner(tags).is_some_and(|(_, owner)| !owner.namespace.is_empty())
        && !is_at_home(name, tags, user)
}

/// Returns whether a user shares the load balancer only with the consent of its owner. If so, any tag of the former cloud controller
/// manager for this user was written by this adapter.
pub(crate) fn shares_by_consent(tags: &[String], key: &LoadBalancerKey) -> bool {
    let is_sharer = sharers(tags).iter().any(|user| user.key == *key);
    is_sharer && said(tags, &key.owner_uid, OF_GO).is_none()
}

pub(crate) fn is_given_up(tags: &[String]) -> bool {
    read(tags, LEFT) == Some(YES)
}

/// Returns whether the owner no longer needs the load balancer, but the load balancer stays for other users.
pub(crate) fn is_left(name: &str, tags: &[String]) -> bool {
    is_given_up(tags) && stays_for_others(name, tags, None)
}

/// Returns whether the owner no longer needs the load balancer, and at most guests use it. The load balancer does not stay for guests.
pub(crate) fn is_closed(name: &str, tags: &[String]) -> bool {
    is_given_up(tags) && !stays_for_others(name, tags, None)
}

/// Returns the hash of the spec that was last applied completely for a sharing owner, or an empty string if there is no such hash.
pub(crate) fn sharer_hash<'a>(tags: &'a [String], uid: &str) -> &'a str {
    said(tags, uid, HASH).unwrap_or_default()
}

pub(crate) fn sharer_fence(tags: &[String], uid: &str) -> Option<Fence> {
    read_fence(said(tags, uid, FENCE)?)
}

/// The tags of a sharing owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sharing {
    pub(crate) key: LoadBalancerKey,
    tags: Vec<String>,
    /// The former cloud controller manager's tag for this owner. The adapter sets this tag on load balancers of that controller, because
    /// that controller would otherwise delete them.
    go: String,
    /// Whether the tag `go` on a load balancer proves that the former cloud controller manager used the load balancer for this Service.
    is_proven: bool,
}

impl Sharing {
    /// Returns the tags that claim a share of the load balancer. The hash is left out, so that the share does not yet count as complete.
    pub(crate) fn claim(desired: &DesiredLoadBalancer, fence: &Fence) -> Result<Self, VendorError> {
        let DesiredLoadBalancer { key, owner, cluster_name, .. } = desired;
        let uid = &key.owner_uid;
        let cluster = sharer_tag(uid, CLUSTER_ID, &key.cluster_id);
        if cluster.chars().count() > TAG_MAX || uid.contains('/') {
            let text =
                format!("too long or contains a slash: a tag with its key has at most {TAG_MAX} characters");
            return Err(kit::invalid("key", text));
        }
        let mut tags = vec![cluster];
        for (word, value) in [
            (CLUSTER_NAME, cluster_name),
            (OWNER_KIND, &owner.kind),
            (OWNER_NAMESPACE, &owner.namespace),
            (OWNER_NAME, &owner.name),
        ] {
            tags.push(sharer_tag(uid, word, value).chars().take(TAG_MAX).collect());
        }
        let fence = write_fence(fence).map(|text| sharer_tag(uid, FENCE, &text));
        tags.extend(fence.filter(|tag| tag.chars().count() <= TAG_MAX));
        let names = GoNames::of(&desired.adopter());
        let is_proven = names.proven().is_some();
        Ok(Self { key: key.clone(), tags, go: names.name, is_proven })
    }

    /// Returns the tags that mark the share as complete, unless the load balancer has them already.
    pub(crate) fn complete(mut self, name: &str, hash: &str, there: &[String]) -> Option<Self> {
        let uid = self.key.owner_uid.clone();
        let fence = format!("{SHARER}/{uid}/{FENCE}");
        let lacks = |tag: &String| value(tag, &fence).is_none() && !there.contains(tag);
        let complete = !self.tags.iter().any(lacks)
            && self.of_go(name).is_none_or(|tag| there.contains(tag))
            && !is_outdated(sharer_hash(there, &uid), hash);
        self.tags.push(sharer_tag(&uid, HASH, hash));
        (!complete).then_some(self)
    }

    /// Returns all tags of the load balancer, including the tags of this sharing owner.
    pub(crate) fn join(&self, live: &LiveBalancer) -> Result<Vec<String>, VendorError> {
        check_stays(live)?;
        if is_closed(&live.name, &live.tags) {
            let text = format!(
                "load balancer {} is going to be deleted, because its owner no longer needs it",
                live.id
            );
            return Err(VendorError::new(Fault::Busy, text));
        }
        check_room(&live.id, &live.name, &live.tags, &self.key)?;
        let uid = &self.key.owner_uid;
        let is_own = |tag: &&String| sharer_of(tag) == Some(uid.as_str());
        let is_new = !live.tags.iter().any(|tag| is_own(&tag));
        if is_new {
            self.check_proof(&live.id, &live.name, &live.tags)?;
        }
        let of_go = said(&live.tags, uid, OF_GO).is_some() || (is_new && live.tags.contains(&self.go));
        let mark = of_go.then(|| sharer_tag(uid, OF_GO, YES));
        let others = live.tags.iter().filter(|tag| !is_own(tag) && **tag != self.go);
        Ok(others.chain(&self.tags).chain(self.of_go(&live.name)).cloned().chain(mark).collect())
    }

    /// Refuses a new sharer if a Service of the same name in another cluster may use the load balancer. The listeners and pools of that
    /// Service would count as those of the new sharer.
    pub(crate) fn check_proof(&self, id: &str, name: &str, there: &[String]) -> Result<(), VendorError> {
        if self.is_proven || !(name == self.go || there.contains(&self.go)) {
            return Ok(());
        }
        let text = format!(
            "load balancer {id} is in use by {}, which may be a Service of another cluster: sharing needs the operator's grant former",
            self.go
        );
        Err(kit::invalid("spec.load_balancer_id", text))
    }

    fn of_go(&self, name: &str) -> Option<&String> {
        go::is_balancer(name).then_some(&self.go)
    }
}

fn check_stays(live: &LiveBalancer) -> Result<(), VendorError> {
    let text = || format!("load balancer {} is being deleted", live.id);
    if live.goes() { Err(VendorError::new(Fault::Busy, text())) } else { Ok(()) }
}

/// Refuses a user above the maximum number, and a second user with the same UID.
pub(crate) fn check_room(
    id: &str,
    name: &str,
    tags: &[String],
    key: &LoadBalancerKey,
) -> Result<(), VendorError> {
    let users = users(tags);
    let refused =
        |text: String| Err(kit::invalid("spec.load_balancer_id", format!("load balancer {id} {text}")));
    if let Some(user) = users.iter().find(|user| user.key.owner_uid == key.owner_uid) {
        return if user.key == *key {
            Ok(())
        } else {
            refused(format!("is used by {}, which has the same UID", user.text()))
        };
    }
    match users.len() + users_of_go(name, tags).len() {
        n if n < SERVICES_MAX => Ok(()),
        n => refused(format!("already serves {n} Services, which is the maximum: use another load balancer")),
    }
}

/// Returns all tags except those of a user that no longer needs the load balancer. The tags that identify an owner stay, and an additional
/// tag marks that the owner has left.
pub(crate) fn leave(
    live: &LiveBalancer,
    whose: Option<&LoadBalancerKey>,
) -> Result<Vec<String>, VendorError> {
    let there = &live.tags;
    let user = users(there).into_iter().find(|user| Some(&user.key) == whose);
    let goes_with_last = match &user {
        Some(user) if user.shares => is_given_up(there) && !is_guest(&live.name, there, user),
        Some(_) | None => true,
    };
    // The tag which marks that the owner has left prevents changes by guests, so the deletion does not wait for such changes.
    let closes =
        user.as_ref().is_some_and(|user| !user.shares) && is_used_by_others(&live.name, there, whose);
    if goes_with_last && !closes && !stays_for_others(&live.name, there, whose) {
        let text = format!("load balancer {} is no longer shared", live.id);
        return Err(VendorError::new(Fault::Busy, text));
    }
    let Some(user) = user else {
        // The load balancer has only tags of the former cloud controller manager, and no owner tags. A tag of that controller is the name
        // of a Service.
        let own = go::tag_of(&live.name, there);
        return Ok(there
            .iter()
            .filter(|tag| Some(tag.as_str()) != own)
            .cloned()
            .chain([write(LEFT, YES)])
            .collect());
    };
    let others = there.iter().filter(|tag| **tag != user.go);
    if user.shares {
        return Ok(others
            .filter(|tag| sharer_of(tag) != Some(user.key.owner_uid.as_str()))
            .cloned()
            .collect());
    }
    let own = go::tag_of(&live.name, there);
    let goes = |tag: &String| {
        let is_word = [HASH, FENCE].iter().any(|word| value(tag, word).is_some());
        is_word || Some(tag.as_str()) == own || is_former(tag, there)
    };
    Ok(others.filter(|tag| !goes(tag)).cloned().chain([write(LEFT, YES)]).collect())
}

/// Checks whether the load balancer may be deleted for this user, together with its listeners and pools. `seen` contains the IDs of the
/// listeners that are known.
pub(crate) fn may_go(
    live: &LiveBalancer,
    whose: Option<&LoadBalancerKey>,
    seen: &[String],
) -> Result<(), VendorError> {
    let unseen = live.listeners.iter().any(|listener| !seen.contains(&listener.id));
    if unseen || stays_for_others(&live.name, &live.tags, whose) {
        let text = format!("load balancer {} got an additional user after the last listing", live.id);
        return Err(VendorError::new(Fault::Busy, text));
    }
    Ok(())
}

/// Returns an owner's tags together with the current tags of all other users and clients. `tags` contains all tags, as planned from the
/// last listing.
pub(crate) fn beside_others(tags: &[String], live: &LiveBalancer) -> Result<Vec<String>, VendorError> {
    check_stays(live)?;
    let agrees = |there: &str, ours: &str| there.is_empty() || there == ours;
    let ours = owner(tags).map(|(key, _)| key).unwrap_or_default();
    let fits = |there: &LoadBalancerKey| {
        agrees(&there.cluster_id, &ours.cluster_id) && agrees(&there.owner_uid, &ours.owner_uid)
    };
    if owner(&live.tags).is_some_and(|(there, _)| !fits(&there)) {
        let text = format!("load balancer {} got a different owner after the last listing", live.id);
        return Err(VendorError::new(Fault::Busy, text));
    }
    let is_own = |tag: &&String| is_owners(tag) || is_former(tag, tags);
    let is_others = |tag: &&String| !is_own(tag) && !is_former(tag, &live.tags);
    Ok(tags.iter().filter(is_own).chain(live.tags.iter().filter(is_others)).cloned().collect())
}

/// Returns the user to which a listener or pool belongs, unless that user is `but`.
pub(crate) fn other_user<'a>(
    users: &'a [User],
    balancer: &str,
    part: Marks<'_>,
    but: Option<&LoadBalancerKey>,
) -> Option<&'a User> {
    if but.is_some_and(|key| part.tags.contains(&part_tag(key))) {
        return None;
    }
    users.iter().filter(|user| Some(&user.key) != but).find(|user| user.has(balancer, part))
}

fn sharer_tag(uid: &str, word: &str, value: &str) -> String {
    write(&format!("{SHARER}/{uid}/{word}"), value)
}

fn said<'a>(tags: &'a [String], uid: &str, word: &str) -> Option<&'a str> {
    read(tags, &format!("{SHARER}/{uid}/{word}"))
}
