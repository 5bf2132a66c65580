//! Dashboards and alerts for the former cloud controller manager use certain metric names. The controller that now does the work exports
//! each of these metrics with its former labels. The metrics of real processes are documented in docs/reference/metrics.md.

use std::collections::BTreeSet;

use e2e::{ADAPTER, Bed};

/// The metrics page of each controller, and the start of each line that the page must contain. Values and labels that may differ are left
/// out.
const PAGES: [(&str, &[&str]); 3] = [
    (
        "node-controller",
        &[
            "node_controller_cloud_provider_taint_removal_delay_seconds_bucket{le=\"1.0\"",
            "node_controller_cloud_provider_taint_removal_delay_seconds_bucket{le=\"1024.0\"",
            "node_controller_initial_node_sync_delay_seconds_bucket{le=\"1.0\"",
            "node_controller_initial_node_sync_delay_seconds_bucket{le=\"1024.0\"",
            "running_managed_controllers{name=\"cloud-node\",manager=\"cloud-controller-manager\"} 1",
            "running_managed_controllers{name=\"cloud-node-lifecycle\",manager=\"cloud-controller-manager\"} 1",
            "leader_election_master_status{name=\"cloud-node-controller\"} 1",
        ],
    ),
    (
        "service-controller",
        &[
            "service_controller_loadbalancer_sync_total ",
            "service_controller_nodesync_error_total ",
            "service_controller_nodesync_latency_seconds_bucket{le=\"1.0\"",
            "service_controller_nodesync_latency_seconds_bucket{le=\"16384.0\"",
            "service_controller_update_loadbalancer_host_latency_seconds_bucket{le=\"1.0\"",
            "service_controller_update_loadbalancer_host_latency_seconds_bucket{le=\"16384.0\"",
            "running_managed_controllers{name=\"service\",manager=\"cloud-controller-manager\"} 1",
            "leader_election_master_status{name=\"cloud-service-controller\"} 1",
        ],
    ),
    (
        "route-controller",
        &[
            "route_controller_route_sync_total ",
            "running_managed_controllers{name=\"route\",manager=\"cloud-controller-manager\"} 1",
            "leader_election_master_status{name=\"cloud-route-controller\"} 1",
        ],
    ),
];

/// Value of the label `name` of each controller's work queue.
const QUEUES: [(&str, &str); 3] =
    [("node-controller", "Nodes"), ("service-controller", "service"), ("route-controller", "Routes")];

const QUEUE: [&str; 7] = [
    "workqueue_depth",
    "workqueue_adds_total",
    "workqueue_queue_duration_seconds_count",
    "workqueue_work_duration_seconds_count",
    "workqueue_unfinished_work_seconds",
    "workqueue_longest_running_processor_seconds",
    "workqueue_retries_total",
];

// Behaviour: P20, W21
#[tokio::test]
async fn former_metric_names_are_exported_by_the_controllers() {
    let mut bed = Bed::start().await.unwrap();
    bed.join("a", Some("10.244.1.0/24")).await.unwrap();
    bed.expose("web", 80).await.unwrap();
    bed.all_quiet().await.unwrap();

    let mut missing = Vec::new();
    let mut asked = asked_by_the_chart();
    assert!(asked.len() > 15, "{asked:?}");
    for (controller, names) in PAGES {
        let page = bed.cluster.pods.get(controller).unwrap().metrics().await.unwrap();
        asked.retain(|name| !page.contains(&format!("\n{name}{{")) && !page.contains(&format!("\n{name} ")));
        let queue = QUEUES.iter().find(|(name, _)| *name == controller).unwrap().1;
        let of_queue = QUEUE.map(|metric| format!("{metric}{{name=\"{queue}\"}} "));
        let wanted = names.iter().map(|name| (*name).to_owned()).chain(of_queue);
        let lines: Vec<&str> = page.lines().collect();
        let absent = wanted.filter(|wanted| !lines.iter().any(|line| line.starts_with(wanted.as_str())));
        missing.extend(absent.map(|wanted| format!("{controller}: {wanted}")));
        let never = format!("workqueue_adds_total{{name=\"{queue}\"}} 0");
        if lines.contains(&never.as_str()) {
            missing.push(format!("{controller}: it has reconciled, but the page has {never}"));
        }
        let counted = lines.iter().any(|line| {
            line.starts_with("cloud_controller_adapter_calls_total{")
                && line.contains("call=\"")
                && line.contains("outcome=\"OK\"")
        });
        if !counted {
            missing.push(format!("{controller}: cloud_controller_adapter_calls_total by call and outcome"));
        }
        // Hosts and counts differ; one write and one read must have been answered.
        for (method, code) in [("GET", "200"), ("PATCH", "200")] {
            let counted = lines.iter().any(|line| {
                line.starts_with("rest_client_requests_total{")
                    && line.contains(&format!("code=\"{code}\""))
                    && line.contains(&format!("method=\"{method}\""))
                    && line.contains("host=\"")
            });
            if !counted {
                missing.push(format!("{controller}: rest_client_requests_total {method} {code}"));
            }
        }
        let unlisted = test_support::reference::unlisted(&["every controller", controller], &page);
        missing.extend(
            unlisted.into_iter().map(|row| format!("docs/reference/metrics.md, {controller}: {row}")),
        );
        if !page.contains("rest_client_request_duration_seconds_bucket{") {
            missing.push(format!("{controller}: rest_client_request_duration_seconds"));
        }
    }
    let page = bed.cluster.pods.get(ADAPTER).unwrap().metrics().await.unwrap();
    let unlisted = test_support::reference::unlisted(&["cloud-adapter", "cloud-adapter, its port"], &page);
    missing.extend(unlisted.into_iter().map(|row| format!("docs/reference/metrics.md, {ADAPTER}: {row}")));
    assert!(missing.is_empty(), "{missing:#?}");
    assert!(asked.is_empty(), "not exported, but used by the chart's alerts and dashboard: {asked:?}");
}

/// Metrics of controllers that the chart's alerts and dashboard use. Those of the adapter are tested in the crate that exports them.
fn asked_by_the_chart() -> BTreeSet<String> {
    let texts = [
        include_str!("../../../helm/cloud-controllers/files/alerts.yaml"),
        include_str!("../../../helm/cloud-controllers/files/dashboard.json"),
    ];
    let begins = ["cloud_controller_", "node_controller_", "service_controller_", "route_controller_"];
    let shared = ["leader_election_", "rest_client_", "running_managed_", "workqueue_"];
    let ours = |word: &&str| begins.iter().chain(&shared).any(|begin| word.starts_with(begin));
    let words =
        texts.into_iter().flat_map(|text| text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_'));
    words.filter(ours).map(str::to_owned).collect()
}
