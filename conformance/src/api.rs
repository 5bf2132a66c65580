//! A client of the adapter for one caller. Every RPC is typed, has a deadline and is recorded.

mod raw;
mod watch;

use std::{error::Error as _, fmt, iter, ops::Deref, time::Duration};

use adapter_client::AdapterChannel;
use cloud_api_proto::{
    AdapterError,
    v1alpha1::{
        ApplyRoutesRequest, ApplyRoutesResponse, BatchGetInstancesRequest, BatchGetInstancesResponse,
        DeleteLoadBalancerRequest, DeleteLoadBalancerResponse, EnsureLoadBalancerRequest,
        EnsureLoadBalancerResponse, GetInfoRequest, GetInfoResponse, PutBackendSetRequest,
        PutBackendSetResponse, RequestContext, WatchInstancesRequest, WatchInstancesResponse,
        WatchLoadBalancersRequest, WatchLoadBalancersResponse, WatchRoutesRequest, WatchRoutesResponse,
        WatchStatusRequest, WatchStatusResponse, adapter_service_client::AdapterServiceClient,
        instance_service_client::InstanceServiceClient,
        load_balancer_service_client::LoadBalancerServiceClient, route_service_client::RouteServiceClient,
    },
};
use tokio::time::Instant;
use tonic::{Code, ConnectError, Request, Response, Status, Streaming};
use tonic_health::pb::{HealthCheckRequest, health_client::HealthClient};
use tonic_types::StatusExt as _;

pub use self::watch::{Event, Listing, Mirror, Watch};
use crate::{
    tracker::Tracker,
    transcript::{Transcript, brief},
    verdict::Stop,
};

/// How long the suite waits for a call after the deadline of the call has passed.
const GRACE: Duration = Duration::from_secs(2);

/// Result of a call.
pub type CallResult<T> = Result<T, CallError>;

/// The role of a caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// Calls `InstanceService`.
    NodeController,
    /// Calls `LoadBalancerService`.
    ServiceController,
    /// Calls `RouteService`.
    RouteController,
    /// A caller that watches everything and makes dry runs.
    Operator,
    /// A caller that has a valid identity, but no role.
    Stranger,
    /// A caller that presents no identity.
    Anonymous,
}

impl Role {
    /// All roles.
    pub const ALL: [Self; 6] = [
        Self::NodeController,
        Self::ServiceController,
        Self::RouteController,
        Self::Operator,
        Self::Stranger,
        Self::Anonymous,
    ];
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NodeController => "node-controller",
            Self::ServiceController => "service-controller",
            Self::RouteController => "route-controller",
            Self::Operator => "operator",
            Self::Stranger => "stranger",
            Self::Anonymous => "anonymous",
        })
    }
}

/// The error of a call that was refused or interrupted. Dereferences to the typed error of the contract.
#[derive(Clone, Debug)]
pub struct CallError {
    /// The RPC, such as `EnsureLoadBalancer`.
    pub method: &'static str,
    /// The gRPC status as received, with its details and metadata.
    pub status: Box<Status>,
    /// The status, parsed as an error of the contract.
    pub error: Box<AdapterError>,
    /// The duration of the call.
    pub took: Duration,
}

impl Deref for CallError {
    type Target = AdapterError;

    fn deref(&self) -> &AdapterError {
        &self.error
    }
}

impl CallError {
    /// Returns the reason why the connection failed. `None`: the adapter was reached and sent the error itself.
    pub fn unreached(&self) -> Option<String> {
        let causes = || iter::successors(self.status.source(), |&cause| cause.source());
        causes().any(|cause| cause.is::<ConnectError>()).then(|| causes().last().map(ToString::to_string))?
    }
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let AdapterError { reason, message, retry_after, violations, .. } = &*self.error;
        if let Some(why) = self.unreached() {
            return write!(f, "{}: cannot connect to the adapter: {why}", self.method);
        }
        write!(f, "{}: {:?} ", self.method, self.status.code())?;
        // The client derives a reason from the gRPC code if the error has none. The text leaves out a derived reason, because the adapter
        // did not send it.
        match self.status.get_error_details().error_info() {
            Some(_) => write!(f, "{reason}: {message}")?,
            None => write!(f, "the adapter gave no reason: {message}")?,
        }
        if let Some(delay) = retry_after {
            write!(f, " (retry after {} ms)", delay.as_millis())?;
        }
        for violation in violations {
            write!(f, " [{}: {}]", violation.field, violation.description)?;
        }
        Ok(())
    }
}

impl std::error::Error for CallError {}

/// Turns an error of a call that must succeed into a failed check.
impl From<CallError> for Stop {
    fn from(error: CallError) -> Self {
        Self::failed(format!("the call succeeds: {}", error.method), error.to_string())
    }
}

/// Defines methods that send a request without changing it.
macro_rules! rpcs {
    ($($(#[$doc:meta])* $method:ident: $kind:ident($client:ident, $name:literal, $request:ty) -> $answer:ty;)*) => {
        impl Api {$(
            $(#[$doc])*
            pub async fn $method(&self, request: $request) -> CallResult<$answer> {
                let mut client = $client::new(self.channel());
                self.$kind($name, request, |request| async move { client.$method(request).await }).await
            }
        )*}
    };
}

rpcs! {
    /// `InstanceService.BatchGetInstances`.
    batch_get_instances: unary(InstanceServiceClient, "BatchGetInstances", BatchGetInstancesRequest) -> BatchGetInstancesResponse;
    /// `LoadBalancerService.PutBackendSet`.
    put_backend_set: unary(LoadBalancerServiceClient, "PutBackendSet", PutBackendSetRequest) -> PutBackendSetResponse;
    /// Sends `LoadBalancerService.DeleteLoadBalancer` once, whereas [`Context::remove`](crate::context::Context::remove) repeats the call.
    delete_load_balancer: unary(LoadBalancerServiceClient, "DeleteLoadBalancer", DeleteLoadBalancerRequest) -> DeleteLoadBalancerResponse;
    /// `InstanceService.WatchInstances`.
    watch_instances: stream(InstanceServiceClient, "WatchInstances", WatchInstancesRequest) -> Watch<WatchInstancesResponse>;
    /// `LoadBalancerService.WatchLoadBalancers`.
    watch_load_balancers: stream(LoadBalancerServiceClient, "WatchLoadBalancers", WatchLoadBalancersRequest) -> Watch<WatchLoadBalancersResponse>;
    /// `RouteService.WatchRoutes`.
    watch_routes: stream(RouteServiceClient, "WatchRoutes", WatchRoutesRequest) -> Watch<WatchRoutesResponse>;
}

/// A client of the adapter for one caller. Clones are cheap and share the connection and the record.
#[derive(Clone, Debug)]
pub struct Api {
    role: Role,
    channel: AdapterChannel,
    transcript: Transcript,
    tracker: Tracker,
    deadline: Duration,
}

impl Api {
    /// Creates a client. `deadline`: the time limit of a call, unless the check sets another limit. It must be longer than the time for
    /// which the adapter waits for the completion of an Ensure.
    pub(crate) fn new(
        role: Role,
        channel: AdapterChannel,
        deadline: Duration,
        transcript: Transcript,
        tracker: Tracker,
    ) -> Self {
        Self { role, channel, transcript, tracker, deadline }
    }

    /// Returns a client with another deadline.
    pub fn within(&self, deadline: Duration) -> Self {
        Self { deadline, ..self.clone() }
    }

    /// Returns a client that does not record its calls, for checks that make hundreds of them.
    pub fn off_record(&self) -> Self {
        Self { transcript: Transcript::new(), ..self.clone() }
    }

    /// Returns a client that returns an error if its connection ends during a call, instead of retrying the call.
    pub fn without_repetition(&self) -> Self {
        Self { channel: self.channel.clone().without_repetition(), ..self.clone() }
    }

    /// Returns the role of the caller.
    pub fn role(&self) -> Role {
        self.role
    }

    /// Returns the channel, for gRPC services outside the contract. The caller must set deadlines itself.
    pub fn channel(&self) -> AdapterChannel {
        self.channel.clone()
    }

    /// `AdapterService.GetInfo`.
    pub async fn info(&self, context: &RequestContext) -> CallResult<GetInfoResponse> {
        let mut client = AdapterServiceClient::new(self.channel());
        let request = GetInfoRequest { context: Some(context.clone()) };
        self.unary("GetInfo", request, |request| async move { client.get_info(request).await }).await
    }

    /// Sends `LoadBalancerService.EnsureLoadBalancer` once, whereas [`Context::converge`](crate::context::Context::converge) repeats the
    /// call.
    pub async fn ensure_load_balancer(
        &self,
        request: EnsureLoadBalancerRequest,
    ) -> CallResult<EnsureLoadBalancerResponse> {
        self.tracker.ensure(&request);
        let mut client = LoadBalancerServiceClient::new(self.channel());
        let send = |request| async move { client.ensure_load_balancer(request).await };
        self.unary("EnsureLoadBalancer", request, send).await
    }

    /// `RouteService.ApplyRoutes`. The routes that it creates are removed after the check.
    pub async fn apply_routes(&self, request: ApplyRoutesRequest) -> CallResult<ApplyRoutesResponse> {
        self.tracker.apply(&request);
        let mut client = RouteServiceClient::new(self.channel());
        let send = |request| async move { client.apply_routes(request).await };
        self.unary("ApplyRoutes", request, send).await
    }

    /// `AdapterService.WatchStatus`.
    pub async fn watch_status(&self, context: &RequestContext) -> CallResult<Watch<WatchStatusResponse>> {
        let mut client = AdapterServiceClient::new(self.channel());
        let request = WatchStatusRequest { context: Some(context.clone()) };
        self.stream("WatchStatus", request, |request| async move { client.watch_status(request).await }).await
    }

    /// `grpc.health.v1.Health.Check`. Returns the status as a number; 1 is SERVING.
    pub async fn health(&self, service: &str) -> CallResult<i32> {
        let mut client = HealthClient::new(self.channel());
        let request = HealthCheckRequest { service: service.to_owned() };
        let send = |request| async move { client.check(request).await };
        Ok(self.unary("Health.Check", request, send).await?.status)
    }

    /// Calls any unary method, for messages that the generated types cannot express. `path` is a path such as
    /// `/cloudadapter.v1alpha1.AdapterService/GetInfo`, and the message may be any bytes.
    pub async fn raw(&self, path: &'static str, message: Vec<u8>) -> CallResult<Vec<u8>> {
        let channel = self.channel();
        self.unary(path, message, |request| raw::call(channel, path, request)).await
    }

    /// Like [`Self::raw`], but with this `authorization` header. Use it only for roles without a token, because a client with a token
    /// overwrites the header.
    pub async fn raw_as(
        &self,
        authorization: &str,
        path: &'static str,
        message: Vec<u8>,
    ) -> CallResult<Vec<u8>> {
        let channel = self.channel();
        let send = |mut request: Request<Vec<u8>>| {
            if let Ok(value) = authorization.parse() {
                request.metadata_mut().insert("authorization", value);
            }
            raw::call(channel, path, request)
        };
        self.unary(path, message, send).await
    }

    async fn unary<Q, A, F>(
        &self,
        method: &'static str,
        message: Q,
        send: impl FnOnce(Request<Q>) -> F,
    ) -> CallResult<A>
    where
        Q: fmt::Debug,
        A: fmt::Debug,
        F: Future<Output = Result<Response<A>, Status>>,
    {
        let who = self.role.to_string();
        self.transcript.sent(&who, method, &message);
        let mut request = Request::new(message);
        request.set_timeout(self.deadline);
        let begun = Instant::now();
        // The future is boxed, because the futures of tonic's clients are large and checks hold many of them.
        let answer = self.with_timeout(Box::pin(send(request))).await;
        let took = begun.elapsed();
        match answer {
            Ok(answer) => {
                let answer = answer.into_inner();
                self.transcript.came(&who, method, &brief(&answer), took);
                Ok(answer)
            }
            Err(status) => Err(self.error(method, status, took)),
        }
    }

    /// Opens a stream. The stream itself has no deadline, but each read has a deadline.
    async fn stream<Q, T, F>(
        &self,
        method: &'static str,
        message: Q,
        send: impl FnOnce(Request<Q>) -> F,
    ) -> CallResult<Watch<T>>
    where
        Q: fmt::Debug,
        T: fmt::Debug,
        F: Future<Output = Result<Response<Streaming<T>>, Status>>,
    {
        self.transcript.sent(&self.role.to_string(), method, &message);
        let begun = Instant::now();
        match self.with_timeout(Box::pin(send(Request::new(message)))).await {
            Ok(stream) => Ok(Watch::new(method, stream.into_inner(), self.clone())),
            Err(status) => Err(self.error(method, status, begun.elapsed())),
        }
    }

    /// Waits for a call, but not much longer than its deadline, which the adapter might ignore.
    async fn with_timeout<T>(&self, call: impl Future<Output = Result<T, Status>>) -> Result<T, Status> {
        let timeout = self.deadline.saturating_add(GRACE);
        let late = |_elapsed| {
            let text =
                format!("no answer within {} s (deadline {} s)", timeout.as_secs(), self.deadline.as_secs());
            Status::new(Code::DeadlineExceeded, text)
        };
        tokio::time::timeout(timeout, call).await.map_err(late)?
    }

    fn error(&self, method: &'static str, status: Status, took: Duration) -> CallError {
        let error = Box::new(AdapterError::from(&status));
        let error = CallError { method, status: Box::new(status), error, took };
        self.transcript.came(&self.role.to_string(), method, &error.to_string(), took);
        error
    }
}
