//! Tests the table of errors with recorded responses.

use std::time::Duration;

use bytes::Bytes;
use cloud_adapter::vendor::Family;
use serde_json::json;

use super::*;

const READ: Operation = Operation::read(Family::LoadBalancer, "GetLoadBalancer");
const WRITE: Operation = Operation::write(Family::LoadBalancer, "CreateListener");

fn answer(status: u16, headers: &[(&'static str, &'static str)], body: &str) -> VendorResponse {
    let mut response = http::Response::new(Bytes::copy_from_slice(body.as_bytes()));
    *response.status_mut() = StatusCode::from_u16(status).expect("a status");
    for (name, value) in headers {
        response.headers_mut().insert(*name, value.parse().expect("ASCII"));
    }
    response
}

/// Returns an error response in simcloud's format.
fn refused(status: u16, code: &str) -> VendorResponse {
    let body = json!({ "code": code, "message": "why", "details": {}, "request_id": "req-000007" });
    answer(status, &[("x-request-id", "req-000007"), ("retry-after", "7")], &body.to_string())
}

#[test]
fn each_error_response_maps_to_one_fault() {
    for (status, code, reading, writing) in [
        (400, "invalid_request", Fault::Invalid, Fault::Invalid),
        (400, "invalid_next_hop", Fault::Invalid, Fault::Invalid),
        (400, "too_many_items", Fault::Invalid, Fault::Invalid),
        (401, "unauthorized", Fault::Auth, Fault::Auth),
        (401, "something_new", Fault::Auth, Fault::Auth),
        (403, "quota_exceeded", Fault::Quota, Fault::Quota),
        (403, "something_new", Fault::Forbidden, Fault::Forbidden),
        (404, "not_found", Fault::NotFound, Fault::NotFound),
        (404, "no_such_operation", Fault::Nonsense, Fault::Nonsense),
        (404, "injected", Fault::Nonsense, Fault::Nonsense),
        (409, "immutable", Fault::Busy, Fault::Busy),
        (409, "error_state", Fault::Busy, Fault::Busy),
        (409, "has_children", Fault::Busy, Fault::Busy),
        (409, "in_use", Fault::Busy, Fault::Busy),
        (409, "port_in_use", Fault::Busy, Fault::Busy),
        (409, "address_in_use", Fault::Invalid, Fault::Invalid),
        (409, "route_exists", Fault::Busy, Fault::Busy),
        (409, "token_reused", Fault::Busy, Fault::Busy),
        (409, "something_new", Fault::Busy, Fault::Busy),
        (429, "throttled", Fault::Throttled, Fault::Throttled),
        (503, "injected", Fault::Unavailable, Fault::OutcomeUnknown),
        (302, "something_new", Fault::Nonsense, Fault::Nonsense),
    ] {
        for (operation, wanted) in [(READ, reading), (WRITE, writing)] {
            let error = classify(operation, &refused(status, code)).expect("a refusal");
            assert_eq!(error.fault, wanted, "{operation}: {status} {code}");
            assert_eq!(error.code.as_deref(), Some(code));
            assert_eq!(error.request_id.as_deref(), Some("req-000007"));
            assert_eq!(error.retry_after, Some(Duration::from_secs(7)));
            let (fields, fix) = match code {
                "address_in_use" => {
                    (vec!["spec.requested_addresses".to_owned()], ": choose another address, or remove it")
                }
                _ => (Vec::new(), ""),
            };
            assert_eq!((error.message, error.fields), (format!("{operation}: why{fix}"), fields));
        }
    }
}

#[test]
fn success_has_no_fault() {
    for status in [200, 202, 204] {
        assert_eq!(classify(WRITE, &answer(status, &[], "{}")), None, "{status}");
    }
}

#[test]
fn answer_of_a_proxy_is_never_absence() {
    let page = "<html><body>404 Not Found</body></html>";
    let error = classify(READ, &answer(404, &[], page)).expect("a refusal");
    assert_eq!((error.fault, error.code), (Fault::Nonsense, None));
    assert!(error.message.contains("404 Not Found"), "{}", error.message);
}

#[test]
fn batch_item_is_classified_by_its_code() {
    for (code, wanted) in [
        ("not_found", Fault::NotFound),
        ("route_exists", Fault::Busy),
        ("quota_exceeded", Fault::Quota),
        ("invalid_next_hop", Fault::Invalid),
        ("something_new", Fault::Invalid),
    ] {
        let item = ItemError { code: code.into(), message: "why".into(), details: json!({}) };
        let error = classify_item(WRITE, item);
        assert_eq!((error.fault, error.code.as_deref()), (wanted, Some(code)));
    }
}
