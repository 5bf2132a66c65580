//! The layer that every request of a controller to the API server passes through. It refuses writes outside of a term and in a dry run,
//! pauses when the server asks for a pause, and counts requests and answers.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use futures::future::BoxFuture;
use http::{Method, Request, Response, StatusCode, header::RETRY_AFTER};
use kube::client::Body;
use telemetry::traces;
use tokio::time::{Instant, sleep_until};
use tower::{BoxError, Layer, Service};
use tracing::{Instrument as _, Span, field::Empty};

use super::{metrics::RequestMetrics, pace::Pace};
use crate::{config::Rate, leadership::Shards, metrics::Registry};

/// Maximum time for which requests wait for the end of a pause that the server asked for. If the pause is longer, requests are refused,
/// since their callers have time limits of their own.
const LONGEST_WAIT: Duration = Duration::from_secs(5);
const LONGEST_PAUSE: Duration = Duration::from_mins(5);

/// A layer around the client. Clones share the state.
#[derive(Clone, Debug)]
pub struct Requests {
    shards: Shards,
    metrics: RequestMetrics,
    /// `None`: no rate limit.
    pace: Option<Pace>,
    /// Whether all writes except those to Leases are refused.
    dry_run: bool,
    paused_until: Arc<Mutex<Option<Instant>>>,
}

/// Why a request was not sent, or was refused until a later time.
#[derive(Clone, Copy, Debug, thiserror::Error)]
pub enum Held {
    /// Another process may be the writer now.
    #[error("this replica is not the leader and writes nothing")]
    NotLeading,
    /// This process runs with `--dry-run`.
    #[error("this process runs with --dry-run and writes nothing")]
    DryRun,
    /// The server asked for a pause.
    #[error("the API server is busy ({}) and asks for a pause of {} s", .status.as_u16(), .retry_after.as_secs())]
    Busy {
        /// The HTTP status of the server's answer.
        status: StatusCode,
        /// Length of the pause that the answer asks for, or the remaining time of a pause that has begun.
        retry_after: Duration,
    },
}

impl Requests {
    /// Allows writes while this process holds these shards. `rate`: `None` disables the rate limit, which never applies to watches.
    #[must_use]
    pub fn new(shards: Shards, rate: Option<Rate>) -> Self {
        let (metrics, pace) = (RequestMetrics::default(), rate.map(Pace::new));
        Self { shards, metrics, pace, dry_run: false, paused_until: Arc::default() }
    }

    /// Returns this layer, changed so that it refuses all writes except writes to Leases.
    #[must_use]
    pub fn only_reading(self) -> Self {
        Self { dry_run: true, ..self }
    }

    /// Registers `rest_client_requests_total` and `rest_client_request_duration_seconds`.
    pub fn register(&self, registry: &mut Registry) {
        self.metrics.register(registry);
    }

    /// Waits until the pause ends. If the pause is too long, returns an error instead.
    async fn wait_for_pause_end(&self) -> Result<(), Held> {
        let until = *self.paused_until.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(until) = until else { return Ok(()) };
        let left = until.saturating_duration_since(Instant::now());
        if left > LONGEST_WAIT {
            return Err(Held::Busy { status: StatusCode::TOO_MANY_REQUESTS, retry_after: left });
        }
        sleep_until(until).await;
        Ok(())
    }

    fn apply_pause<B>(&self, answer: &Response<B>) -> Result<(), Held> {
        let status = answer.status();
        let refused = status == StatusCode::TOO_MANY_REQUESTS || status.is_server_error();
        let seconds = answer.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
        let Some(seconds) = seconds.filter(|_| refused) else { return Ok(()) };
        let retry_after = Duration::from_secs(seconds).min(LONGEST_PAUSE);
        let mut until = self.paused_until.lock().unwrap_or_else(PoisonError::into_inner);
        *until = (*until).max(Some(Instant::now() + retry_after));
        Err(Held::Busy { status, retry_after })
    }
}

impl<S> Layer<S> for Requests {
    type Service = Passing<S>;

    fn layer(&self, inner: S) -> Self::Service {
        Passing { requests: self.clone(), inner }
    }
}

/// The client with this layer around it.
#[derive(Clone, Debug)]
pub struct Passing<S> {
    requests: Requests,
    inner: S,
}

impl<S, B> Service<Request<Body>> for Passing<S>
where
    S: Service<Request<Body>, Response = Response<B>, Error = BoxError> + Clone + Send + 'static,
    S::Future: Send,
    B: Send + 'static,
{
    type Response = Response<B>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Response<B>, BoxError>>;

    fn poll_ready(&mut self, context: &mut std::task::Context<'_>) -> std::task::Poll<Result<(), BoxError>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let requests = self.requests.clone();
        // The service on which `poll_ready` was called sends this request, and a new clone serves the next request.
        let waiting = self.inner.clone();
        let mut inner = std::mem::replace(&mut self.inner, waiting);
        Box::pin(async move {
            requests.wait_for_pause_end().await?;
            if let Some(pace) = requests.pace.as_ref().filter(|_| !is_watch(&request)) {
                pace.wait().await;
            }
            // The term is checked after the wait, because it may end during the wait. It is checked in the caller's task, because it
            // belongs to that task.
            let shards = &requests.shards;
            if !(request.method() == Method::GET
                || shards.may_write()
                || is_event(&request) && shards.may_emit())
            {
                return Err(Held::NotLeading.into());
            }
            if requests.dry_run && !reads(&request) && !is_lease(&request) {
                return Err(Held::DryRun.into());
            }
            let account = requests.metrics.open(&request);
            let span = span(&request);
            let answer = inner.call(request).instrument(span.clone()).await;
            record_status(&span, answer.as_ref().ok().map(Response::status));
            account.close(answer.as_ref().ok().map(Response::status));
            let answer = answer?;
            requests.apply_pause(&answer)?;
            Ok(answer)
        })
    }
}

/// Returns the span of a request. A write belongs to the trace of its reconcile. Reads belong to mirrors and have no span.
fn span<B>(request: &Request<B>) -> Span {
    if request.method() == Method::GET {
        return Span::none();
    }
    traces::part(|| {
        traces::span!(
            "write",
            otel.name = request.method().as_str(),
            otel.kind = "client",
            http.request.method = request.method().as_str(),
            url.path = request.uri().path(),
            http.response.status_code = Empty,
            otel.status_code = Empty,
        )
    })
}

fn record_status(span: &Span, status: Option<StatusCode>) {
    if let Some(status) = status {
        span.record("http.response.status_code", status.as_u16());
    }
    if status.is_none_or(|status| !status.is_success()) {
        span.record("otel.status_code", "ERROR");
    }
}

fn reads<B>(request: &Request<B>) -> bool {
    matches!(*request.method(), Method::GET | Method::HEAD)
}

fn is_event<B>(request: &Request<B>) -> bool {
    resource(request) == Some("events")
}

fn is_lease<B>(request: &Request<B>) -> bool {
    request.uri().path().contains("/apis/coordination.k8s.io/") && resource(request) == Some("leases")
}

/// Returns the resource of a namespaced request.
fn resource<B>(request: &Request<B>) -> Option<&str> {
    request.uri().path().split('/').skip_while(|part| *part != "namespaces").nth(2)
}

fn is_watch<B>(request: &Request<B>) -> bool {
    let query = request.uri().query().unwrap_or_default();
    query.split('&').any(|pair| matches!(pair, "watch=true" | "watch=1"))
}

#[cfg(test)]
mod tests {
    use tokio_util::sync::CancellationToken;
    use tower::{ServiceExt as _, service_fn};

    use super::*;
    use crate::{Clock, leadership::Term, metrics, testing::FakeShards};

    fn requests() -> Requests {
        let clock = Clock::starting_at("2026-01-01T00:00:00Z".parse().expect("a time"));
        Requests::new(Shards::new("c", vec![Term::of_one_process(&clock, "u")]), None)
    }

    /// Sends a request to a server that answers with this status and, if given, this Retry-After.
    async fn ask(requests: &Requests, status: u16, retry_after: &str) -> Result<u16, String> {
        let retry_after = retry_after.to_owned();
        let server = service_fn(move |_request: Request<Body>| {
            let answer = Response::builder().status(status);
            let answer =
                if retry_after.is_empty() { answer } else { answer.header(RETRY_AFTER, &retry_after) };
            std::future::ready(answer.body(()).map_err(BoxError::from))
        });
        let request = Request::get("https://10.0.0.1:6443/api/v1/nodes").body(Body::empty()).expect("good");
        let answer = requests.layer(server).oneshot(request).await;
        answer.map(|answer| answer.status().as_u16()).map_err(|error| error.to_string())
    }

    // Behaviour: P28
    #[tokio::test(start_paused = true)]
    async fn a_pause_asked_for_by_the_server_is_kept() {
        let requests = requests();
        let error = ask(&requests, 429, "3").await.expect_err("busy");
        assert!(error.contains("(429) and asks for a pause of 3 s"), "{error}");
        let asked = Instant::now();
        assert_eq!(ask(&requests, 200, "").await, Ok(200));
        assert_eq!(asked.elapsed(), Duration::from_secs(3), "the request waits");
        assert_eq!(ask(&requests, 200, "").await, Ok(200));
        assert_eq!(asked.elapsed(), Duration::from_secs(3), "the pause is not repeated");
    }

    #[tokio::test(start_paused = true)]
    async fn a_long_pause_refuses_requests() {
        let requests = requests();
        assert!(ask(&requests, 503, "60").await.is_err());
        let asked = Instant::now();
        assert!(ask(&requests, 200, "").await.is_err(), "not sent");
        assert_eq!(asked.elapsed(), Duration::ZERO);
        tokio::time::advance(Duration::from_secs(56)).await;
        assert_eq!(ask(&requests, 200, "").await, Ok(200));
    }

    #[tokio::test(start_paused = true)]
    async fn answers_without_retry_after_are_passed_on() {
        let requests = requests();
        for (status, retry_after) in [(200, "3"), (404, "3"), (429, ""), (500, ""), (503, "soon")] {
            assert_eq!(ask(&requests, status, retry_after).await, Ok(status));
        }
    }

    // Behaviour: P8
    #[tokio::test(start_paused = true)]
    async fn outside_of_its_term_a_process_reads_and_does_not_write() {
        let fake_shards = FakeShards::new("c", 1);
        fake_shards.give(0, Duration::from_secs(10));
        let requests = Requests::new(fake_shards.shards(), None);
        let ask = async |method: Method| {
            let server = service_fn(|_: Request<Body>| async { Ok::<_, BoxError>(Response::new(())) });
            let request = Request::builder().method(method).uri("https://a/api/v1/nodes/a");
            let asked = requests.layer(server).oneshot(request.body(Body::empty()).expect("good")).await;
            asked.map(drop).map_err(|error| error.to_string())
        };
        assert_eq!((ask(Method::GET).await, ask(Method::PATCH).await), (Ok(()), Ok(())));
        tokio::time::advance(Duration::from_secs(10)).await;
        assert_eq!(ask(Method::GET).await, Ok(()));
        for method in [Method::POST, Method::PATCH, Method::DELETE] {
            assert!(
                ask(method.clone()).await.is_err_and(|error| error.contains("is not the leader")),
                "{method}"
            );
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_dry_run_writes_only_leases() {
        let requests = requests().only_reading();
        let ask = async |method: Method, path: &str| {
            let server = service_fn(|_: Request<Body>| async { Ok::<_, BoxError>(Response::new(())) });
            let request = Request::builder().method(method).uri(format!("https://a/{path}"));
            let asked = requests.layer(server).oneshot(request.body(Body::empty()).expect("good")).await;
            asked.map(drop).map_err(|error| error.to_string())
        };
        let (node, lease) = ("api/v1/nodes/a", "apis/coordination.k8s.io/v1/namespaces/kube-system/leases/l");
        for method in [Method::GET, Method::HEAD] {
            assert_eq!(ask(method, node).await, Ok(()));
        }
        let refused = Err("this process runs with --dry-run and writes nothing".to_owned());
        for method in [Method::POST, Method::PUT, Method::PATCH, Method::DELETE] {
            assert_eq!(ask(method.clone(), lease).await, Ok(()));
            for path in [
                node,
                "api/v1/nodes/a/status",
                "api/v1/namespaces/default/events",
                "api/v1/namespaces/default/services/web/status",
                "api/v1/namespaces/leases/services/leases",
                "api/v1/namespaces/default/leases/a",
                "apis/coordination.k8s.io/v1/namespaces/leases",
            ] {
                assert_eq!(ask(method.clone(), path).await, refused, "{method} {path}");
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_stopping_process_still_emits_events_after_releasing_shards() {
        let (fake_shards, stop) = (FakeShards::new("c", 2), CancellationToken::new());
        let shards = fake_shards.shards();
        shards.ends_by(&stop);
        let requests = Requests::new(shards, None);
        let ask = async |path: &str| {
            let server = service_fn(|_: Request<Body>| async { Ok::<_, BoxError>(Response::new(())) });
            let request = Request::post(format!("https://a/api/v1/namespaces/default/{path}"));
            let asked = requests.layer(server).oneshot(request.body(Body::empty()).expect("good")).await;
            asked.is_ok()
        };
        assert!(!ask("events").await, "another replica may be writing");
        stop.cancel();
        assert!(ask("events").await);
        assert!(!ask("services").await && !ask("services/events").await);
    }

    // Behaviour: P20
    #[tokio::test(start_paused = true)]
    async fn every_request_is_counted_under_the_usual_names() {
        let requests = requests();
        ask(&requests, 200, "").await.expect("answered");
        ask(&requests, 429, "1").await.expect_err("busy");
        let mut registry = Registry::default();
        requests.register(&mut registry);
        let page = metrics::render(&registry).expect("text");
        for line in [
            r#"rest_client_requests_total{code="200",host="10.0.0.1:6443",method="GET"} 1"#,
            r#"rest_client_requests_total{code="429",host="10.0.0.1:6443",method="GET"} 1"#,
            r#"rest_client_request_duration_seconds_count{verb="GET",host="10.0.0.1:6443"} 2"#,
        ] {
            assert!(page.contains(line), "{line} is missing in:\n{page}");
        }
    }
}
