//! A fake cloud with load balancers. It lists one load balancer per page, and records how it was read.

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

/// Writes go to the vendor and do not change this cloud.
#[derive(Debug, Default)]
pub(super) struct Cloud {
    items: Mutex<Vec<Balancer>>,
    reads: Mutex<Vec<(Read, Instant)>>,
}

impl Cloud {
    /// Creates a cloud with load balancers of these keys, all of which the vendor is still changing.
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
        Self { items: Mutex::new(items.collect()), ..Self::default() }
    }

    /// Returns the reads since the last call, and the times at which the reads began.
    pub(super) fn reads(&self) -> Vec<(Read, Instant)> {
        std::mem::take(&mut self.reads.lock().expect("whole"))
    }

    async fn read(&self, read: Read) -> Vec<Balancer> {
        self.reads.lock().expect("whole").push((read, Instant::now()));
        let milliseconds = if read == Read::Find { 1_000 } else { 10 };
        sleep(Duration::from_millis(milliseconds)).await;
        self.items.lock().expect("whole").clone()
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
        let next = (from + 1 < items.len()).then(|| (from + 1).to_string().into());
        Ok(Page { items: items.into_iter().skip(from).take(1).collect(), next, total: None })
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
        WriteOnly.execute(session, step).await
    }
}
