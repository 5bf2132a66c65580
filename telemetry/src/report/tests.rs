use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

use super::*;

/// Parses the text and serializes it again. No field may be lost or renamed.
#[track_caller]
fn round_trip<T: Serialize + DeserializeOwned>(text: &Value) -> T {
    let page: T = serde_json::from_value(text.clone()).expect("the text is parsed");
    let again = serde_json::to_value(&page).expect("the page is serialized");
    assert_eq!(&again, text);
    page
}

fn adapter() -> Value {
    json!({
        "at": "2026-01-02T03:04:05Z",
        "adapter": "adapter-sim",
        "version": "0.1.0",
        "instanceId": "18c2",
        "clusterId": "c-1",
        "leader": true,
        "leaderAddress": null,
        "scope": "account sim project demo region sim-1",
        "trouble": null,
        "troubleReason": null,
        "configRevision": "abc", "configRefused": null,
        "budgets": [{
            "bucket": "loadbalancer", "rate": 5.0, "ceiling": 5.0, "tokens": 0.4, "queued": 37,
            "pausedUntil": "2026-01-02T03:05:05Z", "calls": 100, "throttled": 0,
            "history": [{ "secondsAgo": 5, "calls": 25, "queued": 30, "rate": 5.0 }],
        }],
        "queues": [{
            "bucket": "loadbalancer", "class": "INTERACTIVE", "controller": "service-controller",
            "queued": 3, "oldestSeconds": 2.5,
        }],
        "breakers": [
            { "family": "compute", "state": "CLOSED", "retryAt": null },
            { "family": "loadbalancer", "state": "OPEN", "retryAt": "2026-01-02T03:04:20Z" },
            { "family": "network", "state": "HALF_OPEN", "retryAt": null },
        ],
        "snapshots": [{
            "collection": "load-balancers", "ageSeconds": 12.0, "targetAgeSeconds": 60.0, "items": 10,
            "revision": 7, "error": null,
        }],
        "clusters": [{ "clusterId": "c-1", "own": true, "loadBalancers": 10, "routes": 3 }],
        "tasks": [{
            "key": "6f1c", "name": "default/web", "waitsFor": "observes the cloud", "sinceSeconds": 4.0,
            "done": 1, "total": 4,
        }],
        "moreTasks": 0,
        "writes": [{
            "at": "2026-01-02T03:04:01Z", "operation": "CreateLoadBalancer", "object": "default/web",
            "controller": "service-controller", "outcome": "ok",
        }],
    })
}

#[test]
fn the_page_of_an_adapter_is_read_as_it_is_written() {
    let page: AdapterStatus = round_trip(&adapter());
    let states: Vec<_> = page.breakers.iter().map(|breaker| breaker.state).collect();
    assert_eq!(states, [BreakerState::Closed, BreakerState::Open, BreakerState::HalfOpen]);
}

#[test]
fn the_pages_of_a_controller_are_read_as_they_are_written() {
    let explanation = json!({
        "controller": "service-controller", "kind": "Service", "key": "default/web", "known": true, "held": true,
        "shard": 0, "state": "waiting", "wanted": ["2 listeners: TCP 80 -> 30080"], "cloud": [],
        "plan": ["ensure (not active yet)"], "waitsFor": "quota", "reason": "QUOTA_EXCEEDED",
        "since": "2026-01-02T03:04:05Z", "nextTry": null, "attempts": 3,
    });
    round_trip::<Explanation>(&explanation);
    round_trip::<Explanations>(&json!({ "objects": [explanation], "more": 12 }));
    round_trip::<ControllerStatus>(&json!({
        "controller": "service-controller", "version": "0.1.0", "clusterId": "c-1", "shards": 2, "held": [1],
        "listed": true, "adapter": { "replica": null, "trouble": "connection refused" },
        "failingWatches": ["the watch of services has been unavailable"],
        "queue": { "waiting": 3, "running": 1, "later": 2, "oldestSeconds": 1.25 },
        "unsettled": 2,
        "waits": [{
            "kind": "Service", "key": "default/web", "since": "2026-01-02T03:04:05Z", "waitsFor": "quota",
            "reason": "VENDOR_QUOTA",
        }],
        "heldBack": ["12 load balancers would be deleted at once"], "dryRun": false,
        "orphans": [{
            "uid": "6f1c", "key": "default/web", "vendorIds": ["lb-1"], "since": "2026-01-02T03:04:05Z",
            "released": false, "waitsFor": "a person",
        }],
        "moreOrphans": 0,
    }));
    round_trip::<Plans>(&json!({
        "controller": "service-controller", "dryRun": true, "lookedAt": 3, "of": 4, "next": "default/web",
        "objects": [{
            "kind": "Service", "key": "default/web", "cluster": ["add the finalizer"],
            "vendor": [{
                "description": "create listener tcp/443", "operation": "CreateListener", "family": "loadbalancer",
            }],
            "trouble": null, "reason": null,
        }],
    }));
    for (state, word) in [
        (State::NotLookedAt, "notLookedAt"),
        (State::Working, "working"),
        (State::Waiting, "waiting"),
        (State::Settled, "settled"),
        (State::NotOurs, "notOurs"),
    ] {
        assert_eq!(serde_json::to_value(state).expect("written"), json!(word));
    }
}

#[test]
fn pages_of_older_and_newer_processes_are_read() {
    let mut newer = adapter();
    newer["mood"] = json!("good");
    newer["budgets"][0]["mood"] = json!("good");
    let page: AdapterStatus = serde_json::from_value(newer).expect("unknown fields are ignored");
    assert_eq!(page.budgets.len(), 1);
    let newer: Explanation =
        serde_json::from_value(json!({ "state": "dreams" })).expect("unknown values are ignored, too");
    assert_eq!(newer.state, State::Unknown);
    let older = json!({ "adapter": "adapter-sim", "leader": true });
    let page: AdapterStatus = serde_json::from_value(older).expect("missing fields are empty");
    assert!(page.leader && page.budgets.is_empty(), "{page:?}");
}
