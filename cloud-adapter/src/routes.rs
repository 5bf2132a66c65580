//! Routes. [`plan`] decides what a request changes; this module executes the changes, one batch at a time.

mod audit;
mod doubts;
mod plan;
mod service;
mod table_lock;
#[cfg(test)]
mod tests;
mod write;

use std::{sync::Arc, time::Duration};

use cloud_api_proto::{
    AdapterError, Reason,
    v1alpha1::{Fence, PlannedStep, Route, RouteResult},
};
use ipnet::IpNet;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::Instant,
};
use tokio_util::task::TaskTracker;

use self::plan::{Item, Verdict};
pub(crate) use self::{doubts::Doubts, service::Service, table_lock::TableLock};
use crate::{
    driver::{Driver, RouteChanges, planned},
    fence::{Fences, check_tag},
    leadership::{Replica, Term},
    snapshot::Snapshot,
    vendor::Session,
};

const ITEMS_MAX: usize = 200;
/// Maximum number of requests in progress or queued. This equals the default number of calls that may be queued for one object.
const ORDERS_MAX: usize = 32;
/// Maximum age of a trusted listing, as a multiple of the target age.
const TRUSTED_AGES: u32 = 3;
/// The minimum time after which a caller is asked to retry.
const MIN_WAIT: Duration = Duration::from_millis(500);

#[derive(Debug)]
pub(crate) struct Applier<D> {
    pub(crate) driver: Arc<D>,
    pub(crate) snapshot: Arc<Snapshot<Route>>,
    pub(crate) fences: Fences,
    pub(crate) tracker: TaskTracker,
    pub(crate) replica: Replica,
    pub(crate) table_lock: TableLock,
    pub(crate) slots: Slots,
    pub(crate) doubts: Doubts,
}

/// Limits the number of requests in progress. If a client disconnects, its request continues and keeps the slot until the end, and the
/// client may send the request again.
#[derive(Debug)]
pub(crate) struct Slots(Arc<Semaphore>);

impl Default for Slots {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(ORDERS_MAX)))
    }
}

impl Slots {
    /// Reserves a slot for one request, until the permit is dropped.
    ///
    /// Returns `QUEUE_FULL` if all slots are taken.
    fn take(&self) -> Result<OwnedSemaphorePermit, AdapterError> {
        Arc::clone(&self.0).try_acquire_owned().map_err(|_full| {
            let text = format!("{ORDERS_MAX} route requests are queued: retry later");
            AdapterError::new(Reason::QueueFull, text)
        })
    }
}

/// A validated request.
#[derive(Clone, Debug)]
pub(crate) struct Order {
    pub(crate) cluster_id: String,
    pub(crate) cluster_name: String,
    pub(crate) cluster_cidrs: Vec<IpNet>,
    pub(crate) items: Vec<Item>,
    /// The writer's fence. `None`: the request is a dry run.
    pub(crate) fence: Option<Fence>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Applied {
    pub(crate) results: Vec<RouteResult>,
    pub(crate) plan: Vec<PlannedStep>,
}

impl Order {
    /// Converts the provider IDs of the order to the form that listings use, because next hops are compared by provider ID.
    fn spelled(mut self, spell: impl Fn(&str) -> String) -> Self {
        let hops = self.items.iter_mut().filter_map(|item| match item {
            Item::Upsert { upsert, .. } => upsert.next_hop.as_mut(),
            Item::Delete { next_hop, .. } => next_hop.as_mut(),
            Item::Bad { .. } => None,
        });
        hops.for_each(|hop| hop.provider_id = spell(&hop.provider_id));
        self
    }

    fn covers(&self, destination: IpNet) -> bool {
        self.cluster_cidrs.iter().any(|cidr| cidr.contains(&destination))
    }

    /// Refuses to change a route that a newer request of the same writer created.
    fn overtaken_at(&self, route: &Route) -> Result<(), AdapterError> {
        self.fence.as_ref().map_or(Ok(()), |fence| check_tag(fence, route.fence.as_ref()))
    }
}

impl<D: Driver> Applier<D> {
    /// A dry run is only planned.
    ///
    /// Cost: a listing if the snapshot is too old to be trusted, and one write per batch of the vendor's size. A further listing follows if
    /// the vendor did not return all written routes. If nothing must be changed, there is no write.
    ///
    /// Returns the error of the listing, `STALE_FENCE`, or an error if this replica no longer leads. Errors of single routes are in their
    /// results.
    pub(crate) async fn apply(&self, order: &Order, session: &Session) -> Result<Applied, AdapterError> {
        let _lock = self.table_lock.take(session.purpose().priority).await;
        let session = &session.clone().with_priority(self.table_lock.priority(), None);
        let term = self.replica.term()?;
        let mut verdicts = self.judge(order, term.since(), session).await?;
        if order.fence.is_none() {
            let changes = plan::changes(&verdicts, order);
            let plan = self.driver.plan_routes(&changes).iter().map(planned).collect();
            return Ok(Applied { results: verdicts.iter().map(Verdict::result).collect(), plan });
        }
        let (mut unseen, mut halt, mut wrote) = (false, None, false);
        for batch in plan::batches(&mut verdicts, self.batch()) {
            let changes = plan::changes(batch, order);
            if changes != RouteChanges::default() {
                let outcomes = match self.may_write(order, &term) {
                    Ok(()) => self.write(&changes, session, &mut halt).await,
                    // The results of earlier writes are reported even if a later write failed.
                    Err(error) if wrote => vec![Err(error); changes.remove.len() + changes.add.len()],
                    Err(error) => return Err(error),
                };
                wrote = true;
                unseen |= self.learn(&changes, &outcomes);
                write::settle(batch, &changes, outcomes);
                audit::tell(batch, session.purpose());
                self.doubts.note(batch);
            }
        }
        if unseen {
            // With this refresh, watches show the writes at once. If the refresh fails, the refresher retries.
            let now = Some(Instant::now());
            let _later = self.snapshot.at_least(now, &*self.driver, session).await.is_err();
        }
        Ok(Applied { results: verdicts.iter().map(Verdict::result).collect(), plan: Vec::new() })
    }

    fn may_write(&self, order: &Order, term: &Term) -> Result<(), AdapterError> {
        if let Some(fence) = &order.fence {
            self.fences.check(&order.cluster_id, fence)?;
        }
        term.check()
    }

    /// Plans each item. If destinations are in doubt, the routes are listed again as soon as reads reliably show the last write.
    async fn judge(
        &self,
        order: &Order,
        since: Instant,
        session: &Session,
    ) -> Result<Vec<Verdict>, AdapterError> {
        let horizon = self.driver.describe().consistency_horizon;
        // The refresher may take longer than the target age if its share of the budget is small. Observations from before this term may
        // lack changes that another replica has made.
        let trusted = Snapshot::<Route>::no_older_than(self.snapshot.target_age() * TRUSTED_AGES).max(since);
        let now = Instant::now();
        let certain = order.items.iter().filter_map(|item| self.doubts.at(item.destination()?));
        let certain = certain.map(|at| at + horizon).filter(|certain| *certain <= now).max();
        let bound = certain.map_or(trusted, |certain| certain.max(trusted));
        let view = self.snapshot.at_least(Some(bound), &*self.driver, session).await?;
        self.doubts.forget(view.observed.checked_sub(horizon));
        if let Some(fence) = &order.fence {
            let ours = |route: &&Arc<Route>| {
                route.key.as_ref().is_some_and(|key| key.cluster_id == order.cluster_id)
            };
            let tags = view.items.iter().filter(ours).filter_map(|route| route.fence.as_ref());
            self.fences.check_tags(&order.cluster_id, fence, tags)?;
        }
        let routes: Vec<&Route> = view.items.iter().map(|route| &**route).collect();
        let wait = |at: Instant| (at + horizon).duration_since(now).max(MIN_WAIT);
        Ok(plan::plan(order, &routes, |destination| self.doubts.at(destination).map(wait)))
    }

    fn batch(&self) -> usize {
        usize::try_from(self.driver.describe().limits.batch_routes).unwrap_or(1).max(1)
    }
}
