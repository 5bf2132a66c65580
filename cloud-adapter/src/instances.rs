//! Looks up instances and decides whether they exist. The rules for evidence are in [`existence`]; this module collects the observations.

mod absence;
mod existence;
mod lookups;
mod response;
mod service;
mod witnesses;

use std::{collections::BTreeMap, fmt, sync::Arc};

use cloud_api_proto::{
    AdapterError, Reason,
    v1alpha1::{Existence, Instance, InstanceRef, InstanceState, Scope, instance_ref::Ref},
};
use tokio::time::{Duration, Instant};

pub(crate) use self::service::{Service, shared};
use self::{
    absence::{Absent, Memory},
    existence::{Facts, Proof, Seen},
    lookups::{FlightResults, LookUps, LookupResult, Wanted},
    response::Verdict,
    witnesses::Witnesses,
};
use crate::{
    clock::Clock,
    config::BatchWindow,
    driver::{Driver, Fault, Item as _, Location, VendorError},
    metrics::{Coalesced, Metrics},
    rpc::Rpc,
    snapshot::{ObservedAt, Snapshot, View},
    strings,
    vendor::Session,
};

/// The maximum age of a listing that lacks a requested name. If the listing is older, the collection is listed again.
const NEGATIVE: Duration = Duration::from_secs(5);
const REFS_MAX: usize = 500;

#[derive(Debug)]
pub(crate) struct Finder<D> {
    driver: Arc<D>,
    snapshot: Arc<Snapshot<Instance>>,
    lookups: Arc<LookUps<D>>,
    memory: Memory,
    clock: Clock,
    scope: Arc<tokio::sync::watch::Sender<Option<Scope>>>,
    metrics: Metrics,
}

#[derive(Debug)]
enum Target {
    Id { provider_id: String, vendor_id: String },
    Name(String),
    Foreign,
    Bad(AdapterError),
}

/// What is known about a target before the verdict on its existence.
#[derive(Debug)]
enum Known {
    /// The verdict is known without an observation.
    Plain(Seen, Option<Instant>),
    Found(Arc<Instance>, Instant),
    /// The vendor reported that the instance does not exist.
    Missing(String, Absent),
}

impl<D: Driver> Finder<D> {
    pub(crate) fn new(driver: Arc<D>, snapshot: Arc<Snapshot<Instance>>, rpc: &Rpc) -> Self {
        let places = Arc::clone(&driver);
        let locate = move |id: &str| match places.locate(id) {
            Location::Here(vendor_id) => Some(vendor_id),
            Location::Elsewhere | Location::Malformed => None,
        };
        let batch = driver.describe().batch;
        let metrics = rpc.metrics.clone();
        let lookups =
            LookUps::new(Arc::clone(&driver), Arc::clone(&snapshot), metrics.clone(), batch, locate);
        Self {
            driver,
            snapshot,
            lookups: Arc::new(lookups),
            memory: Memory::default(),
            clock: rpc.clock,
            scope: Arc::clone(&rpc.scope),
            metrics,
        }
    }

    pub(crate) fn configure(&self, window: BatchWindow) {
        self.lookups.configure(window);
    }

    /// Removes all recorded absences. The caller does this when the scope of the credentials has changed.
    pub(crate) fn forget(&self) {
        self.memory.forget();
    }

    /// Returns one result per reference, in order. Also returns the time of the oldest observation among the results.
    ///
    /// Cost: no call if the cached observations are fresh enough. Otherwise one look-up per batch, or one listing if that is cheaper;
    /// concurrent callers share these calls. Names need a listing. A self-check is added if only the credentials can prove an absence.
    ///
    /// Returns the error of the listing or of the batch look-up, which applies to the whole request. Such an error never causes look-ups of
    /// single instances.
    pub(crate) async fn find(
        &self,
        refs: Vec<InstanceRef>,
        bound: Option<Instant>,
        session: &Session,
    ) -> Result<(Vec<Verdict>, Instant), AdapterError> {
        if refs.len() > REFS_MAX {
            return Err(AdapterError::field(
                "refs",
                format!("has {} references: at most {REFS_MAX} are allowed", refs.len()),
            ));
        }
        let asked = Instant::now();
        let targets: Vec<Target> = refs.into_iter().enumerate().map(|(at, one)| self.read(at, one)).collect();
        let view = self.listed(&targets, bound, session).await?;
        let observed = self.observed(&targets, bound);
        let answers = self.look_up(&targets, &observed, bound, session).await?;
        let known = targets.iter().zip(observed).map(|(target, one)| match one {
            Some((instance, seen)) => Known::Found(instance, seen),
            None => self.known(target, bound, view.as_ref(), &answers),
        });
        let known: Vec<Known> = known.collect();
        let proofs = self.prove(&known, session).await;
        let oldest = known.iter().filter_map(Known::observed).min().unwrap_or(asked);
        let scope = self.scope.borrow().clone().unwrap_or_default();
        let horizon = self.driver.describe().consistency_horizon;
        let now = self.clock.now();
        let judge = |(known, proof): (Known, Option<Proof>)| {
            let observed_at = self.clock.at(known.observed().unwrap_or(asked));
            let facts = Facts { scope: &scope, observed_at, now, horizon };
            existence::judge(self.settle(known, proof), &facts)
        };
        let results: Vec<_> = known.into_iter().zip(proofs).map(judge).collect();
        self.count(&results);
        Ok((results, oldest))
    }

    fn read(&self, at: usize, one: InstanceRef) -> Target {
        self.target(format_args!("refs[{at}]"), one).unwrap_or_else(Target::Bad)
    }

    fn target(&self, path: fmt::Arguments<'_>, one: InstanceRef) -> Result<Target, AdapterError> {
        match one.r#ref {
            None => Err(AdapterError::field(path.to_string(), "needs provider_id or node_name")),
            Some(Ref::NodeName(name)) => {
                strings::refuse(strings::too_long(path, [("node_name", name.as_str())]))?;
                Ok(Target::Name(name))
            }
            Some(Ref::ProviderId(provider_id)) => {
                strings::refuse(strings::too_long(path, [("provider_id", provider_id.as_str())]))?;
                match self.driver.locate(&provider_id) {
                    // Observations are stored under the form of the ID that listings use, so the ID is converted to this form.
                    Location::Here(vendor_id) => {
                        Ok(Target::Id { provider_id: self.driver.spelled(&provider_id), vendor_id })
                    }
                    Location::Elsewhere => Ok(Target::Foreign),
                    Location::Malformed => {
                        let text = format!("invalid provider ID {provider_id:?}: expected one of this cloud");
                        Err(AdapterError::field(format!("{path}.provider_id"), text))
                    }
                }
            }
        }
    }

    /// Returns a listing for names, if there are any names. The listing is as fresh as requested. If it lacks one of the names, its age is
    /// at most [`NEGATIVE`].
    async fn listed(
        &self,
        targets: &[Target],
        bound: Option<Instant>,
        session: &Session,
    ) -> Result<Option<View<Instance>>, VendorError> {
        let names = || {
            targets.iter().filter_map(|target| match target {
                Target::Name(name) => Some(name.as_str()),
                Target::Id { .. } | Target::Foreign | Target::Bad(_) => None,
            })
        };
        if names().next().is_none() {
            return Ok(None);
        }
        let view = self.snapshot.at_least(bound, &*self.driver, session).await?;
        if bound.is_some() || names().all(|name| named(name, &view).next().is_some()) {
            return Ok(Some(view));
        }
        let bound = Snapshot::<Instance>::no_older_than(NEGATIVE);
        self.snapshot.at_least(Some(bound), &*self.driver, session).await.map(Some)
    }

    /// Looks up the IDs that have no fresh observation, and records the vendor's answers.
    async fn look_up(
        &self,
        targets: &[Target],
        observed: &[Option<ObservedAt<Instance>>],
        bound: Option<Instant>,
        session: &Session,
    ) -> Result<Vec<Arc<FlightResults>>, VendorError> {
        let mut wanted = Wanted::new();
        for (target, one) in targets.iter().zip(observed) {
            if let Target::Id { provider_id, vendor_id } = target
                && one.is_none()
                && self.recall(provider_id, bound).is_none()
            {
                wanted.insert(provider_id.clone(), vendor_id.clone());
            }
        }
        if wanted.is_empty() {
            if targets.iter().any(|target| matches!(target, Target::Id { .. })) {
                self.metrics.coalesced(Instance::COLLECTION, Coalesced::Snapshot);
            }
            return Ok(Vec::new());
        }
        self.lookups.get(wanted, bound, session).await
    }

    /// Returns, for each target with an ID, the instance if it was observed at `bound` or later.
    fn observed(&self, targets: &[Target], bound: Option<Instant>) -> Vec<Option<ObservedAt<Instance>>> {
        let ids = targets.iter().map(|target| match target {
            Target::Id { provider_id, .. } => Some(provider_id.as_str()),
            Target::Name(_) | Target::Foreign | Target::Bad(_) => None,
        });
        let observed = self.snapshot.observed_items(ids, bound);
        self.seen(observed.iter().flatten().map(|(instance, _)| instance.provider_id.as_str()));
        observed
    }

    fn known(
        &self,
        target: &Target,
        bound: Option<Instant>,
        view: Option<&View<Instance>>,
        answers: &[Arc<FlightResults>],
    ) -> Known {
        match target {
            Target::Foreign => Known::Plain(Seen::Foreign, None),
            Target::Bad(error) => Known::Plain(Seen::Failed(error.clone()), None),
            Target::Name(name) => {
                view.map_or(Known::Plain(Seen::NotListed, None), |view| by_name(name, view))
            }
            Target::Id { provider_id, .. } => {
                let said = answers.iter().find_map(|one| Some((one.found.get(provider_id)?, one.asked)));
                match said {
                    Some((answer, asked)) => self.answered(provider_id, answer, asked),
                    None => self.remembered(provider_id, bound),
                }
            }
        }
    }

    fn answered(&self, provider_id: &str, answer: &LookupResult, asked: Instant) -> Known {
        match answer {
            LookupResult::Found(instance) => {
                self.seen([provider_id]);
                Known::Found(Arc::clone(instance), asked)
            }
            LookupResult::Gone => {
                Known::Missing(provider_id.to_owned(), self.missed(provider_id, asked, true))
            }
            LookupResult::NotListed => {
                self.missed(provider_id, asked, false);
                Known::Plain(Seen::NotListed, Some(asked))
            }
            LookupResult::Unsaid => {
                let error = VendorError::new(Fault::Unavailable, "the cloud did not return this instance");
                Known::Plain(Seen::Failed(error.into()), Some(asked))
            }
        }
    }

    fn remembered(&self, provider_id: &str, bound: Option<Instant>) -> Known {
        let one = self.snapshot.observed_item(provider_id);
        if let Some((instance, seen)) = one.filter(|(_, seen)| bound.is_none_or(|bound| *seen >= bound)) {
            self.seen([provider_id]);
            return Known::Found(instance, seen);
        }
        match self.recall(provider_id, bound) {
            Some(absent) if absent.direct => Known::Missing(provider_id.to_owned(), absent),
            Some(absent) => Known::Plain(Seen::NotListed, Some(absent.last)),
            None => Known::Plain(Seen::NotListed, None),
        }
    }

    fn seen<'a>(&self, provider_ids: impl IntoIterator<Item = &'a str>) {
        self.memory.seen(provider_ids, |id| self.snapshot.observed_item(id).is_some());
    }

    /// Records that an instance was missing. If the snapshot has seen the instance since the absence began, the absence is over.
    fn missed(&self, provider_id: &str, asked: Instant, direct: bool) -> Absent {
        self.memory.missed(provider_id, asked, self.snapshot.last_seen(provider_id), direct)
    }

    /// Returns the recorded absence, unless the instance was seen since then.
    fn recall(&self, provider_id: &str, bound: Option<Instant>) -> Option<Absent> {
        let shown = self.snapshot.last_seen(provider_id);
        self.memory.recall(provider_id, bound).filter(|absent| shown <= Some(absent.last))
    }

    /// Returns the proof of each absence, if there is a proof. The credentials are checked only if that check can be a proof.
    async fn prove(&self, known: &[Known], session: &Session) -> Vec<Option<Proof>> {
        let mut by_request = BTreeMap::new();
        let mut passed = None;
        let mut proofs = Vec::with_capacity(known.len());
        for one in known {
            let Some(asked) = one.needs_proof() else {
                proofs.push(one.proof());
                continue;
            };
            let witnesses = by_request.entry(asked).or_insert_with(|| self.witnesses(asked));
            let (witnesses, can_check) = match one {
                Known::Missing(id, _) => {
                    let departed = self.snapshot.departed(id);
                    (witnesses.count(departed.map(|one| one.last_seen)), witnesses::alone(departed))
                }
                Known::Found(..) | Known::Plain(..) => (witnesses.others(), true),
            };
            let mut proof = (witnesses > 0).then_some(Proof::Witnesses(witnesses));
            if proof.is_none() && can_check {
                if passed.is_none() {
                    passed = Some(self.checked(session).await);
                }
                proof = passed.filter(|passed| *passed).map(|_| Proof::Credentials);
            }
            proofs.push(proof);
        }
        proofs
    }

    fn witnesses(&self, asked: Instant) -> Witnesses {
        Witnesses::of(self.snapshot.seen_since(asked), |id| self.memory.is_member(id))
    }

    /// Returns whether the credentials have the scope of the snapshot. Cost: one vendor call.
    async fn checked(&self, session: &Session) -> bool {
        let scope = self.driver.self_check(session).await;
        let known = self.scope.borrow().as_ref().map(|scope| scope.fingerprint.clone());
        scope.is_ok_and(|scope| known == Some(scope.fingerprint))
    }

    fn count(&self, results: &[Verdict]) {
        let mut counts = BTreeMap::<_, u64>::new();
        for result in results {
            *counts.entry(word(result.existence())).or_default() += 1;
        }
        for (word, count) in counts {
            self.metrics.existence(word, count);
        }
    }

    /// Converts an observation to the input of the verdict, and records the proof of an absence.
    fn settle(&self, known: Known, proof: Option<Proof>) -> Seen {
        match known {
            Known::Plain(seen, _) => seen,
            Known::Found(instance, _) => Seen::Found(instance, proof),
            Known::Missing(id, absent) => {
                let departed = self.snapshot.departed(&id).map_or(absent.since, |one| one.since);
                let missing_for = absent.last.saturating_duration_since(absent.since.min(departed));
                if let Some(proof) = proof
                    && missing_for >= self.driver.describe().consistency_horizon
                {
                    self.memory.proven(&id, proof);
                }
                Seen::DirectlyGone { missing_for, proof }
            }
        }
    }
}

impl Known {
    /// Returns the time of the read that did not return the instance, or returned it as terminated. `None`: the absence is already proven,
    /// or there is no absence to prove.
    fn needs_proof(&self) -> Option<Instant> {
        match self {
            Self::Missing(_, absent) if absent.proof.is_none() => Some(absent.last),
            Self::Found(instance, seen) if instance.state() == InstanceState::Terminated => Some(*seen),
            Self::Missing(..) | Self::Found(..) | Self::Plain(..) => None,
        }
    }

    fn proof(&self) -> Option<Proof> {
        match self {
            Self::Missing(_, absent) => absent.proof,
            Self::Found(..) | Self::Plain(..) => None,
        }
    }

    /// Returns the time at which the vendor was asked.
    fn observed(&self) -> Option<Instant> {
        match self {
            Self::Plain(_, asked) => *asked,
            Self::Found(_, asked) | Self::Missing(_, Absent { last: asked, .. }) => Some(*asked),
        }
    }
}

/// Returns the instances with this name that may still be a node. Terminated instances are excluded, because a name never proves absence.
fn named<'a>(name: &'a str, view: &'a View<Instance>) -> impl Iterator<Item = &'a Arc<Instance>> {
    view.items.iter().filter(move |item| item.name == name && !ends(item))
}

fn ends(instance: &Instance) -> bool {
    matches!(instance.state(), InstanceState::Terminating | InstanceState::Terminated)
}

fn by_name(name: &str, view: &View<Instance>) -> Known {
    let mut found = named(name, view);
    match (found.next(), found.next()) {
        (None, _) => Known::Plain(Seen::NotListed, Some(view.observed)),
        (Some(instance), None) => Known::Found(Arc::clone(instance), view.observed),
        (Some(_), Some(_)) => {
            let ids: Vec<&str> = named(name, view).map(|item| item.provider_id.as_str()).collect();
            let text = format!("more than one instance has the name {name:?}: {}", ids.join(", "));
            Known::Plain(
                Seen::Failed(AdapterError::new(Reason::OperationConflict, text)),
                Some(view.observed),
            )
        }
    }
}

/// Returns the value of the metric's label.
const fn word(existence: Existence) -> &'static str {
    match existence {
        Existence::Exists => "exists",
        Existence::Gone => "gone",
        Existence::NotVisible => "not-visible",
        Existence::Foreign => "foreign",
        Existence::Unspecified | Existence::Unknown => "unknown",
    }
}
