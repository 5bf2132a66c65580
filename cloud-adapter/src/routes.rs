//! Routes: what a request changes is decided purely in [`plan`]; here it is carried out, one batch at a time.

mod plan;
mod service;

use std::sync::Arc;

use cloud_api_proto::{
    AdapterError, Reason,
    v1alpha1::{Fence, PlannedStep, Route, RouteResult, route_result},
};
use ipnet::IpNet;
use tokio::{sync::Mutex, time::Instant};
use tokio_util::task::TaskTracker;

use self::plan::{Change, Item, Verdict};
pub(crate) use self::service::Service;
use crate::{
    driver::{Driver, Outcome, RouteChanges, planned},
    fence::Fences,
    replica::Replica,
    snapshot::Snapshot,
    vendor::Session,
};

/// Items in one request. Source: contract, section 1.
const ITEMS_MAX: usize = 200;

/// Lays and removes routes.
#[derive(Debug)]
pub(crate) struct Applier<D> {
    pub(crate) driver: Arc<D>,
    pub(crate) snapshot: Arc<Snapshot<Route>>,
    pub(crate) fences: Fences,
    pub(crate) tracker: TaskTracker,
    pub(crate) replica: Replica,
    /// A route table is one object at most vendors: one writer at a time.
    pub(crate) writing: Mutex<()>,
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

/// What became of one route at the vendor: the route as laid, if the vendor says.
type Written = Result<Option<Route>, AdapterError>;

/// What became of an order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Applied {
    pub(crate) results: Vec<RouteResult>,
    pub(crate) plan: Vec<PlannedStep>,
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
        let _writing = self.writing.lock().await;
        let term = self.replica.term()?;
        // What another replica saw before this term may be changed by it since.
        let bound = Snapshot::<Route>::no_older_than(self.snapshot.target_age()).max(term.since());
        let view = self.snapshot.at_least(Some(bound), &*self.driver, session).await?;
        let routes: Vec<&Route> = view.items.iter().map(|route| &**route).collect();
        let mut verdicts = plan::plan(order, &routes);
        let Some(fence) = &order.fence else {
            let changes = plan::changes(&verdicts, &order.cluster_name);
            let plan = self.driver.plan_routes(&changes).iter().map(planned).collect();
            return Ok(Applied { results: verdicts.iter().map(Verdict::result).collect(), plan });
        };
        let mut unseen = false;
        for batch in plan::batches(&mut verdicts, self.batch()) {
            let changes = plan::changes(batch, &order.cluster_name);
            if changes != RouteChanges::default() {
                self.fences.check(fence)?;
                term.check()?;
                let outcomes = self.write(&changes, session).await;
                unseen |= self.learn(&changes, &outcomes);
                settle(batch, &changes, outcomes);
            }
        }
        if unseen {
            // The watchers see the writes without waiting for the period. If it fails, the refresher tries again.
            let now = Some(Instant::now());
            let _later = self.snapshot.at_least(now, &*self.driver, session).await.is_err();
        }
        Ok(Applied { results: verdicts.iter().map(Verdict::result).collect(), plan: Vec::new() })
    }

    fn batch(&self) -> usize {
        usize::try_from(self.driver.describe().limits.batch_routes).unwrap_or(1).max(1)
    }

    /// Puts what was written into the snapshot. True: the vendor did not tell all of it, so that a listing must.
    fn learn(&self, changes: &RouteChanges, outcomes: &[Written]) -> bool {
        let removals = changes.remove.len();
        for (id, outcome) in changes.remove.iter().zip(outcomes) {
            if outcome.is_ok() {
                self.snapshot.remove(id);
            }
        }
        let mut unseen = false;
        for outcome in outcomes.iter().skip(removals) {
            match outcome {
                Ok(Some(route)) => self.snapshot.upsert(route.clone()),
                Ok(None) => unseen = true,
                // Something is in the way that the listing does not show.
                Err(error) => unseen |= error.reason == Reason::OperationConflict,
            }
        }
        unseen
    }

    /// Writes the changes of one batch: one vendor call where the vendor takes many, else one a change. Returns one outcome a change,
    /// removals first. A failure of a whole call is the failure of each of its changes.
    async fn write(&self, changes: &RouteChanges, session: &Session) -> Vec<Written> {
        let steps = self.driver.plan_routes(changes);
        let per_step = if steps.len() == 1 { changes.remove.len() + changes.add.len() } else { 1 };
        let mut outcomes = Vec::new();
        for step in &steps {
            match self.driver.execute(session, step).await {
                Ok(Outcome::Items(items)) => {
                    outcomes.extend(items.into_iter().map(|item| item.map_err(AdapterError::from)));
                }
                Ok(Outcome::Accepted) => outcomes.extend(vec![Ok(None); per_step]),
                Err(error) => outcomes.extend(vec![Err(AdapterError::from(error)); per_step]),
            }
        }
        outcomes
    }
}

/// Puts the outcomes, which come in the order of the changes, to the items that asked for them.
fn settle(verdicts: &mut [Verdict], changes: &RouteChanges, outcomes: Vec<Written>) {
    let missing = || Err(AdapterError::new(Reason::OutcomeUnknown, "the cloud said nothing of this route"));
    let mut outcomes = outcomes.into_iter();
    let removed: Vec<_> = changes.remove.iter().map(|_| outcomes.next().unwrap_or_else(missing)).collect();
    let added: Vec<_> = changes.add.iter().map(|_| outcomes.next().unwrap_or_else(missing)).collect();
    let (mut removed, mut added) = (removed.into_iter(), added.into_iter());
    for verdict in verdicts {
        let Change { remove, add } = verdict.change.clone();
        let first = remove.map(|_| removed.next().unwrap_or_else(missing));
        let second = add.map(|_| added.next().unwrap_or_else(missing));
        // A route that is gone is what its removal wanted.
        let first = first.map(|outcome| match outcome {
            Err(error) if error.reason == Reason::ResourceGone => Ok(None),
            outcome @ (Ok(_) | Err(_)) => outcome,
        });
        for outcome in [first, second].into_iter().flatten() {
            if let (Err(error), route_result::Outcome::Applied) = (outcome, verdict.outcome) {
                verdict.outcome = route_result::Outcome::Failed;
                verdict.error = Some(error);
            }
        }
    }
}
