//! Instances: what became of named ones. The evidence rules are in [`existence`]; here they get their observations.

mod existence;
mod service;

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use cloud_api_proto::{
    AdapterError, Reason,
    v1alpha1::{Instance, InstanceRef, InstanceResult, InstanceState, Scope, instance_ref::Ref},
};
use tokio::time::{Duration, Instant};

use self::existence::{Facts, Seen};
pub(crate) use self::service::Service;
use crate::{
    clock::Clock,
    driver::{Collection, Driver, Location, Lookup, VendorError},
    snapshot::{LookedUp, Snapshot, View},
    vendor::Session,
};

/// How long an instance that was not in a listing counts as not visible before it is looked for again.
const NEGATIVE: Duration = Duration::from_secs(5);
/// For how long it is remembered that an ID was missing.
const MISSING_KEPT: Duration = Duration::from_mins(10);
/// References in one request. Source: contract, section 1.
const REFS_MAX: usize = 500;

/// Finds out what became of instances.
#[derive(Debug)]
pub(crate) struct Finder<D> {
    pub(crate) driver: Arc<D>,
    pub(crate) snapshot: Arc<Snapshot<Instance>>,
    pub(crate) clock: Clock,
    pub(crate) scope: Arc<tokio::sync::watch::Sender<Option<Scope>>>,
    /// Since when IDs are missing, by direct answer: a newborn may only not be visible yet.
    pub(crate) missing: Mutex<BTreeMap<String, Instant>>,
}

/// A reference, read.
#[derive(Debug)]
enum Target {
    Id { provider_id: String, vendor_id: String },
    Name(String),
    Foreign,
    Bad(AdapterError),
}

impl<D: Driver> Finder<D> {
    /// One result a reference, in order.
    ///
    /// Cost: none if the snapshot is fresh enough; else one listing (shared), and one look-up a batch for those that it misses and
    /// whose absence must be proven.
    ///
    /// # Errors
    /// Those of the listing or the look-up, for the call as a whole: they never fan out into single calls.
    pub(crate) async fn find(
        &self,
        refs: Vec<InstanceRef>,
        bound: Option<Instant>,
        session: &Session,
    ) -> Result<(Vec<InstanceResult>, Instant), AdapterError> {
        if refs.len() > REFS_MAX {
            return Err(AdapterError::field("refs", format!("holds {}: at most {REFS_MAX}", refs.len())));
        }
        let targets: Vec<Target> = refs.into_iter().enumerate().map(|(at, one)| self.read(at, one)).collect();
        let view = self.view(&targets, bound, session).await?;
        let looked_up = match bound {
            Some(bound) => self.prove(&targets, &view, bound, session).await?,
            None => Vec::new(),
        };
        let scope = self.scope.borrow().clone().unwrap_or_default();
        let facts = Facts {
            scope: &scope,
            observed_at: self.clock.at(view.observed),
            now: self.clock.now(),
            horizon: self.driver.describe().consistency_horizon,
            checked: self.checked(&targets, &view, &looked_up, session).await,
            witnesses: view.items.len(),
        };
        let results = targets.iter().map(|target| judge(target, &view, &looked_up, &facts)).collect();
        Ok((results, view.observed))
    }

    fn read(&self, at: usize, one: InstanceRef) -> Target {
        match one.r#ref {
            None => Target::Bad(AdapterError::field(
                format!("refs[{at}]"),
                "names neither provider_id nor node_name",
            )),
            Some(Ref::NodeName(name)) => Target::Name(name),
            Some(Ref::ProviderId(provider_id)) => match self.driver.locate(&provider_id) {
                Location::Here(vendor_id) => Target::Id { provider_id, vendor_id },
                Location::Elsewhere => Target::Foreign,
                Location::Malformed => {
                    let text = format!("{provider_id:?} is no provider ID of this cloud");
                    Target::Bad(AdapterError::field(format!("refs[{at}].provider_id"), text))
                }
            },
        }
    }

    /// A listing that is fresh enough: as asked, or, if something asked for is not in it, at most [`NEGATIVE`] old.
    async fn view(
        &self,
        targets: &[Target],
        bound: Option<Instant>,
        session: &Session,
    ) -> Result<View<Instance>, VendorError> {
        let view = self.snapshot.at_least(bound, &*self.driver, session).await?;
        let complete = targets.iter().all(|target| match target {
            Target::Foreign | Target::Bad(_) => true,
            Target::Id { .. } | Target::Name(_) => seen(target, &view).is_some(),
        });
        if complete || bound.is_some() {
            return Ok(view);
        }
        let now = Instant::now();
        let bound = now.checked_sub(NEGATIVE).unwrap_or(now);
        self.snapshot.at_least(Some(bound), &*self.driver, session).await
    }

    /// Asks the vendor directly for the IDs that a fresh listing misses: a list alone proves nothing.
    async fn prove(
        &self,
        targets: &[Target],
        view: &View<Instance>,
        bound: Instant,
        session: &Session,
    ) -> Result<Vec<(String, Lookup<Instance>)>, VendorError> {
        if view.observed < bound {
            return Ok(Vec::new());
        }
        let ids: Vec<String> = targets
            .iter()
            .filter(|target| seen(target, view).is_none())
            .filter_map(|target| match target {
                Target::Id { vendor_id, .. } => Some(vendor_id.clone()),
                Target::Name(_) | Target::Foreign | Target::Bad(_) => None,
            })
            .collect();
        let mut answers = Vec::with_capacity(ids.len());
        let asked = Instant::now();
        for batch in ids.chunks(self.driver.describe().batch.max(1)) {
            let found = Collection::<Instance>::get_batch(&*self.driver, session, batch).await?;
            let found = found.unwrap_or_else(|| vec![Lookup::Unknown; batch.len()]);
            answers.extend(batch.iter().cloned().zip(found));
        }
        let provider_id = |vendor: &str| {
            let named = targets.iter().find_map(|target| match target {
                Target::Id { provider_id, vendor_id } if vendor_id == vendor => Some(provider_id.clone()),
                Target::Id { .. } | Target::Name(_) | Target::Foreign | Target::Bad(_) => None,
            });
            named.unwrap_or_default()
        };
        let judged = |(id, answer): (String, Lookup<Instance>)| match answer {
            Lookup::Gone
                if self.snapshot.departed(&provider_id(&id)).is_none() && !self.missing_for_long(&id) =>
            {
                (id, Lookup::Unknown)
            }
            Lookup::Found(_) | Lookup::Gone | Lookup::Unknown => (id, answer),
        };
        let answers: Vec<_> = answers.into_iter().map(judged).collect();
        for (id, answer) in &answers {
            if let Lookup::Found(instance) = answer {
                let found = vec![instance.clone()];
                self.snapshot.learn(LookedUp { asked, found, gone: Vec::new() });
                self.missing.lock().unwrap_or_else(PoisonError::into_inner).remove(id);
            }
        }
        Ok(answers)
    }

    /// Whether an ID that is missing now was missing a consistency horizon ago: then it is no newborn that reads do not show yet.
    fn missing_for_long(&self, id: &str) -> bool {
        let now = Instant::now();
        let mut missing = self.missing.lock().unwrap_or_else(PoisonError::into_inner);
        missing.retain(|_, since| now.duration_since(*since) < MISSING_KEPT);
        let since = *missing.entry(id.to_owned()).or_insert(now);
        now.duration_since(since) >= self.driver.describe().consistency_horizon
    }

    /// Whether the credentials open the scope that the snapshot was made in. Asked only if there is no witness.
    async fn checked(
        &self,
        targets: &[Target],
        view: &View<Instance>,
        looked_up: &[(String, Lookup<Instance>)],
        session: &Session,
    ) -> bool {
        let gone = looked_up.iter().any(|(_, answer)| *answer == Lookup::Gone);
        if !gone || targets.is_empty() || !view.items.is_empty() {
            return false;
        }
        match self.driver.self_check(session).await {
            Ok(scope) => {
                Some(scope.fingerprint) == self.scope.borrow().as_ref().map(|s| s.fingerprint.clone())
            }
            Err(_) => false,
        }
    }
}

fn seen<'a>(target: &'a Target, view: &'a View<Instance>) -> Option<&'a Instance> {
    let found = match target {
        Target::Id { provider_id, .. } => view.items.iter().find(|item| item.provider_id == *provider_id),
        Target::Name(name) => named(name, view).next(),
        Target::Foreign | Target::Bad(_) => None,
    };
    found.map(|item| &**item)
}

/// Machines of a name that may still be a node. A name never proves absence: one that ends is simply not it.
fn named<'a>(name: &'a str, view: &'a View<Instance>) -> impl Iterator<Item = &'a Arc<Instance>> {
    view.items.iter().filter(move |item| item.name == name && !ends(item))
}

fn ends(instance: &Instance) -> bool {
    matches!(instance.state(), InstanceState::Terminating | InstanceState::Terminated)
}

fn judge(
    target: &Target,
    view: &View<Instance>,
    looked_up: &[(String, Lookup<Instance>)],
    facts: &Facts<'_>,
) -> InstanceResult {
    let what = match (target, seen(target, view)) {
        (Target::Foreign, _) => Seen::Foreign,
        (Target::Bad(error), _) => Seen::Failed(error.clone()),
        (Target::Name(name), Some(_)) if named(name, view).count() > 1 => {
            let ids: Vec<&str> = named(name, view).map(|item| item.provider_id.as_str()).collect();
            let text = format!("more than one instance is named {name:?}: {}", ids.join(", "));
            Seen::Failed(AdapterError::new(Reason::OperationConflict, text))
        }
        (_, Some(instance)) => Seen::Found(instance.clone()),
        (Target::Name(_), None) => Seen::NotListed,
        (Target::Id { vendor_id, .. }, None) => {
            match looked_up.iter().find(|(id, _)| id == vendor_id).map(|(_, answer)| answer) {
                Some(Lookup::Found(instance)) => Seen::Found(instance.clone()),
                Some(Lookup::Gone) => Seen::DirectlyGone,
                Some(Lookup::Unknown) | None => Seen::NotListed,
            }
        }
    };
    existence::judge(what, facts)
}
