//! Tests the meaning of the adapter's answers.

use super::*;

fn result(outcome: route_result::Outcome, error: Option<ItemError>, retry_after: Option<u64>) -> RouteResult {
    let retry_after =
        retry_after.map(|seconds| prost_types::Duration { seconds: seconds.cast_signed(), nanos: 0 });
    RouteResult { key: None, outcome: outcome.into(), error, retry_after }
}

fn item(reason: Reason, retry_after: Option<u64>) -> ItemError {
    let error = AdapterError::new(reason, "why");
    retry_after.map(Duration::from_secs).map_or(error.clone(), |delay| error.retry_after(delay)).to_item()
}

#[test]
fn each_result_for_a_route_is_classified() {
    use route_result::Outcome as Answer;
    let seconds = Duration::from_secs;
    let failed = |reason, why: &str, again| Outcome::Failed { reason, why: why.to_owned(), again };
    for (name, given, judged) in [
        ("applied", result(Answer::Applied, None, None), Outcome::Done),
        ("unchanged", result(Answer::Unchanged, None, None), Outcome::Done),
        ("pending", result(Answer::Pending, None, Some(4)), Outcome::Pending { again: Some(seconds(4)) }),
        ("an unknown outcome", result(Answer::Unspecified, None, None), Outcome::Pending { again: None }),
        (
            "throttled",
            result(Answer::Failed, Some(item(Reason::VendorThrottled, Some(7))), None),
            failed(Reason::VendorThrottled, "VENDOR_THROTTLED: why", Some(seconds(7))),
        ),
        (
            "a defect",
            result(Answer::Failed, Some(item(Reason::Internal, None)), None),
            failed(Reason::Internal, "INTERNAL: why", None),
        ),
        (
            "another owner",
            result(Answer::Conflict, Some(item(Reason::OwnedByOther, None)), None),
            Outcome::Refused { reason: Reason::OwnedByOther, why: "OWNED_BY_OTHER: why".to_owned() },
        ),
        (
            "no reason",
            result(Answer::Failed, None, None),
            failed(Reason::Unspecified, "the adapter gave no reason", None),
        ),
    ] {
        assert_eq!(judge_item(Some(&given)), judged, "{name}");
    }
    assert_eq!(judge_item(None), Outcome::Pending { again: None });
}

#[test]
fn unavailable_adapter_fails_the_pass_and_no_route() {
    for reason in [
        Reason::NotLeader,
        Reason::Starting,
        Reason::QueueFull,
        Reason::CallerForbidden,
        Reason::CallerUnauthenticated,
        Reason::VendorUnavailable,
        Reason::VendorThrottled,
    ] {
        assert_eq!(judge_call(&AdapterError::new(reason, "")), CallFailure::Pass, "{reason}");
    }
    let hung_up = AdapterError::from(tonic::Status::deadline_exceeded("slow"));
    assert_eq!(judge_call(&hung_up), CallFailure::Pass);
}

#[test]
fn quota_fails_each_route_and_is_retried_late() {
    let CallFailure::Routes(Outcome::Failed { again, .. }) =
        judge_call(&AdapterError::new(Reason::VendorQuota, "50 routes"))
    else {
        panic!("the routes failed");
    };
    assert_eq!(again, Some(Duration::from_mins(5)));
}

#[test]
fn newer_writer_stops_this_one() {
    assert_eq!(judge_call(&AdapterError::new(Reason::StaleFence, "")), CallFailure::Superseded);
}
