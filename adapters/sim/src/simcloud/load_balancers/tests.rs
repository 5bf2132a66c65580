use http::StatusCode;
use serde_json::{Value, json};

use crate::simcloud::call::Call;
use crate::simcloud::operation::Operation;
use crate::simcloud::testing::{create, listener, testbed};

#[test]
fn load_balancer_is_active_after_provisioning_time() {
    let mut testbed = testbed(0, json!({}));
    let ordered = testbed.ok(&create("web"));
    assert_eq!((&ordered["id"], &ordered["status"]), (&json!("lb-0001"), &json!("PENDING_CREATE")));
    testbed.after(299);
    assert_eq!(testbed.show("lb-0001")["vips"], json!([]));
    testbed.after(1);
    let ready = testbed.show("lb-0001");
    assert_eq!((&ready["status"], &ready["vips"]), (&json!("ACTIVE"), &json!(["198.18.0.1"])));
}

#[test]
fn tree_is_created_changed_and_deleted() {
    let mut testbed = testbed(0, json!({}));
    let id = testbed.balancer("web");
    testbed.ok(&listener(&id, 80));
    testbed.after(100).ok(&Call::new(Operation::UpdateMembers).on("pool-0001").body(&json!({
        "add": [{ "address": "10.0.0.2", "port": 30080 }],
        "remove": [{ "address": "10.0.0.1", "port": 30080 }],
    })));
    let monitor = json!({
        "protocol": "HTTP", "path": "/healthz", "port": 32000,
        "interval": 10, "timeout": 5, "healthy_threshold": 2, "unhealthy_threshold": 2,
    });
    testbed
        .after(100)
        .ok(&Call::new(Operation::UpdatePool).on("pool-0001").body(&json!({ "health_monitor": monitor })));
    testbed
        .after(100)
        .ok(&Call::new(Operation::UpdateListener).on("ls-0001").body(&json!({ "idle_timeout": 90 })));
    testbed.after(100);
    let tree = testbed.show(&id);
    assert_eq!(tree["listeners"][0]["idle_timeout"], json!(90));
    assert_eq!(tree["listeners"][0]["pool_id"], json!("pool-0001"));
    assert_eq!(tree["pools"][0]["members"][0]["address"], json!("10.0.0.2"));
    assert_eq!(tree["pools"][0]["health_monitor"]["port"], json!(32000));

    assert_eq!(
        testbed.refused(&Call::new(Operation::DeletePool).on("pool-0001")),
        (StatusCode::CONFLICT, "in_use".into())
    );
    testbed.ok(&Call::new(Operation::DeleteListener).on("ls-0001"));
    testbed.after(100).ok(&Call::new(Operation::DeletePool).on("pool-0001"));
    testbed.after(100).ok(&Call::new(Operation::DeleteLoadBalancer).on(&id));
    assert_eq!(testbed.show(&id)["status"], json!("PENDING_DELETE"));
    testbed.after(100);
    assert_eq!(testbed.refused(&Call::new(Operation::GetLoadBalancer).on(&id)).0, StatusCode::NOT_FOUND);
}

#[test]
fn pending_load_balancer_refuses_all_changes() {
    let mut testbed = testbed(0, json!({}));
    let id = testbed.balancer("web");
    testbed.ok(&listener(&id, 80));
    let before = testbed.show(&id);
    let members = json!({ "members": [] });
    for call in [
        listener(&id, 81),
        Call::new(Operation::UpdateLoadBalancer).on(&id).body(&json!({ "name": "other" })),
        Call::new(Operation::CreatePool).on(&id).body(&json!({ "protocol": "TCP" })),
        Call::new(Operation::SetMembers).on("pool-0001").body(&members),
        Call::new(Operation::UpdateMembers).on("pool-0001").body(&json!({})),
        Call::new(Operation::UpdatePool).on("pool-0001").body(&json!({})),
        Call::new(Operation::UpdateListener).on("ls-0001").body(&json!({})),
        Call::new(Operation::DeleteListener).on("ls-0001"),
        Call::new(Operation::DeletePool).on("pool-0001"),
        Call::new(Operation::DeleteLoadBalancer).on(&id).query("cascade", "true"),
    ] {
        assert_eq!(testbed.refused(&call), (StatusCode::CONFLICT, "immutable".into()), "{}", call.operation);
    }
    assert_eq!(testbed.show(&id), before);
    testbed.after(100).ok(&Call::new(Operation::SetMembers).on("pool-0001").body(&members));
}

#[test]
fn only_cascade_deletes_a_load_balancer_with_children() {
    let mut testbed = testbed(0, json!({}));
    let id = testbed.balancer("web");
    testbed.ok(&listener(&id, 80));
    testbed.after(100);
    let delete = Call::new(Operation::DeleteLoadBalancer).on(&id);
    assert_eq!(testbed.refused(&delete), (StatusCode::CONFLICT, "has_children".into()));
    testbed.ok(&delete.query("cascade", "true"));
    testbed.after(100);
    assert_eq!(testbed.ok(&Call::new(Operation::ListLoadBalancers))["load_balancers"], json!([]));
    assert_eq!(testbed.refused(&Call::new(Operation::DeleteListener).on("ls-0001")).0, StatusCode::NOT_FOUND);
}

#[test]
fn repeated_client_token_returns_same_load_balancer() {
    let mut testbed = testbed(0, json!({}));
    let with_token = |name: &str| {
        let body = json!({ "name": name, "scheme": "internal", "client_token": "t-1" });
        Call::new(Operation::CreateLoadBalancer).body(&body)
    };
    assert_eq!(testbed.ok(&with_token("web"))["id"], json!("lb-0001"));
    assert_eq!(testbed.ok(&with_token("web"))["id"], json!("lb-0001"));
    assert_eq!(testbed.refused(&with_token("other")), (StatusCode::CONFLICT, "token_reused".into()));
    assert_eq!(testbed.ok(&create("web"))["id"], json!("lb-0002"));
    assert_eq!(testbed.ok(&create("web"))["id"], json!("lb-0003"));
}

#[test]
fn requested_address_is_allocated_once() {
    let mut testbed = testbed(0, json!({}));
    let wish = |vips: Value, families: Value| {
        let body = json!({ "name": "web", "scheme": "internet", "vips": vips, "families": families });
        Call::new(Operation::CreateLoadBalancer).body(&body)
    };
    let both = json!(["ipv4", "ipv6"]);
    testbed.ok(&wish(json!(["198.18.0.1"]), both.clone()));
    testbed.after(300);
    assert_eq!(testbed.show("lb-0001")["vips"], json!(["198.18.0.1", "2001:db8:1::1"]));
    let again = wish(json!(["198.18.0.1"]), both);
    assert_eq!(testbed.refused(&again), (StatusCode::CONFLICT, "address_in_use".into()));
    let id = testbed.balancer("next");
    assert_eq!(testbed.show(&id)["vips"], json!(["198.18.0.2"]), "an address in use is skipped");

    testbed.ok(&Call::new(Operation::DeleteLoadBalancer).on("lb-0001"));
    testbed.after(100).ok(&again);
}

#[test]
fn failed_change_ends_in_error_and_only_deletion_works() {
    for (name, broken) in
        [("load balancer", "CreateLoadBalancer"), ("listener", "CreateListener"), ("members", "SetMembers")]
    {
        let mut testbed = testbed(0, json!({}));
        testbed.fault(
            &json!({ "match": { "operation": broken }, "when": { "next": 1 }, "action": "error_state" }),
        );
        let id = testbed.balancer("web");
        if broken != "CreateLoadBalancer" {
            testbed.ok(&listener(&id, 80));
            testbed.after(100);
        }
        if broken == "SetMembers" {
            testbed.ok(&Call::new(Operation::SetMembers).on("pool-0001").body(&json!({ "members": [] })));
            testbed.after(100);
        }
        assert_eq!(testbed.show(&id)["status"], json!("ERROR"), "{name}");
        assert_eq!(
            testbed.refused(&listener(&id, 81)),
            (StatusCode::CONFLICT, "error_state".into()),
            "{name}"
        );
        testbed.ok(&Call::new(Operation::DeleteLoadBalancer).on(&id).query("cascade", "true"));
        testbed.after(100);
        assert_eq!(
            testbed.refused(&Call::new(Operation::GetLoadBalancer).on(&id)).0,
            StatusCode::NOT_FOUND,
            "{name}"
        );
        let next = testbed.balancer("web");
        assert_eq!(testbed.show(&next)["status"], json!("ACTIVE"), "{name}: the rule is used up");
    }
}

#[test]
fn listing_returns_whole_trees_and_filters_by_tags() {
    let mut testbed = testbed(0, json!({}));
    for (name, tags) in [
        ("a", json!({ "example.dev/owner": "one:1", "team": "x" })),
        ("b", json!({ "example.dev/owner": "two:2", "team": "x" })),
        ("c", json!({})),
    ] {
        let body = json!({ "name": name, "scheme": "internal", "tags": tags });
        testbed.ok(&Call::new(Operation::CreateLoadBalancer).body(&body));
    }
    testbed.after(300).ok(&listener("lb-0001", 80));
    let mut names = |tags: &[&str]| {
        let call =
            tags.iter().fold(Call::new(Operation::ListLoadBalancers), |call, tag| call.query("tag", *tag));
        let page = testbed.ok(&call);
        let found = page["load_balancers"].as_array().unwrap().iter();
        found.map(|it| it["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>().concat()
    };
    for (tags, found) in [
        (&[][..], "abc"),
        (&["team:x"], "ab"),
        (&["team"], "ab"),
        (&["team:x", "example.dev/owner:two:2"], "b"),
        (&["team:y"], ""),
    ] {
        assert_eq!(names(tags), found, "{tags:?}");
    }
    let page = testbed.ok(&Call::new(Operation::ListLoadBalancers));
    assert_eq!(page["load_balancers"][0]["pools"][0]["members"][0]["port"], json!(30080));
}

#[test]
fn quotas_are_named_with_limit_and_use() {
    let quotas = json!({
        "load_balancers": 2, "listeners_per_load_balancer": 1, "pools_per_load_balancer": 1, "members_per_pool": 2,
    });
    let mut testbed = testbed(0, json!({ "quotas": quotas }));
    let id = testbed.balancer("web");
    testbed.ok(&listener(&id, 80));
    testbed.ok(&create("second"));
    testbed.after(300);
    let three = json!([1, 2, 3].map(|n| json!({ "address": format!("10.0.0.{n}"), "port": 30080 })));
    for (call, quota, limit, used) in [
        (create("third"), "load_balancers", 2, 2),
        (listener(&id, 81), "listeners_per_load_balancer", 1, 1),
        (
            Call::new(Operation::CreatePool).on(&id).body(&json!({ "protocol": "TCP" })),
            "pools_per_load_balancer",
            1,
            1,
        ),
        (
            Call::new(Operation::SetMembers).on("pool-0001").body(&json!({ "members": three })),
            "members_per_pool",
            2,
            0,
        ),
    ] {
        let answer = testbed.send(&call);
        assert_eq!(answer.status, StatusCode::FORBIDDEN, "{quota}");
        assert_eq!(answer.body["code"], json!("quota_exceeded"), "{quota}");
        assert_eq!(answer.body["details"], json!({ "quota": quota, "limit": limit, "used": used }));
    }
    assert_eq!(testbed.show(&id)["status"], json!("ACTIVE"), "a refused write leaves nothing pending");
}

#[test]
fn invalid_request_names_the_field() {
    let mut testbed = testbed(0, json!({}));
    let id = testbed.balancer("web");
    testbed.ok(&listener(&id, 80));
    testbed.after(100);
    let balancer = |body: Value| Call::new(Operation::CreateLoadBalancer).body(&body);
    let on = |operation, body: Value| Call::new(operation).on(&*id).body(&body);
    for (call, named) in [
        (balancer(json!({ "name": "a", "scheme": "intern" })), "intern"),
        (balancer(json!({ "name": "a", "scheme": "internal", "tag": {} })), "tag"),
        (balancer(json!({ "name": "a", "scheme": "internal", "families": [] })), "families"),
        (balancer(json!({ "name": "a", "scheme": "internal", "vips": ["fd00::1"] })), "vips"),
        (on(Operation::CreateListener, json!({ "protocol": "TCP", "port": 0 })), "port"),
        (
            on(Operation::CreateListener, json!({ "protocol": "UDP", "port": 53, "pool_id": "pool-0001" })),
            "pool",
        ),
        (
            on(
                Operation::CreatePool,
                json!({ "protocol": "TCP", "members": [{ "address": "x", "port": 1 }] }),
            ),
            "IP",
        ),
        (Call::new(Operation::DeleteLoadBalancer).on(&*id).query("force", "true"), "force"),
        (Call::new(Operation::DeleteLoadBalancer).on(&*id).query("cascade", "yes"), "cascade"),
    ] {
        let answer = testbed.send(&call);
        assert_eq!(answer.status, StatusCode::BAD_REQUEST, "{named}: {}", answer.body);
        assert!(answer.body["message"].as_str().unwrap().contains(named), "{named}: {}", answer.body);
    }
    assert_eq!(testbed.refused(&listener(&id, 80)), (StatusCode::CONFLICT, "port_in_use".into()));
    assert_eq!(testbed.show(&id)["status"], json!("ACTIVE"), "a refused write leaves nothing pending");
}
