//! Writes route changes, and assigns the outcomes to the items that requested the changes.

use cloud_api_proto::{
    AdapterError, Reason,
    v1alpha1::{Route, route_result},
};

use super::{
    Applier,
    plan::{Change, Verdict},
};
use crate::{
    driver::{Driver, Outcome, RouteChanges, VendorError},
    vendor::Session,
};

/// The outcome of the write of a route in the cloud, with the created route if the vendor returns it.
pub(super) type Written = Result<Option<Route>, AdapterError>;

impl<D: Driver> Applier<D> {
    /// Writes the changes of one batch: in one vendor call if the vendor accepts many changes, else in one call per change. Returns one
    /// outcome per change, removals first. The failure of a whole call counts for each of its changes.
    ///
    /// `halt` returns the reason if no further call may be sent. After a throttle, no separate calls are made for the remaining routes.
    pub(super) async fn write(
        &self,
        changes: &RouteChanges,
        session: &Session,
        halt: &mut Option<VendorError>,
    ) -> Vec<Written> {
        let steps = self.driver.plan_routes(changes);
        let wanted = changes.remove.len() + changes.add.len();
        if steps.len() != 1 && steps.len() != wanted {
            let text = format!(
                "the driver plans {} calls for {wanted} changes: expected one in all, or one each",
                steps.len()
            );
            return vec![Err(AdapterError::new(Reason::Internal, text)); wanted];
        }
        let per_step = if steps.len() == 1 { wanted } else { 1 };
        let mut outcomes = Vec::new();
        for step in &steps {
            let result = match halt {
                Some(error) => Err(error.clone()),
                None => self.driver.execute(session, step).await,
            };
            match result {
                Ok(Outcome::Items(items)) if items.len() != per_step => {
                    let text = format!(
                        "{step}: the driver returned {} outcomes for {per_step} changes",
                        items.len()
                    );
                    let error = AdapterError::new(Reason::OutcomeUnknown, text);
                    outcomes.extend(vec![Err(error); per_step]);
                }
                Ok(Outcome::Items(items)) => {
                    outcomes.extend(items.into_iter().map(|item| item.map_err(AdapterError::from)));
                }
                Ok(Outcome::Accepted | Outcome::Created(_)) => outcomes.extend(vec![Ok(None); per_step]),
                Err(error) => {
                    *halt = halt.take().or_else(|| error.recurs().then(|| error.clone().unsent()));
                    outcomes.extend(vec![Err(AdapterError::from(error)); per_step]);
                }
            }
        }
        outcomes
    }

    /// Adds the written routes to the snapshot. Returns whether a listing is needed because the vendor did not return all written routes.
    pub(super) fn learn(&self, changes: &RouteChanges, outcomes: &[Written]) -> bool {
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
                // The error reports a conflict with a route that the listing does not show.
                Err(error) => unseen |= error.reason == Reason::OperationConflict,
            }
        }
        unseen
    }
}

/// Assigns the outcomes, which are in the order of the changes, to the items that requested the changes.
pub(super) fn settle(verdicts: &mut [Verdict], changes: &RouteChanges, outcomes: Vec<Written>) {
    let missing =
        || Err(AdapterError::new(Reason::OutcomeUnknown, "the cloud returned nothing for this route"));
    let mut outcomes = outcomes.into_iter();
    let removed: Vec<_> = changes.remove.iter().map(|_| outcomes.next().unwrap_or_else(missing)).collect();
    let added: Vec<_> = changes.add.iter().map(|_| outcomes.next().unwrap_or_else(missing)).collect();
    let (mut removed, mut added) = (removed.into_iter(), added.into_iter());
    for verdict in verdicts {
        let Change { remove, add } = verdict.change.clone();
        let first = remove.map(|_| removed.next().unwrap_or_else(missing));
        let second = add.map(|_| added.next().unwrap_or_else(missing));
        // A removal whose route is missing has reached its goal.
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
