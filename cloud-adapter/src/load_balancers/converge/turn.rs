//! One iteration of a task ("turn"): one observation and at most one vendor write, which is recorded before it is sent.

use std::{net::IpAddr, sync::Arc, time::Duration};

use cloud_api_proto::{
    AdapterError, Reason,
    v1alpha1::{Adoption, LoadBalancerKey, Owner, Priority, load_balancer_address::Value},
};
use tokio::{sync::watch, time::Instant};

use super::{
    super::{
        decide::{Decision, End, Goal, Observed, decide},
        memory::{Effect, Written},
    },
    Converger, Order, Record,
};
use crate::{
    driver::{Deduplication, Driver, Fault, Lookup, Outcome, Step as _, VendorError},
    leadership::Term,
    snapshot::{LookedUp, View},
    urgency::classed,
    vendor::{Meter, QueuePosition, Session},
};

/// Maximum duration of one write in the cloud. After this, the caller gets an error, and may retry.
const STUCK: Duration = Duration::from_mins(15);
/// Number of consecutive unknown outcomes after which the caller gets an error.
const UNKNOWN_MAX: u32 = 3;

/// The vendor's answer to a write.
#[derive(Clone, Debug)]
enum WriteResult {
    Heard,
    /// The answer has not been received yet.
    Awaited,
    /// The answer was lost, for this reason.
    Lost(Arc<str>),
}

/// The state of a task between turns.
pub(super) struct Work<D: Driver> {
    key: LoadBalancerKey,
    meter: Arc<Meter>,
    /// The queue positions of its vendor calls.
    place: QueuePosition,
    /// The current priority of the task.
    asked: watch::Receiver<Priority>,
    /// The term in which the task runs. The task ends with it.
    pub(super) term: Term,
    started: Instant,
    /// The required freshness of the next observation.
    pub(super) bound: Instant,
    pub(super) done: u32,
    /// Number of writes in the newest plan, including those already made.
    pub(super) total: u32,
    pub(super) poll: Duration,
    last: Option<Written<D::Step>>,
    /// The last step that failed because its object was busy or not found. The retry delay grows while the plan starts with this step.
    refused: Option<Arc<D::Step>>,
    /// Number of consecutive unknown outcomes.
    unknown: u32,
    /// The ID of the load balancer that this task created, if the vendor returned it.
    made: Option<String>,
    /// Whether the last observation showed a load balancer of the key.
    exists: bool,
    /// Whether a user waits for the task.
    awaited: bool,
    /// Time in this turn at which the vendor answered that the key has no load balancer.
    absent: Option<Instant>,
    /// Whether the next observation only polls the state of a known load balancer, without searching for others.
    pub(super) polls: bool,
}

pub(super) enum Turn<D: Driver> {
    Again,
    Wait(String),
    End(End<D::Detail>),
}

type Turned<D> = Result<Turn<D>, AdapterError>;

/// What the task does after an observation.
enum Seen<D: Driver> {
    /// Make no write.
    Turn(Turn<D>),
    /// Make one write.
    Write {
        step: Arc<D::Step>,
        effect: Effect,
        /// The vendor IDs of the key's load balancers.
        mine: Vec<String>,
    },
}

impl<D: Driver> Converger<D> {
    pub(super) fn begin(
        &self,
        key: &LoadBalancerKey,
        term: Term,
        (bound, asked): (Option<Instant>, watch::Receiver<Priority>),
        place: QueuePosition,
    ) -> Work<D> {
        let (meter, last) = self.memories.of(key, |memory| (Arc::clone(&memory.meter), memory.last.clone()));
        let trusted = self.trust(term.since());
        Work {
            key: key.clone(),
            meter,
            place,
            asked,
            bound: bound.map_or(trusted, |bound| bound.max(trusted)),
            term,
            started: Instant::now(),
            done: 0,
            total: 0,
            poll: self.driver.describe().poll,
            last,
            refused: None,
            unknown: 0,
            made: None,
            exists: false,
            awaited: false,
            absent: None,
            polls: false,
        }
    }

    /// Makes one observation and at most one vendor write.
    pub(super) async fn turn(&self, order: &Order, work: &mut Work<D>) -> Turned<D> {
        work.term.check()?;
        // Drop the listing before a write is queued, because thousands of tasks may wait.
        let seen = {
            let view = self.look(order, work).await?;
            self.judge(order, &view, work)?
        };
        match seen {
            Seen::Turn(turn) => Ok(turn),
            Seen::Write { step, effect, mine } => {
                let turned = self.execute(order, (step, effect), work).await;
                // If the next observation fails, the state before the write must not be used as current.
                mine.iter().for_each(|vendor_id| self.snapshot.doubt(vendor_id));
                turned
            }
        }
    }

    async fn look(&self, order: &Order, work: &mut Work<D>) -> Result<View<Record<D>>, VendorError> {
        let polls = std::mem::take(&mut work.polls);
        // This is valid for one observation only.
        work.absent = None;
        if self.is_worth_a_read(order, work) {
            if polls
                && let Some(vendor_id) = self.alone(work)
                && let Some(view) = self.look_up(order, work, &vendor_id).await?
            {
                return Ok(view);
            }
            if let Some(view) = self.find(order, work).await? {
                return Ok(view);
            }
        }
        let class = if polls { Priority::Lifecycle } else { Priority::Interactive };
        let session = self.session(order, class, work);
        self.snapshot.at_least(Some(work.bound), &*self.driver, &session).await
    }

    /// Whether to read only the load balancers of the key: a user waits, and fewer users wait than a listing has pages.
    fn is_worth_a_read(&self, order: &Order, work: &mut Work<D>) -> bool {
        // A user still waits after the priority was raised for traffic.
        work.awaited |= *work.asked.borrow() == Priority::Interactive;
        let pages = self.snapshot.pages().unwrap_or_default();
        let wanted = work.awaited && matches!(order.goal, Goal::Present(..));
        wanted && pages > 1 && self.awaited(pages) < pages
    }

    /// The only load balancer of the key. No proof is needed here: a load balancer of the last observation rarely disappears before the
    /// next.
    fn alone(&self, work: &Work<D>) -> Option<String> {
        let known = self.snapshot.view(None)?;
        let mut mine = known.items.iter().filter(|record| record.belongs_to(&work.key));
        match (mine.next(), mine.next()) {
            (Some(record), None) => Some(record.summary.vendor_id.clone()),
            (None, _) => work.made.clone(),
            (Some(_), Some(_)) => None,
        }
    }

    /// Reads one load balancer. `None`: the task needs a listing.
    async fn look_up(
        &self,
        order: &Order,
        work: &Work<D>,
        vendor_id: &str,
    ) -> Result<Option<View<Record<D>>>, VendorError> {
        let asked = Instant::now();
        // Unlike a listing, which other tasks share, this call is made for the waiting user alone.
        let session = self.session(order, Priority::Interactive, work);
        match self.driver.look_up(&session, vendor_id).await? {
            Lookup::Found(record) if record.belongs_to(&work.key) => {
                self.snapshot.learn(LookedUp { asked, found: vec![record], gone: Vec::new() });
                Ok(self.snapshot.view(None))
            }
            Lookup::Found(_) | Lookup::Gone | Lookup::Unknown => Ok(None),
        }
    }

    /// Reads the load balancers of the key if a listing would only be needed to prove that there are none. `None`: the task needs a
    /// listing, or there is no proof.
    async fn find(&self, order: &Order, work: &mut Work<D>) -> Result<Option<View<Record<D>>>, VendorError> {
        let Goal::Present(desired, terms) = &order.goal else { return Ok(None) };
        // A load balancer to adopt or share does not have the key's tags.
        let own =
            desired.shares().is_none() && matches!(terms.adoption, Adoption::Unspecified | Adoption::Never);
        // This listing is also used to check names and the fences of the previous leader.
        let since = work.term.since();
        let trusted = self.trust(since).max(since + self.driver.describe().consistency_horizon);
        let trusted = order.bound.map_or(trusted, |bound| bound.max(trusted));
        let known = self.snapshot.view(Some(trusted)).filter(|view| view.observed < work.bound);
        let none = known.is_some_and(|view| !view.items.iter().any(|record| record.belongs_to(&work.key)));
        if !own || !none {
            return Ok(None);
        }
        let asked = Instant::now();
        let session = self.session(order, Priority::Interactive, work);
        let Some(found) = self.driver.find(&session, &work.key).await? else { return Ok(None) };
        if found.iter().any(|record| !record.belongs_to(&work.key)) {
            // The result contains load balancers of other keys, so it is unreliable and proves nothing.
            return Ok(None);
        }
        if found.is_empty() {
            work.absent = Some(asked);
        } else {
            self.snapshot.learn(LookedUp { asked, found, gone: Vec::new() });
        }
        Ok(self.snapshot.view(Some(trusted)))
    }

    /// Decides the next action after an observation.
    fn judge(
        &self,
        order: &Order,
        view: &View<Record<D>>,
        work: &mut Work<D>,
    ) -> Result<Seen<D>, AdapterError> {
        let mine = view.items.iter().filter(|record| record.belongs_to(&work.key));
        let mine: Vec<String> = mine.map(|record| record.summary.vendor_id.clone()).collect();
        work.exists = !mine.is_empty();
        if mine.iter().any(|vendor_id| self.snapshot.doubted(vendor_id)) {
            work.bound = Instant::now();
            return Ok(Seen::Turn(Turn::Again));
        }
        self.check_fence(&work.key.cluster_id, &order.fence, view)?;
        let proof = self.proof(&order.goal, work);
        let fresh = view.observed >= proof || work.absent.is_some_and(|asked| asked >= proof);
        let former = self.memories.of(&work.key, |memory| memory.former.clone());
        let observed = Observed { items: &view.items, fresh, former: former.as_deref() };
        let (steps, effect) = match decide(&*self.driver, &self.grants, &order.goal, &order.fence, &observed)?
        {
            Decision::End(end) => {
                if end == End::Absent {
                    // From now on, other keys may request its addresses.
                    self.memories.of(&work.key, |memory| memory.former = None);
                }
                return Ok(Seen::Turn(Turn::End(end)));
            }
            Decision::Look if fresh => {
                return Err(AdapterError::new(Reason::Internal, "the driver planned no create step"));
            }
            Decision::Look if proof > Instant::now() => {
                return patience(work, sure_reads(work)).map(Seen::Turn);
            }
            Decision::Look => {
                work.bound = proof;
                return Ok(Seen::Turn(Turn::Again));
            }
            Decision::Wait(waits_for) => return patience(work, waits_for).map(Seen::Turn),
            Decision::Create(steps) => {
                self.check_addresses(&order.goal)?;
                (steps, Effect::Creates)
            }
            Decision::Write(steps) => (steps, Effect::Changes),
            Decision::Remove(steps) => (steps, Effect::Removes),
            Decision::Replace(record, steps) => {
                self.memories.of(&work.key, |memory| memory.former = Some(record));
                (steps, Effect::Removes)
            }
        };
        work.total = work.done.saturating_add(u32::try_from(steps.len()).unwrap_or(u32::MAX));
        let Some(step) = steps.into_iter().next() else { return Ok(Seen::Turn(Turn::Again)) };
        // While reads may not show the last create, any other create could produce a duplicate.
        let early =
            if effect == Effect::Creates { proof > Instant::now() } else { self.repeats(&step, work) };
        if early {
            let waits_for = format!("waits until the cloud shows the last change; the next step is: {step}");
            return Ok(Seen::Turn(Turn::Wait(waits_for)));
        }
        Ok(Seen::Write { step: Arc::new(step), effect, mine })
    }

    /// Refuses addresses of another key's load balancer that is being recreated: they are free only temporarily.
    fn check_addresses(&self, goal: &Goal) -> Result<(), AdapterError> {
        let Goal::Present(desired, _) = goal else { return Ok(()) };
        for (at, asked) in desired.spec.requested_addresses.iter().enumerate() {
            let asked: Option<IpAddr> = asked.parse().ok();
            let owner = self.memories.find_former(&desired.key, |former| {
                let has = former.summary.addresses.iter().any(|one| match &one.value {
                    Some(Value::Ip(there)) => there.parse().ok() == asked,
                    Some(Value::Hostname(_)) | None => false,
                });
                let owner = former.summary.owner.clone().unwrap_or_default();
                // This is the same Service, deleted and created again.
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

    fn session(&self, order: &Order, class: Priority, work: &Work<D>) -> Session {
        let session = self.vendor.metered(classed(&order.purpose, class), Arc::clone(&work.meter));
        session.hurried(work.asked.clone(), Some(class)).standing_at(&work.place)
    }

    /// Earliest start of a listing that proves absence: after the task started, and late enough to show the last writes of this process and
    /// of the previous leader.
    fn proof(&self, goal: &Goal, work: &Work<D>) -> Instant {
        let former = self.former_horizon(goal, work).map(|horizon| work.term.since() + horizon);
        let last = work.last.as_ref().filter(|last| last.effect != Effect::Removes).map(|last| last.shows);
        former.max(last).map_or(work.started, |built| built.max(work.started))
    }

    /// Time since the start of the term in which reads may lack the previous leader's writes for the key. The outcome of that leader's last
    /// create is unknown to this process, and the vendor may still execute it. `None`: there is no such time.
    fn former_horizon(&self, goal: &Goal, work: &Work<D>) -> Option<Duration> {
        let cloud = self.driver.describe();
        let guarded = cloud.deduplication != Deduplication::ListThenCreate;
        let removed = self.memories.of(&work.key, |memory| memory.removed);
        match goal {
            Goal::Present(_, terms) if terms.adoption == Adoption::ById => Some(cloud.consistency_horizon),
            // The vendor refuses a second create, or answers with the result of the first.
            Goal::Present(..) if guarded => None,
            // No load balancer is created for a key that shares one.
            Goal::Present(desired, _) if desired.shares().is_some() => Some(cloud.consistency_horizon),
            // This process removed a load balancer in this term, so the previous leader cannot have created another.
            Goal::Present(..) | Goal::Absent { .. }
                if !guarded && removed.is_some_and(|at| at >= work.term.since()) =>
            {
                Some(cloud.consistency_horizon)
            }
            Goal::Present(..) | Goal::Absent { .. } => {
                Some(cloud.create_horizon.max(cloud.consistency_horizon))
            }
        }
    }

    /// Whether the same step was made so recently that reads may not show it.
    fn repeats(&self, step: &D::Step, work: &Work<D>) -> bool {
        work.last.as_ref().is_some_and(|last| *last.step == *step && Instant::now() < last.shows)
    }

    async fn execute(
        &self,
        order: &Order,
        (step, effect): (Arc<D::Step>, Effect),
        work: &mut Work<D>,
    ) -> Turned<D> {
        // Record the write first. If this task panics, the key's next task knows what may have been done.
        let before = work.last.clone();
        self.note(&step, effect, WriteResult::Awaited, work);
        if work.refused.as_ref() != Some(&step) {
            work.poll = self.driver.describe().poll;
        }
        let session = self.session(order, step.class(), work);
        match self.driver.execute(&session, &step).await {
            Ok(outcome) => {
                work.made = match (outcome, effect) {
                    (Outcome::Created(vendor_id), _) => Some(vendor_id),
                    // The known ID may be outdated now.
                    (_, Effect::Creates | Effect::Removes) => None,
                    (_, Effect::Changes) => work.made.take(),
                };
                self.note(&step, effect, WriteResult::Heard, work);
                self.memories.of(&work.key, |memory| match effect {
                    Effect::Creates => memory.former = None,
                    Effect::Removes if work.exists => memory.removed = Some(Instant::now()),
                    Effect::Removes | Effect::Changes => (),
                });
                work.done += 1;
                work.unknown = 0;
                work.refused = None;
                work.poll = self.driver.describe().poll;
                Ok(Turn::Wait(format!("waits until the cloud shows the change: {step}")))
            }
            Err(error) => {
                let vain = matches!(error.fault, Fault::Busy | Fault::NotFound);
                work.refused = vain.then(|| Arc::clone(&step));
                let hidden = error.fault == Fault::Busy && effect == Effect::Creates;
                if error.fault == Fault::OutcomeUnknown {
                    self.note(&step, effect, WriteResult::Lost(error.of(&*step).into()), work);
                } else if hidden {
                    // The load balancer exists, but reads do not show it yet: wait for the horizon, as after a create.
                    self.note(&step, effect, WriteResult::Heard, work);
                } else {
                    work.last.clone_from(&before);
                    self.memories.of(&work.key, |memory| memory.last = before);
                }
                if effect == Effect::Creates && self.does_without(&error, work) {
                    let failure = error.of(&*step);
                    return Ok(Turn::Wait(format!(
                        "{failure}; the adapter retries without the properties of the former load balancer"
                    )));
                }
                failed(&*step, error, work)
            }
        }
    }

    /// Whether properties of the former load balancer may have caused the refusal. If so, they are not requested again.
    fn does_without(&self, error: &VendorError, work: &Work<D>) -> bool {
        let refused = match error.fault {
            Fault::Busy | Fault::NotFound | Fault::Quota | Fault::Immutable | Fault::Invalid => true,
            Fault::OutcomeUnknown
            | Fault::Unsupported
            | Fault::Budget
            | Fault::QueueFull
            | Fault::NotLeader
            | Fault::Throttled
            | Fault::Auth
            | Fault::Forbidden
            | Fault::Unavailable
            | Fault::Nonsense => false,
        };
        refused && self.memories.of(&work.key, |memory| memory.former.take()).is_some()
    }

    fn note(&self, step: &Arc<D::Step>, effect: Effect, answer: WriteResult, work: &mut Work<D>) {
        let (at, cloud) = (Instant::now(), self.driver.describe());
        // The vendor may execute a request after the client has gone. Only late creates are harmful.
        let horizon = match (&answer, effect) {
            (WriteResult::Awaited | WriteResult::Lost(_), Effect::Creates) => cloud.create_horizon,
            (WriteResult::Awaited | WriteResult::Lost(_) | WriteResult::Heard, _) => {
                cloud.consistency_horizon
            }
        };
        let failure = match answer {
            WriteResult::Heard | WriteResult::Awaited => None,
            WriteResult::Lost(why) => Some(why),
        };
        let written = Written { step: Arc::clone(step), at, shows: at + horizon, effect, failure };
        work.last = Some(written.clone());
        self.memories.of(&work.key, |memory| memory.last = Some(written));
    }
}

fn failed<D: Driver>(step: &D::Step, error: VendorError, work: &mut Work<D>) -> Turned<D> {
    match error.fault {
        // The object is being changed, or has disappeared, so observe again.
        Fault::Busy | Fault::NotFound => patience(work, error.of(step)),
        // Check the outcome first. The step is not repeated until reads are reliable.
        Fault::OutcomeUnknown if work.unknown < UNKNOWN_MAX => {
            work.unknown += 1;
            Ok(Turn::Wait(looks_first(&error.of(step))))
        }
        Fault::OutcomeUnknown
        | Fault::Budget
        | Fault::QueueFull
        | Fault::NotLeader
        | Fault::Throttled
        | Fault::Auth
        | Fault::Forbidden
        | Fault::Quota
        | Fault::Immutable
        | Fault::Invalid
        | Fault::Unsupported
        | Fault::Unavailable
        | Fault::Nonsense => {
            let message = error.of(step);
            Err(AdapterError { message, ..AdapterError::from(error) })
        }
    }
}

/// Text for a task that waits for reliable reads. A failure is reported rather than the wait that results from it.
fn sure_reads<D: Driver>(work: &Work<D>) -> String {
    match work.last.as_ref().and_then(|last| last.failure.as_deref()) {
        Some(failure) => looks_first(failure),
        None if work.last.is_some() => "waits until reads reliably show the last write".to_owned(),
        None => "waits until reads reliably show what the adapter created before it started".to_owned(),
    }
}

/// The text after a lost answer. Controllers append a similar text to the error.
fn looks_first(failure: &str) -> String {
    format!("{failure}; the adapter first checks whether the write was made")
}

/// Continues to wait, unless there has been no progress for too long.
fn patience<D: Driver>(work: &Work<D>, waits_for: String) -> Turned<D> {
    let since = work.last.as_ref().map_or(work.started, |last| last.at.max(work.started));
    if since.elapsed() > STUCK {
        let text = format!("no progress for {} minutes: {waits_for}", STUCK.as_secs() / 60);
        return Err(AdapterError::new(Reason::VendorUnavailable, text));
    }
    Ok(Turn::Wait(waits_for))
}
