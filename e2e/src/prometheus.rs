//! A real Prometheus that scrapes the processes of a release and evaluates the alerts of the chart.

mod api;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, ensure};
use e2e_tools::Environment;
use serde_json::json;

use crate::control_plane::ControlPlane;
use crate::eventually::eventually;
use crate::helm::chart;
use crate::pods::Pods;
use crate::process::{Launch, Process};
use crate::seconds;

pub use api::{Alert, PrometheusApi, Rule, Sample};

/// The name of the job, as the Prometheus operator derives it from the chart's Service.
const JOB: &str = "cloud-controllers-metrics";

/// A running Prometheus. Dropping this value kills the server; the server's data is removed with the control plane.
#[derive(Debug)]
pub struct Prometheus {
    process: Process,
    targets: usize,
    /// A client of the server's API.
    pub api: PrometheusApi,
}

/// The intervals that decide how soon Prometheus notices and reports changes.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// The interval of scrapes and of evaluations of the rules.
    pub every: Duration,
    /// Replaces the `for` of all alerts, so that tests do not wait for minutes.
    pub lasts: Option<Duration>,
}

impl Prometheus {
    /// Starts a Prometheus that scrapes every process, and waits until it answers. The processes need not run yet.
    pub async fn start(control_plane: &ControlPlane, pods: &Pods, pace: Pace) -> anyhow::Result<Self> {
        let program = e2e_tools::Prometheus::get(&Environment::of_this_process()?)?.server;
        let dir = control_plane.dir().join("prometheus");
        fs::create_dir_all(&dir).with_context(|| format!("cannot create {}", dir.display()))?;
        let (config, rules) = (dir.join("prometheus.yml"), dir.join("alerts.yaml"));
        fs::write(&config, configuration(pods, pace.every, &rules)?)
            .context("cannot write Prometheus' configuration")?;
        let shipped = chart().join("files").join("alerts.yaml");
        let shipped = fs::read_to_string(shipped).context("cannot read the chart's alerts")?;
        let text = match pace.lasts {
            None => shipped,
            Some(lasts) => firing_after(&shipped, lasts),
        };
        fs::write(&rules, text).context("cannot write Prometheus' rules")?;
        let address = format!("127.0.0.1:{}", test_support::ports::take()?);
        let launch = Launch {
            name: "prometheus".to_owned(),
            program,
            args: vec![
                format!("--config.file={}", config.display()),
                format!("--storage.tsdb.path={}", dir.join("data").display()),
                format!("--web.listen-address={address}"),
                "--log.level=warn".to_owned(),
            ],
            env: BTreeMap::new(),
            log_dir: control_plane.log_dir(),
        };
        let api = PrometheusApi::at(format!("http://{address}"))?;
        let mut this = Self { process: launch.start()?, targets: pods.names().len(), api };
        eventually("Prometheus answers", seconds(30), || this.api.is_ready()).await?;
        this.process.ensure_running()?;
        Ok(this)
    }

    /// Waits until each process was scraped, because an increase is only visible relative to an earlier scrape.
    pub async fn sees_all(&self) -> anyhow::Result<()> {
        eventually("Prometheus has scraped each process", seconds(30), || async {
            let answered = self.api.query("up == 1").await?.len();
            ensure!(answered == self.targets, "{answered} of {} processes answered", self.targets);
            Ok(())
        })
        .await
    }

    /// Stops the server.
    pub async fn stop(mut self) -> anyhow::Result<()> {
        let status = self.process.terminate(seconds(10)).await?;
        ensure!(status.success(), "Prometheus ended with {status}");
        Ok(())
    }
}

/// The configuration, as JSON, which is also YAML.
fn configuration(pods: &Pods, every: Duration, rules: &Path) -> anyhow::Result<String> {
    let every = format!("{}ms", every.as_millis());
    let target = |name: String| {
        let url = pods.look_at(&name)?.metrics_url()?;
        let target = url.trim_start_matches("http://").trim_end_matches("/metrics");
        let labels = json!({ "namespace": "kube-system", "pod": name });
        anyhow::Ok(json!({ "targets": [target], "labels": labels }))
    };
    let targets = pods.names().into_iter().map(target).collect::<anyhow::Result<Vec<_>>>()?;
    let config = json!({
        "global": { "scrape_interval": every, "scrape_timeout": every, "evaluation_interval": every },
        "rule_files": [rules],
        "scrape_configs": [{ "job_name": JOB, "static_configs": targets }],
    });
    Ok(config.to_string())
}

/// Returns `rules` with each `for:` set to the duration `lasts`.
fn firing_after(rules: &str, lasts: Duration) -> String {
    let line = |line: &str| match line.split_once("for: ") {
        Some((indent, _)) if indent.trim().is_empty() => format!("{indent}for: {}ms\n", lasts.as_millis()),
        Some(_) | None => format!("{line}\n"),
    };
    rules.lines().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::{firing_after, seconds};

    #[test]
    fn only_the_duration_of_alerts_is_changed() {
        let shipped = "- alert: A\n  expr: up == 0\n  for: 5m\n  annotations: { summary: waits for: you }\n";
        assert_eq!(firing_after(shipped, seconds(3)), shipped.replace("5m", "3000ms"));
    }
}
