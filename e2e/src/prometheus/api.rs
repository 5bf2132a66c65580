//! The HTTP API of a Prometheus.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use anyhow::Context;
use reqwest::header::CONTENT_TYPE;
use serde::Deserialize;

use crate::http::Http;

/// A Prometheus, which may be an external one.
#[derive(Clone, Debug)]
pub struct PrometheusApi {
    url: String,
    http: Http,
}

/// A sample of a query's result.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// The labels. `__name__` is missing if an operator removed it.
    pub labels: BTreeMap<String, String>,
    /// The value, which may be NaN.
    pub value: f64,
}

/// The state of an alert of the chart.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Rule {
    /// The alert's name.
    pub name: String,
    /// `inactive`, `pending` or `firing`.
    pub state: String,
    /// `ok` if the rule could be evaluated.
    pub health: String,
    /// The error, if the rule could not be evaluated.
    #[serde(default)]
    pub last_error: String,
}

/// An alert that is pending or firing.
#[derive(Clone, Debug, Deserialize)]
pub struct Alert {
    /// The labels; `alertname` is the name of the alert.
    pub labels: BTreeMap<String, String>,
    /// The text for operators.
    pub annotations: BTreeMap<String, String>,
    /// `pending` or `firing`.
    pub state: String,
}

impl PrometheusApi {
    /// A client for the Prometheus at `url`.
    pub fn at(url: impl Into<String>) -> anyhow::Result<Self> {
        Ok(Self { url: url.into(), http: Http::new()? })
    }

    /// The URL for users.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The current result of a query.
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

    /// The states of the chart's alerts.
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

    /// The alerts that are pending or firing, with their texts.
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

    pub(super) async fn is_ready(&self) -> anyhow::Result<()> {
        self.http.get_text(&format!("{}/-/ready", self.url)).await.map(drop)
    }
}

/// Encodes a text for a URL-encoded form.
fn escaped(text: &str) -> String {
    let mut escaped = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() {
            escaped.push(char::from(byte));
        } else {
            // Writing to a String cannot fail.
            write!(escaped, "%{byte:02X}").unwrap_or_default();
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::escaped;

    #[test]
    fn query_is_encoded_as_a_form_field() {
        assert_eq!(escaped("a{b=\"c&d\"} + 1"), "a%7Bb%3D%22c%26d%22%7D%20%2B%201");
    }
}
