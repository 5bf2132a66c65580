//! A fake cloud with load balancers, which records how it was read.

use cloud_api_proto::v1alpha1::{Instance, LoadBalancerState, Route, Scope};
use tokio::time::sleep;

use super::*;
use crate::{
    driver::{
        Classify, Collection, Cursor, Description, Heritage, InstanceLookup, Location, Lookup, Outcome, Page,
        RouteChanges, VendorError, testing::Create,
    },
    vendor::{Operation, Session, VendorResponse},
};

type Balancer = LoadBalancerRecord<()>;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Read {
    /// One page of the listing.
    Page,
    /// One load balancer, by ID.
    LookUp,
    /// The load balancers of one key.
    Find,
}

/// Writes go to the vendor. They change this cloud only if it was made by [`Cloud::creating`].
#[derive(Debug)]
pub(super) struct Cloud {
    items: Mutex<Vec<Balancer>>,
    page_size: usize,
    reads: Mutex<Vec<(Read, Instant)>>,
    /// How long the creation of a load balancer takes.
    takes: Option<Duration>,
    /// The load balancer of the last plan.
    planned: Mutex<Option<LoadBalancer>>,
    /// When the last load balancer becomes ready.
    ready: Mutex<Option<Instant>>,
}

impl Cloud {
    /// Creates a cloud with load balancers of these keys, all of which the vendor is still changing. It lists one load balancer per page.
    pub(super) fn changing(owners: &[&str]) -> Self {
        let items = owners.iter().enumerate().map(|(id, owner)| {
            let summary = LoadBalancer {
                vendor_id: format!("lb-{id}"),
                key: Some(LoadBalancerKey { owner_uid: (*owner).to_owned(), ..key() }),
                state: LoadBalancerState::Pending.into(),
                ..LoadBalancer::default()
            };
            LoadBalancerRecord::new(summary, ())
        });
        Self { items: Mutex::new(items.collect()), ..Self::empty() }
    }

    /// Creates an empty cloud in which the creation of a load balancer takes this time.
    pub(super) fn creating(takes: Duration) -> Self {
        Self { takes: Some(takes), page_size: 100, ..Self::empty() }
    }

    fn empty() -> Self {
        Self {
            items: Mutex::default(),
            page_size: 1,
            reads: Mutex::default(),
            takes: None,
            planned: Mutex::default(),
            ready: Mutex::default(),
        }
    }

    pub(super) fn paged(self, page_size: usize) -> Self {
        Self { page_size, ..self }
    }

    /// Returns the reads since the last call, and the times at which the reads began.
    pub(super) fn reads(&self) -> Vec<(Read, Instant)> {
        std::mem::take(&mut self.reads.lock().expect("whole"))
    }

    async fn read(&self, read: Read) -> Vec<Balancer> {
        self.reads.lock().expect("whole").push((read, Instant::now()));
        let milliseconds = if read == Read::Find { 1_000 } else { 10 };
        sleep(Duration::from_millis(milliseconds)).await;
        let mut items = self.items.lock().expect("whole");
        let is_ready = self.ready.lock().expect("whole").is_some_and(|at| at <= Instant::now());
        if let Some(last) = items.last_mut().filter(|_| is_ready) {
            last.summary.state = LoadBalancerState::Active.into();
        }
        items.clone()
    }

    fn create(&self, takes: Duration) -> String {
        let mut items = self.items.lock().expect("whole");
        let vendor_id = format!("lb-{}", items.len());
        let planned = self.planned.lock().expect("whole").take().expect("planned before");
        let summary = LoadBalancer { vendor_id: vendor_id.clone(), ..planned };
        items.push(LoadBalancerRecord::new(summary, ()));
        *self.ready.lock().expect("whole") = Some(Instant::now() + takes);
        vendor_id
    }
}

impl Classify for Cloud {
    fn classify(&self, _: Operation, _: &VendorResponse) -> Option<VendorError> {
        None
    }
}

impl Collection<Balancer> for Cloud {
    async fn list_page(
        &self,
        _: &Session,
        cursor: Option<&Cursor>,
        _: Option<u32>,
    ) -> Result<Page<Balancer>, VendorError> {
        let from: usize = cursor.map_or(0, |cursor| cursor.at().parse().expect("a number"));
        let items = self.read(Read::Page).await;
        let to = from + self.page_size;
        let next = (to < items.len()).then(|| to.to_string().into());
        Ok(Page { items: items.into_iter().skip(from).take(self.page_size).collect(), next, total: None })
    }
}

impl Collection<Instance> for Cloud {
    async fn list_page(
        &self,
        session: &Session,
        cursor: Option<&Cursor>,
        size: Option<u32>,
    ) -> Result<Page<Instance>, VendorError> {
        WriteOnly.list_page(session, cursor, size).await
    }
}

impl Collection<Route> for Cloud {
    async fn list_page(
        &self,
        session: &Session,
        cursor: Option<&Cursor>,
        size: Option<u32>,
    ) -> Result<Page<Route>, VendorError> {
        WriteOnly.list_page(session, cursor, size).await
    }
}

impl InstanceLookup for Cloud {
    async fn get_batch(
        &self,
        session: &Session,
        ids: &[String],
    ) -> Result<Option<Vec<Lookup<Instance>>>, VendorError> {
        WriteOnly.get_batch(session, ids).await
    }
}

impl Driver for Cloud {
    type Detail = ();
    type Step = Create;

    fn describe(&self) -> Description {
        WriteOnly.describe()
    }

    async fn self_check(&self, session: &Session) -> Result<Scope, VendorError> {
        WriteOnly.self_check(session).await
    }

    fn locate(&self, provider_id: &str) -> Location {
        WriteOnly.locate(provider_id)
    }

    fn plan(
        &self,
        desired: &DesiredLoadBalancer,
        fence: &Fence,
        observed: Option<&Balancer>,
    ) -> Result<Vec<Create>, VendorError> {
        let planned = LoadBalancer {
            key: Some(desired.key.clone()),
            state: LoadBalancerState::Pending.into(),
            applied_hash: desired.hash.clone(),
            ..LoadBalancer::default()
        };
        *self.planned.lock().expect("whole") = Some(planned);
        WriteOnly.plan(desired, fence, observed)
    }

    fn names_of(&self, _: &LoadBalancerKey) -> impl Fn(&str) -> bool {
        |_: &str| false
    }

    fn heritage(&self, _: &Adopter) -> impl Fn(&Balancer) -> Heritage {
        |_: &Balancer| Heritage::Unrelated
    }

    fn plan_deletion(&self, observed: &Balancer) -> Vec<Create> {
        WriteOnly.plan_deletion(observed)
    }

    fn plan_routes(&self, changes: &RouteChanges) -> Vec<Create> {
        WriteOnly.plan_routes(changes)
    }

    async fn look_up(&self, _: &Session, vendor_id: &str) -> Result<Lookup<Balancer>, VendorError> {
        let items = self.read(Read::LookUp).await;
        let found = items.into_iter().find(|one| one.summary.vendor_id == vendor_id);
        Ok(found.map_or(Lookup::Gone, Lookup::Found))
    }

    async fn find(&self, _: &Session, key: &LoadBalancerKey) -> Result<Option<Vec<Balancer>>, VendorError> {
        let items = self.read(Read::Find).await;
        Ok(Some(items.into_iter().filter(|one| one.belongs_to(key)).collect()))
    }

    async fn execute(&self, session: &Session, step: &Create) -> Result<Outcome, VendorError> {
        let outcome = WriteOnly.execute(session, step).await?;
        Ok(self.takes.map_or(outcome, |takes| Outcome::Created(self.create(takes))))
    }
}
