//! Errors of vendor calls, in the terms of the runtime.

use std::{fmt, time::Duration};

use cloud_api_proto::{AdapterError, Reason, error::Violation};

/// A vendor call that did not succeed.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{message}")]
pub struct VendorError {
    /// The kind of failure.
    pub fault: Fault,
    /// The message for users.
    pub message: String,
    /// The HTTP status of the vendor's answer, if there was one. Set by the runtime.
    pub status: Option<u16>,
    /// The vendor's error code.
    pub code: Option<String>,
    /// The vendor's ID of the request.
    pub request_id: Option<String>,
    /// When to retry, if the vendor said so.
    pub retry_after: Option<Duration>,
    /// The invalid fields of the request, such as `spec.listeners[0].port`; of a look-up, the IDs.
    pub fields: Vec<String>,
}

/// The kind of failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Our own budget does not allow the call before the deadline.
    Budget,
    /// This replica is no longer the leader: nothing was sent.
    NotLeader,
    /// The queue of vendor calls is full.
    QueueFull,
    /// The vendor throttles.
    Throttled,
    /// The credentials are rejected.
    Auth,
    /// The credentials do not permit the call.
    Forbidden,
    /// The vendor's resource quota is exhausted.
    Quota,
    /// The object of this ID does not exist.
    NotFound,
    /// The object is being changed: retry later.
    Busy,
    /// The object cannot be changed in place.
    Immutable,
    /// The vendor refuses the request as invalid.
    Invalid,
    /// This cloud does not support it.
    Unsupported,
    /// The vendor answers 5xx or not at all, and nothing was done.
    Unavailable,
    /// Unknown whether the write was done.
    OutcomeUnknown,
    /// The answer cannot be interpreted: a defect of the driver or the vendor.
    Nonsense,
}

/// Maximum of a pause that the vendor asks for, here and in the budget.
const PAUSE_MAX: Duration = Duration::from_mins(15);
/// Maximum length of vendor texts in errors, in bytes: clients refuse answers with long trailers.
const MESSAGE_MAX: usize = 1_000;
const NAME_MAX: usize = 200;
/// Maximum number of fields in an error: the IDs of one look-up, of which all may be invalid.
const FIELDS_MAX: usize = 500;
/// Maximum number of fields in an answer to the caller.
const FIELDS_TOLD: usize = 4;

impl VendorError {
    /// An error without vendor details.
    #[must_use]
    pub fn new(fault: Fault, message: impl Into<String>) -> Self {
        Self {
            fault,
            message: message.into(),
            status: None,
            code: None,
            request_id: None,
            retry_after: None,
            fields: Vec::new(),
        }
    }

    /// Adds an invalid field of the request.
    #[must_use]
    pub fn in_field(mut self, field: impl Into<String>) -> Self {
        self.fields.push(field.into());
        self
    }

    /// One sentence that names the failed step and the cause.
    pub(crate) fn of(&self, step: &impl fmt::Display) -> String {
        if matches!(self.fault, Fault::Budget | Fault::QueueFull | Fault::NotLeader) {
            // The call was never sent.
            return format!("{step}: {self}");
        }
        let status = self.status.map(|status| format!("{status}, ")).unwrap_or_default();
        format!("{step} failed ({status}{}): {self}", self.fault.reason().word())
    }

    /// Truncates texts and limits delays that the vendor chose.
    pub(crate) fn bounded(mut self) -> Self {
        cut(&mut self.message, MESSAGE_MAX);
        for name in [&mut self.code, &mut self.request_id].into_iter().flatten() {
            cut(name, NAME_MAX);
        }
        self.fields.truncate(FIELDS_MAX);
        self.fields.iter_mut().for_each(|field| cut(field, MESSAGE_MAX));
        self.retry_after = self.retry_after.map(|delay| delay.min(PAUSE_MAX));
        self
    }

    /// The error for an answer that cannot be read.
    #[must_use]
    pub fn nonsense(message: impl Into<String>) -> Self {
        Self::new(Fault::Nonsense, message)
    }
}

/// The start of a request ID, short enough for a log line.
pub(crate) fn shown(name: &str) -> &str {
    name.get(..name.floor_char_boundary(NAME_MAX)).unwrap_or_default()
}

/// Truncates a text at a character boundary and marks the cut.
fn cut(text: &mut String, max: usize) {
    if text.len() > max {
        text.truncate(text.floor_char_boundary(max));
        text.push('…');
    }
}

impl Fault {
    /// The corresponding reason of the contract.
    pub(crate) const fn reason(self) -> Reason {
        match self {
            Self::Budget => Reason::BudgetExhausted,
            Self::NotLeader => Reason::NotLeader,
            Self::QueueFull => Reason::QueueFull,
            Self::Throttled => Reason::VendorThrottled,
            Self::Auth => Reason::VendorAuth,
            Self::Forbidden => Reason::VendorForbidden,
            Self::Quota => Reason::VendorQuota,
            Self::NotFound => Reason::ResourceGone,
            Self::Busy => Reason::OperationConflict,
            Self::Immutable => Reason::ImmutableField,
            Self::Invalid => Reason::FieldInvalid,
            Self::Unsupported => Reason::UnsupportedFeature,
            Self::Unavailable => Reason::VendorUnavailable,
            Self::OutcomeUnknown => Reason::OutcomeUnknown,
            Self::Nonsense => Reason::Internal,
        }
    }
}

impl From<VendorError> for AdapterError {
    fn from(error: VendorError) -> Self {
        let reason = error.fault.reason();
        let fields = error.fields.into_iter().take(FIELDS_TOLD).map(|mut field| {
            cut(&mut field, NAME_MAX);
            field
        });
        let mut mapped = Self::new(reason, error.message);
        if reason == Reason::FieldInvalid {
            let violation = |field| Violation { field, description: mapped.message.clone() };
            mapped.violations = fields.map(violation).collect();
        } else if fields.len() > 0 {
            mapped = mapped.with("fields", fields.collect::<Vec<_>>().join(","));
        }
        if let Some(delay) = error.retry_after {
            mapped = mapped.retry_after(delay);
        }
        if let Some(code) = error.code {
            mapped = mapped.with("vendor_code", code);
        }
        if let Some(id) = error.request_id {
            mapped = mapped.with("vendor_request_id", id);
        }
        mapped
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unsent_call_is_not_reported_as_failed() {
        let error = VendorError::new(Fault::OutcomeUnknown, "CreateLoadBalancer: out of order");
        let answered = VendorError { status: Some(503), ..error.clone() };
        let budget = VendorError::new(Fault::Budget, "waits for the budget of loadbalancer");
        for (error, wanted) in [
            (answered, "create web failed (503, OUTCOME_UNKNOWN): CreateLoadBalancer: out of order"),
            (error, "create web failed (OUTCOME_UNKNOWN): CreateLoadBalancer: out of order"),
            (budget, "create web: waits for the budget of loadbalancer"),
        ] {
            assert_eq!(error.of(&"create web"), wanted);
        }
    }
}
