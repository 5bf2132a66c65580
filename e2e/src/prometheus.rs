//! A real Prometheus that scrapes the processes of a release and evaluates the alerts of the chart.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::time::Duration;

use anyhow::{Context, ensure};
use e2e_tools::Environment;
use reqwest::header::CONTENT_TYPE;
use serde::Deserialize;
use serde_json::json;

use crate::control_plane::ControlPlane;
use crate::eventually::eventually;
use crate::helm::chart;
use crate::http::Http;
use crate::pods::Pods;
use crate::process::{Launch, Process};
use crate::seconds;

/// As the Prometheus operator names it after the chart's Service.
const JOB: &str = "cloud-controllers-metrics";

/// It is killed when it is dropped, and what it has stored goes with the control plane.
#[derive(Debug)]
pub struct Prometheus {
    process: Process,
    url: String,
    http: Http,
}

/// One answer to a query at this moment.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// Without `__name__`, if an operator took it away.
    pub labels: BTreeMap<String, String>,
    /// May be no number.
    pub value: f64,
}

/// An alert of the chart, as it stands.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Rule {
    /// Its name.
    pub name: String,
    /// `inactive`, `pending` or `firing`.
    pub state: String,
    /// `ok` if it could be evaluated.
    pub health: String,
    /// Why it could not.
    #[serde(default)]
    pub last_error: String,
}

/// An alert that is pending or firing.
#[derive(Clone, Debug, Deserialize)]
pub struct Alert {
    /// `alertname` is its name.
    pub labels: BTreeMap<String, String>,
    /// What people are told.
    pub annotations: BTreeMap<String, String>,
    /// `pending` or `firing`.
    pub state: String,
}

impl Prometheus {
    /// Starts one that asks every process each `every`, and waits until it answers. The processes need not run yet.
    ///
    /// # Errors
    /// When there is none to be had, or it does not start; the message has the end of its log.
    pub async fn start(
        control_plane: &mut ControlPlane,
        pods: &Pods,
        every: Duration,
    ) -> anyhow::Result<Self> {
        let program = e2e_tools::Prometheus::get(&Environment::of_this_process()?)?.server;
        let dir = control_plane.dir().join("prometheus");
        fs::create_dir_all(&dir).with_context(|| format!("cannot create {}", dir.display()))?;
        let config = dir.join("prometheus.yml");
        fs::write(&config, configuration(pods, every)?).context("cannot write Prometheus' configuration")?;
        let address = format!("127.0.0.1:{}", control_plane.take_port()?);
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
        let mut this =
            Self { process: launch.start()?, url: format!("http://{address}"), http: Http::new()? };
        let (http, url) = (this.http.clone(), format!("{}/-/ready", this.url));
        let ready = eventually("Prometheus answers", seconds(30), || async { http.get_text(&url).await });
        ready.await?;
        this.process.ensure_running()?;
        Ok(this)
    }

    /// Where people find it.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// What a query gives now.
    ///
    /// # Errors
    /// When it does not answer, or the query is none; the message has its words.
    pub async fn query(&self, query: &str) -> anyhow::Result<Vec<Sample>> {
        #[derive(Deserialize)]
        struct Answer {
            data: Data,
        }
        #[derive(Deserialize)]
        struct Data {
            result: Vec<Series>,
        }
        #[derive(Deserialize)]
        struct Series {
            metric: BTreeMap<String, String>,
            value: (f64, String),
        }
        let url = format!("{}/api/v1/query", self.url);
        let body = format!("query={}", escaped(query));
        let form = "application/x-www-form-urlencoded";
        let answer =
            self.http.text(query, |client| client.post(&url).header(CONTENT_TYPE, form).body(body)).await?;
        let answer: Answer = serde_json::from_str(&answer).with_context(|| format!("{query}: {answer}"))?;
        let sample = |Series { metric, value: (_, value) }| {
            let value = value.parse().with_context(|| format!("{query}: {value}"))?;
            anyhow::Ok(Sample { labels: metric, value })
        };
        answer.data.result.into_iter().map(sample).collect()
    }

    /// How the chart's alerts stand.
    ///
    /// # Errors
    /// When it does not answer.
    pub async fn rules(&self) -> anyhow::Result<Vec<Rule>> {
        #[derive(Deserialize)]
        struct Answer {
            data: Data,
        }
        #[derive(Deserialize)]
        struct Data {
            groups: Vec<Group>,
        }
        #[derive(Deserialize)]
        struct Group {
            rules: Vec<Rule>,
        }
        let answer = self.http.get_text(&format!("{}/api/v1/rules", self.url)).await?;
        let answer: Answer = serde_json::from_str(&answer).context("Prometheus' rules")?;
        Ok(answer.data.groups.into_iter().flat_map(|group| group.rules).collect())
    }

    /// The alerts that are pending or firing, as people read them.
    ///
    /// # Errors
    /// When it does not answer.
    pub async fn alerts(&self) -> anyhow::Result<Vec<Alert>> {
        #[derive(Deserialize)]
        struct Answer {
            data: Data,
        }
        #[derive(Deserialize)]
        struct Data {
            alerts: Vec<Alert>,
        }
        let answer = self.http.get_text(&format!("{}/api/v1/alerts", self.url)).await?;
        let answer: Answer = serde_json::from_str(&answer).context("Prometheus' alerts")?;
        Ok(answer.data.alerts)
    }

    /// Ends it.
    ///
    /// # Errors
    /// When it does not end, or not well.
    pub async fn stop(mut self) -> anyhow::Result<()> {
        let status = self.process.terminate(seconds(10)).await?;
        ensure!(status.success(), "Prometheus ended with {status}");
        Ok(())
    }
}

/// JSON is YAML, too.
fn configuration(pods: &Pods, every: Duration) -> anyhow::Result<String> {
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
        "rule_files": [chart().join("files").join("alerts.yaml")],
        "scrape_configs": [{ "job_name": JOB, "static_configs": targets }],
    });
    Ok(config.to_string())
}

/// For a form.
fn escaped(text: &str) -> String {
    let mut escaped = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() {
            escaped.push(char::from(byte));
        } else {
            // Writing to a string does not fail.
            write!(escaped, "%{byte:02X}").unwrap_or_default();
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::escaped;

    #[test]
    fn a_query_is_one_field_of_a_form() {
        assert_eq!(escaped("a{b=\"c&d\"} + 1"), "a%7Bb%3D%22c%26d%22%7D%20%2B%201");
    }
}
