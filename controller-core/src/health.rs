//! Liveness, readiness and metrics over plain HTTP: `/healthz`, `/readyz`, `/metrics`.
//!
//! Ready means: both mirrors are synced and their other sides reachable. Alive means: work proceeds. A peer that is away makes a
//! process unready, never dead: a restart would not bring the peer back.

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use axum::{
    Router,
    extract::State,
    http::{StatusCode, header},
    response::{IntoResponse, Response},
    routing::get,
};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::{
    metrics::{self, Registry},
    mirror::Mirror,
    queue::{Key, Queue},
};

/// A worker that is at one key for so long is stuck: every call that it makes has a limit far below.
const STUCK: Duration = Duration::from_mins(5);

type Check = Box<dyn Fn() -> Result<(), String> + Send + Sync>;

/// What must hold for a process to be ready, or alive. Cloning gives another handle.
#[derive(Clone, Default)]
pub struct Health {
    checks: Arc<Mutex<Checks>>,
}

#[derive(Default)]
struct Checks {
    ready: Vec<Check>,
    alive: Vec<Check>,
}

impl fmt::Debug for Health {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Health").finish_non_exhaustive()
    }
}

impl Health {
    /// Ready only if this holds; the error says what is missing.
    pub fn ready_if(&self, check: impl Fn() -> Result<(), String> + Send + Sync + 'static) {
        self.checks.lock().unwrap_or_else(PoisonError::into_inner).ready.push(Box::new(check));
    }

    /// Alive only if this holds; the error says what is stuck.
    pub fn alive_if(&self, check: impl Fn() -> Result<(), String> + Send + Sync + 'static) {
        self.checks.lock().unwrap_or_else(PoisonError::into_inner).alive.push(Box::new(check));
    }

    /// Ready only if this mirror is synced and connected.
    pub fn needs<K, T>(&self, mirror: &Mirror<K, T>)
    where
        K: Ord + Clone + Send + Sync + 'static,
        T: Send + Sync + 'static,
    {
        let mirror = mirror.clone();
        self.ready_if(move || mirror.readiness());
    }

    /// Alive only if no worker of this queue is stuck.
    pub fn watches<K: Key>(&self, queue: &Queue<K>) {
        let queue = queue.clone();
        self.alive_if(move || match queue.longest_running() {
            Some(time) if time > STUCK => {
                Err(format!("a worker has been at one key for {} s", time.as_secs()))
            }
            Some(_) | None => Ok(()),
        });
    }

    /// Everything that keeps this process from being ready.
    ///
    /// # Errors
    /// One line for each.
    pub fn readiness(&self) -> Result<(), String> {
        all(&self.checks.lock().unwrap_or_else(PoisonError::into_inner).ready)
    }

    /// Everything that is stuck.
    ///
    /// # Errors
    /// One line for each.
    pub fn liveness(&self) -> Result<(), String> {
        all(&self.checks.lock().unwrap_or_else(PoisonError::into_inner).alive)
    }
}

fn all(checks: &[Check]) -> Result<(), String> {
    let missing: Vec<String> = checks.iter().filter_map(|check| check().err()).collect();
    if missing.is_empty() { Ok(()) } else { Err(missing.join("\n")) }
}

struct Exposed {
    health: Health,
    registry: Registry,
}

/// Serves the three pages until `stop`.
pub async fn serve(listener: TcpListener, health: Health, registry: Registry, stop: CancellationToken) {
    plain_http::serve(listener, pages(health, registry), stop).await;
}

fn pages(health: Health, registry: Registry) -> Router {
    Router::new()
        .route("/healthz", get(async |State(it): State<Arc<Exposed>>| verdict(it.health.liveness())))
        .route("/readyz", get(async |State(it): State<Arc<Exposed>>| verdict(it.health.readiness())))
        .route("/metrics", get(async |State(it): State<Arc<Exposed>>| exposition(&it.registry)))
        .with_state(Arc::new(Exposed { health, registry }))
}

fn verdict(checked: Result<(), String>) -> Response {
    match checked {
        Ok(()) => (StatusCode::OK, "ok\n").into_response(),
        Err(missing) => (StatusCode::SERVICE_UNAVAILABLE, format!("{missing}\n")).into_response(),
    }
}

fn exposition(registry: &Registry) -> Response {
    match metrics::render(registry) {
        Ok(text) => ([(header::CONTENT_TYPE, metrics::CONTENT_TYPE)], text).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

#[cfg(test)]
mod tests {
    use axum::body::{Body, to_bytes};
    use tower::ServiceExt as _;

    use super::*;
    use crate::Clock;

    async fn page(health: &Health, path: &str) -> (u16, String) {
        let request = http::Request::get(path).body(Body::empty()).expect("a good request");
        let answer = pages(health.clone(), Registry::default()).oneshot(request).await.expect("infallible");
        let status = answer.status().as_u16();
        let body = to_bytes(answer.into_body(), usize::MAX).await.expect("a body");
        (status, String::from_utf8_lossy(&body).into_owned())
    }

    #[tokio::test]
    async fn the_page_says_what_is_missing() {
        let health = Health::default();
        let nodes: Mirror<String, u32> = Mirror::new("nodes", Clock::system());
        health.needs(&nodes);
        health.ready_if(|| Err("instances: not listed yet".to_owned()));
        let (status, body) = page(&health, "/readyz").await;
        assert_eq!(status, 503);
        assert_eq!(body, "nodes: not listed yet, not reached yet\ninstances: not listed yet\n");
        assert_eq!(page(&health, "/healthz").await, (200, "ok\n".to_owned()));
    }

    #[tokio::test]
    async fn metrics_are_open_metrics() {
        let (status, body) = page(&Health::default(), "/metrics").await;
        assert_eq!((status, body.as_str()), (200, "# EOF\n"));
    }
}
