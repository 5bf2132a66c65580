//! What can go wrong at the vendor, in the runtime's words.

use std::{fmt, time::Duration};

use cloud_api_proto::{AdapterError, Reason, error::Violation};

/// A vendor call that did not succeed.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{message}")]
pub struct VendorError {
    /// What kind of failure.
    pub fault: Fault,
    /// For people.
    pub message: String,
    /// The status of the vendor's answer, if there was one. The runtime fills it in.
    pub status: Option<u16>,
    /// The vendor's own code.
    pub code: Option<String>,
    /// The vendor's own name for the request.
    pub request_id: Option<String>,
    /// When to try again, if the vendor said so.
    pub retry_after: Option<Duration>,
    /// The fields of the request at fault, such as `spec.listeners[0].port`, if it is; of a look-up, the IDs.
    pub fields: Vec<String>,
}

/// What kind of failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Our own budget would not be there in time.
    Budget,
    /// This replica does not lead any more: nothing was sent.
    NotLeader,
    /// Too many calls wait for the vendor already.
    QueueFull,
    /// The vendor wants fewer calls.
    Throttled,
    /// The credentials are rejected.
    Auth,
    /// The credentials are good for other things only.
    Forbidden,
    /// The vendor's quota of resources is reached.
    Quota,
    /// There is none of that ID.
    NotFound,
    /// The object is being changed: look again later.
    Busy,
    /// It cannot change in place.
    Immutable,
    /// The vendor refuses the request as it is.
    Invalid,
    /// This cloud cannot do it.
    Unsupported,
    /// The vendor answers 5xx or not at all, and nothing was done.
    Unavailable,
    /// Nobody knows whether the write was done.
    OutcomeUnknown,
    /// The answer makes no sense: a defect of the driver, or of the vendor.
    Nonsense,
}

/// A vendor that asks for a longer pause is asked again after this: the budget goes by no longer one, either.
const PAUSE_MAX: Duration = Duration::from_mins(15);
/// Bytes of a vendor's words that are told on: clients refuse answers whose trailers are long.
const MESSAGE_MAX: usize = 1_000;
const NAME_MAX: usize = 200;
/// Fields that an error may name: the IDs of one look-up, of which all may be at fault.
const FIELDS_MAX: usize = 500;
/// Of these, as many as a caller is told.
const FIELDS_TOLD: usize = 4;

impl VendorError {
    /// A failure without the vendor's own words.
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

    /// Names a field of the request that is at fault.
    #[must_use]
    pub fn in_field(mut self, field: impl Into<String>) -> Self {
        self.fields.push(field.into());
        self
    }

    /// That this step failed, and why, in one sentence for all who ask.
    pub(crate) fn of(&self, step: &impl fmt::Display) -> String {
        if matches!(self.fault, Fault::Budget | Fault::QueueFull | Fault::NotLeader) {
            // It was not even begun.
            return format!("{step}: {self}");
        }
        let status = self.status.map(|status| format!("{status}, ")).unwrap_or_default();
        format!("{step} failed ({status}{}): {self}", self.fault.reason().word())
    }

    /// The same with what the vendor chose cut to what callers can take: words, and the delay.
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

    /// An answer that cannot be read.
    #[must_use]
    pub fn nonsense(message: impl Into<String>) -> Self {
        Self::new(Fault::Nonsense, message)
    }
}

/// As much of the name of a request, whoever chose it, as a log line should hold.
pub(crate) fn shown(name: &str) -> &str {
    name.get(..name.floor_char_boundary(NAME_MAX)).unwrap_or_default()
}

/// Cuts a text between two characters, and shows that it was cut.
fn cut(text: &mut String, max: usize) {
    if text.len() > max {
        text.truncate(text.floor_char_boundary(max));
        text.push('…');
    }
}

impl Fault {
    /// The contract's word for it.
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
    fn what_failed_is_said_first_and_what_was_not_begun_did_not_fail() {
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
