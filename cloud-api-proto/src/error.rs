//! Typed errors of the contract, converted to and from `google.rpc.Status` without loss.
//!
//! This module does not decide what a caller does after an error. The `error` module of each controller does.

use std::{collections::HashMap, fmt, str::FromStr as _, time::Duration};

use tonic::{Code, Status, metadata::MetadataValue};
use tonic_types::{ErrorDetails, StatusExt as _};

pub use crate::v1alpha1::Reason;
use crate::{DOMAIN, v1alpha1::ItemError};

/// The gRPC header that repeats the retry delay in milliseconds, for clients that read only headers. Source: gRPC proposal A6, "client
/// retries".
pub const PUSHBACK_HEADER: &str = "grpc-retry-pushback-ms";

/// Retry delay after an exhausted resource quota, because a quota rarely recovers soon.
const QUOTA_RETRY: Duration = Duration::from_mins(5);
/// Retry delay after rejected credentials, because vendors lock accounts after too many failures.
const AUTH_RETRY: Duration = Duration::from_secs(30);
/// Minimum retry delay, except for reasons for which [`Reason::retry`] permits a retry at once.
const MIN_RETRY: Duration = Duration::from_millis(500);

impl Reason {
    /// The value of `ErrorInfo.reason`, such as `FIELD_INVALID`.
    #[must_use]
    pub fn word(self) -> &'static str {
        self.as_str_name().trim_start_matches("REASON_")
    }

    /// Parses `ErrorInfo.reason`. A reason that only a newer contract defines becomes `Unspecified`.
    #[must_use]
    pub fn from_word(word: &str) -> Self {
        Self::from_str_name(&format!("REASON_{word}")).unwrap_or(Self::Unspecified)
    }

    /// The gRPC code of this reason.
    #[must_use]
    pub fn code(self) -> Code {
        match self {
            Self::FieldInvalid | Self::UnsupportedFeature | Self::UnknownParameter => Code::InvalidArgument,
            Self::ResourceGone => Code::NotFound,
            Self::OwnedByOther => Code::AlreadyExists,
            Self::OperationConflict => Code::Aborted,
            Self::StaleFence
            | Self::ImmutableField
            | Self::BackendSetUnknown
            | Self::VendorQuota
            | Self::VendorAuth
            | Self::VendorForbidden => Code::FailedPrecondition,
            Self::BudgetExhausted | Self::QueueFull | Self::VendorThrottled => Code::ResourceExhausted,
            Self::VendorUnavailable | Self::NotLeader | Self::Starting | Self::Draining => Code::Unavailable,
            Self::Unspecified | Self::OutcomeUnknown => Code::Unknown,
            Self::CallerForbidden => Code::PermissionDenied,
            Self::CallerUnauthenticated => Code::Unauthenticated,
            Self::Internal => Code::Internal,
        }
    }

    /// Returns the retry delay that the contract permits if `asked` is the requested delay. Reasons that are never retried have no delay,
    /// and most others have a minimum.
    #[must_use]
    pub fn retry(self, asked: Option<Duration>) -> Option<Duration> {
        match self {
            Self::FieldInvalid
            | Self::UnsupportedFeature
            | Self::UnknownParameter
            | Self::ResourceGone
            | Self::OwnedByOther
            | Self::StaleFence
            | Self::ImmutableField
            | Self::CallerForbidden
            | Self::CallerUnauthenticated => None,
            Self::BackendSetUnknown => Some(Duration::ZERO),
            Self::VendorQuota => Some(asked.unwrap_or(QUOTA_RETRY).max(QUOTA_RETRY)),
            Self::VendorAuth | Self::VendorForbidden => Some(asked.unwrap_or(AUTH_RETRY).max(AUTH_RETRY)),
            Self::OperationConflict
            | Self::BudgetExhausted
            | Self::QueueFull
            | Self::VendorThrottled
            | Self::VendorUnavailable
            | Self::NotLeader
            | Self::Starting
            | Self::Draining
            | Self::OutcomeUnknown => Some(asked.unwrap_or(MIN_RETRY).max(MIN_RETRY)),
            Self::Unspecified | Self::Internal => asked,
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// An invalid field of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Path in the request, such as `spec.listeners[0].port`.
    pub field: String,
    /// What is wrong, and what is expected.
    pub description: String,
}

/// A typed error, which a server sends and a client reads.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{reason}: {message}")]
pub struct AdapterError {
    /// The reason, which decides what the caller does.
    pub reason: Reason,
    /// The gRPC code. It is `reason.code()` unless the server has a newer contract or is not an adapter.
    pub code: Code,
    /// The message for users, which names the field and the fix.
    pub message: String,
    /// Delay before the next attempt, in whole milliseconds. `None`: a retry is useless until something changes.
    pub retry_after: Option<Duration>,
    /// Details by key: `vendor_code`, `vendor_request_id`, `nearest`, `fields`.
    pub metadata: HashMap<String, String>,
    /// The invalid fields of the request, if any.
    pub violations: Vec<Violation>,
}

impl AdapterError {
    /// Creates an error with the code and the retry delay of its reason.
    #[must_use]
    pub fn new(reason: Reason, message: impl Into<String>) -> Self {
        Self {
            reason,
            code: reason.code(),
            message: message.into(),
            retry_after: reason.retry(None),
            metadata: HashMap::new(),
            violations: Vec::new(),
        }
    }

    /// Creates a `FIELD_INVALID` error for one field.
    #[must_use]
    pub fn field(field: impl Into<String>, description: impl Into<String>) -> Self {
        Self::fields(vec![Violation { field: field.into(), description: description.into() }])
    }

    /// Creates a `FIELD_INVALID` error for several fields.
    #[must_use]
    pub fn fields(violations: Vec<Violation>) -> Self {
        let text: Vec<String> =
            violations.iter().map(|v| format!("{}: {}", v.field, v.description)).collect();
        Self { violations, ..Self::new(Reason::FieldInvalid, text.join("; ")) }
    }

    /// Asks the caller to retry after `delay`, within the limits of the reason.
    #[must_use]
    pub fn retry_after(mut self, delay: Duration) -> Self {
        self.retry_after = self.reason.retry(Some(delay));
        self
    }

    /// Adds a detail.
    #[must_use]
    pub fn with(mut self, key: &str, value: impl Into<String>) -> Self {
        self.metadata.insert(key.to_owned(), value.into());
        self
    }

    /// Returns the error in the form that an item of a batch contains.
    #[must_use]
    pub fn to_item(&self) -> ItemError {
        ItemError {
            reason: self.reason.into(),
            message: self.message.clone(),
            metadata: self.metadata.clone().into_iter().collect(),
            retry_after: self.retry_after.and_then(|delay| prost_types::Duration::try_from(delay).ok()),
        }
    }
}

impl From<AdapterError> for Status {
    fn from(error: AdapterError) -> Self {
        let mut details = ErrorDetails::new();
        details.set_error_info(error.reason.word(), DOMAIN, error.metadata);
        for violation in &error.violations {
            details.add_bad_request_violation(&violation.field, &violation.description);
        }
        if error.reason == Reason::VendorQuota {
            details.add_quota_failure_violation("vendor", &error.message);
        }
        if let Some(delay) = error.retry_after {
            details.set_retry_info(Some(delay));
        }
        let mut status = Self::with_error_details(error.code, error.message, details);
        if let Some(delay) = error.retry_after
            && let Ok(value) = MetadataValue::from_str(&delay.as_millis().to_string())
        {
            status.metadata_mut().insert(PUSHBACK_HEADER, value);
        }
        status
    }
}

impl From<&Status> for AdapterError {
    fn from(status: &Status) -> Self {
        let details = status.get_error_details();
        let (reason, metadata) = match details.error_info() {
            Some(info) if info.domain == DOMAIN => (Reason::from_word(&info.reason), info.metadata.clone()),
            // The client turns a broken connection into UNAVAILABLE without details. To callers this is the same as an adapter that is not
            // reachable.
            Some(_) | None if status.code() == Code::Unavailable => {
                (Reason::VendorUnavailable, HashMap::new())
            }
            Some(_) | None => (Reason::Unspecified, HashMap::new()),
        };
        let violations = details.bad_request().map_or_else(Vec::new, |bad| {
            let violation = |v: &tonic_types::FieldViolation| Violation {
                field: v.field.clone(),
                description: v.description.clone(),
            };
            bad.field_violations.iter().map(violation).collect()
        });
        Self {
            reason,
            code: status.code(),
            message: status.message().to_owned(),
            retry_after: details.retry_info().and_then(|info| info.retry_delay),
            metadata,
            violations,
        }
    }
}

impl From<Status> for AdapterError {
    fn from(status: Status) -> Self {
        Self::from(&status)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All reasons of the contract, from the generated enum.
    fn reasons() -> impl Iterator<Item = Reason> {
        (0..).map_while(|number| Reason::try_from(number).ok())
    }

    // Behaviour: W17
    #[test]
    fn every_reason_survives_the_wire() {
        assert_eq!(reasons().count(), 24);
        for reason in reasons() {
            let sent = AdapterError::new(reason, "why")
                .with("vendor_code", "X1")
                .with("vendor_request_id", "req-7")
                .retry_after(Duration::from_millis(1500));
            let received = AdapterError::from(Status::from(sent.clone()));
            assert_eq!(received, sent, "{reason}");
        }
    }

    #[test]
    fn a_reason_of_a_newer_contract_is_unspecified() {
        assert_eq!(Reason::from_word("SOMETHING_NEW"), Reason::Unspecified);
    }

    #[test]
    fn a_bad_field_is_named_on_both_sides() {
        let sent = AdapterError::field("spec.listeners[0].port", "invalid port 0: use 1 to 65535");
        let received = AdapterError::from(Status::from(sent.clone()));
        assert_eq!(received.violations, sent.violations);
        assert_eq!(received.code, Code::InvalidArgument);
        assert_eq!(received.retry_after, None);
    }

    #[test]
    fn resource_exhausted_always_has_a_retry_delay() {
        for reason in reasons().filter(|reason| reason.code() == Code::ResourceExhausted) {
            let delay = AdapterError::new(reason, "").retry_after(Duration::from_millis(1)).retry_after;
            assert!(delay >= Some(MIN_RETRY), "{reason}: {delay:?}");
        }
    }

    #[test]
    fn the_pushback_header_repeats_the_retry_delay() {
        let status = Status::from(
            AdapterError::new(Reason::VendorThrottled, "slow down").retry_after(Duration::from_secs(7)),
        );
        assert_eq!(status.metadata().get(PUSHBACK_HEADER).and_then(|v| v.to_str().ok()), Some("7000"));
    }

    #[test]
    fn a_broken_transport_counts_as_unreachable_adapter() {
        assert_eq!(AdapterError::from(Status::unavailable("connect")).reason, Reason::VendorUnavailable);
    }
}
