//! Measures every answer of the gRPC port, refusals of the layers below included. Looks at nothing but path, caller and trailers.

use std::{
    collections::BTreeMap,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use cloud_adapter_security::{Caller, Role};
use cloud_api_proto::{AdapterError, DESCRIPTOR_SET};
use http::{HeaderMap, Request, Response};
use http_body::{Body, Frame, SizeHint};
use prost::Message as _;
use tokio::time::Instant;
use tonic::{Code, Status};
use tower::{Layer, Service};

use super::{Metrics, RpcLabels};

/// Paths that are none of the contract's: there are as many as callers can think of.
const OTHER: &str = "other";

/// Records `rpc_duration_seconds`. Its place is below whoever finds out who calls.
#[derive(Clone, Debug)]
pub(crate) struct RpcLayer {
    metrics: Metrics,
    methods: Methods,
}

/// Service and method by path, such as `/cloudadapter.v1alpha1.RouteService/ApplyRoutes`.
type Methods = Arc<BTreeMap<String, (Arc<str>, Arc<str>)>>;

impl RpcLayer {
    pub(crate) fn new(metrics: Metrics) -> Self {
        Self { metrics, methods: Arc::new(methods()) }
    }

    fn labels<B>(&self, request: &Request<B>) -> RpcLabels {
        let other = || (Arc::from(OTHER), Arc::from(OTHER));
        let (service, method) = self.methods.get(request.uri().path()).cloned().unwrap_or_else(other);
        let role = request.extensions().get::<Caller>().map_or(Role::Anyone, |caller| caller.role);
        // Until trailers say otherwise: the caller, or the process, has gone.
        RpcLabels { service, method, code: word(Code::Cancelled), reason: "", controller: role.word() }
    }
}

fn methods() -> BTreeMap<String, (Arc<str>, Arc<str>)> {
    let files = prost_types::FileDescriptorSet::decode(DESCRIPTOR_SET).unwrap_or_default().file;
    let services = files.iter().flat_map(|file| file.service.iter().map(move |one| (file.package(), one)));
    let methods = services.flat_map(|(package, service)| {
        let name: Arc<str> = format!("{package}.{}", service.name()).into();
        service.method.iter().map(move |method| (Arc::clone(&name), Arc::from(method.name())))
    });
    methods.map(|(service, method)| (format!("/{service}/{method}"), (service, method))).collect()
}

impl<S> Layer<S> for RpcLayer {
    type Service = Measured<S>;

    fn layer(&self, inner: S) -> Self::Service {
        Measured { inner, layer: self.clone() }
    }
}

/// A service whose answers are measured.
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
        let mut running = Running { metrics: self.layer.metrics.clone(), labels, started: Instant::now() };
        let answer = self.inner.call(request);
        Box::pin(async move {
            let answer = answer.await?;
            // A refusal before the first message has its trailers in the headers.
            running.read(answer.headers());
            Ok(answer.map(|inner| MeasuredBody { inner: Box::pin(inner), running }))
        })
    }
}

/// A request that is being answered; it is recorded when it is over, however it ends.
#[derive(Debug)]
struct Running {
    metrics: Metrics,
    labels: RpcLabels,
    started: Instant,
}

impl Running {
    fn read(&mut self, trailers: &HeaderMap) {
        let Some(status) = Status::from_header_map(trailers) else { return };
        self.labels.code = word(status.code());
        self.labels.reason =
            if status.code() == Code::Ok { "" } else { AdapterError::from(status).reason.word() };
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

/// A body whose trailers are looked at on their way out.
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

/// The code as the gRPC specification writes it.
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
