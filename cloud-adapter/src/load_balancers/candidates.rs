//! Finds the load balancers in a listing that a request refers to. A load balancer matches by owner tag, deterministic name, the ID in the
//! request, or the names of the vendor's usual controller. This module is
//! pure, apart from its log.

#[cfg(test)]
mod tests;

use std::sync::Arc;

use cloud_api_proto::{
    AdapterError, DOMAIN, Reason,
    v1alpha1::{Adoption, Fence, LoadBalancerKey, LoadBalancerState, Owner},
};
use tracing::info;

use super::goal::Goal;
use crate::{
    driver::{Driver, Heritage, LoadBalancerRecord},
    fence::check_tag,
};

/// The kind of vendor ID for the parts of one user on a shared load balancer. Source: load_balancer_service.proto, `VendorIds`.
const SHARED: &str = "loadbalancer/shared";

type Shared<D> = Arc<LoadBalancerRecord<D>>;

/// The load balancers of a listing that are relevant to one key.
#[derive(Debug)]
pub(super) struct Candidates<D> {
    /// The load balancers that belong to the key according to their tags. The first load balancer is kept.
    pub(super) owned: Vec<Shared<D>>,
    /// Load balancers without an owner that have the name of the key.
    pub(super) named: Vec<Shared<D>>,
    /// A load balancer without an owner that has the ID in the request.
    pub(super) known: Option<Shared<D>>,
    /// A load balancer of another owner that has the name of the key.
    named_foreign: Option<Shared<D>>,
    /// A load balancer of another owner that has the ID in the request.
    known_foreign: Option<Shared<D>>,
    /// Load balancers without an owner that the vendor's usual controller created for this owner alone.
    inherited: Vec<Shared<D>>,
    /// A load balancer that the vendor's usual controller created for this owner and other owners.
    shared: Option<Excluded>,
    /// A load balancer without an owner that has the ID in the request but must not be changed. The usual controller did not create it for
    /// this owner alone.
    known_barred: Option<Excluded>,
    /// The load balancer that the request asks to share, whatever its owner.
    pub(super) shareable: Option<Shared<D>>,
}

/// A load balancer without the adapter's tags that must not be changed, and the reason.
#[derive(Debug)]
struct Excluded {
    id: String,
    why: String,
}

/// The decision for a Service that owns no load balancer yet.
#[derive(Debug)]
pub(super) enum Adopted<D> {
    Taken(Shared<D>),
    /// There is nothing to adopt, and nothing prevents a create.
    Nothing,
    /// The request names the load balancer with this ID, but the listing lacks it.
    Missing(String),
}

impl<D> Candidates<D> {
    pub(super) fn find<A: Driver<Detail = D>>(driver: &A, items: &[Shared<D>], goal: &Goal) -> Self {
        let key = goal.key();
        // Remains of a deleted load balancer matter only for a deletion, because a create does not build on them.
        let removes = matches!(goal, Goal::Absent { .. });
        // An owner may have released a load balancer that other users still use. Such a load balancer blocks neither a deletion for the
        // owner, nor a move of the owner to another load balancer.
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
        // The check is skipped for requests that do not adopt, because it is expensive with thousands of load balancers.
        if goal.adoption() == Adoption::IfUnowned || found.known.is_some() {
            found.inherit(driver.heritage(&goal.adopter()), removes, items.iter().copied());
        }
        found
    }

    /// Classifies load balancers without adapter tags, because another controller may have created them for this owner.
    fn inherit<'a>(
        &mut self,
        heritage: impl Fn(&LoadBalancerRecord<D>) -> Heritage,
        removes: bool,
        items: impl Iterator<Item = &'a Shared<D>>,
    ) where
        D: 'a,
    {
        let barred = |record: &Shared<D>, why| Excluded { id: record.summary.vendor_id.clone(), why };
        for record in items.filter(|record| record.summary.key.is_none()) {
            match heritage(record) {
                Heritage::Sole => self.inherited.push(Arc::clone(record)),
                Heritage::Shared(why) => self.shared = Some(barred(record, why)),
                // A load balancer without proof does not block a deletion, since nothing shows that it belongs to this owner.
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

    /// Returns the load balancer that the vendor's usual controller created for this owner, if there is exactly one such load balancer.
    ///
    /// Returns `OWNED_BY_OTHER` if the load balancer does not belong to this owner alone, or if there are several such load balancers.
    pub(super) fn inherited(&self) -> Result<Option<Shared<D>>, AdapterError> {
        match (&self.shared, self.inherited.as_slice()) {
            (Some(shared), _) => Err(shared.error()),
            (None, [one]) => Ok(Some(Arc::clone(one))),
            (None, []) => Ok(None),
            (None, several) => Err(ambiguous(several)),
        }
    }

    /// Returns all load balancers that a deletion removes: those that belong to the key, and those without an owner to which the request
    /// refers.
    pub(super) fn deletable(&self) -> Vec<Shared<D>> {
        let mut all: Vec<_> = self.owned.iter().chain(&self.named).cloned().collect();
        let id = |record: &Shared<D>| record.summary.vendor_id.clone();
        all.extend(
            self.known.iter().filter(|known| !self.named.iter().any(|one| id(one) == id(known))).cloned(),
        );
        all
    }

    /// Refuses a writer that a newer writer has replaced.
    ///
    /// Returns `STALE_FENCE` if a tag contains a newer fence.
    pub(super) fn check(&self, fence: &Fence) -> Result<(), AdapterError> {
        self.deletable().iter().try_for_each(|record| check_tag(fence, record.summary.fence.as_ref()))
    }

    /// Selects the load balancer that a Service without a load balancer adopts.
    ///
    /// Returns `OWNED_BY_OTHER` if the load balancer has another owner or may not be adopted. The same applies to a load balancer with the
    /// key's name. Adoption by ID alone needs consent: a tag on the load balancer, or the operator's grant to the namespace.
    pub(super) fn adopt(
        &self,
        adoption: Adoption,
        known: Option<&str>,
        namespace: &str,
        is_granted: impl Fn(&str) -> bool,
    ) -> Result<Adopted<D>, AdapterError> {
        if let (Adoption::ById, Some(id)) = (adoption, known) {
            return match (&self.known_foreign, &self.known_barred, &self.known) {
                (Some(foreign), _, _) => {
                    let fix = format!("remove annotations lb.{DOMAIN}/id and adopt");
                    Err(owned_by_other(foreign, &fix))
                }
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
            (Some(foreign), _) => {
                Err(owned_by_other(foreign, "it has the name of this Service's load balancer, so rename it"))
            }
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
    /// Returns whether a load balancer without an owner was created for this key. The evidence is in its remaining tags, its name, or the
    /// names of the vendor's usual controller.
    fn was_its_own(&self, record: &LoadBalancerRecord<D>) -> bool {
        let id = record.summary.vendor_id.as_str();
        let has_uid = record.summary.key.as_ref().is_some_and(|key| !key.owner_uid.is_empty());
        has_uid || self.named.iter().chain(&self.inherited).any(|one| one.summary.vendor_id == id)
    }
}

impl Excluded {
    fn error(&self) -> AdapterError {
        let text = format!("load balancer {} is left unchanged: {}", self.id, self.why);
        AdapterError::new(Reason::OwnedByOther, text).with("vendor_id", self.id.clone())
    }
}

/// Returns whether the record describes the load balancer with this ID itself, and not the parts of a user of the load balancer.
fn is_itself<D>(record: &LoadBalancerRecord<D>, id: &str) -> bool {
    let shared = record.summary.vendor_ids.as_ref().is_some_and(|ids| ids.ids.contains_key(SHARED));
    record.summary.vendor_id == id && !shared && record.summary.state() != LoadBalancerState::Absent
}

/// Returns whether the tags are compatible with this key: there are no tags, or the remaining tags match.
fn is_free(there: Option<&LoadBalancerKey>, key: &LoadBalancerKey) -> bool {
    let agrees = |there: &str, ours: &str| there.is_empty() || there == ours;
    there.is_none_or(|there| {
        agrees(&there.cluster_id, &key.cluster_id) && agrees(&there.owner_uid, &key.owner_uid)
    })
}

/// Sorts load balancers so that the load balancer to keep comes first: working before ERROR, complete before half-built, then the oldest,
/// then by ID.
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

/// Refuses a load balancer of another owner. Only the log names the owner, because the error is shown to the users of the namespace that
/// asks, who may not see the objects of other namespaces.
fn owned_by_other<D>(record: &LoadBalancerRecord<D>, fix: &str) -> AdapterError {
    let summary = &record.summary;
    let cluster = summary.key.as_ref().map(|key| key.cluster_id.clone()).unwrap_or_default();
    let Owner { kind, namespace, name, .. } = summary.owner.clone().unwrap_or_default();
    info!(
        load_balancer = summary.vendor_id,
        owner = %format!("{kind} {namespace}/{name}"),
        cluster,
        "Refusing a request for a load balancer of another owner"
    );
    let text =
        format!("load balancer {} belongs to another owner, and is left unchanged: {fix}", summary.vendor_id);
    AdapterError::new(Reason::OwnedByOther, text).with("vendor_id", summary.vendor_id.clone())
}

fn no_consent(id: &str, namespace: &str) -> AdapterError {
    let text = format!(
        "load balancer {id} has no owner, and namespace {namespace} may not take it over: tag it with \
         {DOMAIN}/adopt={namespace}, or add {namespace}:adopt={id} to adapter.grants (--grant)"
    );
    AdapterError::new(Reason::OwnedByOther, text).with("vendor_id", id)
}

fn unowned<D>(record: &LoadBalancerRecord<D>) -> AdapterError {
    let summary = &record.summary;
    let text = format!(
        "load balancer {} has the name {} and no owner: adopt it with adoption IF_UNOWNED, or rename it",
        summary.vendor_id, summary.name
    );
    AdapterError::new(Reason::OwnedByOther, text).with("vendor_id", summary.vendor_id.clone())
}

fn ambiguous<D>(several: &[Shared<D>]) -> AdapterError {
    let ids: Vec<&str> = several.iter().map(|record| record.summary.vendor_id.as_str()).collect();
    let text = format!(
        "load balancers {} all seem to belong to this owner: select one with adoption BY_ID; the \
        others are left unchanged",
        ids.join(", ")
    );
    AdapterError::new(Reason::OwnedByOther, text)
}
