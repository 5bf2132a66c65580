//! Measures every answer of the gRPC port, including refusals of the layers below, and makes calls part of their callers' traces. The layer
//! reads only the path, the caller, `traceparent` and the trailers.

use std::{
    collections::BTreeMap,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use cloud_api_proto::{AdapterError, DESCRIPTOR_SET};
use http::{HeaderMap, Request, Response};
use http_body::{Body, Frame, SizeHint};
use prost::Message as _;
use telemetry::traces;
use tokio::time::Instant;
use tonic::{Code, Status};
use tower::{Layer, Service};
use tracing::{Instrument as _, Span, field::Empty};

use super::{Metrics, RpcLabels};
use crate::auth::{Caller, Role};

/// The label for paths outside the contract, since callers could choose any number of such paths.
const OTHER: &str = "other";

/// The layer that records `rpc_duration_seconds`. It must be below the layer that authenticates the caller.
#[derive(Clone, Debug)]
pub(crate) struct RpcLayer {
    metrics: Metrics,
    methods: Methods,
}

/// The calls of the contract, by path, such as `/cloudadapter.v1alpha1.RouteService/ApplyRoutes`.
type Methods = Arc<BTreeMap<String, Method>>;

#[derive(Clone, Debug)]
struct Method {
    service: Arc<str>,
    name: Arc<str>,
    /// Whether the method returns a stream. Watches are not traced, because their duration depends on the reader.
    streams: bool,
}

impl RpcLayer {
    pub(crate) fn new(metrics: Metrics) -> Self {
        Self { metrics, methods: Arc::new(methods()) }
    }

    fn labels<B>(&self, request: &Request<B>) -> RpcLabels {
        let other = || Method { service: Arc::from(OTHER), name: Arc::from(OTHER), streams: false };
        let known = self.methods.get(request.uri().path()).cloned();
        let Method { service, name: method, .. } = known.unwrap_or_else(other);
        let role = request.extensions().get::<Caller>().map_or(Role::Anyone, |caller| caller.role);
        // The code remains `CANCELLED` if no trailers are sent, because the caller or the process has gone.
        RpcLabels { service, method, code: word(Code::Cancelled), reason: "", controller: role.word() }
    }

    /// Starts the span of a unary call of the contract. Other calls have no span.
    fn span<B>(&self, request: &Request<B>, controller: &str) -> Span {
        let method = self.methods.get(request.uri().path()).filter(|method| !method.streams);
        let Some(Method { service, name, .. }) = method else { return Span::none() };
        let span = traces::span!(
            "serve",
            otel.name = format!("{service}/{name}"),
            otel.kind = "server",
            rpc.system = "grpc",
            rpc.service = &**service,
            rpc.method = &**name,
            budget.controller = controller,
            rpc.grpc.status_code = Empty,
            "error.type" = Empty,
            otel.status_code = Empty,
        );
        traces::take_over(span, request.headers())
    }
}

fn methods() -> BTreeMap<String, Method> {
    let files = prost_types::FileDescriptorSet::decode(DESCRIPTOR_SET).unwrap_or_default().file;
    let services = files.iter().flat_map(|file| file.service.iter().map(move |one| (file.package(), one)));
    let methods = services.flat_map(|(package, service)| {
        let name: Arc<str> = format!("{package}.{}", service.name()).into();
        service.method.iter().map(move |method| Method {
            service: Arc::clone(&name),
            name: Arc::from(method.name()),
            streams: method.server_streaming(),
        })
    });
    methods.map(|method| (format!("/{}/{}", method.service, method.name), method)).collect()
}

impl<S> Layer<S> for RpcLayer {
    type Service = Measured<S>;

    fn layer(&self, inner: S) -> Self::Service {
        Measured { inner, layer: self.clone() }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Measured<S> {
    inner: S,
    layer: RpcLayer,
}

impl<S, Q, A> Service<Request<Q>> for Measured<S>
where
    S: Service<Request<Q>, Response = Response<A>>,
    S::Future: Send + 'static,
    A: Body,
{
    type Response = Response<MeasuredBody<A>>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, S::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<Q>) -> Self::Future {
        let labels = self.layer.labels(&request);
        let span = self.layer.span(&request, labels.controller);
        let answer = self.inner.call(request).instrument(span.clone());
        let metrics = self.layer.metrics.clone();
        let mut running = Running { metrics, labels, span, started: Instant::now() };
        Box::pin(async move {
            let answer = answer.await?;
            // If the call was refused before the first message, its trailers are in the headers.
            running.read(answer.headers());
            Ok(answer.map(|inner| MeasuredBody { inner: Box::pin(inner), running }))
        })
    }
}

/// A request in progress. The request is recorded when it ends for any reason.
#[derive(Debug)]
struct Running {
    metrics: Metrics,
    labels: RpcLabels,
    span: Span,
    started: Instant,
}

impl Running {
    fn read(&mut self, trailers: &HeaderMap) {
        let Some(status) = Status::from_header_map(trailers) else { return };
        self.labels.code = word(status.code());
        self.span.record("rpc.grpc.status_code", status.code() as i32);
        if status.code() == Code::Ok {
            self.labels.reason = "";
            return;
        }
        self.labels.reason = AdapterError::from(status).reason.word();
        self.span.record("error.type", self.labels.reason).record("otel.status_code", "ERROR");
    }

    fn took(&self) -> Duration {
        self.started.elapsed()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.metrics.rpc(&self.labels, self.took());
    }
}

/// A response body. Its trailers are read when they are sent.
#[derive(Debug)]
pub(crate) struct MeasuredBody<B> {
    inner: Pin<Box<B>>,
    running: Running,
}

impl<B: Body> Body for MeasuredBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        let frame = ready!(self.inner.as_mut().poll_frame(context));
        if let Some(Ok(frame)) = &frame
            && let Some(trailers) = frame.trailers_ref()
        {
            self.running.read(trailers);
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

/// Returns the code in the spelling of the gRPC specification.
const fn word(code: Code) -> &'static str {
    match code {
        Code::Ok => "OK",
        Code::Cancelled => "CANCELLED",
        Code::Unknown => "UNKNOWN",
        Code::InvalidArgument => "INVALID_ARGUMENT",
        Code::DeadlineExceeded => "DEADLINE_EXCEEDED",
        Code::NotFound => "NOT_FOUND",
        Code::AlreadyExists => "ALREADY_EXISTS",
        Code::PermissionDenied => "PERMISSION_DENIED",
        Code::ResourceExhausted => "RESOURCE_EXHAUSTED",
        Code::FailedPrecondition => "FAILED_PRECONDITION",
        Code::Aborted => "ABORTED",
        Code::OutOfRange => "OUT_OF_RANGE",
        Code::Unimplemented => "UNIMPLEMENTED",
        Code::Internal => "INTERNAL",
        Code::Unavailable => "UNAVAILABLE",
        Code::DataLoss => "DATA_LOSS",
        Code::Unauthenticated => "UNAUTHENTICATED",
    }
}
