//! The scheduler: combines buckets, queue, circuit breakers and latencies.

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
    AfterCall, Call, CallResult, Config, Decision, Hint, Mode, Outcome, Refusal, RefusalReason, Report,
    Ticket, Time,
    breaker::CredentialBreaker,
    bucket::Need,
    chance::jitter,
    families::Families,
    forecast::View,
    latency::{Latency, Quantiles},
    queue::{Candidate, LeafKey, Queue, Waiting},
    tree::{BucketId, PathId, Tree},
};

/// Decides which call may go to the vendor next. The [crate] documentation describes the usage.
///
/// The time passed to the methods must not go backwards; a jump forward only fills buckets.
#[derive(Clone, Debug)]
pub struct Scheduler {
    config: Config,
    tree: Tree,
    queue: Queue,
    families: Families,
    credentials: CredentialBreaker,
    latencies: BTreeMap<(&'static str, &'static str), Latency>,
    flights: HashMap<Ticket, Flight>,
    /// Calls that were shed and whose refusals were not reported yet.
    shed: VecDeque<(Ticket, Refusal)>,
    /// Shadow mode: calls to send at once. Their copies in the queue are only counted.
    passing: VecDeque<Waiting>,
    /// Latest retry time assigned to a refused call of this leaf, namespace and path. The next refused call gets a later time, so that
    /// retries do not arrive together.
    promised: BTreeMap<(LeafKey, Arc<str>, PathId), Time>,
    /// No call is sent at or after this time. `None`: no limit.
    allowed_until: Option<Time>,
    last_ticket: u64,
    decision: u64,
    candidates: Vec<Candidate>,
    /// Buffer for the results of a decision, kept to avoid allocations.
    openings: choice::Known<Option<Time>>,
}

#[derive(Clone, Debug)]
struct Flight {
    call: Call,
    path: PathId,
    /// Whether the call has already been throttled once.
    again: bool,
    /// Whether all callers have stopped waiting.
    abandoned: bool,
}

impl Scheduler {
    /// Creates a scheduler with full buckets and empty queues.
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

    /// Queues a call. If the queue is full, another call may be shed: a less urgent one, or one of a namespace with more calls.
    /// [`Self::next`] then returns the shed call as refused.
    ///
    /// Cost: O(leaves x the call's buckets), where a leaf is the queue of one class of one controller.
    ///
    /// # Errors
    /// Returns a refusal if the call would be too late, the queue is full, or a circuit breaker is open. Shadow mode refuses no calls.
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

    /// Cancels a call whose callers have stopped waiting. Returns true if the call was queued: it is removed and never sent. A call in
    /// flight continues, but is not sent again.
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

    /// Returns the next decision. After any other method, call `next` until it returns [`Decision::Wait`], and again at the time in that
    /// decision.
    ///
    /// Cost: O(leaves x paths), independent of the length of the queue.
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

    /// Records that a call returned.
    pub fn answered(&mut self, now: Time, ticket: Ticket, answer: CallResult) -> AfterCall {
        let Some(flight) = self.flights.remove(&ticket) else { return AfterCall::Done };
        self.tree.tick(now, self.config.reserve);
        self.families.record_result(now, flight.call.family, answer.outcome == Outcome::Failed);
        self.tree.each(flight.path, |bucket| bucket.record_result(ticket));
        let CallResult { outcome, latency, hint } = answer;
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
            // Only the caller knows which credentials a self-check used, so the caller reports the result with `self_check`.
            Outcome::Failed | Outcome::Unauthorized => (),
        }
        AfterCall::Done
    }

    /// Applies a new configuration. Queued calls keep their place, and no bucket gains a token.
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
        #[expect(clippy::iter_over_hash_type, reason = "each flight is changed independently")]
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

    /// Empties all buckets when a replica becomes the leader, because the previous leader may have used their tokens. A bucket keeps no
    /// reserve until it has refilled to the reserve once.
    pub fn empty(&mut self, now: Time) {
        self.tree.empty(now);
    }

    /// Stops sending calls at this time. `None`: no limit.
    pub fn allow_until(&mut self, until: Option<Time>) {
        self.allowed_until = until;
    }

    /// Records the result of a self-check. After a failure, only self-checks may be sent.
    pub fn self_check(&mut self, now: Time, passed: bool) {
        self.credentials.self_check(now, passed);
    }

    /// Returns the current state, for reports.
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

    /// Serves a candidate. `None`: shadow mode only counted the call.
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

    /// Shadow mode: attributes the delay that a call would have had to the emptiest bucket.
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

    /// Puts a throttled call back at the head of its queue, at most once, if the queue has space and the call would not be too late.
    fn send_again(&mut self, now: Time, ticket: Ticket, flight: Flight) -> AfterCall {
        let Flight { call, path, again, abandoned } = flight;
        let limits = &self.config.queue;
        let queued = self.queue.len() < limits.total && self.queue.has_capacity(&call, limits);
        if again || abandoned || !queued || self.config.mode == Mode::Shadow {
            return AfterCall::Done;
        }
        let latency = self.latency(now, &call);
        let kept = if call.reserve { 0.0 } else { self.config.reserve };
        let need = Need { cost: u64::from(call.cost.max(1)), kept };
        let at = self.tree.along(path).map(|(_, bucket)| bucket.expected_at(now, 0, need)).max();
        if at.zip(call.deadline).is_some_and(|(at, deadline)| at + latency.p95 > deadline) {
            return AfterCall::Done;
        }
        let expiry = call.deadline.map(|deadline| deadline - latency.p50);
        self.queue.push_front(Waiting { ticket, call, path, since: now, expiry, again: true });
        AfterCall::Again
    }

    fn take_hint(&mut self, now: Time, path: PathId, hint: &Hint) {
        let named = hint.bucket.and_then(|name| self.tree.named(name));
        let bucket = named.or_else(|| self.tree.at(path)?.buckets.last().copied());
        if let Some(bucket) = bucket.and_then(|id| self.tree.get_mut(id)) {
            bucket.hint(now, hint, self.config.free_floor);
        }
    }

    /// Whether the answer to a call would probably arrive after the deadline.
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

fn earliest(one: Option<Time>, other: Option<Time>) -> Option<Time> {
    one.into_iter().chain(other).min()
}
