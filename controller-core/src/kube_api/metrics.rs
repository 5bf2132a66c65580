//! `rest_client_*`: requests to the API server and their answers, under the names of Kubernetes' own clients.

use http::{Request, StatusCode};
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, histogram::Histogram},
};
use tokio::time::Instant;

use crate::metrics::Registry;

/// Bucket bounds in seconds. Source: component-base, `metrics/prometheus/restclient`.
const BUCKETS: [f64; 12] = [0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0];
/// The value of the label `code` for a request without an answer.
const NO_ANSWER: &str = "<error>";

#[derive(Clone, Debug)]
pub(super) struct RequestMetrics {
    requests: Family<RequestLabels, Counter>,
    seconds: Family<DurationLabels, Histogram>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    code: String,
    host: String,
    method: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct DurationLabels {
    verb: String,
    host: String,
}

/// A request in progress.
#[derive(Debug)]
pub(super) struct Account {
    metrics: RequestMetrics,
    method: String,
    host: String,
    began: Instant,
}

impl Default for RequestMetrics {
    fn default() -> Self {
        let histogram: fn() -> Histogram = || Histogram::new(BUCKETS);
        Self { requests: Family::default(), seconds: Family::new_with_constructor(histogram) }
    }
}

impl RequestMetrics {
    pub(super) fn register(&self, registry: &mut Registry) {
        let registry = registry.sub_registry_with_prefix("rest_client");
        let help = "Requests to the API server, by the HTTP status of the answer";
        registry.register("requests", help, self.requests.clone());
        let help = "How long the API server took to answer, or a watch to begin";
        registry.register("request_duration_seconds", help, self.seconds.clone());
    }

    pub(super) fn open<B>(&self, request: &Request<B>) -> Account {
        Account {
            metrics: self.clone(),
            method: request.method().to_string(),
            host: request.uri().authority().map(ToString::to_string).unwrap_or_default(),
            began: Instant::now(),
        }
    }
}

impl Account {
    /// Records that the request was answered, or failed.
    pub(super) fn close(self, status: Option<StatusCode>) {
        let Self { metrics, method, host, began } = self;
        let labels = DurationLabels { verb: method.clone(), host: host.clone() };
        metrics.seconds.get_or_create(&labels).observe(began.elapsed().as_secs_f64());
        let code = status.map_or_else(|| NO_ANSWER.to_owned(), |status| status.as_str().to_owned());
        metrics.requests.get_or_create(&RequestLabels { code, host, method }).inc();
    }
}
