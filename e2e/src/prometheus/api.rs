//! What a Prometheus is asked over HTTP, wherever it runs.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use anyhow::Context;
use reqwest::header::CONTENT_TYPE;
use serde::Deserialize;

use crate::http::Http;

/// A Prometheus that somebody else may have started.
#[derive(Clone, Debug)]
pub struct PrometheusApi {
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

impl PrometheusApi {
    /// Asks the one that answers at `url`.
    ///
    /// # Errors
    /// When no HTTP client can be made.
    pub fn at(url: impl Into<String>) -> anyhow::Result<Self> {
        Ok(Self { url: url.into(), http: Http::new()? })
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

    /// Whether it serves.
    pub(super) async fn is_ready(&self) -> anyhow::Result<()> {
        self.http.get_text(&format!("{}/-/ready", self.url)).await.map(drop)
    }
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
