//! These tests check, against a fake OpenStack, the requests that are sent and the handling of tokens that the cloud revokes.

use serde_json::{Value, json};

use super::*;
use crate::testing::{FakeCloud, session};

const MAKE_ROUTER: Operation = Operation::write(Family::Network, "CreateRouter");

#[tokio::test]
async fn nova_requests_set_the_version_with_flavor_names() {
    let cloud = FakeCloud::start().await;
    let driver = cloud.driver();
    driver.client.list_servers(&session(&driver), None, Some(50)).await.expect("a page");
    let store = cloud.store();
    assert_eq!(store.requests.last().expect("asked"), "GET /compute/v2.1/servers/detail?limit=50");
    let headers = store.headers.last().expect("asked");
    assert_eq!(
        (&headers["openstack-api-version"], &headers["x-auth-token"]),
        (&MICROVERSION, &HeaderValue::from_static("token-1"))
    );
}

#[tokio::test]
async fn revoked_token_is_replaced_and_the_call_repeated() {
    let cloud = FakeCloud::start().await;
    let driver = cloud.driver();
    let session = session(&driver);
    driver.client.list_servers(&session, None, None).await.expect("a page");
    cloud.store().tokens.clear();
    let list = || driver.client.list_servers(&session, None, None);
    let (one, two, three) = tokio::join!(list(), list(), list());
    for one in [one, two, three] {
        one.expect("the call is repeated");
    }
    assert_eq!(cloud.log_ins(), 2, "one log-in for all three");
    let asked = cloud.asked("GET /compute").len();
    assert!((5..=7).contains(&asked), "each call once, and once more for the old token: {asked}");
}

#[tokio::test]
async fn rejected_call_is_repeated_only_once() {
    let cloud = FakeCloud::start().await;
    let driver = cloud.driver();
    let rejection = || (401, json!({ "error": { "code": 401, "title": "Unauthorized", "message": "no" } }));
    cloud.store().faults.extend([rejection(), rejection()]);
    let error = driver.client.list_servers(&session(&driver), None, None).await.expect_err("rejected");
    assert_eq!(error.fault, Fault::Auth);
    assert_eq!((cloud.log_ins(), cloud.asked("GET /compute").len()), (2, 2));
}

#[tokio::test]
async fn write_is_sent_as_json_and_not_repeated_after_an_error() {
    let cloud = FakeCloud::start().await;
    let driver = cloud.driver();
    let session = session(&driver);
    let call = || Call {
        operation: MAKE_ROUTER,
        service: Service::Network,
        method: Method::POST,
        path: "/v2.0/routers".to_owned(),
    };
    let body = json!({ "router": { "name": "a" } });
    driver.client.write(&session, call(), &body).await.expect("made");
    assert_eq!(cloud.store().bodies.last(), Some(&body));
    assert_eq!(cloud.store().headers.last().expect("asked")["content-type"], "application/json");
    cloud.store().faults.push_back((
        403,
        json!({ "NeutronError": { "type": "PolicyNotAuthorized", "message": "no", "detail": "" } }),
    ));
    let error = driver.client.write(&session, call(), &body).await.expect_err("forbidden");
    assert_eq!((error.fault, error.code.as_deref()), (Fault::Forbidden, Some("PolicyNotAuthorized")));
    assert_eq!(cloud.asked("POST /network").len(), 2);
}

#[tokio::test]
async fn missing_service_is_reported_without_a_call() {
    let cloud = FakeCloud::start().await;
    let driver = cloud.driver();
    let call = read(LIST_PORTS, Service::LoadBalancer, "/v2/lbaas/loadbalancers".to_owned());
    let error = driver.client.read::<Value>(&session(&driver), call).await.expect_err("without Octavia");
    assert_eq!(error.fault, Fault::Unsupported);
    assert!(error.message.contains("no load-balancer service for interface public"), "{error}");
    assert_eq!(cloud.store().requests.len(), 1, "only the log-in was sent");
}

#[tokio::test]
async fn deletion_cascades_and_reports_locked_or_missing() {
    let cloud = FakeCloud::start().await;
    cloud.store().lists.insert("/load-balancer/".to_owned(), ("versions", Vec::new()));
    let driver = cloud.driver();
    let session = session(&driver);
    let client = &driver.client;
    client.delete_load_balancer(&session, "lb-1").await.expect("the value is accepted");
    let path = "/load-balancer/v2/lbaas/loadbalancers/lb-1?cascade=true";
    assert_eq!(cloud.store().requests.last(), Some(&format!("DELETE {path}")));
    let octavia = |text: &str| json!({ "faultcode": "Client", "faultstring": text, "debuginfo": null });
    for (status, text, wanted) in [
        (409, "Invalid state PENDING_UPDATE of loadbalancer resource lb-1", Fault::Busy),
        (409, "Load Balancer lb-1 is immutable and cannot be updated.", Fault::Busy),
        (404, "Load Balancer lb-1 not found.", Fault::NotFound),
    ] {
        let refusals = [(status, octavia(text)), (status, octavia(text))];
        cloud.store().faults.extend(refusals);
        let error = client.delete_load_balancer(&session, "lb-1").await.expect_err(text);
        assert_eq!(error.fault, wanted, "{text}");
        let error = client.tag_load_balancer(&session, "lb-1", &[]).await.expect_err(text);
        assert_eq!(error.fault, wanted, "{text}");
    }
}

#[test]
fn words_are_percent_encoded_for_paths() {
    assert_eq!(encode("7e0c-1"), "7e0c-1");
    assert_eq!(encode("../i 1?ä"), "..%2Fi%201%3F%C3%A4");
}
