//! Faults in EnsureLoadBalancer.

use std::{collections::BTreeSet, sync::Arc};

use cloud_api_proto::{
    AdapterError, Reason,
    v1alpha1::{
        Adoption, BackendList, EnsureLoadBalancerRequest, EnsureLoadBalancerResponse, Known, LoadBalancerKey,
        LoadBalancerSpec, LoadBalancerState, Owner, PutBackendSetRequest, Recreate, RequestContext,
        put_backend_set_request::Content,
    },
};
use prost::Message as _;
use tonic::{Request, Response, Status};

use super::Front;
use crate::{
    broken::{
        Fault,
        front::beside,
        memory::{Key, Memory, key},
    },
    parameters::Parameters,
};

/// The maximum length of a string in a request of the adapter API, in bytes.
const WORD: usize = 256;

impl Front {
    pub(super) async fn ensure(
        &self,
        mut request: Request<EnsureLoadBalancerRequest>,
    ) -> Result<Response<EnsureLoadBalancerResponse>, Status> {
        let Some(key) = request.get_ref().key.as_ref().map(key) else {
            let refused = self.balancers().ensure_load_balancer(request).await;
            return refused.map_err(|status| self.reported(status));
        };
        let asked = question(request.get_ref());
        if let Some(answer) = self.cached(&asked) {
            return Ok(Response::new(answer));
        }
        let waiting = self.begin(key.clone())?;
        self.change(request.get_mut(), &key);
        let repeated = self.is(Fault::UnknownSetIsEmpty).then(|| beside(&request, request.get_ref().clone()));
        let mut answer = self.balancers().ensure_load_balancer(request).await;
        if let (Some(repeated), Err(status)) = (repeated, &answer)
            && AdapterError::from(status).reason == Reason::BackendSetUnknown
        {
            answer = self.with_an_empty_set(repeated).await;
        }
        waiting.over();
        self.give_up(&key, answer.as_ref().err())?;
        let mut answer = answer.map_err(|status| self.reported(status))?;
        self.change_answer(answer.get_mut());
        self.remember(asked, key, answer.get_ref());
        Ok(answer)
    }

    fn cached(&self, asked: &[u8]) -> Option<EnsureLoadBalancerResponse> {
        if !self.is(Fault::CachesAnswers) {
            return None;
        }
        self.memory.notes().answers.get(asked).cloned()
    }

    fn begin(&self, key: Key) -> Result<Waiting, Status> {
        let mut notes = self.memory.notes();
        if !notes.busy.insert(key.clone()) && self.is(Fault::RefusesWhileBusy) {
            let text = "a change of the load balancer is in progress";
            return Err(AdapterError::new(Reason::OperationConflict, text).into());
        }
        notes.cut.remove(&key);
        notes.seen.insert(key.clone());
        if !notes.finished.contains_key(&key) {
            notes.unfinished.insert(key.clone());
        }
        drop(notes);
        let cuts = self.is(Fault::DisconnectCuts);
        Ok(Waiting { memory: Arc::clone(&self.memory), key, cuts })
    }

    fn change(&self, request: &mut EnsureLoadBalancerRequest, key: &Key) {
        self.claim_balancer(request.key.clone(), request.known.clone());
        if let Some(context) = &mut request.context {
            self.change_context(context);
        }
        if let Some(spec) = &mut request.spec {
            self.change_spec(spec, key);
        }
        if let (Some(key), Some(owner)) = (&mut request.key, &mut request.owner) {
            self.rename(key, &owner.name.clone());
            self.take_for_the_first(key, owner);
            owner.uid.clone_from(&key.owner_uid);
            if self.is(Fault::CutsToFit) {
                [&mut owner.namespace, &mut owner.name].into_iter().for_each(clip);
            }
        }
        match self.fault {
            Fault::AdoptsUnasked => request.adoption = Adoption::IfUnowned.into(),
            Fault::RecreatesUnasked => request.recreate = Recreate::IfImmutableChanged.into(),
            Fault::DryRunWrites => request.dry_run = false,
            _ => (),
        }
    }

    fn change_context(&self, context: &mut RequestContext) {
        if matches!(self.fault, Fault::NoopAsksTheVendor | Fault::TouchesForeign) {
            context.max_staleness = Some(prost_types::Duration::default());
        }
    }

    fn change_spec(&self, spec: &mut LoadBalancerSpec, key: &Key) {
        match self.fault {
            Fault::UnknownParameterAccepted => {
                let declared: BTreeSet<String> =
                    Parameters::declared().into_iter().map(|parameter| parameter.key).collect();
                spec.parameters.retain(|name, _| declared.contains(name));
            }
            Fault::SourceRangesIgnored => spec.source_ranges.clear(),
            Fault::NamesIgnored => spec.name.clear(),
            Fault::RewritesOnRepeat => {
                let times = self.memory.notes().finished.get(key).copied().unwrap_or_default();
                spec.tags.insert("last-ensured".to_owned(), times.to_string());
            }
            Fault::CutsToFit => {
                for listener in &mut spec.listeners {
                    clip(&mut listener.name);
                    listener.port &= u32::from(u16::MAX);
                }
                spec.tags.values_mut().for_each(clip);
                spec.parameters.values_mut().for_each(clip);
                spec.class.iter_mut().for_each(clip);
            }
            _ => (),
        }
    }

    /// Treats the load balancer that the request names as owned by the caller.
    pub(super) fn claim_balancer(&self, key: Option<LoadBalancerKey>, known: Option<Known>) {
        if !self.is(Fault::TouchesForeign) {
            return;
        }
        let ids = known.and_then(|known| known.vendor_ids).unwrap_or_default();
        if let (Some(key), Some(id)) = (key, ids.ids.get("loadbalancer")) {
            self.memory.notes().claims.insert(id.clone(), key);
        }
    }

    /// Treats a renamed owner as another owner.
    pub(super) fn rename(&self, key: &mut LoadBalancerKey, name: &str) {
        if !self.is(Fault::RenameForgets) {
            return;
        }
        let mut notes = self.memory.notes();
        let first = notes.names.entry((key.cluster_id.clone(), key.owner_uid.clone()));
        if first.or_insert_with(|| name.to_owned()) != name {
            key.owner_uid = format!("{}-{name}", key.owner_uid);
        }
    }

    /// Refuses a request that failed before, even after the vendor has recovered.
    fn give_up(&self, key: &Key, failed: Option<&Status>) -> Result<(), Status> {
        let away = failed.map(|status| AdapterError::from(status).reason == Reason::VendorUnavailable);
        let mut notes = self.memory.notes();
        if away == Some(true) {
            notes.given_up.insert(key.clone());
        }
        if away.is_none() && self.is(Fault::GivesUpInOutages) && notes.given_up.contains(key) {
            return Err(AdapterError::new(
                Reason::ResourceGone,
                "the request failed before and is not retried",
            )
            .into());
        }
        Ok(())
    }

    /// Treats a later owner with the same namespace and name as the first owner.
    pub(super) fn take_for_the_first(&self, key: &mut LoadBalancerKey, owner: &Owner) {
        if !self.is(Fault::OwnersByName) {
            return;
        }
        let name = (key.cluster_id.clone(), owner.namespace.clone(), owner.name.clone());
        let mut notes = self.memory.notes();
        let first = notes.owners.entry(name).or_insert_with(|| key.owner_uid.clone());
        key.owner_uid.clone_from(first);
    }

    async fn with_an_empty_set(
        &self,
        request: Request<EnsureLoadBalancerRequest>,
    ) -> Result<Response<EnsureLoadBalancerResponse>, Status> {
        let EnsureLoadBalancerRequest { context, spec, .. } = request.get_ref().clone();
        let id = spec.unwrap_or_default().backend_set_id;
        let empty =
            PutBackendSetRequest { context, id, content: Some(Content::Full(BackendList::default())) };
        self.balancers().put_backend_set(beside(&request, empty)).await?;
        self.balancers().ensure_load_balancer(request).await
    }

    fn change_answer(&self, answer: &mut EnsureLoadBalancerResponse) {
        if self.is(Fault::ActiveWithoutAddress) {
            answer.addresses.clear();
        }
        if self.is(Fault::ErrorStaysPending) && answer.state() == LoadBalancerState::Error {
            answer.set_state(LoadBalancerState::Pending);
            answer.retry_after = Some(prost_types::Duration { seconds: 1, nanos: 0 });
        }
        self.price(&mut answer.cost);
    }

    fn remember(&self, asked: Vec<u8>, key: Key, answer: &EnsureLoadBalancerResponse) {
        let mut notes = self.memory.notes();
        if answer.state() == LoadBalancerState::Active {
            notes.unfinished.remove(&key);
            *notes.finished.entry(key).or_default() += 1;
            if self.is(Fault::CachesAnswers) {
                notes.answers.insert(asked, answer.clone());
            }
        }
    }
}

/// Returns the key of a stored answer, which is the request without the fields that depend on the caller.
fn question(request: &EnsureLoadBalancerRequest) -> Vec<u8> {
    EnsureLoadBalancerRequest { context: None, fence: None, known: None, ..request.clone() }.encode_to_vec()
}

fn clip(word: &mut String) {
    word.truncate(word.floor_char_boundary(WORD));
}

/// A waiting caller. Dropping this value before the answer means that the caller closed its connection.
struct Waiting {
    memory: Arc<Memory>,
    key: Key,
    cuts: bool,
}

impl Waiting {
    fn over(mut self) {
        self.cuts = false;
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let mut notes = self.memory.notes();
        notes.busy.remove(&self.key);
        if self.cuts {
            notes.cut.insert(self.key.clone());
        }
    }
}
