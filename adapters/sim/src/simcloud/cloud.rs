//! The cloud as one value: each call is counted, authenticated, limited, subjected to fault rules, executed and logged.

mod perform;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::time::Duration;

use http::StatusCode;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use self::perform::Done;
use super::Moment;
use super::call::{Call, CallResponse, Ending};
use super::counts::{Counts, Log, LogEntry, millis};
use super::error::ApiError;
use super::faults::{Action, Canned, Faults};
use super::instances::Instances;
use super::limiter::{Limiter, Standing};
use super::load_balancers::{LoadBalancers, Outcome};
use super::model::Project;
use super::operation::Operation;
use super::routes::Routes;
use super::settings::Settings;
use super::table::Write;
use super::tokens::Tokens;

/// A whole cloud. It does no I/O and has no clock. Callers pass the current time, which must never go back.
#[derive(Debug)]
pub struct Cloud {
    pub(super) project: Project,
    pub(super) tokens: Tokens,
    /// Wall-clock time at [`Moment`] zero.
    epoch: Timestamp,
    random: u64,
    requests: u64,
    pub(super) settings: Settings,
    pub(super) instances: Instances,
    pub(super) load_balancers: LoadBalancers,
    pub(super) routes: Routes,
    pub(super) faults: Faults,
    pub(super) counts: Counts,
    pub(super) log: Log,
    limiter: Limiter,
    /// The calls to execute later, keyed by time and request number.
    late: BTreeMap<(Moment, u64), Call>,
}

/// The properties of a call that are known before it is executed.
struct Entry {
    request_id: String,
    standing: Option<Standing>,
    fault: Option<Action>,
    latency: Duration,
}

impl Cloud {
    /// Creates an empty cloud with default settings, no token and seed 0. It is switched on at 2026-01-01T00:00:00Z.
    pub fn new(project: Project) -> Self {
        const NEW_YEAR_2026: i64 = 1_767_225_600;
        Self {
            project,
            tokens: Tokens::default(),
            epoch: Timestamp::constant(NEW_YEAR_2026, 0),
            random: 0,
            requests: 0,
            settings: Settings::default(),
            instances: Instances::new(),
            load_balancers: LoadBalancers::new(),
            routes: Routes::new(),
            faults: Faults::default(),
            counts: Counts::default(),
            log: Log::default(),
            limiter: Limiter::default(),
            late: BTreeMap::new(),
        }
    }

    /// Requires this token from every caller.
    #[must_use]
    pub fn with_token(mut self, token: impl Into<String>) -> Self {
        self.tokens = Tokens::one(token.into());
        self
    }

    /// Sets the seed of the jitter.
    #[must_use]
    pub const fn with_seed(mut self, seed: u64) -> Self {
        self.random = seed;
        self
    }

    /// Sets the initial settings.
    #[must_use]
    pub fn with_settings(mut self, settings: Settings) -> Self {
        self.settings = settings;
        self
    }

    /// Sets the wall-clock time at which the cloud is switched on.
    #[must_use]
    pub const fn switched_on_at(mut self, epoch: Timestamp) -> Self {
        self.epoch = epoch;
        self
    }

    /// Returns the numbers of requests since the last reset.
    pub const fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Returns the current settings.
    pub const fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Resets all counts and empties the log.
    pub fn reset_counts(&mut self) {
        self.counts = Counts::default();
        self.log.clear();
    }

    /// Processes one call. The checks are in the same order as at a real vendor.
    pub fn handle(&mut self, call: &Call, now: Moment) -> CallResponse {
        self.settle(now);
        self.counts.arrived(call.operation);
        let mut entry = self.enter();
        let result = self.admit(call, now, &mut entry).and_then(|()| self.carry_out(call, now, &entry));
        let answer = dress(call, result, &entry);
        self.write_down(call, now, &entry, &answer);
        answer
    }

    /// Executes the changes and calls that are due.
    pub(super) fn settle(&mut self, now: Moment) {
        while let Some(entry) = self.late.first_entry()
            && entry.key().0 <= now
        {
            let ((at, _), call) = entry.remove_entry();
            self.load_balancers.settle(at, self.settings.lag());
            // No caller receives this error, because the caller's connection is already closed.
            drop(self.perform(&call, at, Outcome::Success));
        }
        self.load_balancers.settle(now, self.settings.lag());
    }

    pub(super) const fn write(&self, now: Moment) -> Write {
        Write { now, lag: self.settings.lag() }
    }

    pub(super) fn wall(&self, now: Moment) -> Timestamp {
        let elapsed = SignedDuration::try_from(now).unwrap_or(SignedDuration::MAX);
        self.epoch.saturating_add(elapsed).unwrap_or(Timestamp::MAX)
    }

    /// The admin API uses the same sequence of request IDs.
    pub(super) fn next_request_id(&mut self) -> String {
        self.requests = self.requests.saturating_add(1);
        format!("req-{:06}", self.requests)
    }

    fn enter(&mut self) -> Entry {
        Entry { request_id: self.next_request_id(), standing: None, fault: None, latency: Duration::ZERO }
    }

    fn admit(&mut self, call: &Call, now: Moment, entry: &mut Entry) -> Result<(), ApiError> {
        entry.latency = self.latency(call);
        let bearer = call.bearer.as_deref();
        // Only a caller with a valid token gets the name of its project.
        if call.operation == Operation::GetProject {
            self.tokens.other_project(bearer)?;
        } else {
            self.tokens.check(bearer)?;
        }
        entry.standing = self.limiter.take(&self.settings.rate_limits, call.operation.family(), now);
        if let Some(wait) = entry.standing.and_then(|standing| standing.retry_after) {
            let message = format!("too many {} calls; retry later", call.operation.family());
            return Err(ApiError::new(StatusCode::TOO_MANY_REQUESTS, "throttled", message)
                .with(json!({ "retry_after_ms": millis(wait) })));
        }
        entry.fault = self.faults.strike(call.operation, call.object.as_deref());
        Ok(())
    }

    fn latency(&mut self, call: &Call) -> Duration {
        let latency = &self.settings.latency;
        let fixed = latency.operations.get(&call.operation).copied().unwrap_or(latency.default_ms);
        let jitter = match latency.jitter_ms {
            0 => 0,
            most => next_random(&mut self.random).checked_rem(most.saturating_add(1)).unwrap_or_default(),
        };
        Duration::from_millis(fixed.saturating_add(jitter))
    }

    fn carry_out(&mut self, call: &Call, now: Moment, entry: &Entry) -> Result<Done, ApiError> {
        if matches!(entry.fault, Some(Action::Respond(_) | Action::CloseBefore)) {
            return Ok(Done { status: StatusCode::OK, body: Value::Null });
        }
        if let Some(Action::LateMs(ms)) = entry.fault {
            let at = now.saturating_add(Duration::from_millis(ms));
            self.late.insert((at, self.requests), call.clone());
            return Ok(Done { status: StatusCode::OK, body: Value::Null });
        }
        let outcome = match entry.fault {
            Some(Action::ErrorState) => Outcome::Failure,
            Some(_) | None => Outcome::Success,
        };
        self.perform(call, now, outcome)
    }

    fn write_down(&mut self, call: &Call, now: Moment, entry: &Entry, answer: &CallResponse) {
        let text = |field: &str| answer.body.get(field).and_then(Value::as_str).map(str::to_owned);
        let status = (answer.ending != Ending::Closed).then_some(answer.status.as_u16());
        self.counts.answered(status);
        self.log.add(LogEntry {
            request_id: entry.request_id.clone(),
            at_ms: millis(now),
            operation: call.operation,
            access: call.operation.access(),
            object: call.object.clone().or_else(|| text("id")),
            status,
            code: text("code"),
            fault: entry.fault.is_some(),
        });
    }
}

fn dress(call: &Call, result: Result<Done, ApiError>, entry: &Entry) -> CallResponse {
    let mut headers = vec![("x-request-id".to_owned(), entry.request_id.clone())];
    headers.extend(entry.standing.iter().flat_map(limit_headers));
    let (status, body) = match result {
        Ok(Done { status, body }) => (status, body),
        Err(error) => (error.status, error_body(&error, &entry.request_id)),
    };
    let mut answer = CallResponse { status, headers, body, delay: entry.latency, ending: Ending::Whole };
    match &entry.fault {
        None | Some(Action::ErrorState) => (),
        Some(Action::Respond(canned) | Action::RespondAfter(canned)) => {
            put_canned(&mut answer, canned, &entry.request_id);
        }
        Some(Action::DelayMs(ms)) => answer.delay = answer.delay.saturating_add(Duration::from_millis(*ms)),
        Some(Action::CloseBefore | Action::CloseAfter | Action::LateMs(_)) => answer.ending = Ending::Closed,
        Some(Action::TruncateBody) => answer.ending = Ending::Truncated,
        Some(Action::EmptyPage) => empty_page(call, &mut answer.body),
    }
    answer
}

pub(super) fn error_body(error: &ApiError, request_id: &str) -> Value {
    let mut body = error.body();
    if let Some(fields) = body.as_object_mut() {
        fields.insert("request_id".to_owned(), request_id.into());
    }
    body
}

fn limit_headers(standing: &Standing) -> Vec<(String, String)> {
    let mut headers = vec![
        ("ratelimit-limit".to_owned(), standing.limit.to_string()),
        ("ratelimit-remaining".to_owned(), standing.remaining.to_string()),
        ("ratelimit-reset".to_owned(), whole_seconds(standing.reset).to_string()),
    ];
    headers
        .extend(standing.retry_after.map(|wait| ("retry-after".to_owned(), whole_seconds(wait).to_string())));
    headers
}

/// Returns the duration in whole seconds. Rounds up, so that a caller that waits this long is not refused again.
const fn whole_seconds(time: Duration) -> u64 {
    if time.subsec_nanos() == 0 { time.as_secs() } else { time.as_secs().saturating_add(1) }
}

fn put_canned(answer: &mut CallResponse, canned: &Canned, request_id: &str) {
    answer.status = StatusCode::from_u16(canned.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    answer.headers.extend(canned.headers.iter().map(|(name, value)| (name.clone(), value.clone())));
    answer.body = canned.body.clone().unwrap_or_else(|| {
        error_body(&ApiError::new(answer.status, "injected", "a fault rule caused this response"), request_id)
    });
}

fn empty_page(call: &Call, body: &mut Value) {
    if let Some(items) = call.operation.items()
        && let Some(fields) = body.as_object_mut()
    {
        fields.insert(items.to_owned(), json!([]));
        fields.insert("next".to_owned(), Value::Null);
    }
}

/// Returns the next random number. Uses SplitMix64 (Steele, Lea, Flood 2014), which is small, and sufficient for the jitter of latencies.
const fn next_random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut value = *state;
    value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}
