//! Translates between the terms of the adapter and of the scheduler. This module is pure.

use cloud_api_proto::v1alpha1::Priority;
use cloud_budget::{Call, Class, Outcome, Refusal, RefusalReason, Time};

use super::{Operation, Purpose};
use crate::{
    auth::Role,
    vendor::{Fault, VendorError},
};

/// Returns the scheduler's class for a priority. An unspecified priority counts as background.
pub(super) fn class(priority: Priority) -> Class {
    match priority {
        Priority::Unspecified | Priority::Background => Class::Background,
        Priority::Lifecycle => Class::Lifecycle,
        Priority::Interactive => Class::Interactive,
        Priority::Traffic => Class::Traffic,
    }
}

pub(super) fn call(
    operation: Operation,
    purpose: &Purpose,
    self_check: bool,
    deadline: Option<Time>,
) -> Call {
    let class = class(purpose.priority);
    Call {
        family: operation.family.word(),
        operation: operation.name,
        class,
        controller: purpose.caller.role.word(),
        reserve: may_use_reserve(purpose),
        namespace: purpose.namespace.clone(),
        object: purpose.object.clone(),
        cost: 1,
        deadline,
        self_check,
    }
}

/// Whether a call may use the reserve of each bucket, which is kept for urgent calls.
pub(super) fn may_use_reserve(purpose: &Purpose) -> bool {
    match class(purpose.priority) {
        Class::Traffic => true,
        Class::Interactive => matches!(purpose.caller.role, Role::ServiceController | Role::Anyone),
        Class::Lifecycle | Class::Background => false,
    }
}

/// Returns what an answer says about the vendor's health. `bucket` is the throttled bucket, if the vendor names it.
pub(super) fn outcome(error: Option<&VendorError>, bucket: Option<&'static str>) -> Outcome {
    let Some(error) = error else { return Outcome::Answered };
    match error.fault {
        Fault::Throttled => Outcome::Throttled { retry_after: error.retry_after, bucket },
        Fault::Auth | Fault::Forbidden => Outcome::Unauthorized,
        Fault::Unavailable | Fault::OutcomeUnknown => Outcome::Failed,
        Fault::Budget
        | Fault::QueueFull
        | Fault::NotLeader
        | Fault::Quota
        | Fault::NotFound
        | Fault::Busy
        | Fault::Immutable
        | Fault::Invalid
        | Fault::Unsupported
        | Fault::Nonsense => Outcome::Answered,
    }
}

/// The error for a refusal. `throttled` is the error of the first try, if the call was already sent.
pub(super) fn refused(refusal: Refusal, throttled: Option<VendorError>) -> VendorError {
    let Refusal { reason, message, retry_after } = refusal;
    let fault = match reason {
        RefusalReason::Budget => Fault::Budget,
        RefusalReason::QueueFull => Fault::QueueFull,
        RefusalReason::BreakerOpen => Fault::Unavailable,
        RefusalReason::Rejected => Fault::Auth,
        RefusalReason::Throttled => Fault::Throttled,
    };
    let mut error = throttled.unwrap_or_else(|| VendorError::new(fault, message));
    error.retry_after = Some(error.retry_after.unwrap_or_default().max(retry_after));
    error
}

/// Returns the error for calls after, or shortly before, this replica loses the leadership.
pub(super) fn halted() -> VendorError {
    VendorError::new(Fault::NotLeader, "this replica is no longer the leader: the call was not sent")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_reserve_is_for_traffic_and_for_services() {
        for (priority, role, wanted) in [
            (Priority::Traffic, Role::RouteController, true),
            (Priority::Interactive, Role::ServiceController, true),
            (Priority::Interactive, Role::Anyone, true),
            (Priority::Interactive, Role::NodeController, false),
            (Priority::Lifecycle, Role::ServiceController, false),
            (Priority::Background, Role::Anyone, false),
        ] {
            let mut purpose = Purpose::own(priority, "test");
            purpose.caller.role = role;
            assert_eq!(may_use_reserve(&purpose), wanted, "{priority:?} {role:?}");
        }
    }

    #[test]
    fn vendor_error_survives_the_second_wait() {
        let seconds = Duration::from_secs;
        let refusal = |retry_after| Refusal {
            reason: RefusalReason::Throttled,
            message: "the pause lasts too long".into(),
            retry_after,
        };
        let throttled =
            VendorError { retry_after: Some(seconds(9)), ..VendorError::new(Fault::Throttled, "slow down") };
        let reported = refused(refusal(seconds(10)), Some(throttled.clone()));
        assert_eq!((reported.message.as_str(), reported.retry_after), ("slow down", Some(seconds(10))));
        assert_eq!(refused(refusal(seconds(2)), Some(throttled)).retry_after, Some(seconds(9)));
        assert_eq!(refused(refusal(seconds(2)), None).fault, Fault::Throttled);
    }
}
