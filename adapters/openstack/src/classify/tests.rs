//! These tests use recorded answers of the services, and check the fault of each answer.

use cloud_adapter::vendor::Family;
use serde_json::{Value, json};

use super::*;

const READ: Operation = Operation::read(Family::Compute, "Read");
const WRITE: Operation = Operation::write(Family::LoadBalancer, "Write");
const WRITE_NETWORK: Operation = Operation::write(Family::Network, "Write");

fn answer(status: u16, body: &Value) -> VendorResponse {
    let answer = http::Response::builder().status(status).header("x-openstack-request-id", "req-1");
    answer.body(body.to_string().into()).expect("an answer")
}

fn meaning(operation: Operation, status: u16, body: &Value) -> (Fault, Option<String>) {
    let error = classify(operation, &answer(status, body)).expect("no success");
    assert_eq!(error.request_id.as_deref(), Some("req-1"));
    (error.fault, error.code)
}

fn neutron(kind: &str, message: &str) -> Value {
    json!({ "NeutronError": { "type": kind, "message": message, "detail": "" } })
}

fn octavia(message: &str) -> Value {
    json!({ "faultcode": "Client", "faultstring": message, "debuginfo": null })
}

fn keystone(code: u16, title: &str, message: &str) -> Value {
    json!({ "error": { "code": code, "title": title, "message": message } })
}

#[test]
fn errors_of_nova_and_keystone_are_classified() {
    let nova = |name: &str, code: u16, message: &str| json!({ name: { "code": code, "message": message } });
    for (status, body, wanted, code) in [
        (
            404,
            nova("itemNotFound", 404, "Instance 7e0c could not be found."),
            Fault::NotFound,
            "itemNotFound",
        ),
        (404, nova("itemNotFound", 404, "The resource could not be found."), Fault::Nonsense, "itemNotFound"),
        (
            403,
            nova("forbidden", 403, "Policy doesn't allow os_compute_api:servers:index"),
            Fault::Forbidden,
            "forbidden",
        ),
        (403, nova("forbidden", 403, "Quota exceeded for instances: Requested 1"), Fault::Quota, "forbidden"),
        (400, nova("badRequest", 400, "marker [x] not found"), Fault::Invalid, "badRequest"),
        (
            406,
            nova("computeFault", 406, "Version 2.47 is not supported by the API."),
            Fault::Unsupported,
            "computeFault",
        ),
        (500, nova("computeFault", 500, "Unexpected API Error."), Fault::Unavailable, "computeFault"),
        (
            401,
            keystone(401, "Unauthorized", "The request you have made requires authentication."),
            Fault::Auth,
            "Unauthorized",
        ),
        (404, keystone(404, "Not Found", "The resource could not be found."), Fault::Nonsense, "Not Found"),
    ] {
        assert_eq!(meaning(READ, status, &body), (wanted, Some(code.to_owned())), "{body}");
    }
}

#[test]
fn unknown_credentials_are_auth_errors_and_not_absence() {
    let log_in = Operation::read(Family::Identity, "CreateToken");
    for message in [
        "Could not find Application Credential: 1afa666b2d0242b7af9190175687132d.",
        "Could not find token: gAAAA.",
        "Could not find trust: 8d1c.",
    ] {
        assert_eq!(meaning(log_in, 404, &keystone(404, "Not Found", message)).0, Fault::Auth, "{message}");
    }
    let path = keystone(404, "Not Found", "The resource could not be found.");
    assert_eq!(meaning(log_in, 404, &path).0, Fault::Nonsense, "a wrong auth_url");
}

#[test]
fn errors_of_neutron_and_octavia_are_classified() {
    for (status, body, wanted) in [
        (404, neutron("PortNotFound", "Port 1 could not be found."), Fault::NotFound),
        (404, neutron("HTTPNotFound", "The resource could not be found."), Fault::Nonsense),
        (409, neutron("OverQuota", "Quota exceeded for resources: ['floatingip']."), Fault::Quota),
        (
            409,
            neutron("IpAddressGenerationFailure", "No more IP addresses available on network 1."),
            Fault::Quota,
        ),
        (
            400,
            neutron(
                "RoutesExhausted",
                "Unable to complete operation for 1. The number of routes exceeds the maximum 30.",
            ),
            Fault::Quota,
        ),
        (400, neutron("InvalidInput", "Invalid input for operation: x."), Fault::Invalid),
        (
            409,
            neutron("RouterInterfaceInUseByRoute", "Router interface for subnet 1 cannot be deleted."),
            Fault::Busy,
        ),
        (
            412,
            neutron("RevisionNumberConstraintFailed", "Constrained to 4, but current revision is 5"),
            Fault::Busy,
        ),
        (404, octavia("Load Balancer 1 not found."), Fault::NotFound),
        (404, octavia("The resource could not be found."), Fault::Nonsense),
        (409, octavia("Invalid state PENDING_CREATE of loadbalancer resource 1"), Fault::Busy),
        (409, octavia("Load Balancer 1 is immutable and cannot be updated."), Fault::Busy),
        (
            409,
            octavia("Another Listener on this Load Balancer is already using protocol_port 80"),
            Fault::Invalid,
        ),
        (403, octavia("Quota has been met for resources: Load Balancer"), Fault::Quota),
        (403, octavia("Policy does not allow this request to be performed."), Fault::Forbidden),
        (400, octavia("Validation failure: Unknown attribute 'allowed_cidrs'"), Fault::Invalid),
        (501, octavia("Provider 'ovn' does not support a requested action"), Fault::Unsupported),
        (
            409,
            octavia(
                "The VIP IP address is already in use: IP address 10.23.2.134 already allocated in subnet 1",
            ),
            Fault::Invalid,
        ),
        (500, octavia("An unknown exception occurred."), Fault::OutcomeUnknown),
        (500, octavia("Provider 'amphora' reports error: BadRequestException: 400"), Fault::Invalid),
        (500, octavia("Provider 'amphora' reports error: ConflictException: 409"), Fault::Quota),
        (500, octavia("Provider 'amphora' reports error: timed out"), Fault::OutcomeUnknown),
    ] {
        assert_eq!(meaning(WRITE, status, &body).0, wanted, "{body}");
    }
}

#[test]
fn errors_about_security_groups_are_classified_by_type() {
    let conflict = "Error Cannot apply both stateful and stateless security groups on the same port at the same time \
                    while attempting the operation.";
    for (status, kind, message, wanted) in [
        (404, "SecurityGroupRuleNotFound", "Security group rule 1 does not exist", Fault::NotFound),
        (404, "SecurityGroupNotFound", "Security group 1 does not exist", Fault::NotFound),
        (404, "HTTPNotFound", "The resource could not be found.", Fault::Nonsense),
        (409, "SecurityGroupRuleExists", "Security group rule already exists. Rule id is 1.", Fault::Busy),
        (409, "SecurityGroupInUse", "Security Group 1 in use.", Fault::Busy),
        (409, "SecurityGroupConflict", conflict, Fault::Invalid),
    ] {
        assert_eq!(meaning(WRITE_NETWORK, status, &neutron(kind, message)).0, wanted, "{message}");
    }
    let of_nova = json!({ "somethingNotFound": { "code": 404, "message": "no" } });
    assert_eq!(meaning(READ, 404, &of_nova).0, Fault::Nonsense, "absence deletes nodes");
}

#[test]
fn answers_of_other_servers_never_prove_absence() {
    let page = |status: u16, body: &'static str| {
        let answer = http::Response::builder().status(status).body(body.into()).expect("an answer");
        classify(READ, &answer).expect("no success").fault
    };
    assert_eq!(page(404, "<html><h1>404 Not Found</h1></html>"), Fault::Nonsense);
    assert_eq!(page(404, r#"{"message": "no Route matched with those values: not found"}"#), Fault::Nonsense);
    assert_eq!(page(404, "{}"), Fault::Nonsense);
    assert_eq!(page(300, r#"{"versions": {"values": []}}"#), Fault::Nonsense);
    assert_eq!(page(503, "<html><body><h1>503 Service Unavailable</h1></body></html>"), Fault::Unavailable);
}

#[test]
fn throttling_is_returned_with_its_delay() {
    let wait = |name: &str, value: &str, body: &Value| {
        let answer = http::Response::builder().status(429).header("date", "Sat, 21 Nov 2026 08:00:00 GMT");
        let answer = answer.header(name, value).body(body.to_string().into()).expect("an answer");
        let error = classify(READ, &answer).expect("no success");
        assert_eq!(error.fault, Fault::Throttled);
        error.retry_after
    };
    let nova = json!({ "overLimit": { "code": 413, "message": "This request was rate-limited.", "retryAfter": "9" } });
    assert_eq!(wait("retry-after", "7", &nova), Some(Duration::from_secs(7)));
    assert_eq!(wait("x-compute-retry-after", "5", &json!({})), Some(Duration::from_secs(5)));
    assert_eq!(wait("retry-after", "Sat, 21 Nov 2026 08:00:30 GMT", &nova), Some(Duration::from_secs(30)));
    assert_eq!(wait("x-other", "5", &nova), Some(Duration::from_secs(9)));
    assert_eq!(wait("x-other", "5", &json!({})), None);
}

#[test]
fn unreachable_network_is_invalid() {
    let body =
        neutron("ExternalGatewayForFloatingIPNotFound", "External network 1 is not reachable from subnet 2.");
    assert_eq!(meaning(WRITE, 404, &body).0, Fault::Invalid);
}

#[test]
fn only_413_of_nova_with_a_delay_is_throttling() {
    let over_limit = json!({ "overLimit": { "code": 413, "message": "This request was rate-limited.", "retryAfter": "9" } });
    let error = classify(READ, &answer(413, &over_limit)).expect("no success");
    assert_eq!((error.fault, error.retry_after), (Fault::Throttled, Some(Duration::from_secs(9))));

    let too_large = octavia("Request is too large.");
    let sized = json!({ "overLimit": { "code": 413, "message": "Request is too large." } });
    for (operation, body) in [(WRITE, &too_large), (WRITE_NETWORK, &over_limit), (READ, &sized)] {
        let error = classify(operation, &answer(413, body)).expect("no success");
        assert_eq!(error.fault, Fault::Invalid, "{operation}: {body}");
        assert!(error.message.contains("the request is too large"), "{}", error.message);
    }
}
