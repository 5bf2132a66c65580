//! The scheduler: puts buckets, queue, breakers and latencies together.

mod choice;
mod refusal;
mod shared;
#[cfg(test)]
mod tests;
mod waits;

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    sync::Arc,
};

use crate::{
    Answer, Call, Config, Decision, Hint, Mode, Next, Outcome, Refusal, RefusalReason, Report, Ticket, Time,
    breaker::CredentialBreaker,
    bucket::Need,
    chance::jitter,
    families::Families,
    forecast::View,
    latency::{Latency, Quantiles},
    queue::{Candidate, LeafKey, Queue, Waiting},
    tree::{BucketId, PathId, Tree},
};

/// Decides which call may go to the vendor next. See the [crate] for how it is driven.
///
/// Time must not run backwards from one call of a method to the next; a clock that jumps forward only fills buckets.
#[derive(Clone, Debug)]
pub struct Scheduler {
    config: Config,
    tree: Tree,
    queue: Queue,
    families: Families,
    credentials: CredentialBreaker,
    latencies: BTreeMap<(&'static str, &'static str), Latency>,
    flights: HashMap<Ticket, Flight>,
    /// Shed, and not told yet.
    shed: VecDeque<(Ticket, Refusal)>,
    /// Shadow mode: sent as soon as possible. What stands in the queue then are their shadows, which are only counted.
    passing: VecDeque<Waiting>,
    /// Until when refused calls were told to come back: the next one gets a later time, so that they find a place.
    promised: BTreeMap<(LeafKey, Arc<str>, PathId), Time>,
    /// Nothing is sent at or after it.
    allowed_until: Option<Time>,
    last_ticket: u64,
    decision: u64,
    candidates: Vec<Candidate>,
    /// Room for what a decision finds out.
    openings: choice::Known<Option<Time>>,
}

/// A call that was sent.
#[derive(Clone, Debug)]
struct Flight {
    call: Call,
    path: PathId,
    /// Whether it was throttled before.
    again: bool,
    /// Nobody waits for it.
    abandoned: bool,
}

impl Scheduler {
    /// Full buckets, empty queues.
    #[must_use]
    pub fn new(config: Config, now: Time) -> Self {
        let mut scheduler = Self {
            tree: Tree::new(&config),
            config,
            queue: Queue::default(),
            families: Families::default(),
            credentials: CredentialBreaker::default(),
            latencies: BTreeMap::new(),
            flights: HashMap::new(),
            shed: VecDeque::new(),
            passing: VecDeque::new(),
            promised: BTreeMap::new(),
            allowed_until: None,
            last_ticket: 0,
            decision: 0,
            candidates: Vec::new(),
            openings: Vec::new(),
        };
        scheduler.tree.tick(now, scheduler.config.reserve);
        scheduler
    }

    /// Queues a call. Another one of lesser class may lose its place for it and then comes out of [`Self::next`].
    ///
    /// Cost: O(leaves x buckets of the call).
    ///
    /// # Errors
    /// If it would be too late, if there is no place, or if a breaker is open; never in shadow mode.
    pub fn submit(&mut self, now: Time, call: Call) -> Result<Ticket, Refusal> {
        self.last_ticket += 1;
        let ticket = Ticket(self.last_ticket);
        self.tree.tick(now, self.config.reserve);
        let path = self.tree.path(call.family, call.operation, &self.config);
        self.families.know(call.family, &self.config);
        let expiry = call.deadline.map(|deadline| deadline - self.latency(now, &call).p50);
        let waiting = Waiting { ticket, call, path, since: now, expiry, again: false };
        match (self.config.mode, self.admit(now, &waiting)) {
            (Mode::Enforce, Ok(())) => self.queue.push_back(waiting),
            (Mode::Enforce, Err(refusal)) => return Err(refusal),
            (Mode::Shadow, Ok(())) => {
                self.passing.push_back(waiting.clone());
                self.queue.push_back(waiting);
            }
            (Mode::Shadow, Err(_)) => self.passing.push_back(waiting),
        }
        Ok(ticket)
    }

    /// Nobody waits for the call any more. One that waits is dropped unsent: true. One in flight stays, and is not sent
    /// again: false.
    pub fn cancel(&mut self, ticket: Ticket) -> bool {
        let queued = self.queue.remove(ticket).is_some();
        if let Some(flight) = self.flights.get_mut(&ticket) {
            flight.abandoned = true;
            return false;
        }
        let held = self.shed.len() + self.passing.len();
        self.shed.retain(|(shed, _)| *shed != ticket);
        self.passing.retain(|waiting| waiting.ticket != ticket);
        queued || self.shed.len() + self.passing.len() < held
    }

    /// What to do next; call it until it says [`Decision::Wait`], after everything else that is called here, and when the
    /// time has come that it named.
    ///
    /// Cost: O(leaves x paths), whatever the length of the queue.
    pub fn next(&mut self, now: Time) -> Decision {
        if let Some((ticket, refusal)) = self.shed.pop_front() {
            return Decision::Refuse(ticket, refusal);
        }
        self.tree.tick(now, self.config.reserve);
        let allowed = self.allowed_until.is_none_or(|until| now < until);
        if allowed && let Some(waiting) = self.passing.pop_front() {
            return self.pass(now, waiting);
        }
        loop {
            let expiry = self.queue.first_expiry();
            if let Some((_, ticket)) = expiry.filter(|(expiry, _)| *expiry <= now) {
                match self.expire(now, ticket) {
                    Some(refusal) => return refusal,
                    None => continue,
                }
            }
            let expiry = expiry.map(|(expiry, _)| expiry);
            if !allowed {
                return Decision::Wait(expiry);
            }
            match self.choose(now) {
                Ok(candidate) => {
                    if let Some(decision) = self.serve(now, &candidate) {
                        return decision;
                    }
                }
                Err(wake) => return Decision::Wait(earliest(wake, expiry)),
            }
        }
    }

    /// A call that was sent has come back.
    pub fn answered(&mut self, now: Time, ticket: Ticket, answer: Answer) -> Next {
        let Some(flight) = self.flights.remove(&ticket) else { return Next::Done };
        self.tree.tick(now, self.config.reserve);
        self.families.came_back(now, flight.call.family, answer.outcome == Outcome::Failed);
        self.tree.each(flight.path, |bucket| bucket.came_back(ticket));
        let Answer { outcome, latency, hint } = answer;
        if let Some(hint) = hint {
            self.take_hint(now, flight.path, &hint);
        }
        match outcome {
            Outcome::Answered => {
                self.tree.each(flight.path, |bucket| bucket.succeeded(now));
                let operation = (flight.call.family, flight.call.operation);
                self.latencies.entry(operation).or_default().record(now, latency);
            }
            Outcome::Throttled { retry_after, bucket } => {
                let named = bucket.and_then(|name| self.tree.named(name));
                if let Some(bucket) =
                    named.or_else(|| self.tree.named(flight.call.family)).and_then(|id| self.tree.get_mut(id))
                {
                    bucket.throttled(now, retry_after, jitter(ticket));
                }
                return self.send_again(now, ticket, flight);
            }
            // Which credentials a self-check was made with is known to who made it: they tell `self_check`.
            Outcome::Failed | Outcome::Unauthorized => (),
        }
        Next::Done
    }

    /// Takes another configuration over. What waits keeps its place; no bucket gains a token by it.
    pub fn configure(&mut self, now: Time, config: Config) {
        self.tree.tick(now, self.config.reserve);
        let (before, after) = (self.config.mode, config.mode);
        self.config = config;
        self.tree.configure(now, &self.config);
        self.families.configure(&self.config);
        self.promised.clear();
        let (tree, config) = (&mut self.tree, &self.config);
        let mut path = |call: &Call| tree.path(call.family, call.operation, config);
        self.queue.rearrange(&mut path);
        self.passing.iter_mut().for_each(|waiting| waiting.path = path(&waiting.call));
        // Keyed by ticket, and each gets its own path: the order does not matter.
        #[expect(clippy::iter_over_hash_type, reason = "each flight changes by itself")]
        for flight in self.flights.values_mut() {
            flight.path = path(&flight.call);
        }
        match (before, after) {
            (Mode::Enforce, Mode::Shadow) => {
                let queue = &self.queue;
                self.passing
                    .extend(queue.tickets().into_iter().filter_map(|ticket| queue.get(ticket).cloned()));
            }
            (Mode::Shadow, Mode::Enforce) => self.queue.clear(),
            (Mode::Enforce, Mode::Enforce) | (Mode::Shadow, Mode::Shadow) => (),
        }
    }

    /// A new leader: no token is left anywhere, as the old one may have spent them all; nothing is kept in reserve until
    /// the buckets have filled up to it once.
    pub fn empty(&mut self, now: Time) {
        self.tree.empty(now);
    }

    /// Nothing is sent at or after that moment. `None`: no such limit.
    pub fn allow_until(&mut self, until: Option<Time>) {
        self.allowed_until = until;
    }

    /// A self-check has ended. While the last one failed, nothing but self-checks passes.
    pub fn self_check(&mut self, now: Time, passed: bool) {
        self.credentials.self_check(now, passed);
    }

    /// How everything stands.
    #[must_use]
    pub fn report(&self, now: Time) -> Report {
        Report {
            buckets: self
                .tree
                .report(now, |bucket: BucketId| self.queue.queued(|path| self.tree.pays(path, bucket))),
            breakers: self.families.report(now),
            credentials: Some(self.credentials.state(now)),
            leaves: self.queue.report(),
        }
    }

    /// The call whose turn it is. `None`: nothing came of it but a count.
    fn serve(&mut self, now: Time, candidate: &Candidate) -> Option<Decision> {
        let late = self.queue.get(candidate.ticket).is_some_and(|waiting| self.is_late(now, &waiting.call));
        if late {
            return self.expire(now, candidate.ticket);
        }
        let waiting = self.queue.serve(candidate.ticket)?;
        let weight = self.config.weights.of(candidate.class);
        self.tree.each(waiting.path, |bucket| bucket.take(now, candidate.leaf, candidate.cost, weight));
        match self.config.mode {
            Mode::Enforce => Some(self.send(now, waiting)),
            Mode::Shadow => {
                self.count_delay(now, &waiting);
                None
            }
        }
    }

    /// Shadow mode: on its way at once.
    fn pass(&mut self, now: Time, waiting: Waiting) -> Decision {
        if waiting.call.deadline.is_some_and(|deadline| deadline <= now) {
            self.queue.remove(waiting.ticket);
            let refusal = self.refusal(now, &waiting, RefusalReason::Budget);
            return Decision::Refuse(waiting.ticket, refusal);
        }
        self.send(now, waiting)
    }

    fn send(&mut self, now: Time, waiting: Waiting) -> Decision {
        let Waiting { ticket, call, path, since, again, .. } = waiting;
        self.families.sent(call.family);
        self.tree.each(path, |bucket| bucket.sent(ticket));
        if call.self_check {
            self.credentials.sent(now);
        }
        self.flights.insert(ticket, Flight { call, path, again, abandoned: false });
        Decision::Send { ticket, waited: now.since(since) }
    }

    /// Shadow mode: what a call would have waited counts for the bucket that was nearest to empty.
    fn count_delay(&mut self, now: Time, waiting: &Waiting) {
        let waited = now.since(waiting.since);
        if waited.is_zero() {
            return;
        }
        let levels = self.tree.along(waiting.path).map(|(id, bucket)| (id, bucket.level(now)));
        let emptiest = levels.min_by(|(_, one), (_, other)| one.total_cmp(other));
        if let Some(bucket) = emptiest.and_then(|(id, _)| self.tree.get_mut(id)) {
            bucket.would_delay(waited);
        }
    }

    /// A throttled call goes back to the head of its flow, once, if there is place and it would not be too late.
    fn send_again(&mut self, now: Time, ticket: Ticket, flight: Flight) -> Next {
        let Flight { call, path, again, abandoned } = flight;
        let limits = &self.config.queue;
        let place = self.queue.len() < limits.total && self.queue.has_place(&call, limits);
        if again || abandoned || !place || self.config.mode == Mode::Shadow {
            return Next::Done;
        }
        let latency = self.latency(now, &call);
        let kept = if call.reserve { 0.0 } else { self.config.reserve };
        let need = Need { cost: u64::from(call.cost.max(1)), kept };
        let at = self.tree.along(path).map(|(_, bucket)| bucket.expected_at(now, 0, need)).max();
        if at.zip(call.deadline).is_some_and(|(at, deadline)| at + latency.p95 > deadline) {
            return Next::Done;
        }
        let expiry = call.deadline.map(|deadline| deadline - latency.p50);
        self.queue.push_front(Waiting { ticket, call, path, since: now, expiry, again: true });
        Next::Again
    }

    fn take_hint(&mut self, now: Time, path: PathId, hint: &Hint) {
        let named = hint.bucket.and_then(|name| self.tree.named(name));
        let bucket = named.or_else(|| self.tree.at(path)?.buckets.last().copied());
        if let Some(bucket) = bucket.and_then(|id| self.tree.get_mut(id)) {
            bucket.hint(now, hint, self.config.free_floor);
        }
    }

    /// Whether so little time is left that the answer would probably come too late.
    fn is_late(&self, now: Time, call: &Call) -> bool {
        call.deadline.is_some_and(|deadline| deadline - self.latency(now, call).p50 <= now)
    }

    fn latency(&self, now: Time, call: &Call) -> Quantiles {
        let known = self.latencies.get(&(call.family, call.operation));
        known.map_or_else(Quantiles::default, |latency| latency.quantiles(now))
    }

    fn view(&self) -> View<'_> {
        View { config: &self.config, tree: &self.tree, queue: &self.queue, families: &self.families }
    }
}

/// The earlier of two moments that may not be known.
fn earliest(one: Option<Time>, other: Option<Time>) -> Option<Time> {
    one.into_iter().chain(other).min()
}
