//! The plain HTTP port: metrics, probes and the status page. Serves no API.

use axum::{
    Router, extract::State, http::StatusCode, http::header::CONTENT_TYPE, response::IntoResponse,
    routing::get,
};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::{
    page::{self, Page},
    rpc::Rpc,
};

/// Source: OpenMetrics 1.0, "Overall structure".
const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Serves until told to stop.
pub(crate) async fn serve(listener: TcpListener, rpc: Rpc, page: Page, stop: CancellationToken) {
    let router = Router::new()
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(ready))
        .route("/metrics", get(scrape))
        .with_state(rpc)
        .merge(page::routes(page));
    pages::serve(listener, router, stop).await;
}

/// A process that serves is ready, whatever its part: rollouts and disruption budgets count one that stands by, and one whose
/// cloud is out of reach must be found by its clients to tell them why.
async fn ready(State(rpc): State<Rpc>) -> String {
    match &*rpc.health.borrow() {
        _ if !rpc.replica.leads() => "ok: stands by\n".to_owned(),
        None => "ok\n".to_owned(),
        Some(error) => format!("ok, but the cloud is not reachable: {error}\n"),
    }
}

async fn scrape(State(rpc): State<Rpc>) -> impl IntoResponse {
    match rpc.metrics.render() {
        Ok(text) => ([(CONTENT_TYPE, OPENMETRICS)], text).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}
