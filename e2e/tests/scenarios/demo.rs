//! Tests of the demo with JSON output.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};

use anyhow::ensure;
use e2e::{PrometheusApi, WITHIN, dashboard_queries, eventually};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, from_str};
use telemetry::traces::testing::Collector;
use tokio::task::spawn_blocking;

/// The default value of Grafana's `$__rate_interval`, if the scrape interval of Prometheus is not configured.
const INTERVAL: &str = "1m";

/// Each step passes, each line is a JSON object, and the nodes cost what the documentation says.
#[test]
fn the_demo_passes_and_reports_each_step() {
    let output = Command::new(env!("CARGO_BIN_EXE_demo"))
        .args(["--once", "--json", "--nodes=20", "--observe"])
        .output();
    let output = output.unwrap();

    let (printed, errors) =
        (String::from_utf8(output.stdout).unwrap(), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{}: {printed}\n{errors}", output.status);
    let lines: Vec<Value> = printed.lines().map(|line| from_str(line).expect(line)).collect();
    let steps = |event| lines.iter().filter(move |line| line["event"] == event).map(|line| &line["step"]);
    let begun: Vec<_> = steps("step_begins").collect();
    assert!(begun.len() >= 8, "{begun:?}");
    assert_eq!(steps("step_passed").collect::<Vec<_>>(), begun);
    assert_eq!(steps("step_failed").count(), 0);
    let summary = lines.iter().find(|line| line["event"] == "summary").expect("a summary");
    assert_eq!(summary["passed"], true);
    assert_eq!(summary["steps"].as_array().map(Vec::len), Some(begun.len()));

    let mut notes = lines.iter().filter_map(|line| line["text"].as_str());
    let address = notes.find_map(|note| note.strip_prefix("Prometheus is at http://")).expect("Prometheus");
    assert!(TcpStream::connect(address).is_err(), "it is still there");

    let cost = |step| {
        let passed = lines.iter().find(|line| line["event"] == "step_passed" && line["step"] == step);
        let cost = &passed.expect(step)["vendor_calls"];
        (cost["reads"].as_u64().unwrap(), cost["writes"].as_u64().unwrap())
    };
    let (reads, writes) = cost("nodes");
    assert!(reads <= 5 && writes == 0, "{reads} reads, {writes} writes");
    assert_eq!(cost("restart").1, 0);
}

/// While the demo stays up, a killed process is restarted soon, and Ctrl-C still ends the demo gracefully.
#[test]
fn the_demo_restarts_a_killed_process() {
    let mut demo = Staying::start(Command::new(env!("CARGO_BIN_EXE_demo")).args(["--json", "--nodes=1"]));
    let mut lines = demo.lines();
    let mut next = |event| lines.find(|line| line["event"] == event).expect(event);
    let kill = |pid: &Value, signal| {
        let pid = pid.as_i64().and_then(|pid| Pid::from_raw(pid.try_into().unwrap()));
        kill_process(pid.unwrap(), signal).unwrap();
    };

    let processes = next("stay")["processes"].clone();
    assert_eq!(processes.as_array().map(Vec::len), Some(4), "{processes}");
    for process in [&processes[0], &processes[1]] {
        kill(&process["pid"], Signal::KILL);
        let ended = next("process_ended");
        assert_eq!((&ended["process"], &ended["how"]), (&process["process"], &"signal 9".into()));
        assert_eq!(ended["again_in_millis"], 1000);
        let started = next("process_started");
        assert_eq!(started["process"], process["process"]);
        assert_ne!(started["pid"], process["pid"]);
    }
    // The restart has just happened, so the ports of some processes may not be open yet. These processes must end, too.
    kill(&demo.0.id().into(), Signal::INT);
    next("clean_up");
    assert!(demo.0.wait().unwrap().success());
}

/// As in docs/monitor.md: each query of the dashboard has data, and the collector has traces of all four processes.
#[tokio::test]
async fn observed_demo_has_dashboard_data_and_traces() {
    let collector = Collector::start().await.unwrap();
    let mut demo = Command::new(env!("CARGO_BIN_EXE_demo"));
    demo.args(["--json", "--nodes=5", "--observe"]).env("OTEL_EXPORTER_OTLP_ENDPOINT", collector.endpoint());
    let mut demo = Staying::start(&mut demo);
    let mut lines = demo.lines();
    // The collector must keep running, so this waits in another thread.
    let stay = spawn_blocking(move || lines.find(|line| line["event"] == "stay").expect("the demo stays up"));
    let stay = stay.await.unwrap();

    let prometheus = PrometheusApi::at(stay["prometheus"].as_str().expect("Prometheus")).unwrap();
    let queries = dashboard_queries(INTERVAL).unwrap();
    assert!(queries.len() > 25, "{queries:#?}");
    let answered = eventually("each query of the dashboard has data", WITHIN, || async {
        let mut unanswered = Vec::new();
        for query in &queries {
            // Each query must have had a value at some time of the demo, as in a graph. A quotient whose divisor is 0 has no value.
            let ever = format!("max_over_time(({query})[10m:1s])");
            let samples = prometheus.query(&ever).await?;
            if !samples.iter().any(|sample| sample.value.is_finite()) {
                unanswered.push(query);
            }
        }
        ensure!(unanswered.is_empty(), "no value for {unanswered:#?}");
        Ok(())
    });
    answered.await.unwrap();

    let wanted = ["adapter-sim", "node-controller", "route-controller", "service-controller"];
    let traced = eventually("all four have sent traces", WITHIN, || async {
        let senders: BTreeSet<_> = collector.received().into_iter().map(|span| span.service).collect();
        ensure!(senders.iter().eq(wanted.iter()), "{senders:?}");
        Ok(())
    });
    traced.await.unwrap();
}

/// Ends the demo gracefully with its test, even if the test fails.
pub(super) struct Staying(Child);

impl Staying {
    pub(super) fn start(demo: &mut Command) -> Self {
        Self(demo.stdout(Stdio::piped()).spawn().unwrap())
    }

    pub(super) fn lines(&mut self) -> impl Iterator<Item = Value> + use<> {
        let lines = BufReader::new(self.0.stdout.take().unwrap()).lines();
        lines.map(|line| from_str::<Value>(&line.unwrap()).unwrap())
    }
}

impl Drop for Staying {
    fn drop(&mut self) {
        if matches!(self.0.try_wait(), Ok(None)) {
            kill_process(Pid::from_child(&self.0), Signal::TERM).ok();
            self.0.wait().ok();
        }
    }
}
