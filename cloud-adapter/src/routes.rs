//! Routes: what a request changes is decided purely in [`plan`]; here it is carried out, one batch at a time.

mod audit;
mod doubts;
mod plan;
mod service;
#[cfg(test)]
mod tests;
mod turns;
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
pub(crate) use self::{doubts::Doubts, service::Service, turns::Turns};
use crate::{
    driver::{Driver, RouteChanges, planned},
    fence::{Fences, check_tag},
    replica::{Replica, Term},
    snapshot::Snapshot,
    vendor::Session,
};

/// Items in one request. Source: contract, section 1.
const ITEMS_MAX: usize = 200;
/// Requests that are under way or wait for their turn: as many as calls may wait for one object. Source: budgets, section 3.
const ORDERS_MAX: usize = 32;
/// A listing older than so many target ages is not acted upon.
const TRUSTED_AGES: u32 = 3;
/// Nobody is sent away for less.
const MIN_WAIT: Duration = Duration::from_millis(500);

/// Lays and removes routes.
#[derive(Debug)]
pub(crate) struct Applier<D> {
    pub(crate) driver: Arc<D>,
    pub(crate) snapshot: Arc<Snapshot<Route>>,
    pub(crate) fences: Fences,
    pub(crate) tracker: TaskTracker,
    pub(crate) replica: Replica,
    pub(crate) turns: Turns,
    pub(crate) places: Places,
    pub(crate) doubts: Doubts,
}

/// Room for requests: who hangs up leaves his behind, and asks again.
#[derive(Debug)]
pub(crate) struct Places(Arc<Semaphore>);

impl Default for Places {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(ORDERS_MAX)))
    }
}

impl Places {
    /// Room for one, until the answer is dropped.
    ///
    /// # Errors
    /// `QUEUE_FULL`.
    fn take(&self) -> Result<OwnedSemaphorePermit, AdapterError> {
        Arc::clone(&self.0).try_acquire_owned().map_err(|_full| {
            let text = format!("{ORDERS_MAX} requests for routes wait: come back when some are done");
            AdapterError::new(Reason::QueueFull, text)
        })
    }
}

/// A checked request.
#[derive(Clone, Debug)]
pub(crate) struct Order {
    pub(crate) cluster_id: String,
    pub(crate) cluster_name: String,
    pub(crate) cluster_cidrs: Vec<IpNet>,
    pub(crate) items: Vec<Item>,
    /// `None` for a dry run.
    pub(crate) fence: Option<Fence>,
}

/// What became of an order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Applied {
    pub(crate) results: Vec<RouteResult>,
    pub(crate) plan: Vec<PlannedStep>,
}

impl Order {
    /// The same with provider IDs as listings have them: next hops are compared by them.
    fn spelled(mut self, spell: impl Fn(&str) -> String) -> Self {
        let hops = self.items.iter_mut().filter_map(|item| match item {
            Item::Upsert { upsert, .. } => upsert.next_hop.as_mut(),
            Item::Delete { next_hop, .. } => next_hop.as_mut(),
            Item::Bad { .. } => None,
        });
        hops.for_each(|hop| hop.provider_id = spell(&hop.provider_id));
        self
    }

    /// Whether a destination is inside the cluster's CIDRs.
    fn covers(&self, destination: IpNet) -> bool {
        self.cluster_cidrs.iter().any(|cidr| cidr.contains(&destination))
    }

    /// Refuses to touch a route that a newer request of the same writer has laid.
    fn overtaken_at(&self, route: &Route) -> Result<(), AdapterError> {
        self.fence.as_ref().map_or(Ok(()), |fence| check_tag(fence, route.fence.as_ref()))
    }
}

impl<D: Driver> Applier<D> {
    /// Carries an order out, or only plans it.
    ///
    /// Cost: no vendor call if everything is so already; a listing if the snapshot is older than its target age; one write a batch of the
    /// vendor's size.
    ///
    /// # Errors
    /// Those of the listing, `STALE_FENCE`, and if this replica does not lead any more. What happens to a single route stands in its result.
    pub(crate) async fn apply(&self, order: &Order, session: &Session) -> Result<Applied, AdapterError> {
        let _turn = self.turns.take(session.purpose().priority).await;
        let session = &session.clone().hurried(self.turns.asked(), None);
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
                    // What was written before is told all the same.
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
            // The watchers see the writes without waiting for the period. If it fails, the refresher tries again.
            let now = Some(Instant::now());
            let _later = self.snapshot.at_least(now, &*self.driver, session).await.is_err();
        }
        Ok(Applied { results: verdicts.iter().map(Verdict::result).collect(), plan: Vec::new() })
    }

    /// Whether this writer and this replica are still the newest.
    fn may_write(&self, order: &Order, term: &Term) -> Result<(), AdapterError> {
        if let Some(fence) = &order.fence {
            self.fences.check(&order.cluster_id, fence)?;
        }
        term.check()
    }

    /// What becomes of each item. What may or may not have been written is looked at as soon as reads are sure to show it.
    async fn judge(
        &self,
        order: &Order,
        since: Instant,
        session: &Session,
    ) -> Result<Vec<Verdict>, AdapterError> {
        let horizon = self.driver.describe().consistency_horizon;
        // The refresher may take longer than the target age where its share of the budget is small. What another replica saw
        // before this term may be changed by it since.
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
