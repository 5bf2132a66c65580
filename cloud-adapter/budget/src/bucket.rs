//! State of one bucket: tokens, adaptive rate, pauses, probes and counters.

use std::time::Duration;

use crate::{
    BucketConfig, BucketReport, Hint, Ticket, Time,
    adaptive::Follower,
    fair_queueing::{LeafId, StartTags},
    gcra::{Gcra, whole},
};

#[derive(Clone, Debug)]
pub(crate) struct Bucket {
    pub(crate) name: String,
    config: BucketConfig,
    gcra: Gcra,
    follower: Follower,
    /// Whether the tokens have reached the reserve at least once. Until then, a bucket that starts empty keeps no reserve.
    reserve_filled: bool,
    /// The call in flight that tests whether a pause was long enough.
    probe: Option<Ticket>,
    start_tags: StartTags,
    demand: Demand,
    calls: u64,
    throttled: u64,
    corrected: u64,
    would_delay: u64,
    would_delay_for: Duration,
}

/// What a call requires of a bucket.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Need {
    pub(crate) cost: u64,
    /// Share of the burst that must remain in the bucket, 0 to 1.
    pub(crate) kept: f64,
}

/// The queued calls that compete for a bucket in one decision of the scheduler.
#[derive(Clone, Copy, Debug, Default)]
struct Demand {
    /// Number of the decision to which these counts belong. Counts of an earlier decision are not used.
    decision: u64,
    /// Number of tokens needed by candidates that may use the reserve.
    entitled: u64,
    calls: u32,
    tokens: u64,
}

impl Bucket {
    pub(crate) fn new(name: &str, config: &BucketConfig) -> Self {
        Self {
            name: name.to_owned(),
            config: config.clone(),
            gcra: Gcra::full(config.limit.rate, u64::from(config.limit.burst)),
            follower: Follower::new(config.limit.rate, config.adaptive),
            reserve_filled: true,
            probe: None,
            start_tags: StartTags::default(),
            demand: Demand::default(),
            calls: 0,
            throttled: 0,
            corrected: 0,
            would_delay: 0,
            would_delay_for: Duration::ZERO,
        }
    }

    /// Removes all tokens. The bucket then keeps no reserve until enough tokens have accumulated for it once.
    pub(crate) fn empty(&mut self, now: Time) {
        self.gcra.cap(now, 0.0);
        self.reserve_filled = false;
    }

    /// Applies the current rate and burst to the tokens.
    pub(crate) fn tick(&mut self, now: Time) {
        self.follower.tick(now);
        let burst = whole(f64::from(self.config.limit.burst) * self.follower.burst_share());
        self.gcra.configure(now, self.follower.rate(), burst);
    }

    pub(crate) fn configure(&mut self, now: Time, config: &BucketConfig) {
        self.config = config.clone();
        self.follower.configure(config.limit.rate, config.adaptive);
        self.tick(now);
    }

    /// Time at which the tokens are available. `None` if they become available only after a probe returns.
    pub(crate) fn ready_at(&self, need: Need) -> Option<Time> {
        if self.follower.probing() && self.probe.is_some() {
            return None;
        }
        let at = self.gcra.ready_at(need.cost.saturating_add(self.kept(need.kept)));
        Some(self.follower.paused_until().map_or(at, |until| until.max(at)))
    }

    /// Estimated time at which the call can take its tokens after `ahead` tokens for other calls, if the rate does not change.
    pub(crate) fn expected_at(&self, now: Time, ahead: u64, need: Need) -> Time {
        let tokens = ahead.saturating_add(need.cost).saturating_add(self.kept(need.kept));
        let begin = self.follower.paused_until().map_or(now, |until| until.max(now));
        self.gcra.all_at(begin, tokens).max(begin)
    }

    /// Number of tokens of the burst that are kept in reserve, at most all but one token.
    fn kept(&self, share: f64) -> u64 {
        if !self.reserve_filled {
            return 0;
        }
        whole(self.gcra.burst() as f64 * share).min(self.gcra.burst() - 1)
    }

    pub(crate) fn entitle(&mut self, decision: u64, cost: u64) {
        let demand = self.demand_in(decision);
        demand.entitled = demand.entitled.saturating_add(cost);
    }

    /// Whether the tokens do not suffice for a call of this cost and for all candidates of this decision that may use the reserve.
    pub(crate) fn is_spent(&self, now: Time, decision: u64, cost: u64) -> bool {
        let Demand { entitled, .. } = self.demand;
        self.demand.decision == decision
            && entitled > 0
            && self.gcra.all_at(now, entitled.saturating_add(cost)) > now
    }

    pub(crate) fn compete(&mut self, decision: u64, cost: u64) {
        let demand = self.demand_in(decision);
        demand.calls += 1;
        demand.tokens = demand.tokens.saturating_add(cost);
    }

    /// Whether the bucket cannot serve all candidates of this decision now, if `room` more calls may be in flight. If no candidate may use
    /// the reserve, the fraction `kept` of the burst must remain.
    pub(crate) fn is_tight(&self, now: Time, decision: u64, room: u32, kept: f64) -> bool {
        let Demand { calls, tokens, entitled, .. } = self.demand;
        let kept = if entitled > 0 { 0 } else { self.kept(kept) };
        self.demand.decision == decision
            && calls > 1
            && (calls > room
                || self.follower.probing()
                || self.gcra.all_at(now, tokens.saturating_add(kept)) > now)
    }

    fn demand_in(&mut self, decision: u64) -> &mut Demand {
        if self.demand.decision != decision {
            self.demand = Demand { decision, ..Demand::default() };
        }
        &mut self.demand
    }

    pub(crate) fn start_tags(&self) -> &StartTags {
        &self.start_tags
    }

    pub(crate) fn take(&mut self, now: Time, leaf: LeafId, cost: u64, weight: u32) {
        self.gcra.take(now, cost);
        self.start_tags.served(leaf, cost, weight);
    }

    /// Starts to keep the reserve if enough tokens have accumulated.
    pub(crate) fn fill_reserve(&mut self, now: Time, share: f64) {
        self.reserve_filled |= self.gcra.tokens(now) >= self.gcra.burst() as f64 * share;
    }

    pub(crate) fn sent(&mut self, ticket: Ticket) {
        self.calls += 1;
        if self.follower.probing() {
            self.probe = Some(ticket);
        }
    }

    /// Records that a call returned, with any result.
    pub(crate) fn record_result(&mut self, ticket: Ticket) {
        if self.probe == Some(ticket) {
            self.probe = None;
        }
    }

    pub(crate) fn succeeded(&mut self, now: Time) {
        self.follower.succeeded(now);
    }

    /// Records that the vendor throttled a call. `jitter` is between 0 and 1.
    pub(crate) fn throttled(&mut self, now: Time, retry_after: Option<Duration>, jitter: f64) {
        self.throttled += 1;
        if self.follower.throttled(now, retry_after, jitter) {
            self.gcra.cap(now, 0.0);
        }
        self.tick(now);
    }

    pub(crate) fn hint(&mut self, now: Time, hint: &Hint, free_floor: f64) {
        let tokens = self.follower.hint(now, hint, free_floor, self.calls);
        if tokens < self.gcra.tokens(now) {
            self.corrected += 1;
            self.gcra.cap(now, tokens);
        }
    }

    /// Counts a delay that shadow mode did not enforce.
    pub(crate) fn would_delay(&mut self, waited: Duration) {
        self.would_delay += 1;
        self.would_delay_for += waited;
    }

    /// Fill level of the bucket. A call waits for the bucket with the lowest level.
    pub(crate) fn level(&self, now: Time) -> f64 {
        self.gcra.tokens(now) / self.gcra.burst() as f64
    }

    pub(crate) fn paused_until(&self) -> Option<Time> {
        self.follower.paused_until()
    }

    /// Nanoseconds from one token to the next.
    pub(crate) fn interval(&self) -> u64 {
        self.gcra.interval()
    }

    pub(crate) fn report(&self, now: Time, queued: u64) -> BucketReport {
        BucketReport {
            name: self.name.clone(),
            rate: self.follower.rate(),
            ceiling: self.config.limit.rate,
            tokens: self.gcra.tokens(now).max(0.0),
            knee: self.follower.knee(),
            paused_until: self.follower.paused_until(),
            foreign_rate: self.follower.foreign_rate(),
            queued,
            calls: self.calls,
            throttled: self.throttled,
            corrected: self.corrected,
            would_delay: self.would_delay,
            would_delay_for: self.would_delay_for,
        }
    }
}
