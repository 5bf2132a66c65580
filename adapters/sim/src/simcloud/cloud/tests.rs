use std::time::Duration;

use http::StatusCode;
use serde_json::{Value, json};

use crate::simcloud::call::{Call, Ending};
use crate::simcloud::operation::Operation;
use crate::simcloud::testing::{Testbed, create, testbed};
use crate::simcloud::tokens::Tokens;

fn ids(page: &Value, items: &str) -> Vec<String> {
    page[items].as_array().unwrap().iter().map(|item| item["id"].as_str().unwrap().to_owned()).collect()
}

fn all_pages(testbed: &mut Testbed, first: &Call, items: &str) -> (Vec<String>, usize) {
    let (mut found, mut pages, mut call) = (Vec::new(), 0, first.clone());
    loop {
        let page = testbed.ok(&call);
        found.extend(ids(&page, items));
        pages += 1;
        match page["next"].as_str() {
            None => return (found, pages),
            Some(next) => call = first.clone().query("cursor", next),
        }
    }
}

#[test]
fn listing_pages_have_500_items_or_the_limit() {
    let mut testbed = testbed(1200, json!({}));
    let list = Call::new(Operation::ListInstances);
    let (all, pages) = all_pages(&mut testbed, &list, "instances");
    assert_eq!((all.len(), pages), (1200, 3));
    let (same, pages) = all_pages(&mut testbed, &list.clone().query("limit", "700"), "instances");
    assert_eq!((&same, pages), (&all, 3), "500 is the maximum");
    testbed.set(&json!({ "page_size_max": 100 }));
    assert_eq!(all_pages(&mut testbed, &list, "instances"), (all, 13), "a full last page has a cursor");
}

#[test]
fn batch_returns_found_instances_and_missing_ids() {
    let mut testbed = testbed(600, json!({}));
    let batch = |ids: &str| Call::new(Operation::BatchGetInstances).query("ids", ids);
    let answer = testbed.ok(&batch("i-0003,i-9999,i-0001,lb-0001"));
    assert_eq!(ids(&answer, "instances"), ["i-0003", "i-0001"]);
    assert_eq!(answer["missing"], json!(["i-9999", "lb-0001"]));
    let many: Vec<_> = (1..=501).map(|n| format!("i-{n:04}")).collect();
    assert_eq!(testbed.refused(&batch(&many.join(","))), (StatusCode::BAD_REQUEST, "too_many_items".into()));
    assert_eq!(
        ids(&testbed.ok(&Call::new(Operation::FindInstances).query("name", "node-7")), "instances"),
        ["i-0007"]
    );
}

#[test]
fn consistency_lag_applies_to_reads_only() {
    let mut testbed = testbed(1, json!({ "consistency_ms": 1000 }));
    let list = Call::new(Operation::ListLoadBalancers);
    testbed.ok(&create("web"));
    assert_eq!(
        testbed.refused(&Call::new(Operation::GetLoadBalancer).on("lb-0001")).0,
        StatusCode::NOT_FOUND
    );
    assert_eq!(
        testbed.refused(&Call::new(Operation::DeleteLoadBalancer).on("lb-0001")),
        (StatusCode::CONFLICT, "immutable".into()),
        "writes see the latest state"
    );
    testbed.after(1000);
    assert_eq!(testbed.ok(&list)["load_balancers"][0]["status"], json!("PENDING_CREATE"));
    testbed.after(300);
    assert_eq!(testbed.ok(&list)["load_balancers"][0]["status"], json!("ACTIVE"));

    testbed.ok(&Call::new(Operation::DeleteLoadBalancer).on("lb-0001"));
    testbed.delete_instance("i-0001");
    testbed.after(999);
    assert_eq!(testbed.show("lb-0001")["status"], json!("ACTIVE"));
    testbed.ok(&Call::new(Operation::GetInstance).on("i-0001"));
    testbed.after(101);
    assert_eq!(testbed.ok(&list)["load_balancers"], json!([]));
    assert_eq!(testbed.refused(&Call::new(Operation::GetInstance).on("i-0001")).0, StatusCode::NOT_FOUND);
}

#[test]
fn route_batch_items_succeed_or_fail_on_their_own() {
    let mut testbed = testbed(2, json!({ "quotas": { "routes": 2 } }));
    let batch = |body: Value| Call::new(Operation::BatchRoutes).body(&body);
    let add = |to: &str, via: &str| json!({ "destination": to, "next_hop_instance": via, "next_hop_address": "10.0.0.1" });
    let answer = testbed.ok(&batch(json!({ "add": [
        add("10.244.1.0/24", "i-0001"),
        add("10.244.2.0/24", "i-0009"),
        add("10.244.1.0/24", "i-0002"),
        add("10.244.3.1/24", "i-0002"),
        { "destination": "10.244.4.0/24" },
        add("fd00::/64", "i-0001"),
        add("10.244.5.0/24", "i-0002"),
        add("10.244.6.0/24", "i-0002"),
    ] })));
    let outcomes = answer["added"].as_array().unwrap().iter().map(|item| match item.get("ok") {
        Some(route) => route["id"].as_str().unwrap(),
        None => item["error"]["code"].as_str().unwrap(),
    });
    let expected = [
        "rt-0001",
        "invalid_next_hop",
        "route_exists",
        "invalid_request",
        "invalid_request",
        "invalid_request",
        "rt-0002",
        "quota_exceeded",
    ];
    assert_eq!(outcomes.collect::<Vec<_>>(), expected);

    let moved = testbed
        .ok(&batch(json!({ "remove": ["rt-0001", "rt-0077"], "add": [add("10.244.1.0/24", "i-0002")] })));
    assert_eq!(moved["added"][0]["ok"]["id"], json!("rt-0003"), "removals come first");
    assert_eq!(moved["removed"][1]["error"]["code"], json!("not_found"));

    testbed.delete_instance("i-0002");
    let routes = testbed.ok(&Call::new(Operation::ListRoutes));
    assert_eq!(routes["routes"][0]["status"], json!("blackhole"));

    let many: Vec<_> = (0..201).map(|n| format!("rt-{n:04}")).collect();
    assert_eq!(
        testbed.refused(&batch(json!({ "remove": many }))),
        (StatusCode::BAD_REQUEST, "too_many_items".into())
    );
}

#[test]
fn calls_above_the_rate_are_refused_with_retry_after() {
    let mut testbed = testbed(0, json!({ "rate_limits": { "compute": { "rate": 0.5, "burst": 2 } } }));
    let list = Call::new(Operation::ListInstances);
    let header = |answer: &super::CallResponse, wanted: &str| {
        answer.headers.iter().find(|(name, _)| name == wanted).map(|(_, value)| value.clone())
    };
    testbed.ok(&list);
    let second = testbed.send(&list);
    assert_eq!(header(&second, "ratelimit-limit").as_deref(), Some("2"));
    assert_eq!(header(&second, "ratelimit-remaining").as_deref(), Some("0"));
    assert_eq!(header(&second, "ratelimit-reset").as_deref(), Some("4"));
    let third = testbed.send(&list);
    assert_eq!((third.status, &third.body["code"]), (StatusCode::TOO_MANY_REQUESTS, &json!("throttled")));
    assert_eq!(header(&third, "retry-after").as_deref(), Some("2"));
    assert_eq!(
        header(&testbed.send(&Call::new(Operation::ListRoutes)), "ratelimit-limit"),
        None,
        "another family"
    );
    testbed.after(2000).ok(&list);
}

#[test]
fn faults_happen_before_or_after_the_work() {
    for (name, action, ending, status, made) in [
        ("answer instead", json!({ "respond": { "status": 503 } }), Ending::Whole, 503, 0),
        ("answer wrongly", json!({ "respond_after": { "status": 504 } }), Ending::Whole, 504, 1),
        ("close before", json!("close_before"), Ending::Closed, 0, 0),
        ("close after", json!("close_after"), Ending::Closed, 0, 1),
        ("truncate", json!("truncate_body"), Ending::Truncated, 202, 1),
        ("delay", json!({ "delay_ms": 70 }), Ending::Whole, 202, 1),
    ] {
        let mut testbed = testbed(0, json!({}));
        testbed
            .fault(&json!({ "match": { "operation": "Create*" }, "when": { "next": 1 }, "action": action }));
        let answer = testbed.send(&create("web"));
        assert_eq!(answer.ending, ending, "{name}");
        if status != 0 {
            assert_eq!(answer.status.as_u16(), status, "{name}");
        }
        assert_eq!(answer.delay, Duration::from_millis(if name == "delay" { 70 } else { 0 }), "{name}");
        let there = testbed.ok(&Call::new(Operation::ListLoadBalancers));
        assert_eq!(ids(&there, "load_balancers").len(), made, "{name}");
        testbed.ok(&create("web"));
    }
}

#[test]
fn late_call_is_executed_when_due() {
    let mut testbed = testbed(0, json!({}));
    let late = json!({ "late_ms": 900 });
    testbed.fault(&json!({ "match": { "operation": "Create*" }, "when": { "next": 1 }, "action": late }));
    assert_eq!(testbed.send(&create("web")).ending, Ending::Closed);
    let list = Call::new(Operation::ListLoadBalancers);
    for (name, after, made) in
        [("at once", 0, 0), ("just before", 899, 0), ("in time", 1, 1), ("once", 999, 1)]
    {
        let there = testbed.after(after).ok(&list);
        assert_eq!(ids(&there, "load_balancers").len(), made, "{name}");
    }
}

#[test]
fn empty_page_hides_all_items() {
    let mut testbed = testbed(600, json!({}));
    testbed
        .fault(&json!({ "match": { "operation": "List*" }, "when": { "nth": 2 }, "action": "empty_page" }));
    let list = Call::new(Operation::ListInstances);
    assert_eq!(ids(&testbed.ok(&list), "instances").len(), 500);
    assert_eq!(testbed.ok(&list), json!({ "instances": [], "next": null }));
    assert_eq!(ids(&testbed.ok(&list), "instances").len(), 500);
}

#[test]
fn every_request_is_counted_and_written_down() {
    let mut testbed = testbed(1, json!({ "rate_limits": { "network": { "rate": 1, "burst": 1 } } }));
    testbed.fault(&json!({ "match": { "operation": "GetInstance" }, "action": "close_before" }));
    testbed.ok(&create("web"));
    testbed.after(5).send(&Call::new(Operation::GetInstance).on("i-0001"));
    testbed.ok(&Call::new(Operation::ListRoutes));
    testbed.refused(&Call::new(Operation::ListRoutes));

    let counts = serde_json::to_value(testbed.cloud.counts()).unwrap();
    assert_eq!(
        counts,
        json!({
            "total": 4, "reads": 3, "writes": 1,
            "by_family": { "compute": 1, "loadbalancer": 1, "network": 2 },
            "by_operation": { "CreateLoadBalancer": 1, "GetInstance": 1, "ListRoutes": 2 },
            "by_status": { "200": 1, "202": 1, "429": 1, "closed": 1 },
        })
    );
    let log = serde_json::to_value(testbed.cloud.log.tail(3).collect::<Vec<_>>()).unwrap();
    assert_eq!(
        log[0],
        json!({
            "request_id": "req-000002", "at_ms": 5, "operation": "GetInstance", "access": "read",
            "object": "i-0001", "status": null, "code": null, "fault": true,
        })
    );
    assert_eq!(log[2]["code"], json!("throttled"));
    testbed.cloud.reset_counts();
    assert_eq!(testbed.cloud.counts().total, 0);
}

#[test]
fn latency_is_by_operation_and_its_jitter_by_the_seed() {
    let settings =
        json!({ "latency": { "default_ms": 10, "jitter_ms": 5, "operations": { "ListRoutes": 40 } } });
    let delays = |seed| {
        let mut testbed = testbed(0, settings.clone());
        testbed.cloud = testbed.cloud.with_seed(seed);
        (0..20).map(|_| testbed.send(&Call::new(Operation::GetProject)).delay.as_millis()).collect::<Vec<_>>()
    };
    assert!(delays(1).iter().all(|delay| (10..=15).contains(delay)), "{:?}", delays(1));
    assert_eq!(delays(1), delays(1));
    assert_ne!(delays(1), delays(2));
    let slow = testbed(0, settings.clone()).send(&Call::new(Operation::ListRoutes)).delay;
    assert!((40..=45).contains(&slow.as_millis()), "{slow:?}");
}

#[test]
fn requests_without_token_are_refused() {
    let mut testbed = testbed(1, json!({}));
    testbed.cloud = testbed.cloud.with_token("secret");
    let mut call = Call::new(Operation::GetInstance).on("i-0001");
    assert_eq!(testbed.refused(&call), (StatusCode::UNAUTHORIZED, "unauthorized".into()));
    call.bearer = Some("wrong".into());
    assert_eq!(testbed.refused(&call), (StatusCode::UNAUTHORIZED, "unauthorized".into()));
    call.bearer = Some("secret".into());
    testbed.ok(&call);
    assert!(!format!("{:?}", testbed.cloud).contains("secret"));
}

#[test]
fn token_of_another_project_is_forbidden() {
    let mut testbed = testbed(1, json!({}));
    let tokens = json!([{ "token": "old" }, { "token": "new" }, { "token": "theirs", "project": "other" }]);
    testbed.cloud.tokens = Tokens::these(serde_json::from_value(tokens).unwrap()).unwrap();
    let ask = |testbed: &mut Testbed, operation, token: &str| {
        let call = Call { bearer: Some(token.into()), ..Call::new(operation) };
        testbed.send(&call)
    };
    for token in ["old", "new"] {
        assert_eq!(ask(&mut testbed, Operation::GetProject, token).body["project"], "demo");
        assert_eq!(ask(&mut testbed, Operation::ListInstances, token).status, StatusCode::OK);
    }
    assert_eq!(ask(&mut testbed, Operation::GetProject, "theirs").body["project"], "other");
    assert_eq!(ask(&mut testbed, Operation::ListInstances, "theirs").status, StatusCode::FORBIDDEN);
    assert_eq!(ask(&mut testbed, Operation::GetProject, "unknown").status, StatusCode::UNAUTHORIZED);
    assert!(!format!("{:?}", testbed.cloud).contains("theirs"));
}
