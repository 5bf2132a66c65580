//! What a task does between two waits: one look and at most one vendor write, its intent noted first.

use std::{net::IpAddr, sync::Arc, time::Duration};

use cloud_api_proto::{
    AdapterError, Reason,
    v1alpha1::{Adoption, LoadBalancerKey, Owner, Priority, load_balancer_address::Value},
};
use tokio::{sync::watch, time::Instant};

use super::{
    super::{
        decide::{End, Goal, Next, Observed, decide},
        memory::{Effect, Written},
    },
    Converger, Order, Record,
};
use crate::{
    driver::{Deduplication, Driver, Fault, Lookup, Outcome, Step as _, VendorError},
    replica::Term,
    snapshot::{LookedUp, View},
    urgency::classed,
    vendor::{Meter, Place, Session},
};

/// A vendor that works on one write for longer is stuck; the caller hears of it and may ask again.
const STUCK: Duration = Duration::from_mins(15);
/// Unknown outcomes in a row after which the caller hears of it.
const UNKNOWN_MAX: u32 = 3;

/// Whether the vendor was heard of a write.
#[derive(Clone, Debug)]
enum Answer {
    Heard,
    /// Not yet.
    Awaited,
    /// Never, for this reason.
    Lost(Arc<str>),
}

/// What a task keeps between turns.
pub(super) struct Work<D: Driver> {
    key: LoadBalancerKey,
    meter: Arc<Meter>,
    /// Where its calls stand.
    place: Place,
    /// How urgently it is asked for now.
    asked: watch::Receiver<Priority>,
    /// The work ends with it.
    pub(super) term: Term,
    started: Instant,
    /// How fresh the next observation must be.
    pub(super) bound: Instant,
    pub(super) done: u32,
    /// Writes that the newest plan took, the done ones included.
    pub(super) total: u32,
    pub(super) poll: Duration,
    last: Option<Written<D::Step>>,
    /// The step that came to nothing: as long as looks demand it again, the waits for the next try grow.
    refused: Option<Arc<D::Step>>,
    /// Unknown outcomes in a row.
    unknown: u32,
    /// The vendor's ID of what this task made, if the vendor told it.
    made: Option<String>,
    /// The last observation showed a load balancer of the key.
    exists: bool,
    /// A user has asked for it.
    awaited: bool,
    /// When the vendor was asked for the key's alone in this look, and had none.
    absent: Option<Instant>,
    /// The next look is a poll: it waited for the vendor, and wants to know how its load balancer is, and not which ones there are.
    pub(super) polls: bool,
}

pub(super) enum Turn<D: Driver> {
    Again,
    Wait(String),
    End(End<D::Detail>),
}

type Turned<D> = Result<Turn<D>, AdapterError>;

/// What follows from a look.
enum Seen<D: Driver> {
    /// Nothing is written.
    Turn(Turn<D>),
    /// This is.
    Write {
        step: Arc<D::Step>,
        effect: Effect,
        /// The load balancers of the key, by vendor ID.
        mine: Vec<String>,
    },
}

impl<D: Driver> Converger<D> {
    pub(super) fn begin(
        &self,
        key: &LoadBalancerKey,
        term: Term,
        (bound, asked): (Option<Instant>, watch::Receiver<Priority>),
        place: Place,
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

    /// One look and at most one vendor write.
    pub(super) async fn turn(&self, order: &Order, work: &mut Work<D>) -> Turned<D> {
        work.term.check()?;
        // Thousands of tasks may wait for their turn to write: none with the whole collection.
        let seen = {
            let view = self.look(order, work).await?;
            self.judge(order, &view, work)?
        };
        match seen {
            Seen::Turn(turn) => Ok(turn),
            Seen::Write { step, effect, mine } => {
                let turned = self.execute(order, (step, effect), work).await;
                // Should the next look fail, nobody may take what was seen before the write for what is there now.
                mine.iter().for_each(|vendor_id| self.snapshot.doubt(vendor_id));
                turned
            }
        }
    }

    async fn look(&self, order: &Order, work: &mut Work<D>) -> Result<View<Record<D>>, VendorError> {
        let polls = std::mem::take(&mut work.polls);
        // It says something of the look that it belongs to.
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

    /// Whether the key is worth a read of its own: a user waits for its load balancer, and fewer users wait than a listing has pages.
    fn is_worth_a_read(&self, order: &Order, work: &mut Work<D>) -> bool {
        // Who waits goes on to wait when packets wait, too.
        work.awaited |= *work.asked.borrow() == Priority::Interactive;
        let pages = self.snapshot.pages().unwrap_or_default();
        let wanted = work.awaited && matches!(order.goal, Goal::Present(..));
        wanted && pages > 1 && self.awaited(pages) < pages
    }

    /// The only load balancer of the key. That absence needs a proof is no matter here: what was there at the last look is rarely gone
    /// at the next.
    fn alone(&self, work: &Work<D>) -> Option<String> {
        let known = self.snapshot.view(None)?;
        let mut mine = known.items.iter().filter(|record| record.belongs_to(&work.key));
        match (mine.next(), mine.next()) {
            (Some(record), None) => Some(record.summary.vendor_id.clone()),
            (None, _) => work.made.clone(),
            (Some(_), Some(_)) => None,
        }
    }

    /// Reads one alone. `None`: only a listing tells more.
    async fn look_up(
        &self,
        order: &Order,
        work: &Work<D>,
        vendor_id: &str,
    ) -> Result<Option<View<Record<D>>>, VendorError> {
        let asked = Instant::now();
        // A listing of all would be behind what users wait for; this one call is what a user waits for.
        let session = self.session(order, Priority::Interactive, work);
        match self.driver.look_up(&session, vendor_id).await? {
            Lookup::Found(record) if record.belongs_to(&work.key) => {
                self.snapshot.learn(LookedUp { asked, found: vec![record], gone: Vec::new() });
                Ok(self.snapshot.view(None))
            }
            Lookup::Found(_) | Lookup::Gone | Lookup::Unknown => Ok(None),
        }
    }

    /// Asks for those of the key alone, where a new listing would only prove that there are none. `None`: it would tell more, or nothing
    /// has to be proven.
    async fn find(&self, order: &Order, work: &mut Work<D>) -> Result<Option<View<Record<D>>>, VendorError> {
        let Goal::Present(desired, terms) = &order.goal else { return Ok(None) };
        // What may be adopted or shared bears other tags, or none.
        let own =
            desired.shares().is_none() && matches!(terms.adoption, Adoption::Unspecified | Adoption::Never);
        // Names, and the fences of the leader before, are judged by that listing.
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
            // Nothing can be concluded from a vendor that answers another question.
            return Ok(None);
        }
        if found.is_empty() {
            work.absent = Some(asked);
        } else {
            self.snapshot.learn(LookedUp { asked, found, gone: Vec::new() });
        }
        Ok(self.snapshot.view(Some(trusted)))
    }

    /// What the look tells to do.
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
            Next::End(end) => {
                if end == End::Absent {
                    // Its addresses are free for others from now on.
                    self.memories.of(&work.key, |memory| memory.former = None);
                }
                return Ok(Seen::Turn(Turn::End(end)));
            }
            Next::Look if fresh => {
                return Err(AdapterError::new(Reason::Internal, "the driver plans nothing for nothing"));
            }
            Next::Look if proof > Instant::now() => {
                return patience(work, sure_reads(work)).map(Seen::Turn);
            }
            Next::Look => {
                work.bound = proof;
                return Ok(Seen::Turn(Turn::Again));
            }
            Next::Wait(waits_for) => return patience(work, waits_for).map(Seen::Turn),
            Next::Create(steps) => {
                self.check_addresses(&order.goal)?;
                (steps, Effect::Creates)
            }
            Next::Write(steps) => (steps, Effect::Changes),
            Next::Remove(steps) => (steps, Effect::Removes),
            Next::Replace(record, steps) => {
                self.memories.of(&work.key, |memory| memory.former = Some(record));
                (steps, Effect::Removes)
            }
        };
        work.total = work.done.saturating_add(u32::try_from(steps.len()).unwrap_or(u32::MAX));
        let Some(step) = steps.into_iter().next() else { return Ok(Seen::Turn(Turn::Again)) };
        // After a create that reads do not show yet, however its order looked, another would make a second one.
        let early =
            if effect == Effect::Creates { proof > Instant::now() } else { self.repeats(&step, work) };
        if early {
            let waits_for = format!("waits until the cloud shows what it was told before: {step}");
            return Ok(Seen::Turn(Turn::Wait(waits_for)));
        }
        Ok(Seen::Write { step: Arc::new(step), effect, mine })
    }

    /// Refuses addresses of a load balancer that is being recreated for another key: the cloud has them free for a moment, and they are to
    /// come back.
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
                // The Service was created again meanwhile.
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

    /// The time from which on a listing proves that there is nothing: after the task began, and late enough that reads show what was
    /// built last, by this process or by the one that led before it.
    fn proof(&self, goal: &Goal, work: &Work<D>) -> Instant {
        let former = self.former_horizon(goal, work).map(|horizon| work.term.since() + horizon);
        let last = work.last.as_ref().filter(|last| last.effect != Effect::Removes).map(|last| last.shows);
        former.max(last).map_or(work.started, |built| built.max(work.started))
    }

    /// How long after the start of the term reads may not show what the process that led before has written for the key: the answer to
    /// its last create is unknown here, so that the vendor may still work on it. `None`: it makes no difference.
    fn former_horizon(&self, goal: &Goal, work: &Work<D>) -> Option<Duration> {
        let cloud = self.driver.describe();
        let guarded = cloud.deduplication != Deduplication::ListThenCreate;
        let removed = self.memories.of(&work.key, |memory| memory.removed);
        match goal {
            Goal::Present(_, terms) if terms.adoption == Adoption::ById => Some(cloud.consistency_horizon),
            // The vendor itself refuses a second create, or answers it with the first.
            Goal::Present(..) if guarded => None,
            // Nothing is created beside what is shared.
            Goal::Present(desired, _) if desired.shares().is_some() => Some(cloud.consistency_horizon),
            // There was one when this process removed it, and the process before would have created none beside it.
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

    /// Whether the very step was made so shortly ago that reads may not show it.
    fn repeats(&self, step: &D::Step, work: &Work<D>) -> bool {
        work.last.as_ref().is_some_and(|last| *last.step == *step && Instant::now() < last.shows)
    }

    async fn execute(
        &self,
        order: &Order,
        (step, effect): (Arc<D::Step>, Effect),
        work: &mut Work<D>,
    ) -> Turned<D> {
        // The intent first: should this task break, the next one of the key knows what may have been done.
        let before = work.last.clone();
        self.note(&step, effect, Answer::Awaited, work);
        if work.refused.as_ref() != Some(&step) {
            work.poll = self.driver.describe().poll;
        }
        let session = self.session(order, step.class(), work);
        match self.driver.execute(&session, &step).await {
            Ok(outcome) => {
                work.made = match (outcome, effect) {
                    (Outcome::Created(vendor_id), _) => Some(vendor_id),
                    // What it may name is another one now, or none.
                    (_, Effect::Creates | Effect::Removes) => None,
                    (_, Effect::Changes) => work.made.take(),
                };
                self.note(&step, effect, Answer::Heard, work);
                self.memories.of(&work.key, |memory| match effect {
                    Effect::Creates => memory.former = None,
                    Effect::Removes if work.exists => memory.removed = Some(Instant::now()),
                    Effect::Removes | Effect::Changes => (),
                });
                work.done += 1;
                work.unknown = 0;
                work.refused = None;
                work.poll = self.driver.describe().poll;
                Ok(Turn::Wait(format!("waits until the cloud shows it: {step}")))
            }
            Err(error) => {
                let vain = matches!(error.fault, Fault::Busy | Fault::NotFound);
                work.refused = vain.then(|| Arc::clone(&step));
                let hidden = error.fault == Fault::Busy && effect == Effect::Creates;
                if error.fault == Fault::OutcomeUnknown {
                    self.note(&step, effect, Answer::Lost(error.of(&*step).into()), work);
                } else if hidden {
                    // There already and not shown by reads: from now on they have the horizon's time to show it.
                    self.note(&step, effect, Answer::Heard, work);
                } else {
                    work.last.clone_from(&before);
                    self.memories.of(&work.key, |memory| memory.last = before);
                }
                if effect == Effect::Creates && self.does_without(&error, work) {
                    let failure = error.of(&*step);
                    return Ok(Turn::Wait(format!("{failure}; tries without what the former one had")));
                }
                failed(&*step, error, work)
            }
        }
    }

    /// Whether what a former load balancer had may be what the vendor refuses: it is not asked for again.
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

    fn note(&self, step: &Arc<D::Step>, effect: Effect, answer: Answer, work: &mut Work<D>) {
        let (at, cloud) = (Instant::now(), self.driver.describe());
        // The vendor goes on when its caller has hung up, and only of a create a second one is a second thing.
        let horizon = match (&answer, effect) {
            (Answer::Awaited | Answer::Lost(_), Effect::Creates) => cloud.create_horizon,
            (Answer::Awaited | Answer::Lost(_) | Answer::Heard, _) => cloud.consistency_horizon,
        };
        let failure = match answer {
            Answer::Heard | Answer::Awaited => None,
            Answer::Lost(why) => Some(why),
        };
        let written = Written { step: Arc::clone(step), at, shows: at + horizon, effect, failure };
        work.last = Some(written.clone());
        self.memories.of(&work.key, |memory| memory.last = Some(written));
    }
}

fn failed<D: Driver>(step: &D::Step, error: VendorError, work: &mut Work<D>) -> Turned<D> {
    match error.fault {
        // Somebody changes it, or it vanished under us: look again.
        Fault::Busy | Fault::NotFound => patience(work, error.of(step)),
        // Find out first whether it was done. Until reads can be trusted, the step is not repeated.
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

/// People look for the failure, and not for what it makes us wait for.
fn sure_reads<D: Driver>(work: &Work<D>) -> String {
    match work.last.as_ref().and_then(|last| last.failure.as_deref()) {
        Some(failure) => looks_first(failure),
        None if work.last.is_some() => "waits until reads are sure to show what was written last".to_owned(),
        None => "waits until reads are sure to show what the adapter created before it started".to_owned(),
    }
}

/// Controllers add the same to the refusal.
fn looks_first(failure: &str) -> String {
    format!("{failure}; looks first whether it was done")
}

/// Waits on, unless nothing has moved for too long.
fn patience<D: Driver>(work: &Work<D>, waits_for: String) -> Turned<D> {
    let since = work.last.as_ref().map_or(work.started, |last| last.at.max(work.started));
    if since.elapsed() > STUCK {
        let text = format!("nothing has moved for {} minutes: {waits_for}", STUCK.as_secs() / 60);
        return Err(AdapterError::new(Reason::VendorUnavailable, text));
    }
    Ok(Turn::Wait(waits_for))
}
