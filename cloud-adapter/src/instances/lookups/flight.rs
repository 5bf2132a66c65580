//! One shared look-up. A listing comes first if it is cheaper than many batches. Batches follow for the remaining IDs, and witnesses take
//! the free places of batches.

use std::{
    collections::BTreeMap,
    sync::{Arc, PoisonError, atomic::Ordering},
};

use cloud_api_proto::v1alpha1::Instance;
use tokio::time::Instant;

use super::{FlightResults, Gathering, LookUps, LookupResult, PAGES, Wanted};
use crate::{
    driver::{Collection, Fault, InstanceLookup, Item as _, Lookup, VendorError},
    metrics::Coalesced,
    snapshot::LookedUp,
    vendor::Session,
};

/// Number of known instances that are looked up along with the requested IDs. If the vendor finds none of these instances, the vendor's
/// answers come from another scope.
const WITNESSES: usize = 3;

/// A provider ID and the vendor's ID.
type Id = (String, String);

/// The answers so far, and the session to which the calls are charged.
struct Flying<'a> {
    asked: Instant,
    session: &'a Session,
    found: BTreeMap<String, LookupResult>,
}

/// Whether the vendor can look up by ID.
#[derive(PartialEq)]
enum Able {
    Yes,
    No,
}

impl<S: Collection<Instance> + InstanceLookup + Send + Sync + 'static> LookUps<S> {
    /// Waits for other callers to join, then looks up all IDs together.
    pub(super) async fn fly(self: Arc<Self>, gathering: Arc<Gathering>) -> Arc<FlightResults> {
        let window = *self.window.lock().unwrap_or_else(PoisonError::into_inner);
        let (wanted, session, asked) = gathering.close(window).await;
        let mut flying = Flying { asked, session: &session, found: BTreeMap::new() };
        let error = self.answer(wanted, &mut flying).await.err();
        let found = flying.found;
        self.snapshot.learn(looked_up(asked, &found));
        Arc::new(FlightResults { asked, found, error })
    }

    async fn answer(&self, mut wanted: Wanted, flying: &mut Flying<'_>) -> Result<(), VendorError> {
        let batches = wanted.len().div_ceil(self.batch);
        let mut witnesses = Vec::new();
        if batches > self.snapshot.pages().unwrap_or(PAGES) {
            self.metrics.coalesced(Instance::COLLECTION, Coalesced::Promotion);
            self.list(&mut wanted, flying).await?;
        } else {
            witnesses = self.witnesses(&wanted);
        }
        // A listing alone proves no absence, so the IDs that the listing lacks are looked up.
        let mut ids: Vec<Id> = wanted.clone().into_iter().collect();
        let room = ids.len().next_multiple_of(self.batch) - ids.len();
        let later = witnesses.split_off(room.min(witnesses.len()));
        ids.extend(witnesses);
        for batch in ids.chunks(self.batch) {
            if self.ask(batch, flying).await? == Able::No {
                self.list(&mut wanted, flying).await?;
                flying.found.extend(wanted.into_keys().map(|id| (id, LookupResult::NotListed)));
                return Ok(());
            }
        }
        let gone = flying.found.values().any(|answer| *answer == LookupResult::Gone);
        let seen = flying.found.values().any(|answer| matches!(answer, LookupResult::Found(_)));
        if gone && !seen && !later.is_empty() {
            self.ask(&later, flying).await?;
        }
        Ok(())
    }

    /// Takes answers from a listing that began after `asked`. Afterwards `wanted` contains only the IDs that the listing lacks.
    async fn list(&self, wanted: &mut Wanted, flying: &mut Flying<'_>) -> Result<(), VendorError> {
        let view = self.snapshot.at_least(Some(flying.asked), &*self.source, flying.session).await?;
        for item in &view.items {
            if let Some((id, _)) = wanted.remove_entry(&item.provider_id) {
                flying.found.insert(id, LookupResult::Found(Arc::clone(item)));
            }
        }
        Ok(())
    }

    /// Looks up one batch. If an error names IDs, the batch is repeated once without these IDs. Any other error applies to the whole batch.
    async fn ask(&self, batch: &[Id], flying: &mut Flying<'_>) -> Result<Able, VendorError> {
        let error = match self.send(batch, flying).await {
            Ok(able) => return Ok(able),
            Err(error) => error,
        };
        let (named, rest): (Vec<Id>, Vec<Id>) =
            batch.iter().cloned().partition(|(_, vendor_id)| error.fields.contains(vendor_id));
        if named.is_empty() {
            return Err(error);
        }
        let answer = if error.fault == Fault::NotFound { LookupResult::Gone } else { LookupResult::Unsaid };
        flying.found.extend(named.into_iter().map(|(id, _)| (id, answer.clone())));
        if rest.is_empty() { Ok(Able::Yes) } else { self.send(&rest, flying).await }
    }

    /// Makes one vendor call.
    async fn send(&self, batch: &[Id], flying: &mut Flying<'_>) -> Result<Able, VendorError> {
        let vendor_ids: Vec<String> = batch.iter().map(|(_, vendor_id)| vendor_id.clone()).collect();
        self.metrics.batch(Instance::COLLECTION, batch.len());
        let Some(answers) = self.source.get_batch(flying.session, &vendor_ids).await? else {
            return Ok(Able::No);
        };
        if answers.len() != batch.len() {
            let text = format!("the driver returned {} answers for {} IDs", answers.len(), batch.len());
            return Err(VendorError::nonsense(text));
        }
        let answers = answers.into_iter().map(|answer| match answer {
            Lookup::Found(instance) => LookupResult::Found(Arc::new(instance)),
            Lookup::Gone => LookupResult::Gone,
            Lookup::Unknown => LookupResult::Unsaid,
        });
        flying.found.extend(batch.iter().map(|(id, _)| id.clone()).zip(answers));
        Ok(Able::Yes)
    }

    /// Selects known instances as witnesses. Each call selects different instances.
    fn witnesses(&self, wanted: &Wanted) -> Vec<Id> {
        let known = self.snapshot.sample(WITNESSES, self.round.fetch_add(1, Ordering::Relaxed));
        let others = known.into_iter().filter(|id| !wanted.contains_key(id));
        others.filter_map(|id| (self.locate)(&id).map(|vendor_id| (id, vendor_id))).collect()
    }
}

fn looked_up(asked: Instant, found: &BTreeMap<String, LookupResult>) -> LookedUp<Instance> {
    let mut read = LookedUp { asked, found: Vec::new(), gone: Vec::new() };
    for (id, answer) in found {
        match answer {
            LookupResult::Found(instance) => read.found.push(Instance::clone(instance)),
            LookupResult::Gone => read.gone.push(id.clone()),
            LookupResult::NotListed | LookupResult::Unsaid => (),
        }
    }
    read
}
