//! Observes a key's load balancers with the fewest vendor calls, and then decides what to do.

use std::{net::IpAddr, sync::Arc};

use cloud_api_proto::{
    AdapterError,
    v1alpha1::{Adoption, Owner, Priority, load_balancer_address::Value},
};
use tokio::time::Instant;

use super::{
    super::decide::{Decision, Observed, decide},
    super::goal::Goal,
    Converger, Record,
    executor::{DriverEvent, Executor},
    state::{Event, Observation},
};
use crate::{
    driver::{Driver, Lookup, Step as _, VendorError},
    snapshot::{LookedUp, View},
};

/// The result of a search for the key's load balancers.
struct Found<D: Driver> {
    view: View<Record<D>>,
    /// The time at which the vendor was asked, if the vendor answered that the key has no load balancer.
    absent: Option<Instant>,
}

impl<D: Driver> Found<D> {
    fn new(view: View<Record<D>>) -> Self {
        Self { view, absent: None }
    }
}

impl<D: Driver> Executor<D> {
    /// Observes the key's load balancers, and decides the next action.
    ///
    /// Returns an error if the term is over, and the errors of the observation and of the decision.
    pub(super) async fn observe(
        &self,
        not_before: Instant,
        polls: bool,
    ) -> Result<DriverEvent<D>, AdapterError> {
        self.term.check()?;
        let asked = Instant::now();
        let Found { view, absent } = self.search(not_before, polls).await?;
        let Self { converger, order, task, .. } = self;
        let own = view.items.iter().filter(|record| record.belongs_to(&self.key));
        let vendor_ids: Vec<String> = own.map(|record| record.summary.vendor_id.clone()).collect();
        if vendor_ids.iter().any(|vendor_id| converger.snapshot.doubted(vendor_id)) {
            return Ok(Event::Outdated);
        }
        converger.check_fence(&self.key.cluster_id, &order.fence, &view)?;
        let proof = task.proof(&order.goal);
        let fresh = view.observed >= proof || absent.is_some_and(|asked| asked >= proof);
        let observed = Observed { items: &view.items, fresh, former: task.history.former.as_deref() };
        let decision = decide(&*converger.driver, &converger.grants, &order.goal, &order.fence, &observed)?;
        if matches!(decision, Decision::Create(_)) {
            self.check_addresses()?;
        }
        if polls {
            self.learn(asked, matches!(decision, Decision::Wait(_)));
        }
        Ok(Event::Observed(Observation { decision, proof, fresh, vendor_ids }))
    }

    async fn search(&self, not_before: Instant, polls: bool) -> Result<Found<D>, VendorError> {
        if self.is_worth_a_read() {
            if polls
                && let Some(vendor_id) = self.known_id()
                && let Some(view) = self.look_up(&vendor_id).await?
            {
                return Ok(Found::new(view));
            }
            if let Some(found) = self.find(not_before).await? {
                return Ok(found);
            }
        }
        let is_urgent = !polls || self.is_awaited();
        let session = self.session(if is_urgent { Priority::Interactive } else { Priority::Lifecycle });
        let Converger { snapshot, driver, .. } = &*self.converger;
        Ok(Found::new(snapshot.at_least(Some(not_before), &**driver, &session).await?))
    }

    /// Learns how long the cloud takes for a change from a poll that began at `asked`.
    fn learn(&self, asked: Instant, is_busy: bool) {
        let Some(last) = self.task.history.last.as_ref().filter(|_| self.task.is_changing()) else { return };
        let (operation, at) = (last.step.operation().name, last.at);
        let mut pace = self.converger.pace();
        if is_busy {
            pace.busy(operation, asked.duration_since(at));
        } else {
            pace.done(operation, at.elapsed());
        }
    }

    /// Returns whether to read only the load balancers of the key. This is the case if a user waits and no more users wait than a listing
    /// has pages.
    pub(super) fn is_worth_a_read(&self) -> bool {
        let pages = self.converger.snapshot.pages().unwrap_or_default();
        self.is_awaited() && self.converger.awaited(pages + 1) <= pages
    }

    /// Returns whether a user waits for the load balancer to serve.
    fn is_awaited(&self) -> bool {
        self.user_waits && matches!(self.order.goal, Goal::Present(..))
    }

    /// Returns the ID of the key's load balancer, if there is exactly one. No proof is needed here, because a load balancer rarely
    /// disappears between two observations.
    fn known_id(&self) -> Option<String> {
        let known = self.converger.snapshot.view(None)?;
        let mut own = known.items.iter().filter(|record| record.belongs_to(&self.key));
        match (own.next(), own.next()) {
            (Some(record), None) => Some(record.summary.vendor_id.clone()),
            (None, _) => self.task.created.clone(),
            (Some(_), Some(_)) => None,
        }
    }

    /// `None`: the task needs a listing.
    async fn look_up(&self, vendor_id: &str) -> Result<Option<View<Record<D>>>, VendorError> {
        let Converger { snapshot, driver, .. } = &*self.converger;
        let asked = Instant::now();
        // This call is made for the waiting user alone, while other tasks would share a listing.
        let session = self.session(Priority::Interactive);
        match driver.look_up(&session, vendor_id).await? {
            Lookup::Found(record) if record.belongs_to(&self.key) => {
                snapshot.learn(LookedUp { asked, found: vec![record], gone: Vec::new() });
                Ok(snapshot.view(None))
            }
            Lookup::Found(_) | Lookup::Gone | Lookup::Unknown => Ok(None),
        }
    }

    /// Reads the load balancers of the key, if a listing would serve only to prove that there are none. `None`: the task needs a listing,
    /// or there is no proof.
    async fn find(&self, not_before: Instant) -> Result<Option<Found<D>>, VendorError> {
        let Goal::Present(desired, terms) = &self.order.goal else { return Ok(None) };
        let Converger { snapshot, driver, .. } = &*self.converger;
        // A load balancer that the Service adopts or shares does not have the key's tags.
        let tagged =
            desired.shares().is_none() && matches!(terms.adoption, Adoption::Unspecified | Adoption::Never);
        // The cached listing is also used to check names, and to check fences that the previous leader wrote.
        let since = self.term.since();
        let trusted = self.converger.trust(since).max(since + driver.describe().consistency_horizon);
        let trusted = Some(self.order.bound.map_or(trusted, |bound| bound.max(trusted)));
        let known = snapshot.view(trusted).filter(|view| view.observed < not_before);
        let none = known.is_some_and(|view| !view.items.iter().any(|record| record.belongs_to(&self.key)));
        if !tagged || !none {
            return Ok(None);
        }
        let asked = Instant::now();
        let session = self.session(Priority::Interactive);
        let Some(found) = driver.find(&session, &self.key).await? else { return Ok(None) };
        if found.iter().any(|record| !record.belongs_to(&self.key)) {
            // The result contains load balancers of other keys, so it is unreliable and proves nothing.
            return Ok(None);
        }
        let absent = found.is_empty().then_some(asked);
        if absent.is_none() {
            snapshot.learn(LookedUp { asked, found, gone: Vec::new() });
        }
        Ok(snapshot.view(trusted).map(|view| Found { view, absent }))
    }

    /// Refuses addresses of another key's load balancer that is being recreated, because these addresses are free only temporarily.
    fn check_addresses(&self) -> Result<(), AdapterError> {
        let Goal::Present(desired, _) = &self.order.goal else { return Ok(()) };
        for (at, requested) in desired.spec.requested_addresses.iter().enumerate() {
            let requested: Option<IpAddr> = requested.parse().ok();
            let owner = self.converger.memories.find_former(&desired.key, |former: &Arc<Record<D>>| {
                let has = former.summary.addresses.iter().any(|address| match &address.value {
                    Some(Value::Ip(ip)) => ip.parse().ok() == requested,
                    Some(Value::Hostname(_)) | None => false,
                });
                let owner = former.summary.owner.clone().unwrap_or_default();
                // The owner may be the same Service, which was deleted and created again.
                let same = owner.namespace == desired.owner.namespace && owner.name == desired.owner.name;
                (has && !same).then_some(owner)
            });
            if let Some(Owner { kind, namespace, name, .. }) = owner {
                let text =
                    format!("belongs to {kind} {namespace}/{name}, whose load balancer is being recreated");
                return Err(AdapterError::field(format!("spec.requested_addresses[{at}]"), text));
            }
        }
        Ok(())
    }
}
