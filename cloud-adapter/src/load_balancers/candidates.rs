//! Which load balancers of a listing a request is about: by owner tag, by deterministic name, by the ID that the caller knows, and what
//! the vendor's usual controller left. Pure.

#[cfg(test)]
mod tests;

use std::sync::Arc;

use cloud_api_proto::{
    AdapterError, DOMAIN, Reason,
    v1alpha1::{Adoption, Fence, LoadBalancerKey, LoadBalancerState},
};

use super::decide::Goal;
use crate::{
    driver::{Driver, Heritage, LoadBalancerRecord},
    fence::check_tag,
};

/// The kind of vendor ID that tells what one of several has on a load balancer. Source: load_balancer_service.proto, `VendorIds`.
const SHARED: &str = "loadbalancer/shared";

type Shared<D> = Arc<LoadBalancerRecord<D>>;

/// What a listing shows for one key.
#[derive(Debug)]
pub(super) struct Candidates<D> {
    /// Ours, as their tags say; the one to keep first.
    pub(super) owned: Vec<Shared<D>>,
    /// Nobody's, and of the key's name.
    pub(super) named: Vec<Shared<D>>,
    /// Nobody's, and known to the caller.
    pub(super) known: Option<Shared<D>>,
    /// Somebody else's, and of the key's name.
    named_foreign: Option<Shared<D>>,
    /// Somebody else's, and known to the caller.
    known_foreign: Option<Shared<D>>,
    /// Nobody's that the vendor's usual controller made for this owner alone.
    inherited: Vec<Shared<D>>,
    /// The same, and for others as well.
    shared: Option<Barred>,
    /// Nobody's and known to the caller, made by that controller not for this owner alone.
    known_barred: Option<Barred>,
    /// The one that shall be shared, whoever owns it.
    pub(super) shareable: Option<Shared<D>>,
}

/// One that is not touched, though it has no tags of ours.
#[derive(Debug)]
struct Barred {
    id: String,
    why: String,
}

/// What becomes of a key that owns nothing.
#[derive(Debug)]
pub(super) enum Adopted<D> {
    /// This one is taken.
    Taken(Shared<D>),
    /// There is nothing to take and nothing in the way.
    Nothing,
    /// The caller wants the one of this ID, and the listing has none.
    Missing(String),
}

impl<D> Candidates<D> {
    pub(super) fn find<A: Driver<Detail = D>>(driver: &A, items: &[Shared<D>], goal: &Goal) -> Self {
        let key = goal.key();
        // Of what is left of one that is gone nothing can be built; what is built takes it over, or it is deleted.
        let removes = matches!(goal, Goal::Absent { .. });
        // One that its owner has left, and others have not, is in its way neither when it goes nor when it goes elsewhere.
        let elsewhere = |record: &Shared<D>| goal.shares().is_some_and(|id| id != record.summary.vendor_id);
        let is_there = |record: &Shared<D>| record.summary.state() != LoadBalancerState::Absent;
        let counts = |record: &&Shared<D>| {
            if removes { !record.left } else { is_there(record) && !(record.left && elsewhere(record)) }
        };
        let items: Vec<&Shared<D>> = items.iter().filter(counts).collect();
        let owned =
            ranked(items.iter().filter(|record| record.belongs_to(key)).map(|record| Arc::clone(record)));
        let others = || items.iter().copied().filter(|record| !record.belongs_to(key));
        let free = |record: &&Shared<D>| is_free(record.summary.key.as_ref(), key);
        let is_name = driver.names_of(key);
        let is_known = |record: &&Shared<D>| goal.known() == Some(record.summary.vendor_id.as_str());
        let of_name = || others().filter(|record| is_name(&record.summary.name));
        let mut found = Self {
            named: ranked(of_name().filter(free).cloned()),
            named_foreign: of_name().find(|record| !free(record)).cloned(),
            known: others().filter(free).find(is_known).cloned(),
            known_foreign: others().filter(|record| !free(record)).find(is_known).cloned(),
            owned,
            inherited: Vec::new(),
            shared: None,
            known_barred: None,
            shareable: goal
                .shares()
                .and_then(|id| items.iter().find(|one| is_itself(one, id)).copied().cloned()),
        };
        // Most requests ask for nothing of it, and there are thousands of load balancers.
        if goal.adoption() == Adoption::IfUnowned || found.known.is_some() {
            found.inherit(driver.heritage(&goal.heir()), (removes, items.iter().copied()));
        }
        found
    }

    /// Tells what another controller left: what has no tags of ours at all.
    fn inherit<'a>(
        &mut self,
        heritage: impl Fn(&LoadBalancerRecord<D>) -> Heritage,
        (removes, items): (bool, impl Iterator<Item = &'a Shared<D>>),
    ) where
        D: 'a,
    {
        let barred = |record: &Shared<D>, why| Barred { id: record.summary.vendor_id.clone(), why };
        for record in items.filter(|record| record.summary.key.is_none()) {
            match heritage(record) {
                Heritage::Sole => self.inherited.push(Arc::clone(record)),
                Heritage::Shared(why) => self.shared = Some(barred(record, why)),
                // It is not in the way of a deletion, since nothing says that it is of this owner.
                Heritage::Unproven(why) if !removes => self.shared = Some(barred(record, why)),
                Heritage::Unproven(_) | Heritage::Unrelated | Heritage::Others(_) => (),
            }
        }
        if let Some(known) = self.known.take_if(|known| known.summary.key.is_none()) {
            match heritage(&known) {
                Heritage::Sole | Heritage::Unrelated => self.known = Some(known),
                Heritage::Shared(why) | Heritage::Unproven(why) | Heritage::Others(why) => {
                    self.known_barred = Some(barred(&known, why));
                }
            }
        }
    }

    /// What the vendor's usual controller made for this owner, if it is clear which one.
    ///
    /// # Errors
    /// `OWNED_BY_OTHER` if it is not this owner's alone, or there are several.
    pub(super) fn inherited(&self) -> Result<Option<Shared<D>>, AdapterError> {
        match (&self.shared, self.inherited.as_slice()) {
            (Some(shared), _) => Err(shared.error()),
            (None, [one]) => Ok(Some(Arc::clone(one))),
            (None, []) => Ok(None),
            (None, several) => Err(ambiguous(several)),
        }
    }

    /// All that a deletion removes: ours, and nobody's that are meant.
    pub(super) fn deletable(&self) -> Vec<Shared<D>> {
        let mut all: Vec<_> = self.owned.iter().chain(&self.named).cloned().collect();
        let id = |record: &Shared<D>| record.summary.vendor_id.clone();
        all.extend(
            self.known.iter().filter(|known| !self.named.iter().any(|one| id(one) == id(known))).cloned(),
        );
        all
    }

    /// Refuses a writer that was replaced.
    ///
    /// # Errors
    /// `STALE_FENCE`.
    pub(super) fn check(&self, fence: &Fence) -> Result<(), AdapterError> {
        self.deletable().iter().try_for_each(|record| check_tag(fence, record.summary.fence.as_ref()))
    }

    /// What a key that owns nothing takes over.
    ///
    /// # Errors
    /// `OWNED_BY_OTHER` if what it would take, or what has its name, is somebody else's or may not be taken. What is taken by its ID alone
    /// needs consent: of a tag on it, or of the operator, who grants it to the namespace.
    pub(super) fn adopt(
        &self,
        adoption: Adoption,
        known: Option<&str>,
        (namespace, is_granted): (&str, impl Fn(&str) -> bool),
    ) -> Result<Adopted<D>, AdapterError> {
        if let (Adoption::ById, Some(id)) = (adoption, known) {
            return match (&self.known_foreign, &self.known_barred, &self.known) {
                (Some(foreign), _, _) => Err(owned_by_other(foreign)),
                (None, Some(barred), _) => Err(barred.error()),
                (None, None, Some(known)) if self.was_its_own(known) => Ok(Adopted::Taken(Arc::clone(known))),
                (None, None, Some(known)) if known.adoptable_by.include(namespace) || is_granted(id) => {
                    Ok(Adopted::Taken(Arc::clone(known)))
                }
                (None, None, Some(_)) => Err(no_consent(id, namespace)),
                (None, None, None) => Ok(Adopted::Missing(id.to_owned())),
            };
        }
        match (&self.named_foreign, self.named.first()) {
            (Some(foreign), _) => Err(owned_by_other(foreign)),
            (None, Some(named)) if adoption == Adoption::IfUnowned => Ok(Adopted::Taken(Arc::clone(named))),
            (None, Some(named)) => Err(unowned(named)),
            (None, None) if adoption == Adoption::IfUnowned => {
                Ok(self.inherited()?.map_or(Adopted::Nothing, Adopted::Taken))
            }
            (None, None) => Ok(Adopted::Nothing),
        }
    }
}

impl<D> Candidates<D> {
    /// Whether a load balancer without an owner was created for this key: what is left of its tags, its name, or the vendor's usual
    /// controller says so.
    fn was_its_own(&self, record: &LoadBalancerRecord<D>) -> bool {
        let id = record.summary.vendor_id.as_str();
        let has_uid = record.summary.key.as_ref().is_some_and(|key| !key.owner_uid.is_empty());
        has_uid || self.named.iter().chain(&self.inherited).any(|one| one.summary.vendor_id == id)
    }
}

impl Barred {
    fn error(&self) -> AdapterError {
        let text = format!("load balancer {} is not touched: {}", self.id, self.why);
        AdapterError::new(Reason::OwnedByOther, text).with("vendor_id", self.id.clone())
    }
}

/// Whether it is the load balancer of this ID itself, and not what one of several has on it.
fn is_itself<D>(record: &LoadBalancerRecord<D>, id: &str) -> bool {
    let shared = record.summary.vendor_ids.as_ref().is_some_and(|ids| ids.ids.contains_key(SHARED));
    record.summary.vendor_id == id && !shared && record.summary.state() != LoadBalancerState::Absent
}

/// Whether tags leave it to this key: there are none, or what is left of them agrees.
fn is_free(there: Option<&LoadBalancerKey>, key: &LoadBalancerKey) -> bool {
    let agrees = |there: &str, ours: &str| there.is_empty() || there == ours;
    there.is_none_or(|there| {
        agrees(&there.cluster_id, &key.cluster_id) && agrees(&there.owner_uid, &key.owner_uid)
    })
}

/// The one to keep first: one that works before one in ERROR, completed before half-built, then the older, then by ID.
fn ranked<D>(records: impl Iterator<Item = Shared<D>>) -> Vec<Shared<D>> {
    let mut ranked: Vec<_> = records.collect();
    ranked.sort_by_cached_key(|record| {
        let summary = &record.summary;
        let created = summary.created_at.map(|at| (at.seconds, at.nanos));
        let broken = summary.state() == LoadBalancerState::Error;
        (broken, summary.applied_hash.is_empty(), created, summary.vendor_id.clone())
    });
    ranked
}

fn owned_by_other<D>(record: &LoadBalancerRecord<D>) -> AdapterError {
    let summary = &record.summary;
    let cluster = summary.key.as_ref().map(|key| key.cluster_id.clone()).unwrap_or_default();
    let owner = summary.owner.clone().unwrap_or_default();
    let text = format!(
        "load balancer {} belongs to {} {}/{} of cluster {cluster:?}: it is not touched",
        summary.vendor_id, owner.kind, owner.namespace, owner.name
    );
    AdapterError::new(Reason::OwnedByOther, text).with("vendor_id", summary.vendor_id.clone())
}

fn no_consent(id: &str, namespace: &str) -> AdapterError {
    let text = format!(
        "load balancer {id} has no owner, and namespace {namespace} may not take it over: tag it with \
         {DOMAIN}/adopt={namespace}, or start the adapter with --grant {namespace}:adopt={id}"
    );
    AdapterError::new(Reason::OwnedByOther, text).with("vendor_id", id)
}

fn unowned<D>(record: &LoadBalancerRecord<D>) -> AdapterError {
    let summary = &record.summary;
    let text = format!(
        "load balancer {} has the name {} and no owner: adoption IF_UNOWNED takes it, or rename it",
        summary.vendor_id, summary.name
    );
    AdapterError::new(Reason::OwnedByOther, text).with("vendor_id", summary.vendor_id.clone())
}

/// Names are all that tells whose they are, and these have the same one.
fn ambiguous<D>(several: &[Shared<D>]) -> AdapterError {
    let ids: Vec<&str> = several.iter().map(|record| record.summary.vendor_id.as_str()).collect();
    let text = format!(
        "load balancers {} all seem to be of this owner: adoption BY_ID says which one, and the others stay",
        ids.join(", ")
    );
    AdapterError::new(Reason::OwnedByOther, text)
}
