//! The plain HTTP port: metrics, probes and the status page. Serves no API.

use axum::{
    Router, extract::State, http::StatusCode, http::header::CONTENT_TYPE, response::IntoResponse,
    routing::get,
};
use telemetry::http::{self, Endpoints, Listener, Readers};
use tokio_util::sync::CancellationToken;

use crate::{
    page::{self, Page},
    rpc::Rpc,
};

/// Media type of metrics. Source: OpenMetrics 1.0, "Overall structure".
const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

pub(crate) async fn serve(listener: Listener, endpoints: Endpoints, stop: CancellationToken) {
    if let Err(error) = http::serve(listener, endpoints, stop).await {
        tracing::error!(%error, "Cannot serve the HTTP port");
    }
}

/// Combines the open pages, which all clients may read, and the status pages, which only `readers` may read.
pub(crate) fn endpoints(rpc: Rpc, page: Page, readers: Readers) -> Endpoints {
    let open = Router::new()
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(ready))
        .route("/metrics", get(scrape))
        .with_state(rpc);
    Endpoints::new(open, page::routes(page), readers)
}

/// Answers the readiness probe. A replica that serves is ready, even as a standby, because rollouts and disruption budgets must count the
/// standby. The replica stays ready while the cloud is unreachable, so that clients reach the replica and get the error of the cloud.
async fn ready(State(rpc): State<Rpc>) -> String {
    match &*rpc.health.borrow() {
        _ if !rpc.replica.leads() => "ok: standby\n".to_owned(),
        None => "ok\n".to_owned(),
        Some(error) => format!("ok, but the cloud is unreachable: {error}\n"),
    }
}

async fn scrape(State(rpc): State<Rpc>) -> impl IntoResponse {
    match rpc.metrics.render() {
        Ok(text) => ([(CONTENT_TYPE, OPENMETRICS)], text).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}
