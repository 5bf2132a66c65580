//! Tests that absence must be proven: wrong credentials, empty clouds and mass disappearance cause no deletion.

use std::time::Duration;

use cloud_api_proto::v1alpha1::{Existence, InstanceResult, evidence::Method, instance_ref::Ref};
use futures::future::join_all;
use reqwest::Method as Http;
use serde_json::{Value, json};

use crate::{
    adapter::bench::{Bench, bench},
    support::live,
    support::until,
};

/// The number of nodes of a large cluster, and the number of references in one request.
const NODES: u32 = 5000;
const REFS: u32 = 500;
/// Number of instances of other owners in the project.
const STRANGERS: u32 = 3;

/// A duration that is longer than the consistency horizon of the bench.
const BEYOND_THE_HORIZON: Duration = Duration::from_secs(3);

/// Returns the provider ID of a node of the cluster. The other instances of the project have lower numbers.
fn node(n: u32) -> Ref {
    Ref::ProviderId(format!("sim://sim-1/i-{:04}", n + STRANGERS))
}

async fn ask(bench: &Bench, refs: impl IntoIterator<Item = Ref>) -> Vec<InstanceResult> {
    bench.adapter.batch_get(live(), refs).await.expect("possible").results
}

async fn count(bench: &Bench, wanted: Existence) -> usize {
    let asking = (0..NODES / REFS).map(|n| ask(bench, (n * REFS + 1..=(n + 1) * REFS).map(node)));
    let results = join_all(asking).await.into_iter().flatten();
    results.filter(|result| result.existence() == wanted).count()
}

/// Returns how often a node was reported as GONE until the consistency horizon has passed.
async fn ever_gone(bench: &Bench) -> usize {
    let (started, mut gone, mut rounds) = (tokio::time::Instant::now(), 0, 0);
    while started.elapsed() < BEYOND_THE_HORIZON || rounds < 3 {
        gone += count(bench, Existence::Gone).await;
        rounds += 1;
    }
    gone
}

/// Simulates credentials for another project. The cloud lists no instance and finds none of the nodes.
async fn another_project(bench: &Bench) {
    let missing: Vec<String> = (1..=NODES + STRANGERS + 100).map(|n| format!("i-{n:04}")).collect();
    for (operation, body) in [
        ("ListInstances", json!({ "instances": [], "next": null })),
        ("BatchGetInstances", json!({ "instances": [], "missing": missing })),
    ] {
        let action = json!({ "respond": { "status": 200, "body": body } });
        bench.cloud.fault(json!({ "match": { "operation": operation }, "action": action })).await;
    }
}

async fn remove(bench: &Bench, one: &str) {
    bench.cloud.admin(Http::DELETE, &format!("instances/{one}"), Value::Null).await;
}

async fn becomes(bench: &Bench, one: Ref, wanted: Existence) -> InstanceResult {
    let mut last = InstanceResult::default();
    until("the answer", async || {
        last = ask(bench, [one.clone()]).await.remove(0);
        last.existence() == wanted
    })
    .await;
    last
}

/// Property P22 of docs/limits.md: the adapter starts with credentials of a project whose instances all belong to other owners.
#[tokio::test]
async fn foreign_credentials_at_start_delete_nothing() {
    let bench = bench().await;
    bench.cloud.machines(STRANGERS.into()).await;
    assert_eq!(ever_gone(&bench).await, 0);
    assert_eq!(count(&bench, Existence::NotVisible).await, NODES as usize);
}

/// Property P22 of docs/limits.md while the adapter runs: the self-check reports another project, the same project, or nothing.
#[tokio::test]
async fn credentials_of_another_project_later_delete_nothing() {
    let project = |name: &str| json!({ "account": "sim", "project": name, "region": "sim-1" });
    for check in [
        json!({ "status": 200, "body": project("other") }),
        json!({ "status": 200, "body": project("demo") }),
        json!({ "status": 403 }),
    ] {
        let bench = bench().await;
        bench.cloud.machines(u64::from(STRANGERS + NODES)).await;
        assert_eq!(count(&bench, Existence::Exists).await, NODES as usize);
        let rule = json!({ "match": { "operation": "GetProject" }, "action": { "respond": check } });
        bench.cloud.fault(rule).await;
        another_project(&bench).await;
        assert_eq!(ever_gone(&bench).await, 0, "{check}");
        bench.cloud.admin(Http::DELETE, "faults", Value::Null).await;
        assert_eq!(
            count(&bench, Existence::Exists).await,
            NODES as usize,
            "{check}: afterwards all \
        instances exist again"
        );
    }
}

#[tokio::test]
async fn single_missing_instance_needs_a_witness() {
    let bench = bench().await;
    bench.cloud.machines(u64::from(STRANGERS) + 20).await;
    ask(&bench, (1..=20).map(node)).await;
    another_project(&bench).await;
    let started = tokio::time::Instant::now();
    while started.elapsed() < BEYOND_THE_HORIZON {
        for n in [7, 7, 8, 7] {
            assert_eq!(ask(&bench, [node(n)]).await[0].existence(), Existence::NotVisible);
        }
    }
}

#[tokio::test]
async fn nodes_deleted_one_by_one_are_each_gone() {
    let bench = bench().await;
    bench.cloud.machines(u64::from(STRANGERS) + 3).await;
    ask(&bench, (1..=3).map(node)).await;
    for n in 1..=STRANGERS {
        remove(&bench, &format!("i-{n:04}")).await;
    }
    for (n, witnesses) in [(1, true), (2, true), (3, false)] {
        remove(&bench, &format!("i-{:04}", n + STRANGERS)).await;
        let result = becomes(&bench, node(n), Existence::Gone).await;
        let evidence = result.evidence.expect("proof");
        assert_eq!(evidence.method(), Method::DirectGetNotFound);
        assert_eq!(
            evidence.witnesses > 0,
            witnesses,
            "node {n}: for the last node, the credentials are the witness"
        );
        assert_eq!(evidence.scope.map(|scope| scope.project), Some("demo".to_owned()));
    }
}

#[tokio::test]
async fn terminated_instance_is_gone_with_a_witness() {
    let bench = bench().await;
    bench.cloud.machines(u64::from(STRANGERS) + 1).await;
    for n in 1..=STRANGERS {
        remove(&bench, &format!("i-{n:04}")).await;
    }
    let path = format!("instances/i-{:04}", 1 + STRANGERS);
    bench.cloud.admin(Http::PATCH, &path, json!({ "status": "terminated" })).await;
    let result = becomes(&bench, node(1), Existence::Gone).await;
    assert_eq!(
        result.evidence.expect("proof").method(),
        Method::TerminalState,
        "the credentials are the witness"
    );
    let silent =
        json!({ "match": { "operation": "GetProject" }, "action": { "respond": { "status": 503 } } });
    bench.cloud.fault(silent).await;
    assert_eq!(ask(&bench, [node(1)]).await[0].existence(), Existence::NotVisible, "no witness");
    bench.cloud.machines(1).await;
    let results = ask(&bench, [node(1), node(2)]).await;
    assert_eq!(results[0].existence(), Existence::Gone, "another node is the witness");
    assert_eq!(results[0].evidence.as_ref().map(|evidence| evidence.witnesses), Some(1));
}

#[tokio::test]
async fn instance_that_reappears_exists() {
    let bench = bench().await;
    bench.cloud.machines(u64::from(STRANGERS) + 2).await;
    let missing = json!({ "instances": [], "missing": ["i-0004"] });
    let rule = json!({
        "match": { "operation": "BatchGetInstances" },
        "when": { "next": 1 },
        "action": { "respond": { "status": 200, "body": missing } },
    });
    bench.cloud.fault(rule).await;
    assert_eq!(ask(&bench, [node(1)]).await[0].existence(), Existence::NotVisible, "reads may lag");
    let results = ask(&bench, [node(1), node(2)]).await;
    assert!(results.iter().all(|result| result.existence() == Existence::Exists), "{results:?}");
}
