//! The plain HTTP port: metrics and probes. Serves no API.

use axum::{
    Router, extract::State, http::StatusCode, http::header::CONTENT_TYPE, response::IntoResponse,
    routing::get,
};
use tokio::{net::TcpListener, sync::watch};
use tokio_util::sync::CancellationToken;

use crate::{driver::VendorError, metrics::Metrics};

/// Source: OpenMetrics 1.0, "Overall structure".
const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

#[derive(Clone)]
struct Page {
    metrics: Metrics,
    health: watch::Receiver<Option<VendorError>>,
}

/// Serves until told to stop.
///
/// # Errors
/// Those of the listener.
pub(crate) async fn serve(
    listener: TcpListener,
    metrics: Metrics,
    health: watch::Receiver<Option<VendorError>>,
    stop: CancellationToken,
) -> std::io::Result<()> {
    let router = Router::new()
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(ready))
        .route("/metrics", get(scrape))
        .with_state(Page { metrics, health });
    axum::serve(listener, router).with_graceful_shutdown(stop.cancelled_owned()).await
}

async fn ready(State(page): State<Page>) -> impl IntoResponse {
    match &*page.health.borrow() {
        None => (StatusCode::OK, "ok\n".to_owned()),
        Some(error) => (StatusCode::SERVICE_UNAVAILABLE, format!("the cloud is not reachable: {error}\n")),
    }
}

async fn scrape(State(page): State<Page>) -> impl IntoResponse {
    match page.metrics.render() {
        Ok(text) => ([(CONTENT_TYPE, OPENMETRICS)], text).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}
