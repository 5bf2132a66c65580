//! Step 4: defines the errors, decides which are retried and when, and how they are reported.

pub(crate) mod attempts;
pub(crate) mod guard;
pub(crate) mod write_order;

use std::time::Duration;

use cloud_api_proto::v1alpha1::{ItemError, RouteResult, route_result};
use cloud_api_proto::{AdapterError, Reason};
use controller_core::Again;

use self::attempts::Outcome;

/// Retry delay after a start, until the adapter's scope and its routes are known. The delay is short, since nodes wait for their routes.
const UNKNOWN_SCOPE_RETRY: Duration = Duration::from_millis(100);
/// Retry delay while the adapter works in another scope. A retry makes no call.
const OTHER_SCOPE_RETRY: Duration = Duration::from_secs(5);

/// Why a reconcile of all routes ended early. The text does not include the cause, which is the error's source.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The whole call failed: the adapter or the cloud behind it is unavailable, throttles, or refuses access.
    #[error("adapter rejected {call}")]
    Adapter { call: &'static str, source: Box<AdapterError> },
    /// The adapter's scope is unknown or differs from this controller's, so the adapter's routes say nothing about this cluster's nodes.
    #[error("the routes of this cluster are not known")]
    Elsewhere { source: Box<AdapterError> },
    /// A newer process of route-controller is active, so this process must stop.
    #[error("a newer route-controller is active for this cluster")]
    Superseded { source: Box<AdapterError> },
    #[error("cannot write the conditions of {n_nodes} nodes")]
    Conditions { n_nodes: usize, source: Box<controller_core::kube_api::Error> },
    /// The record could not be loaded or stored. Routes are still updated, but after a restart this controller would not know which
    /// untagged routes the cluster owns.
    #[error("the record of routes could not be {done}")]
    Record { done: &'static str, source: Box<controller_core::kube_api::Error> },
}

/// What an error of a whole call means for the reconcile of all routes.
#[derive(Debug, PartialEq)]
pub(crate) enum CallFailure {
    /// The reconcile ends and is retried. No single route caused the error.
    Pass,
    /// This process must stop, as with [`Error::Superseded`].
    Superseded,
    /// Each route of the call has the same outcome.
    Routes(Outcome),
}

impl Error {
    /// Whether the adapter or the cloud behind it blocks all routes, so that all nodes wait.
    pub(crate) fn is_of_the_cloud(&self) -> bool {
        match self {
            Self::Adapter { .. } | Self::Elsewhere { .. } | Self::Superseded { .. } => true,
            Self::Conditions { .. } | Self::Record { .. } => false,
        }
    }

    pub(crate) fn reason(&self) -> Option<Reason> {
        match self {
            Self::Adapter { source, .. } => Some(source.reason).filter(|it| *it != Reason::Unspecified),
            Self::Elsewhere { .. }
            | Self::Superseded { .. }
            | Self::Conditions { .. }
            | Self::Record { .. } => None,
        }
    }

    /// Returns when to reconcile all routes again.
    pub(crate) fn again(&self) -> Again {
        match self {
            Self::Adapter { source, .. } => match Again::after_error(source) {
                Again::After(delay) => Again::After(delay),
                Again::Done | Again::OnChange | Again::Backoff => Again::Backoff,
            },
            Self::Elsewhere { source } if source.reason == Reason::NotLeader => {
                Again::After(UNKNOWN_SCOPE_RETRY)
            }
            Self::Elsewhere { .. } => Again::After(OTHER_SCOPE_RETRY),
            Self::Superseded { .. } => Again::OnChange,
            Self::Conditions { .. } | Self::Record { .. } => Again::Backoff,
        }
    }
}

pub(crate) fn judge_call(error: &AdapterError) -> CallFailure {
    match error.reason {
        Reason::StaleFence => CallFailure::Superseded,
        Reason::NotLeader
        | Reason::Starting
        | Reason::Draining
        | Reason::VendorUnavailable
        | Reason::VendorThrottled
        | Reason::BudgetExhausted
        | Reason::QueueFull
        | Reason::OperationConflict
        | Reason::OutcomeUnknown
        | Reason::CallerForbidden
        | Reason::CallerUnauthenticated
        | Reason::Unspecified => CallFailure::Pass,
        Reason::FieldInvalid
        | Reason::UnsupportedFeature
        | Reason::UnknownParameter
        | Reason::ResourceGone
        | Reason::OwnedByOther
        | Reason::ImmutableField
        | Reason::BackendSetUnknown
        | Reason::VendorQuota
        | Reason::VendorAuth
        | Reason::VendorForbidden
        | Reason::Internal => CallFailure::Routes(failed(error)),
    }
}

/// Classifies the result for one route. `None`: the adapter returned no result for the route.
pub(crate) fn judge_item(result: Option<&RouteResult>) -> Outcome {
    use route_result::Outcome as Answer;
    let Some(result) = result else { return Outcome::Pending { again: None } };
    match result.outcome() {
        Answer::Applied | Answer::Unchanged => Outcome::Done,
        // An outcome that only a newer version of the contract defines is neither success nor failure.
        Answer::Pending | Answer::Unspecified => {
            Outcome::Pending { again: result.retry_after.as_ref().and_then(duration) }
        }
        Answer::Conflict | Answer::Failed => match &result.error {
            Some(error) => failed(&from_item(error)),
            None => Outcome::Failed {
                reason: Reason::Unspecified,
                why: "the adapter gave no reason".to_owned(),
                again: None,
            },
        },
    }
}

fn failed(error: &AdapterError) -> Outcome {
    let (reason, why) = (error.reason, error.to_string());
    match Again::after_error(error) {
        Again::After(delay) => Outcome::Failed { reason, why, again: Some(delay) },
        Again::Backoff => Outcome::Failed { reason, why, again: None },
        Again::OnChange | Again::Done => Outcome::Refused { reason, why },
    }
}

fn from_item(item: &ItemError) -> AdapterError {
    let error = AdapterError::new(item.reason(), &item.message);
    match item.retry_after.as_ref().and_then(duration) {
        Some(delay) => error.retry_after(delay),
        None => error,
    }
}

/// `None`: the duration is negative.
fn duration(duration: &prost_types::Duration) -> Option<Duration> {
    Duration::try_from(*duration).ok()
}

#[cfg(test)]
mod tests;
