//! Injects faults between the runtime and the driver.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use cloud_adapter::{
    driver::{
        Adopter, Classify, Collection, CredentialsFile, Cursor, Deduplication, Description,
        DesiredLoadBalancer, Driver, Fault as Vendors, Heritage, Hint, InstanceLookup, LoadBalancerRecord,
        Location, Lookup, Outcome, Page, RouteChanges, VendorError, VendorLimit,
    },
    vendor::{Operation, Session, VendorResponse},
};
use cloud_api_proto::v1alpha1::{Fence, Instance, LoadBalancerKey, Route, Scope};
use ipnet::IpNet;
use secrecy::SecretString;
use tokio::time::Instant;

use super::{Fault, memory::Memory};
use crate::{
    SimDriver, ownership, responses,
    simcloud::{
        model::Tags,
        requests::{CreateLoadBalancer, UpdateListener, UpdateLoadBalancer},
    },
    step::{RouteBatch, Step},
    translate,
};

/// Pause between two checks whether a creation is pending.
const TICK: Duration = Duration::from_millis(20);
/// Maximum time that other changes wait for pending creations.
const TIMEOUT: Duration = Duration::from_secs(20);

type Record = LoadBalancerRecord<responses::LoadBalancer>;

/// The driver with one fault.
#[derive(Clone, Debug)]
pub struct BrokenDriver {
    fault: Fault,
    inner: SimDriver,
    memory: Arc<Memory>,
}

impl BrokenDriver {
    pub(crate) fn new(fault: Fault, inner: SimDriver, memory: Arc<Memory>) -> Self {
        memory.notes().secret = inner.secrets().into_iter().next();
        Self { fault, inner, memory }
    }

    fn is(&self, fault: Fault) -> bool {
        self.fault == fault
    }

    /// Returns whether the faulty driver withholds this tag in this step. Such a tag is written only in the last step of a plan, or never.
    fn keeps(&self, tag: &str, last: bool) -> bool {
        match self.fault {
            Fault::HashInMemory => ownership::is_hash(tag),
            Fault::ForgetsTags => ownership::is_reserved(tag),
            Fault::LeaksOnCrash => ownership::is_reserved(tag) && !last,
            _ => false,
        }
    }

    /// Stores the withheld tags, and returns the tags to write.
    fn held_back(&self, name: &str, tags: &Tags, last: bool) -> Tags {
        let (kept, sent): (Tags, Tags) = tags.clone().into_iter().partition(|(tag, _)| self.keeps(tag, last));
        if !kept.is_empty() {
            self.memory.notes().tags.insert(name.to_owned(), kept);
        }
        sent
    }

    fn create(&self, request: &CreateLoadBalancer) -> CreateLoadBalancer {
        let mut request = request.clone();
        if self.is(Fault::LeaksOnCrash) {
            request.name = format!("lb-{}-{}", std::process::id(), self.memory.count());
            request.client_token = None;
        }
        request.tags = self.held_back(&request.name, &request.tags, false);
        request
    }

    fn bent(&self, step: &Step) -> Result<Step, VendorError> {
        Ok(match step {
            Step::CreateLoadBalancer(request) => Step::CreateLoadBalancer(self.create(request).into()),
            Step::UpdateLoadBalancer { balancer, change: UpdateLoadBalancer { name, tags: Some(tags) } } => {
                let tags = self.held_back(balancer.id()?, tags, true);
                let change = UpdateLoadBalancer { name: name.clone(), tags: Some(tags) };
                Step::UpdateLoadBalancer { balancer: balancer.clone(), change }
            }
            other => other.clone(),
        })
    }

    /// On the first call for a pool, writes to its listener instead of the pool.
    fn detour(&self, step: &Step) -> Option<Step> {
        if !self.is(Fault::MemberChangeTouchesListeners) {
            return None;
        }
        let (Step::SetMembers { pool, .. } | Step::UpdateMembers { pool, .. }) = step else { return None };
        let mut notes = self.memory.notes();
        if notes.touched.remove(pool) {
            return None;
        }
        let (id, port) = notes.listeners.get(pool).cloned()?;
        notes.touched.insert(pool.clone());
        Some(Step::UpdateListener { id, port, change: UpdateListener::default(), pool: None })
    }

    fn instance(&self, mut instance: Instance) -> Instance {
        match self.fault {
            Fault::NoZone => instance.zone.clear(),
            Fault::RestlessFingerprint => {
                instance.fingerprint = format!("{}-{}", instance.fingerprint, self.memory.count());
            }
            Fault::FrozenFingerprint => instance.fingerprint.clone_from(&instance.provider_id),
            _ => (),
        }
        instance
    }

    fn balancer(&self, mut record: Record) -> Record {
        let mut notes = self.memory.notes();
        let detail = &record.detail;
        if self.is(Fault::MemberChangeTouchesListeners) {
            let listeners = detail.listeners.iter();
            let pools = listeners
                .filter_map(|one| Some((one.pool_id.clone()?, (one.id.clone(), crate::plan::port(one)?))));
            notes.listeners.extend(pools);
        }
        let kept = notes.tags.get(&detail.id).or_else(|| notes.tags.get(&detail.name)).cloned();
        if let Some(kept) = kept {
            let mut tree = record.detail.clone();
            for (tag, value) in kept {
                tree.tags.entry(tag).or_insert(value);
            }
            record = translate::load_balancer(tree);
        }
        if let Some(key) = notes.claims.get(&record.detail.id) {
            record.summary.key = Some(key.clone());
        }
        record
    }

    fn route(&self, mut route: Route) -> Route {
        if let Some(key) = self.memory.notes().routes.get(&route.destination) {
            route.key = Some(key.clone());
        }
        route
    }

    /// Delays all other steps until no creation is pending. A creation that fails temporarily remains pending.
    async fn in_line(&self, session: &Session, step: &Step) -> Result<Outcome, VendorError> {
        let Step::CreateLoadBalancer(request) = step else {
            while self.memory.notes().creates.values().any(|since| since.elapsed() < TIMEOUT) {
                tokio::time::sleep(TICK).await;
            }
            return self.inner.execute(session, step).await;
        };
        self.memory.notes().creates.insert(request.name.clone(), Instant::now());
        let made = self.inner.execute(session, step).await;
        let later = [Vendors::Throttled, Vendors::Budget, Vendors::QueueFull, Vendors::Unavailable];
        if !made.as_ref().is_err_and(|error| later.contains(&error.fault)) {
            self.memory.notes().creates.remove(&request.name);
        }
        made
    }

    /// Returns whether the ports differ. If they do, the faulty driver recreates the load balancer.
    fn other_ports(desired: &DesiredLoadBalancer, observed: &Record) -> bool {
        let there: BTreeSet<u32> = observed.detail.listeners.iter().map(|one| one.port.into()).collect();
        let wanted: BTreeSet<u32> = desired.spec.listeners.iter().map(|one| one.port).collect();
        !observed.summary.applied_hash.is_empty() && there != wanted
    }

    async fn clear_foreign_routes(&self, session: &Session, batch: &RouteBatch) -> Result<(), VendorError> {
        let networks = self.memory.notes().networks.clone();
        let created: Vec<IpNet> = batch.add.iter().flatten().map(|one| one.destination).collect();
        let written: Vec<IpNet> =
            networks.into_iter().filter(|net| created.iter().any(|one| net.contains(one))).collect();
        let beside = |route: &Route| {
            let there = route.destination.parse::<IpNet>();
            there.is_ok_and(|there| written.iter().any(|net| net.contains(&there)))
        };
        let page = Collection::<Route>::list_page(&self.inner, session, None, None).await?;
        let foreign = page.items.into_iter().filter(|one| one.key.is_none() && beside(one));
        let remove = foreign.map(|one| one.vendor_id).collect();
        let changes = RouteChanges { remove, add: Vec::new() };
        for step in self.inner.plan_routes(&changes) {
            self.inner.execute(session, &step).await?;
        }
        Ok(())
    }
}

impl Classify for BrokenDriver {
    fn classify(&self, operation: Operation, response: &VendorResponse) -> Option<VendorError> {
        let mut error = self.inner.classify(operation, response)?;
        match (self.fault, error.fault) {
            (Fault::IgnoresRetryAfter, _) => error.retry_after = None,
            (Fault::NoVendorRequestId, _) => error.request_id = None,
            (Fault::ThrottleUnnoticed, Vendors::Throttled) => error.fault = Vendors::Unavailable,
            (Fault::ConflictIsFinal, Vendors::Busy) => error.fault = Vendors::Invalid,
            _ => (),
        }
        Some(error)
    }

    fn hint(&self, operation: Operation, response: &VendorResponse) -> Option<Hint> {
        if self.is(Fault::ThrottleUnnoticed) { None } else { self.inner.hint(operation, response) }
    }

    fn request_id(&self, response: &VendorResponse) -> Option<String> {
        if self.is(Fault::NoVendorRequestId) { None } else { self.inner.request_id(response) }
    }

    fn secrets(&self) -> Vec<SecretString> {
        self.inner.secrets()
    }
}

impl Driver for BrokenDriver {
    type Detail = responses::LoadBalancer;
    type Step = Step;

    fn describe(&self) -> Description {
        let mut described = self.inner.describe();
        if self.is(Fault::TrustsStaleReads) {
            described.consistency_horizon = Duration::ZERO;
            described.create_horizon = Duration::ZERO;
            described.deduplication = Deduplication::ClientToken;
        }
        if self.is(Fault::Overspends) {
            for (_, limit) in &mut described.call_limits {
                *limit = VendorLimit::Bucket { rate: 100_000.0, burst: 100_000 };
            }
        }
        described
    }

    async fn self_check(&self, session: &Session) -> Result<Scope, VendorError> {
        self.inner.self_check(session).await
    }

    fn credentials(&self) -> Option<CredentialsFile<Self>> {
        if self.is(Fault::TokenReadOnce) {
            return None;
        }
        Some(CredentialsFile {
            path: self.inner.credentials()?.path,
            candidate: |driver, content| {
                let inner = driver.inner.candidate(content)?;
                Ok(Self { inner, ..driver.clone() })
            },
            adopt: |driver, candidate| driver.inner.adopt(&candidate.inner),
        })
    }

    fn locate(&self, provider_id: &str) -> Location {
        self.inner.locate(provider_id)
    }

    fn plan(
        &self,
        desired: &DesiredLoadBalancer,
        fence: &Fence,
        observed: Option<&Record>,
    ) -> Result<Vec<Step>, VendorError> {
        if self.memory.notes().cut.contains(&super::memory::key(&desired.key)) {
            return Err(VendorError::new(Vendors::Unavailable, "the caller closed its connection"));
        }
        match observed {
            Some(observed) if self.is(Fault::PortChangeRecreates) && Self::other_ports(desired, observed) => {
                Ok(self.inner.plan_deletion(observed))
            }
            Some(observed) if self.is(Fault::HashVersionRewrites) => {
                let mut observed = observed.clone();
                if observed.summary.applied_hash != desired.hash {
                    observed.detail.tags.retain(|tag, _| !ownership::is_hash(tag));
                }
                self.inner.plan(desired, fence, Some(&observed))
            }
            _ => self.inner.plan(desired, fence, observed),
        }
    }

    fn names_of(&self, key: &LoadBalancerKey) -> impl Fn(&str) -> bool {
        self.inner.names_of(key)
    }

    fn heritage(&self, adopter: &Adopter) -> impl Fn(&Record) -> Heritage {
        self.inner.heritage(adopter)
    }

    fn plan_deletion(&self, observed: &Record) -> Vec<Step> {
        self.inner.plan_deletion(observed)
    }

    fn plan_routes(&self, changes: &RouteChanges) -> Vec<Step> {
        self.inner.plan_routes(changes)
    }

    async fn execute(&self, session: &Session, step: &Step) -> Result<Outcome, VendorError> {
        if let Some(detour) = self.detour(step) {
            return self.inner.execute(session, &detour).await;
        }
        if let (Fault::RemovesForeignRoutes, Step::BatchRoutes(batch)) = (self.fault, step) {
            self.clear_foreign_routes(session, batch).await?;
        }
        if self.is(Fault::CreatesGoFirst) {
            return self.in_line(session, step).await;
        }
        self.inner.execute(session, &self.bent(step)?).await
    }
}

impl Collection<Instance> for BrokenDriver {
    async fn list_page(
        &self,
        session: &Session,
        cursor: Option<&Cursor>,
        size: Option<u32>,
    ) -> Result<Page<Instance>, VendorError> {
        let page = Collection::<Instance>::list_page(&self.inner, session, cursor, size).await;
        let forgiving = match cursor {
            None => self.is(Fault::EmptyListOnError),
            Some(_) => self.is(Fault::SyncedAfterBrokenPage),
        };
        let mut page = match page {
            Err(_) if forgiving => Page { items: Vec::new(), next: None, total: None },
            page => page?,
        };
        if self.is(Fault::LosesItemsBetweenPages) && cursor.is_some() && !page.items.is_empty() {
            page.items.remove(0);
        }
        page.items = page.items.into_iter().map(|one| self.instance(one)).collect();
        let mut notes = self.memory.notes();
        notes.vanished = match page.items.as_slice() {
            [] => notes.instances.clone(),
            _ => BTreeSet::new(),
        };
        drop(notes);
        Ok(page)
    }
}

impl InstanceLookup for BrokenDriver {
    async fn get_batch(
        &self,
        session: &Session,
        ids: &[String],
    ) -> Result<Option<Vec<Lookup<Instance>>>, VendorError> {
        let found = self.inner.get_batch(session, ids).await?;
        let bent = |one| match one {
            Lookup::Found(instance) => Lookup::Found(self.instance(instance)),
            other @ (Lookup::Gone | Lookup::Unknown) => other,
        };
        Ok(found.map(|found| found.into_iter().map(bent).collect()))
    }
}

impl Collection<Record> for BrokenDriver {
    async fn list_page(
        &self,
        session: &Session,
        cursor: Option<&Cursor>,
        size: Option<u32>,
    ) -> Result<Page<Record>, VendorError> {
        let page = Collection::<Record>::list_page(&self.inner, session, cursor, size).await?;
        Ok(Page { items: page.items.into_iter().map(|one| self.balancer(one)).collect(), ..page })
    }
}

impl Collection<Route> for BrokenDriver {
    async fn list_page(
        &self,
        session: &Session,
        cursor: Option<&Cursor>,
        size: Option<u32>,
    ) -> Result<Page<Route>, VendorError> {
        let page = Collection::<Route>::list_page(&self.inner, session, cursor, size).await?;
        Ok(Page { items: page.items.into_iter().map(|one| self.route(one)).collect(), ..page })
    }
}
