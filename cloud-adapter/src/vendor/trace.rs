//! Traces of vendor calls. A span lasts from submission to the result, including the time in the queue.

use std::time::Duration;

use cloud_budget::BudgetWait;
use telemetry::traces;
use tracing::{Span, field::Empty};

use super::error::VendorError;
use super::{Operation, Purpose, translate};

/// The attributes of a call. They are recorded when the call ends, because an attribute that is recorded twice appears twice.
#[derive(Clone, Debug, Default)]
pub(super) struct Sent {
    times: u32,
    /// Total time that the call spent in the queue.
    waited: Duration,
    /// The status of the last answer; 0: there was no answer.
    code: u16,
    request_id: Option<String>,
    /// The class and controller of the call when it was last sent.
    class: &'static str,
    controller: &'static str,
}

impl Sent {
    /// Returns the attributes of the next sending of the call, which waited in the queue for `waited`. [`Self::answered`] adds the result.
    #[must_use]
    pub(super) fn again(&self, purpose: &Purpose, waited: Duration) -> Self {
        Self {
            times: self.times.saturating_add(1),
            waited: self.waited.saturating_add(waited),
            class: translate::class(purpose.priority).word(),
            controller: purpose.caller.role.word(),
            ..Self::default()
        }
    }

    #[must_use]
    pub(super) fn answered(self, code: u16, request_id: Option<String>) -> Self {
        Self { code, request_id, ..self }
    }
}

pub(super) fn begin(operation: Operation, object: &str) -> Span {
    traces::child(traces::span!(
        "vendor call",
        otel.name = operation.name,
        otel.kind = "client",
        cloud.family = operation.family.word(),
        cloud.write = operation.write,
        cloud.object = object,
        cloud.request_id = Empty,
        cloud.waits_for = Empty,
        budget.class = Empty,
        budget.controller = Empty,
        budget.waited_seconds = Empty,
        http.response.status_code = Empty,
        http.request.resend_count = Empty,
        "error.type" = Empty,
        otel.status_code = Empty,
    ))
}

pub(super) fn sampled(span: &Span) -> bool {
    !span.is_disabled()
}

/// Records what the call waits for when it is submitted. Recorded only once, because an attribute that is recorded twice appears twice.
pub(super) fn waits(span: &Span, wait: &BudgetWait) {
    span.record("cloud.waits_for", wait.to_string());
}

pub(super) fn end(span: &Span, sent: &Sent, error: Option<&VendorError>) {
    if sent.times > 0 {
        span.record("budget.class", sent.class);
        span.record("budget.controller", sent.controller);
        span.record("budget.waited_seconds", sent.waited.as_secs_f64());
    }
    if sent.times > 1 {
        span.record("http.request.resend_count", sent.times - 1);
    }
    if sent.code != 0 {
        span.record("http.response.status_code", sent.code);
    }
    if let Some(id) = &sent.request_id {
        span.record("cloud.request_id", id);
    }
    if let Some(error) = error {
        span.record("error.type", error.fault.reason().word());
        span.record("otel.status_code", "ERROR");
    }
}
