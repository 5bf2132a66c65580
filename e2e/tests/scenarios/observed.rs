//! A real Prometheus scrapes the real processes and runs the chart's dashboard and alerts: each query has a result, and faults make alerts
//! fire.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context, ensure};
use e2e::{Bed, Pace, Prometheus, Ready, WITHIN, dashboard_queries, eventually, node, service};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::json;

const ALERTS: &str = include_str!("../../../helm/cloud-controllers/files/alerts.yaml");
const PACE: Pace = Pace { every: Duration::from_millis(500), lasts: None };
/// The scrape interval, which replaces Grafana's variable in the queries.
const INTERVAL: &str = "30s";
const OURS: [&str; 9] = [
    "cloud_adapter_",
    "cloud_controller_",
    "leader_election_",
    "node_controller_",
    "rest_client_",
    "route_controller_",
    "running_managed_",
    "service_controller_",
    "workqueue_",
];
/// Maximum number of nodes that join one after the other, until every query of the dashboard has a value.
const ROUNDS: usize = 20;

#[tokio::test]
async fn chart_queries_have_results_and_faults_fire_alerts() {
    let few = json!({ "rate": 20, "burst": 20 });
    let limits = json!({ "buckets": { "compute": few, "network": few, "loadbalancer": few } });
    let often = json!({ "maxAge": "2s" });
    let cache = json!({ "instances": often, "loadBalancers": often, "routes": often });
    let values = json!({ "adapter": { "limits": limits, "cache": cache } });
    let mut bed = Bed::install_with(&values).await.unwrap();
    let cluster = &mut bed.cluster;
    let prometheus = Prometheus::start(&cluster.control_plane, &cluster.pods, PACE).await.unwrap();
    bed.start_pods().await.unwrap();

    trouble(&bed).await;
    let queries = queries();
    assert!(queries.len() > 40, "{queries:#?}");
    let mut unanswered = Vec::new();
    // Prometheus computes no increase from the first sample of a counter, so several rounds of traffic may be needed until every query has
    // a value.
    for round in 1..=ROUNDS {
        traffic(&bed, round).await;
        unanswered.clear();
        for query in &queries {
            let samples = prometheus.api.query(query).await.unwrap();
            if !samples.iter().any(|sample| sample.value.is_finite()) {
                unanswered.push(query);
            }
        }
        if unanswered.is_empty() {
            break;
        }
    }
    assert!(unanswered.is_empty(), "no value for {unanswered:#?} after {ROUNDS} rounds");
    values_match(&prometheus).await;
    rules(&bed, &prometheus).await;
    prometheus.stop().await.unwrap();
}

async fn trouble(bed: &Bed) {
    let faults = [
        ("CreateLoadBalancer", 1, json!({ "status": 429, "headers": { "retry-after": "1" } })),
        ("ListInstances", 1, json!({ "status": 503 })),
    ];
    for (operation, next, answer) in faults {
        let rule = json!({ "match": { "operation": operation }, "when": { "next": next }, "action": { "respond": answer } });
        bed.cluster.cloud.add_fault(&serde_json::from_value(rule).unwrap()).await.unwrap();
    }
    node("ghost").provider_id("sim://sim-1/i-9999").register(&bed.client()).await.unwrap();
    e2e::set_ready(&bed.client(), "ghost", Ready::Unknown).await.unwrap();
    let broken = service("broken").port(80).annotation("lb.cloudadapter.dev/no-such-key", "1");
    broken.create(&bed.client()).await.unwrap();
}

async fn traffic(bed: &Bed, round: usize) {
    let name = format!("n-{round}");
    bed.join(&name, Some(&format!("10.244.{round}.0/24"))).await.unwrap();
    service(&format!("web-{round}")).port(80).create(&bed.client()).await.unwrap();
    bed.address(&format!("web-{round}")).await.unwrap();
    bed.until_cloud("the node is a backend", |state| {
        let members = &state.balancer(&format!("web-{round}"))?.pools.first().context("no pool")?.members;
        ensure!(members.len() == round, "{} members", members.len());
        ensure!(state.routes.len() == round, "{} routes", state.routes.len());
        Ok(())
    })
    .await
    .unwrap();
}

async fn values_match(prometheus: &Prometheus) {
    for (query, least) in [
        ("sum(cloud_adapter_leader)", 1.0),
        ("sum(up)", 4.0),
        ("sum(cloud_adapter_vendor_throttled_total{bucket=\"loadbalancer\",source=\"status\"})", 1.0),
        ("sum(cloud_adapter_vendor_calls_total{op=\"CreateLoadBalancer\",code=\"429\"})", 1.0),
        ("sum(cloud_adapter_vendor_calls_total{op=\"ListInstances\",code=\"503\"})", 1.0),
        ("max(cloud_controller_load_balancer_targets)", 1.0),
    ] {
        let seen = eventually(query, WITHIN, || async {
            let samples = prometheus.api.query(query).await?;
            let value = samples.first().context("nothing")?.value;
            ensure!(value >= least, "{value}");
            Ok(())
        });
        seen.await.unwrap();
    }
}

/// Each rule can be evaluated; the alert for a refused file fires until the file is fixed.
async fn rules(bed: &Bed, prometheus: &Prometheus) {
    let stands = async |name: &str, state: &str| {
        let what = format!("{name} is {state}");
        let seen = eventually(&what, WITHIN, || async {
            let rules = prometheus.api.rules().await?;
            let rule = rules.iter().find(|rule| rule.name == name).context("no such rule")?;
            ensure!(rule.state == state, "the state is {}", rule.state);
            Ok(())
        });
        seen.await.unwrap();
    };
    let rules = prometheus.api.rules().await.unwrap();
    let sick: Vec<_> = rules.iter().filter(|rule| rule.health != "ok").collect();
    assert!(sick.is_empty() && rules.len() == alerts().count(), "{} rules: {sick:#?}", rules.len());

    stands("CloudAdapterConfigRefused", "inactive").await;
    let maps: Api<ConfigMap> = Api::namespaced(bed.client(), "kube-system");
    let good = maps.get("cloud-adapter").await.unwrap().data.unwrap();
    let (key, text) = good.iter().next().unwrap();
    for (text, state) in [("limits: {mode: nonsense}", "firing"), (text.as_str(), "inactive")] {
        let patch = Patch::Merge(json!({ "data": { key: text } }));
        maps.patch("cloud-adapter", &PatchParams::default(), &patch).await.unwrap();
        bed.cluster.pods.refresh_volumes(&bed.cluster.control_plane).await.unwrap();
        stands("CloudAdapterConfigRefused", state).await;
    }
}

/// Every query of the dashboard, and every series that an alert uses.
fn queries() -> BTreeSet<String> {
    let of_board = dashboard_queries(INTERVAL).unwrap();
    let of_alerts = alerts().flat_map(series).collect::<Vec<_>>();
    assert!(of_alerts.len() > 25, "{of_alerts:?}");
    of_board.into_iter().chain(of_alerts).collect()
}

fn alerts() -> impl Iterator<Item = &'static str> {
    ALERTS.split("      - alert: ").skip(1).map(|rule| {
        let (_, rest) = rule.split_once("        expr:").unwrap();
        rest.split("        for:").next().unwrap().split("        labels:").next().unwrap()
    })
}

/// The metrics in an expression, each with its matchers.
fn series(expr: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut rest = expr;
    while let Some(at) = OURS.iter().filter_map(|begin| rest.find(begin)).min() {
        let (_, from) = rest.split_at(at);
        let end = from.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(from.len());
        let (name, after) = from.split_at(end);
        let matchers = after.strip_prefix('{').and_then(|it| it.split_once('}'));
        found.push(matchers.map_or_else(|| name.to_owned(), |(matchers, _)| format!("{name}{{{matchers}}}")));
        rest = matchers.map_or(after, |(_, rest)| rest);
    }
    found
}

#[test]
fn series_of_an_expression_are_found() {
    assert_eq!(
        series(
            r#"histogram_quantile(0.9, sum by (le) (rate(workqueue_a_bucket{b="c", d=~"e"}[5m]))) > 2 and on (x) running_managed_y == 1"#
        ),
        [r#"workqueue_a_bucket{b="c", d=~"e"}"#, "running_managed_y"]
    );
    assert_eq!(alerts().count(), ALERTS.matches("- alert:").count());
}
