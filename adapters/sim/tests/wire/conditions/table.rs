//! The contract's table of conditions. Each row is a test, which provokes the condition and checks its error.

use std::{collections::BTreeSet, time::Duration};

use cloud_api_proto::Reason;
use tonic::Code;

use crate::{
    conditions::callers,
    conditions::limits,
    conditions::replica,
    conditions::reported::{Reported, Retry},
    conditions::requests,
    conditions::vendor,
};

/// Reasons that no request to one adapter can provoke, each with an explanation.
const NOT_HERE: [(Reason, &str); 1] =
    [(Reason::Unspecified, "clients use it for a reason that they do not know")];

const NOT_RETRIED: Retry = Retry::Never;
const AT_ONCE: Retry = Retry::AtOnce;
const AFTER_A_WHILE: Retry = Retry::After(Duration::from_millis(500));
const WHEN_CREDENTIALS_MAY_HAVE_CHANGED: Retry = Retry::After(Duration::from_secs(30));
const WHEN_QUOTA_MAY_HAVE_CHANGED: Retry = Retry::After(Duration::from_mins(5));

macro_rules! conditions {
    ($($name:ident: $reason:ident, $code:ident, $retry:expr, $provoke:path;)*) => {
        $(
            #[tokio::test]
            async fn $name() {
                let reported = Reported::read(&$provoke().await);
                reported.is(Reason::$reason, Code::$code, $retry);
            }
        )*

        const PROVOKED: &[Reason] = &[$(Reason::$reason),*];
    };
}

conditions! {
    invalid_field: FieldInvalid, InvalidArgument, NOT_RETRIED, requests::wrong_field;
    a_missing_field: FieldInvalid, InvalidArgument, NOT_RETRIED, requests::missing_field;
    too_many_items: FieldInvalid, InvalidArgument, NOT_RETRIED, requests::too_many_items;
    unsupported_by_the_cloud: UnsupportedFeature, InvalidArgument, NOT_RETRIED, requests::unsupported_feature;
    an_unknown_parameter: UnknownParameter, InvalidArgument, NOT_RETRIED, requests::unknown_parameter;
    nonexistent_vendor_id: ResourceGone, NotFound, NOT_RETRIED, requests::id_that_does_not_exist;
    owned_by_another: OwnedByOther, AlreadyExists, NOT_RETRIED, requests::owned_by_another;
    another_operation_in_progress: OperationConflict, Aborted, AFTER_A_WHILE, requests::another_operation_in_progress;
    a_newer_state_took_over: OperationConflict, Aborted, AFTER_A_WHILE, requests::newer_state_took_over;
    a_writer_that_was_replaced: StaleFence, FailedPrecondition, NOT_RETRIED, requests::replaced_writer;
    a_route_writer_that_was_replaced: StaleFence, FailedPrecondition, NOT_RETRIED, requests::replaced_route_writer;
    a_field_that_cannot_change: ImmutableField, FailedPrecondition, NOT_RETRIED, requests::immutable_field;
    an_unknown_backend_set: BackendSetUnknown, FailedPrecondition, AT_ONCE, requests::unknown_backend_set;
    a_delta_of_an_unknown_set: BackendSetUnknown, FailedPrecondition, AT_ONCE, requests::delta_of_an_unknown_set;
    exhausted_vendor_quota: VendorQuota, FailedPrecondition, WHEN_QUOTA_MAY_HAVE_CHANGED, vendor::quota;
    rejected_credentials: VendorAuth, FailedPrecondition, WHEN_CREDENTIALS_MAY_HAVE_CHANGED, vendor::unauthorized;
    rejected_credentials_from_the_start:
        VendorAuth, FailedPrecondition, WHEN_CREDENTIALS_MAY_HAVE_CHANGED, vendor::unauthorized_from_the_start;
    credentials_without_permission:
        VendorForbidden, FailedPrecondition, WHEN_CREDENTIALS_MAY_HAVE_CHANGED, vendor::forbidden;
    a_wait_beyond_the_deadline: BudgetExhausted, ResourceExhausted, AFTER_A_WHILE, limits::wait_beyond_the_deadline;
    a_full_queue: QueueFull, ResourceExhausted, AFTER_A_WHILE, limits::full_queue;
    a_vendor_that_throttles: VendorThrottled, ResourceExhausted, Retry::After(limits::PAUSE), limits::throttled_read;
    a_vendor_that_throttles_twice:
        VendorThrottled, ResourceExhausted, Retry::After(limits::SHORT_PAUSE), limits::throttled_write;
    a_vendor_that_fails: VendorUnavailable, Unavailable, AFTER_A_WHILE, vendor::server_error;
    unreachable_vendor: VendorUnavailable, Unavailable, AFTER_A_WHILE, vendor::connection_refused;
    vendor_with_open_breaker: VendorUnavailable, Unavailable, AFTER_A_WHILE, vendor::breaker_open;
    vendor_with_invalid_answers: Internal, Internal, NOT_RETRIED, vendor::nonsense;
    a_write_without_an_answer: OutcomeUnknown, Unknown, AFTER_A_WHILE, vendor::lost_answers;
    a_replica_that_stands_by: NotLeader, Unavailable, AFTER_A_WHILE, replica::standby;
    an_adapter_that_starts: Starting, Unavailable, AFTER_A_WHILE, replica::starting;
    an_adapter_that_stops: Draining, Unavailable, AFTER_A_WHILE, replica::draining;
    a_caller_with_another_role: CallerForbidden, PermissionDenied, NOT_RETRIED, callers::another_role;
    a_caller_of_another_cluster: CallerForbidden, PermissionDenied, NOT_RETRIED, callers::another_cluster;
    caller_with_a_foreign_fence: CallerForbidden, PermissionDenied, NOT_RETRIED, callers::foreign_fence;
    operator_that_writes: CallerForbidden, PermissionDenied, NOT_RETRIED, callers::operator_who_writes;
    a_caller_without_a_token: CallerUnauthenticated, Unauthenticated, NOT_RETRIED, callers::without_a_token;
    a_caller_with_an_old_token: CallerUnauthenticated, Unauthenticated, NOT_RETRIED, callers::old_token;
}

#[test]
fn every_reason_of_the_contract_has_a_row() {
    let all: BTreeSet<Reason> = (0..).map_while(|number| Reason::try_from(number).ok()).collect();
    assert_eq!(all.len(), 24, "a new reason needs a row above");
    let elsewhere = NOT_HERE.iter().map(|(reason, _why)| *reason);
    let reported: BTreeSet<Reason> = PROVOKED.iter().copied().chain(elsewhere).collect();
    let missing: Vec<_> = all.difference(&reported).collect();
    assert!(missing.is_empty(), "no row provokes {missing:?}");
    assert!(
        NOT_HERE.iter().all(|(reason, _why)| !PROVOKED.contains(reason)),
        "the reason has a row \
    now: remove it from NOT_HERE"
    );
}
