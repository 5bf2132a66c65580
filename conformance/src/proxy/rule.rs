//! Decides which calls are affected, and how. Pure functions, apart from the responses stored for stale reads.

use std::{collections::BTreeMap, time::Duration};

use http::Method;
use tokio::time::Instant;

use super::{Gate, log::Call, response::FullResponse};
use crate::params::Pattern;

/// Maximum number of responses stored for stale reads; further reads are fresh.
const STALE_MAX: usize = 10_000;

/// Selects the calls that meet all conditions of the rule. A rule reads as a sentence, such as `Rule::writes().nth(2)`.
#[derive(Clone, Debug)]
pub struct Rule {
    kind: Kind,
    calls: Option<Pattern>,
    when: When,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Kind {
    Any,
    Reads,
    Writes,
    Lists,
    ListsOf(String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum When {
    Always,
    Next(u64),
    Nth(u64),
    From(u64),
}

impl Rule {
    const fn of(kind: Kind) -> Self {
        Self { kind, calls: None, when: When::Always }
    }

    /// Matches every call.
    pub const fn all() -> Self {
        Self::of(Kind::Any)
    }

    /// Matches calls that change nothing.
    pub const fn reads() -> Self {
        Self::of(Kind::Reads)
    }

    /// Matches calls that change something.
    pub const fn writes() -> Self {
        Self::of(Kind::Writes)
    }

    /// Matches calls in `vendor.lists`.
    pub const fn lists() -> Self {
        Self::of(Kind::Lists)
    }

    /// Matches calls in `vendor.lists` for one collection: `instances`, `load-balancers` or `routes`.
    pub fn lists_of(collection: &str) -> Self {
        Self::of(Kind::ListsOf(collection.to_owned()))
    }

    /// Restricts the rule to calls that match this pattern, such as those of a bucket.
    pub fn calls(self, pattern: Pattern) -> Self {
        Self { calls: Some(pattern), ..self }
    }

    /// Restricts the rule to the next `calls` calls.
    pub fn next(self, calls: u64) -> Self {
        Self { when: When::Next(calls), ..self }
    }

    /// Restricts the rule to the n-th call from now, counted from 1.
    pub fn nth(self, call: u64) -> Self {
        Self { when: When::Nth(call), ..self }
    }

    /// Restricts the rule to the n-th call from now, counted from 1, and all later calls.
    pub fn from(self, call: u64) -> Self {
        Self { when: When::From(call), ..self }
    }
}

/// What the proxy does with a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Forwards the call after this delay.
    Delay(Duration),
    /// Answers 429, with `Retry-After` in whole seconds if given. The call does not reach the vendor, as with all calls that the proxy
    /// answers.
    Throttle(Option<Duration>),
    /// Acts as a vendor whose limit is lower than the configured one: answers calls beyond a token bucket with 429, without `Retry-After`.
    Limit {
        /// The interval in which one call is allowed.
        every: Duration,
        /// Burst, at least 1.
        burst: u32,
    },
    /// Answers with this status, and an empty JSON object as body.
    Answer(u16),
    /// Answers with this status, headers and body.
    AnswerWith {
        /// 200 to 599.
        status: u16,
        /// Names and values.
        headers: Vec<(String, String)>,
        /// The body, sent unchanged.
        body: String,
    },
    /// Answers with this status, and a message that repeats the credentials of the call, as some vendors do.
    Echo(u16),
    /// Closes the connection before the call reaches the vendor.
    ResetBefore,
    /// Forwards the call, and closes the connection instead of sending the response.
    ResetAfter,
    /// Forwards the call, and ends the response in the middle of its body.
    Truncate,
    /// Answers with the empty page of `vendor.lists`; other calls pass.
    EmptyPage,
    /// For this duration, answers each read (GET) with its first response since the rule was added.
    Stale(Duration),
    /// Holds the call before it reaches the vendor, until the injection is released or dropped.
    HoldBefore,
    /// Forwards the call, and holds the response until the injection is released or dropped.
    HoldAfter,
}

#[derive(Debug, Default)]
pub(super) struct Rules {
    last: u64,
    standing: BTreeMap<u64, Standing>,
    acted: bool,
}

#[derive(Debug)]
struct Standing {
    rule: Rule,
    action: Action,
    gate: Gate,
    since: Instant,
    seen: u64,
    fired: u64,
    /// The time at which the bucket is full again, for rules with a limit.
    full_at: Instant,
    /// The first response to each read, for stale reads.
    frozen: BTreeMap<String, FullResponse>,
}

#[derive(Debug)]
pub(super) struct Strike {
    pub(super) rule: u64,
    pub(super) action: Action,
    pub(super) gate: Gate,
    /// The stored response that replaces the vendor's response, for stale reads.
    pub(super) frozen: Option<FullResponse>,
}

impl Rules {
    pub(super) fn add(&mut self, rule: Rule, action: Action, gate: Gate) -> u64 {
        self.last = self.last.saturating_add(1);
        let since = Instant::now();
        let standing = Standing {
            rule,
            action,
            gate,
            since,
            seen: 0,
            fired: 0,
            full_at: since,
            frozen: BTreeMap::new(),
        };
        self.standing.insert(self.last, standing);
        self.last
    }

    pub(super) fn remove(&mut self, id: u64) {
        if let Some(standing) = self.standing.remove(&id) {
            standing.gate.open();
        }
    }

    /// Removes all rules. Returns whether a rule affected a call since the last call of this function.
    pub(super) fn clear(&mut self) -> bool {
        for standing in std::mem::take(&mut self.standing).into_values() {
            standing.gate.open();
        }
        std::mem::take(&mut self.acted)
    }

    pub(super) fn fired(&self, id: u64) -> u64 {
        self.standing.get(&id).map_or(0, |standing| standing.fired)
    }

    /// Decides what happens to a call. The oldest rule that fires applies. Every rule that matches counts the call, even if another rule
    /// applies.
    pub(super) fn strike(&mut self, call: &Call) -> Option<Strike> {
        let mut struck = None;
        for (&rule, standing) in &mut self.standing {
            if !standing.concerns(call) {
                continue;
            }
            standing.seen = standing.seen.saturating_add(1);
            if struck.is_none() && standing.fires() && standing.exceeds() {
                standing.fired = standing.fired.saturating_add(1);
                let Standing { action, gate, frozen, .. } = &*standing;
                let frozen = frozen.get(&call.path).cloned();
                self.acted = true;
                struck = Some(Strike { rule, action: action.clone(), gate: gate.clone(), frozen });
            }
        }
        struck
    }

    pub(super) fn freeze(&mut self, rule: u64, path: &str, answer: &FullResponse) {
        if let Some(standing) = self.standing.get_mut(&rule)
            && standing.frozen.len() < STALE_MAX
        {
            standing.frozen.entry(path.to_owned()).or_insert_with(|| answer.clone());
        }
    }
}

impl Standing {
    fn concerns(&self, call: &Call) -> bool {
        let kind = match &self.rule.kind {
            Kind::Any => true,
            Kind::Reads => !call.write,
            Kind::Writes => call.write,
            Kind::Lists => call.list.is_some(),
            Kind::ListsOf(collection) => call.list.as_ref() == Some(collection),
        };
        let pattern = self.rule.calls.as_ref();
        let action = if let Action::Stale(time) = self.action {
            call.method == Method::GET && self.since.elapsed() < time
        } else {
            call.list.is_some() || self.action != Action::EmptyPage
        };
        kind && action && pattern.is_none_or(|pattern| pattern.matches(&call.method, &call.path))
    }

    fn fires(&self) -> bool {
        match self.rule.when {
            When::Always => true,
            When::Next(calls) => self.fired < calls,
            When::Nth(call) => self.seen == call,
            When::From(call) => self.seen >= call,
        }
    }

    /// Whether a call exceeds the rule's limit, if the rule has a limit. A call within the limit takes a token.
    fn exceeds(&mut self) -> bool {
        let Action::Limit { every, burst } = self.action else { return true };
        let now = Instant::now();
        let full_at = self.full_at.max(now);
        // How empty the bucket may be before this call, as the time in which the missing tokens are added.
        let room = every.saturating_mul(burst.saturating_sub(1));
        if full_at.saturating_duration_since(now) > room {
            return true;
        }
        self.full_at = full_at + every;
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::params::VendorParams;

    fn call(method: &Method, path: &str) -> Call {
        let vendor: VendorParams = serde_json::from_value(serde_json::json!({
            "lists": [{ "collection": "instances", "call": "^GET /v1/instances(\\?|$)", "emptyBody": "{}" }],
            "reads": ["^POST /v1/search"],
        }))
        .expect("is valid");
        Call::new(method.clone(), path.to_owned(), &vendor)
    }

    fn strikes(rule: Rule, action: Action, calls: &[Call]) -> Vec<bool> {
        let mut rules = Rules::default();
        rules.add(rule, action, Gate::default());
        calls.iter().map(|call| rules.strike(call).is_some()).collect()
    }

    #[tokio::test]
    async fn rule_affects_only_matching_calls() {
        let calls = [
            call(&Method::GET, "/v1/instances?limit=5"),
            call(&Method::GET, "/v1/instances/i-1"),
            call(&Method::POST, "/v1/search"),
            call(&Method::DELETE, "/v1/instances/i-1"),
        ];
        for (rule, struck) in [
            (Rule::all(), [true, true, true, true]),
            (Rule::reads(), [true, true, true, false]),
            (Rule::writes(), [false, false, false, true]),
            (Rule::lists(), [true, false, false, false]),
            (Rule::lists_of("instances"), [true, false, false, false]),
            (Rule::lists_of("routes"), [false, false, false, false]),
            (Rule::all().next(2), [true, true, false, false]),
            (Rule::all().nth(3), [false, false, true, false]),
            (Rule::all().from(3), [false, false, true, true]),
            (Rule::reads().nth(2), [false, true, false, false]),
        ] {
            assert_eq!(strikes(rule.clone(), Action::ResetBefore, &calls), struck, "{rule:?}");
        }
        assert_eq!(strikes(Rule::all(), Action::EmptyPage, &calls), [true, false, false, false]);
    }

    #[tokio::test(start_paused = true)]
    async fn limit_has_burst_and_rate() {
        let call = call(&Method::GET, "/v1/instances");
        let mut rules = Rules::default();
        let limit = Action::Limit { every: Duration::from_millis(500), burst: 3 };
        rules.add(Rule::all(), limit, Gate::default());
        let mut struck = |calls: usize| (0..calls).filter(|_| rules.strike(&call).is_some()).count();
        assert_eq!(struck(5), 2, "the calls of the burst pass, and no more");
        tokio::time::advance(Duration::from_millis(500)).await;
        assert_eq!(struck(3), 2, "one token was added");
        tokio::time::advance(Duration::from_mins(1)).await;
        assert_eq!(struck(5), 2, "the bucket never holds more than the burst");
    }

    #[tokio::test(start_paused = true)]
    async fn stale_reads_end() {
        let call = call(&Method::GET, "/v1/instances");
        let mut rules = Rules::default();
        let id = rules.add(Rule::reads(), Action::Stale(Duration::from_secs(5)), Gate::default());
        assert!(rules.strike(&call).is_some_and(|strike| strike.frozen.is_none()));
        rules.freeze(id, &call.path, &FullResponse::canned(200, &[], "old"));
        assert!(rules.strike(&call).is_some_and(|strike| strike.frozen.is_some()));
        tokio::time::advance(Duration::from_secs(6)).await;
        assert!(rules.strike(&call).is_none());
    }
}
