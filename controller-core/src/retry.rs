//! Decides when a key is reconciled again, for example after an error of the adapter.
//!
//! This module does not wait; [`crate::queue::Queue`] waits.

use std::{fmt, time::Duration};

use cloud_api_proto::{AdapterError, Reason};
use tonic::Code;

/// The time at which a key is reconciled again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Again {
    /// The key is not reconciled again, because the object is in sync. The count of failures is reset.
    Done,
    /// The key is reconciled when something changes, because only a change of the object or of the cloud can help. The count of failures is
    /// reset.
    OnChange,
    /// The key is reconciled after exactly this delay. The count of failures stays the same.
    After(Duration),
    /// The key is reconciled after the queue's exponential backoff for this key.
    Backoff,
}

impl Again {
    /// Returns when to retry after an adapter error: after the delay in the error, with the queue's backoff, or when something changes.
    ///
    /// The error's reason decides first, then the adapter's `RetryInfo`, and for an error without a reason the gRPC code. Configuration
    /// errors are retried with backoff, because no watch reports that the operator has fixed the configuration.
    #[must_use]
    pub fn after_error(error: &AdapterError) -> Self {
        match error.reason {
            Reason::FieldInvalid
            | Reason::UnsupportedFeature
            | Reason::UnknownParameter
            | Reason::ResourceGone
            | Reason::OwnedByOther
            | Reason::StaleFence
            | Reason::ImmutableField => Self::OnChange,
            // If the adapter does not know a backend set, the caller uploads the set and repeats the call. If the set is still unknown
            // after that, an immediate retry does not help.
            Reason::CallerForbidden
            | Reason::CallerUnauthenticated
            | Reason::Internal
            | Reason::BackendSetUnknown => Self::Backoff,
            Reason::OperationConflict
            | Reason::VendorQuota
            | Reason::VendorAuth
            | Reason::VendorForbidden
            | Reason::BudgetExhausted
            | Reason::QueueFull
            | Reason::VendorThrottled
            | Reason::VendorUnavailable
            | Reason::NotLeader
            | Reason::Starting
            | Reason::Draining
            | Reason::OutcomeUnknown => error.retry_after.map_or(Self::Backoff, Self::After),
            // An immediate retry would send the same message, which is too large.
            Reason::Unspecified if is_message_limit(error) => Self::OnChange,
            Reason::Unspecified => Self::after_code(error),
        }
    }

    /// Decides by the gRPC code. This helps with peers that are newer than this controller or that are not adapters.
    fn after_code(error: &AdapterError) -> Self {
        match error.code {
            Code::InvalidArgument | Code::AlreadyExists | Code::OutOfRange | Code::NotFound => Self::OnChange,
            Code::Ok
            | Code::Cancelled
            | Code::Unknown
            | Code::DeadlineExceeded
            | Code::PermissionDenied
            | Code::ResourceExhausted
            | Code::FailedPrecondition
            | Code::Aborted
            | Code::Unimplemented
            | Code::Internal
            | Code::Unavailable
            | Code::DataLoss
            | Code::Unauthenticated => error.retry_after.map_or(Self::Backoff, Self::After),
        }
    }

    /// Returns the retry for a key that failed in two ways. A delay is preferred to backoff, and the shorter of two delays applies.
    #[must_use]
    pub fn sooner(self, other: Self) -> Self {
        match (self, other) {
            (Self::After(a), Self::After(b)) => Self::After(a.min(b)),
            (Self::After(delay), _) | (_, Self::After(delay)) => Self::After(delay),
            (Self::Backoff, _) | (_, Self::Backoff) => Self::Backoff,
            (Self::OnChange, _) | (_, Self::OnChange) => Self::OnChange,
            (Self::Done, Self::Done) => Self::Done,
        }
    }
}

/// Whether a message was larger than gRPC allows, which is a bug in the sender. Throttling has the same gRPC code, but also a reason from
/// the contract, or at least (from a newer adapter) a delay. Source: contract, section 4.
#[must_use]
pub fn is_message_limit(error: &AdapterError) -> bool {
    error.reason == Reason::Unspecified
        && error.code == Code::ResourceExhausted
        && error.retry_after.is_none()
}

/// Writes the words that complete a sentence after `retried`.
impl fmt::Display for Again {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Done => f.write_str("never"),
            Self::OnChange => f.write_str("when something changes"),
            Self::After(delay) => write!(f, "in {delay:?}"),
            Self::Backoff => f.write_str("with backoff"),
        }
    }
}

#[cfg(test)]
mod tests {
    use tonic::Status;

    use super::*;

    #[test]
    fn a_delay_that_the_adapter_names_is_kept() {
        let error = AdapterError::new(Reason::VendorThrottled, "").retry_after(Duration::from_secs(7));
        assert_eq!(Again::after_error(&error), Again::After(Duration::from_secs(7)));
    }

    #[test]
    fn a_bad_field_waits_for_a_change() {
        assert_eq!(Again::after_error(&AdapterError::field("spec", "wrong")), Again::OnChange);
    }

    #[test]
    fn a_message_that_is_too_large_is_not_sent_again() {
        let error = AdapterError::from(Status::resource_exhausted("larger than the limit"));
        assert_eq!(Again::after_error(&error), Again::OnChange);
        let throttled = AdapterError::new(Reason::VendorThrottled, "slow down");
        assert_ne!(Again::after_error(&throttled), Again::OnChange);
    }

    #[test]
    fn an_unreachable_adapter_is_retried_with_backoff() {
        let error = AdapterError::from(Status::unavailable("connect"));
        assert_eq!(Again::after_error(&error), Again::Backoff);
        let error = AdapterError::from(Status::deadline_exceeded("slow"));
        assert_eq!(Again::after_error(&error), Again::Backoff);
    }

    #[test]
    fn a_forbidden_call_is_retried_with_backoff() {
        let error = AdapterError::new(Reason::CallerForbidden, "no");
        assert_eq!(Again::after_error(&error), Again::Backoff);
    }

    #[test]
    fn the_earlier_retry_wins() {
        let second = Again::After(Duration::from_secs(1));
        assert_eq!(Again::Done.sooner(Again::Backoff), Again::Backoff);
        assert_eq!(Again::OnChange.sooner(Again::Done), Again::OnChange);
        assert_eq!(second.sooner(Again::After(Duration::from_secs(2))), second);
        assert_eq!(Again::Backoff.sooner(second), second);
    }
}
