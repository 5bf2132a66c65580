//! When a key is looked at again, and what an adapter's error says about that.
//!
//! Does not wait itself: [`crate::queue::Queue`] does.

use std::{fmt, time::Duration};

use cloud_api_proto::{AdapterError, Reason};
use tonic::Code;

use crate::adapter::is_message_limit;

/// When a key is looked at again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Again {
    /// It is as it should be: forget earlier failures.
    Done,
    /// Only a change of the object or of the cloud can help: forget earlier failures, and wait for it.
    OnChange,
    /// After exactly this time. Earlier failures are neither forgotten nor is one added.
    After(Duration),
    /// After the queue's own exponential backoff for this key.
    Backoff,
}

impl Again {
    /// What an error of the adapter asks for: as told, by our own backoff, or when something changes.
    ///
    /// The reason decides first, then the adapter's `RetryInfo`, then (without a reason) the gRPC code. Configuration errors
    /// are tried again with backoff: nothing that is watched tells when a person has repaired them.
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
            // The caller puts an unknown set and repeats the call by itself: what is still unknown then is no case for «at once».
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
            // The same message would be too large again.
            Reason::Unspecified if is_message_limit(error) => Self::OnChange,
            Reason::Unspecified => Self::after_code(error),
        }
    }

    /// For peers that are newer than we are, or no adapters at all.
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

    /// The earlier of two: what a key that failed in two ways asks for.
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

/// As people say it, after «tried again».
impl fmt::Display for Again {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Done => f.write_str("never"),
            Self::OnChange => f.write_str("when something changes"),
            Self::After(delay) => write!(f, "in {delay:?}"),
            Self::Backoff => f.write_str("ever more slowly"),
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
    fn an_adapter_that_is_away_is_tried_with_backoff() {
        let error = AdapterError::from(Status::unavailable("connect"));
        assert_eq!(Again::after_error(&error), Again::Backoff);
        let error = AdapterError::from(Status::deadline_exceeded("slow"));
        assert_eq!(Again::after_error(&error), Again::Backoff);
    }

    #[test]
    fn what_the_caller_may_not_is_tried_again_slowly() {
        let error = AdapterError::new(Reason::CallerForbidden, "no");
        assert_eq!(Again::after_error(&error), Again::Backoff);
    }

    #[test]
    fn the_sooner_of_two_wins() {
        let second = Again::After(Duration::from_secs(1));
        assert_eq!(Again::Done.sooner(Again::Backoff), Again::Backoff);
        assert_eq!(Again::OnChange.sooner(Again::Done), Again::OnChange);
        assert_eq!(second.sooner(Again::After(Duration::from_secs(2))), second);
        assert_eq!(Again::Backoff.sooner(second), second);
    }
}
