//! What traces hear of a vendor call: a span from when it is handed in until it is answered, so that its wait is part of it.

use std::time::Duration;

use cloud_budget::BudgetWait;
use tracing::{Span, field::Empty};

use super::{Operation, Purpose, translate};
use crate::driver::VendorError;

/// What happened to a call so far. Told at its end, because an attribute that is told twice is there twice.
#[derive(Clone, Debug, Default)]
pub(super) struct Sent {
    /// How often it was sent.
    times: u32,
    /// For its turns, all together.
    waited: Duration,
    /// The status of the last answer; 0: there was none.
    code: u16,
    /// The vendor's own name for it.
    request_id: Option<String>,
    /// In whose name it was sent last.
    class: &'static str,
    controller: &'static str,
}

impl Sent {
    /// It is sent, after this time. What comes of it follows in [`Self::answered`].
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

/// A call is handed in.
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

/// Whether anybody hears of it.
pub(super) fn told(span: &Span) -> bool {
    !span.is_disabled()
}

/// It waits for its turn: in the words of the moment in which it was handed in. Told once, because an attribute that is told twice is there
/// twice.
pub(super) fn waits(span: &Span, wait: &BudgetWait) {
    span.record("cloud.waits_for", wait.to_string());
}

/// It is over, and this is what whoever asked is told.
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
