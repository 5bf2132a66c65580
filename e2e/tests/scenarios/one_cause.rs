//! Tests that all outputs name the same cause of a Service that waits for the budget, with the same text. The outputs are `kubectl
//! describe`, `cloudctl explain`, the status page, an alert and a trace. The transcript in the documentation matches them.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use e2e::{ADAPTER, Alert, Bed, Pace, Prometheus, WITHIN, binaries, eventually, service, tools};
use serde_json::json;
use telemetry::traces::testing::{Collector, Received};
use tokio::process::Command;

const CAUSE: &str = "waits for the call budget of bucket loadbalancer";
const PAGE: &str = include_str!("../../../docs/explain/one-cause.md");
/// Start of those blocks of the page whose lines must appear in the output.
const BLOCK: &str = "```text";
/// Names of the Services. They are more than this budget can serve during the scenario.
const SERVICES: [&str; 10] =
    ["shop", "api", "mail", "search", "login", "metrics", "images", "chat", "news", "web"];
const WEB: &str = "web";
/// The alert must fire while the Service waits, so its rule fires after 5 seconds instead of the chart's two minutes.
const PACE: Pace = Pace { every: Duration::from_millis(500), lasts: Some(Duration::from_secs(5)) };

#[tokio::test]
async fn all_outputs_name_the_same_cause_of_a_waiting_service() {
    let collector = Collector::start().await.unwrap();
    let mut bed = small_budget(&collector).await;
    let cluster = &mut bed.cluster;
    let prometheus = Prometheus::start(&cluster.control_plane, &cluster.pods, PACE).await.unwrap();
    bed.start_pods().await.unwrap();
    bed.join("a", None).await.unwrap();
    bed.targets(1).await.unwrap();
    for name in SERVICES {
        service(name).port(80).create(&bed.client()).await.unwrap();
    }

    let event = bed.wait_for_event("Service", WEB, "WaitingForBudget").await.unwrap();
    assert_eq!(event, format!("The load balancer {CAUSE}"));
    let said = [
        ("kubectl get", kubectl(&bed, &["get", "service", WEB]).await),
        ("kubectl describe", kubectl(&bed, &["describe", "service", WEB]).await),
        ("cloudctl explain", cloudctl(&bed).await),
        ("the status page", page(&bed).await),
        ("the alert", alert(&prometheus).await),
        ("the trace", trace(&collector).await),
    ];
    let mut transcript = String::new();
    for (who, words) in &said {
        transcript.push_str(&format!("# {who}\n{words}\n\n"));
    }
    keep(&transcript);
    for (who, words) in &said[1..] {
        assert!(words.contains(CAUSE), "{who} names another cause:\n{words}");
    }
    let said = words(transcript.lines());
    let is_said = |lines: &Vec<&str>| {
        let lines = words(lines.iter().copied());
        said.windows(lines.len()).any(|window| window == lines)
    };
    let untrue: Vec<_> = shown().into_iter().filter(|lines| !is_said(lines)).collect();
    assert!(
        untrue.is_empty(),
        "docs/explain/one-cause.md has lines that are not in the output: \
         {untrue:#?}\n{transcript}"
    );
    prometheus.stop().await.unwrap();
}

/// Starts a cluster whose budget allows one call in two seconds. All processes send traces.
async fn small_budget(collector: &Collector) -> Bed {
    let limits = json!({ "reserve": 0, "buckets": { "loadbalancer": { "rate": 0.5, "burst": 1 } } });
    let variables = json!([
        { "name": "OTEL_EXPORTER_OTLP_ENDPOINT", "value": collector.endpoint() },
        { "name": "OTEL_BSP_SCHEDULE_DELAY", "value": "100" },
    ]);
    let values = json!({
        "adapter": { "limits": limits, "extraEnv": variables },
        "serviceController": { "extraEnv": variables },
    });
    Bed::install_with(&values).await.unwrap()
}

async fn kubectl(bed: &Bed, args: &[&str]) -> String {
    let mut command = Command::new(tools().unwrap().kubectl.path);
    command.arg("--kubeconfig").arg(bed.cluster.control_plane.kubeconfig()).args(args);
    printed(command).await
}

async fn cloudctl(bed: &Bed) -> String {
    let mut command = Command::new(binaries().unwrap().join("cloudctl"));
    command.arg("--kubeconfig").arg(bed.cluster.control_plane.kubeconfig());
    for name in bed.cluster.pods.names() {
        let url = bed.cluster.pods.look_at(&name).unwrap().url("/").unwrap();
        command.arg("--url").arg(format!("{name}={}", url.trim_end_matches('/')));
    }
    command.args(["explain", "service", WEB]);
    printed(command).await
}

async fn printed(mut command: Command) -> String {
    let output = command.kill_on_drop(true).output().await.unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(!text.is_empty(), "{:?}: {}", output.status, String::from_utf8_lossy(&output.stderr));
    text
}

/// The table row of the Service, cell by cell.
async fn page(bed: &Bed) -> String {
    let row = eventually("the page shows the Service", WITHIN, || async {
        let page = bed.cluster.pods.look_at(ADAPTER)?.page("/").await?;
        let name = format!(">default/{WEB}<");
        let row = page.split("<tr>").find(|row| row.contains(&name) && row.contains(CAUSE));
        Ok(row.context("no row of the Service has the cause")?.to_owned())
    });
    let row = row.await.unwrap();
    let row = row.split("</tr>").next().unwrap_or_default();
    let cells: Vec<&str> =
        row.split('<').filter_map(|tag| tag.split_once('>')).map(|(_, text)| text.trim()).collect();
    cells.into_iter().filter(|text| !text.is_empty()).collect::<Vec<_>>().join(" | ")
}

async fn alert(prometheus: &Prometheus) -> String {
    let alert = eventually("the alert fires", WITHIN, || async {
        let all = prometheus.api.alerts().await?;
        let fires = |alert: &&Alert| {
            let name = alert.labels.get("alertname").map(String::as_str);
            name == Some("CloudServiceWaitsForBudget") && alert.state == "firing"
        };
        all.iter().find(fires).cloned().with_context(|| format!("{all:?}"))
    });
    let alert = alert.await.unwrap();
    let lines = ["summary", "description", "runbook"].map(|name| {
        let text = alert.annotations.get(name).map(String::as_str).unwrap_or_default();
        format!("{name}: {text}")
    });
    let name = alert.labels.get("alertname").map(String::as_str).unwrap_or_default();
    format!("{name}: {}\n{}", alert.state, lines.join("\n"))
}

/// The spans from the reconcile of the Service to the vendor call that waited. A call that several Services wait for is in the trace of one
/// of them.
async fn trace(collector: &Collector) -> String {
    let way = eventually("the call that waited is traced", 3 * WITHIN, || async {
        let received = collector.received();
        let object = format!("Service default/{WEB} (");
        let of = |it: &&Received, name: &str| it.attributes.get(name).cloned().unwrap_or_default();
        let calls = received.iter().filter(|it| {
            of(it, "cloud.object").starts_with(&object) && of(it, "cloud.waits_for").starts_with(CAUSE)
        });
        let key = format!("default/{WEB}");
        let ways = calls.map(|call| {
            let first = format!(
                "{}: {} cloud.waits_for=\"{}\"",
                call.service,
                call.name,
                of(&call, "cloud.waits_for")
            );
            let (mut way, mut at) = (vec![first], call);
            while !at.parent.is_empty() {
                let parent = received.iter().find(|it| it.id == at.parent && it.trace == at.trace);
                at = parent.with_context(|| format!("the parent of {at:?} has not arrived"))?;
                way.push(format!("{}: {}", at.service, at.name));
            }
            ensure!(
                at.attributes.get("reconcile.key") == Some(&key),
                "the root is not the reconcile of the Service: {at:?}"
            );
            Ok(way)
        });
        let mut seen = Vec::new();
        for way in ways {
            match way {
                Ok(way) => return Ok(way),
                Err(error) => seen.push(format!("{error:#}")),
            }
        }
        bail!("{} calls that waited, without a complete trace: {seen:#?}", seen.len())
    });
    way.await.unwrap().into_iter().rev().collect::<Vec<_>>().join("\n")
}

/// Returns the lines of the page's transcript that the output must contain. Each piece is a sequence of consecutive lines, which `...` or
/// the next command ends.
fn shown() -> Vec<Vec<&'static str>> {
    let blocks: Vec<&str> = PAGE.split(BLOCK).skip(1).filter_map(|rest| rest.split("```").next()).collect();
    let lines: Vec<Vec<&str>> = blocks.iter().map(|block| block.lines().collect()).collect();
    let pieces = lines.iter().flat_map(|lines| lines.split(|line| line.starts_with('$') || *line == "..."));
    let pieces = pieces.map(|lines| lines.iter().copied().filter(|line| !line.trim().is_empty()).collect());
    let pieces: Vec<Vec<&str>> = pieces.filter(|lines: &Vec<&str>| !lines.is_empty()).collect();
    assert!(blocks.len() == 5 && pieces.len() > 5, "{pieces:#?}");
    pieces
}

fn words<'a>(lines: impl Iterator<Item = &'a str>) -> Vec<String> {
    lines.map(masked).filter(|line| !line.is_empty()).collect()
}

/// Masks what differs each time: numbers, times, UIDs, plural forms, and widths of columns.
fn masked(line: &str) -> String {
    let words = line.split_whitespace().map(|word| {
        if word.chars().any(|it| it.is_ascii_digit()) { "#" } else { word.trim_end_matches('s') }
    });
    words.collect::<Vec<_>>().join(" ")
}

/// Saves the transcript, so that it can be copied to the documentation.
fn keep(transcript: &str) {
    let dir = binaries().unwrap().with_file_name("e2e-artifacts");
    fs::create_dir_all(&dir).unwrap();
    fs::write(Path::new(&dir).join("one-cause.txt"), transcript).unwrap();
}

#[test]
fn masked_lines_match_whatever_their_numbers() {
    let line = "  Normal  WaitingForBudget  12s  service-controller  waits";
    assert_eq!(masked(line), masked("Normal WaitingForBudget 7s service-controller  waits"));
    assert_ne!(masked(line), masked("Normal WaitingForBudget 7s service-controller  sleeps"));
    assert_eq!(masked("1 call waits"), masked("5 calls wait"));
}
