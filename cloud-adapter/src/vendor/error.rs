//! Errors of vendor calls, as the runtime classifies them.

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
    /// The HTTP status of the vendor's answer, if there was an answer. Set by the runtime.
    pub status: Option<u16>,
    /// The vendor's error code.
    pub code: Option<String>,
    /// The vendor's ID of the request.
    pub request_id: Option<String>,
    /// Delay before a retry, if the vendor requested one.
    pub retry_after: Option<Duration>,
    /// The invalid fields of the request, such as `spec.listeners[0].port`; for a look-up, the invalid IDs.
    pub fields: Vec<String>,
}

/// The kind of failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The adapter's budget does not allow the call before the deadline.
    Budget,
    /// This replica is no longer the leader, so nothing was sent.
    NotLeader,
    /// The queue of vendor calls is full.
    QueueFull,
    /// The vendor throttled the call.
    Throttled,
    /// The vendor rejects the credentials.
    Auth,
    /// The credentials do not permit the call.
    Forbidden,
    /// The vendor's quota for a resource is exhausted.
    Quota,
    /// The object with this ID does not exist.
    NotFound,
    /// The object is being changed; retry later.
    Busy,
    /// The object cannot be changed in place.
    Immutable,
    /// The vendor refused the request as invalid.
    Invalid,
    /// This cloud does not support the request.
    Unsupported,
    /// The vendor answered with a 5xx status or not at all, and did not execute the request.
    Unavailable,
    /// It is unknown whether the vendor executed the write.
    OutcomeUnknown,
    /// The answer cannot be interpreted, which is a defect of the driver or the vendor.
    Nonsense,
}

/// Longest pause that the vendor may request, both here and in the budget.
const PAUSE_MAX: Duration = Duration::from_mins(15);
/// Maximum length of vendor texts in errors, in bytes, because clients refuse answers with long trailers.
const MESSAGE_MAX: usize = 1_000;
const NAME_MAX: usize = 200;
/// Maximum number of fields in an error. All IDs of one look-up may be invalid.
const FIELDS_MAX: usize = 500;
/// Maximum number of invalid fields that are reported to the caller.
const FIELDS_SHOWN: usize = 4;

impl VendorError {
    /// Creates an error without vendor details.
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

    /// Whether the next call would fail for the same reason.
    #[must_use]
    pub const fn recurs(&self) -> bool {
        match self.fault {
            Fault::Budget
            | Fault::QueueFull
            | Fault::NotLeader
            | Fault::Throttled
            | Fault::Auth
            | Fault::Forbidden
            | Fault::Unavailable
            | Fault::OutcomeUnknown => true,
            Fault::Quota
            | Fault::NotFound
            | Fault::Busy
            | Fault::Immutable
            | Fault::Invalid
            | Fault::Unsupported
            | Fault::Nonsense => false,
        }
    }

    /// Converts this error for a change that was not sent because of this error. The outcome of such a change is known, because nothing was
    /// written.
    #[must_use]
    pub fn unsent(self) -> Self {
        let fault = if self.fault == Fault::OutcomeUnknown { Fault::Unavailable } else { self.fault };
        Self { fault, ..self }
    }

    /// One sentence with the failed step and the cause.
    pub(crate) fn of(&self, step: &impl fmt::Display) -> String {
        if matches!(self.fault, Fault::Budget | Fault::QueueFull | Fault::NotLeader) {
            // With these faults, the call was never sent.
            return format!("{step}: {self}");
        }
        let status = self.status.map(|status| format!("{status}, ")).unwrap_or_default();
        let reason = self.fault.reason().word();
        if !self.fields.is_empty() {
            // The user can mend it, so what to do comes first: Events are short.
            return format!("{self} ({step} failed: {status}{reason})");
        }
        format!("{step} failed ({status}{reason}): {self}")
    }

    /// Limits the texts and the delays that come from the vendor.
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

fn cut(text: &mut String, max: usize) {
    if text.len() > max {
        text.truncate(text.floor_char_boundary(max));
        text.push('…');
    }
}

impl Fault {
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
        let fields = error.fields.into_iter().take(FIELDS_SHOWN).map(|mut field| {
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
        let invalid = VendorError::new(Fault::Invalid, "address 192.0.2.1 is taken: choose another address");
        let invalid = VendorError { fields: vec!["spec.requested_addresses".to_owned()], ..invalid };
        let budget = VendorError::new(Fault::Budget, "waits for the call budget of bucket loadbalancer");
        for (error, wanted) in [
            (answered, "create web failed (503, OUTCOME_UNKNOWN): CreateLoadBalancer: out of order"),
            (error, "create web failed (OUTCOME_UNKNOWN): CreateLoadBalancer: out of order"),
            (
                invalid,
                "address 192.0.2.1 is taken: choose another address (create web failed: FIELD_INVALID)",
            ),
            (budget, "create web: waits for the call budget of bucket loadbalancer"),
        ] {
            assert_eq!(error.of(&"create web"), wanted);
        }
    }
}
