//! Room 4: what failed, which of it is tried again, when, and under which name people hear of it.

pub(crate) mod attempts;
pub(crate) mod guard;
pub(crate) mod turns;

use std::time::Duration;

use cloud_api_proto::v1alpha1::{ItemError, RouteResult, route_result};
use cloud_api_proto::{AdapterError, Reason};
use controller_core::Again;

use self::attempts::Outcome;

/// How soon a process that has started knows where the adapter works, and has listed what that has. Nodes wait for their routes meanwhile.
const UNPLACED: Duration = Duration::from_millis(100);
/// How soon it is seen that the adapter is back where this controller works. Costs no call.
const ELSEWHERE: Duration = Duration::from_secs(5);

/// Why a pass ended early. The cause is the source and is not repeated in the text.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// Nothing is known about single routes: the adapter or what is behind it is away, throttles, or lets nobody in.
    #[error("adapter did not take {call}")]
    Adapter { call: &'static str, source: Box<AdapterError> },
    /// The adapter works in another part of the cloud, or it is not known yet in which: what it shows says nothing of our nodes.
    #[error("the routes of this cluster are not known")]
    Elsewhere { source: Box<AdapterError> },
    /// A newer route-controller is at work. This one must not go on.
    #[error("a newer route-controller lays routes for this cluster")]
    Superseded { source: Box<AdapterError> },
    #[error("conditions of {n_nodes} nodes were not written")]
    Conditions { n_nodes: usize, source: Box<controller_core::kube_api::Error> },
    /// Routes go on as they are; what is lost if the process ends now is which of them are ours.
    #[error("the record of routes was not {done}")]
    Record { done: &'static str, source: Box<controller_core::kube_api::Error> },
}

/// What the error of a whole call says.
#[derive(Debug, PartialEq)]
pub(crate) enum CallFailure {
    /// The pass ends here and comes again; nobody's route is to blame.
    Pass,
    /// As [`Error::Superseded`].
    Superseded,
    /// The same for each route of the call.
    Routes(Outcome),
}

impl Error {
    /// Whether the cloud could not be served, so that nodes wait for it.
    pub(crate) fn is_of_the_cloud(&self) -> bool {
        match self {
            Self::Adapter { .. } | Self::Elsewhere { .. } | Self::Superseded { .. } => true,
            Self::Conditions { .. } | Self::Record { .. } => false,
        }
    }

    /// The adapter's typed reason, if it was one.
    pub(crate) fn reason(&self) -> Option<Reason> {
        match self {
            Self::Adapter { source, .. } => Some(source.reason).filter(|it| *it != Reason::Unspecified),
            Self::Elsewhere { .. }
            | Self::Superseded { .. }
            | Self::Conditions { .. }
            | Self::Record { .. } => None,
        }
    }

    /// When the next pass is.
    pub(crate) fn again(&self) -> Again {
        match self {
            Self::Adapter { source, .. } => match Again::after_error(source) {
                Again::After(delay) => Again::After(delay),
                Again::Done | Again::OnChange | Again::Backoff => Again::Backoff,
            },
            Self::Elsewhere { source } if source.reason == Reason::NotLeader => Again::After(UNPLACED),
            Self::Elsewhere { .. } => Again::After(ELSEWHERE),
            Self::Superseded { .. } => Again::OnChange,
            Self::Conditions { .. } | Self::Record { .. } => Again::Backoff,
        }
    }
}

/// Judges the error of a whole call.
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

/// Judges the answer for one route. `None`: the adapter left it out.
pub(crate) fn judge_item(result: Option<&RouteResult>) -> Outcome {
    use route_result::Outcome as Answer;
    let Some(result) = result else { return Outcome::Pending { again: None } };
    match result.outcome() {
        Answer::Applied | Answer::Unchanged => Outcome::Done,
        // A word of a newer contract is neither success nor failure.
        Answer::Pending | Answer::Unspecified => {
            Outcome::Pending { again: result.retry_after.as_ref().and_then(duration) }
        }
        Answer::Conflict | Answer::Failed => match &result.error {
            Some(error) => failed(&from_item(error)),
            None => Outcome::Failed {
                reason: Reason::Unspecified,
                why: "the adapter gives no reason".to_owned(),
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

/// Negative durations say nothing.
fn duration(duration: &prost_types::Duration) -> Option<Duration> {
    Duration::try_from(*duration).ok()
}

#[cfg(test)]
mod tests;
