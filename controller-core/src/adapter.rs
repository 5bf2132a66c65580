//! The client of the cloud adapter. No other module builds a request context or sets the deadline of a call.
//!
//! The client connects at its first use and reconnects by itself. [`adapter_client`] finds a replica and repeats failed calls on another
//! replica; the work queue retries all other failures.

mod call_health;
mod delay;
mod pending;
pub(crate) mod scope;

use std::{
    future::Future,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use adapter_client::{AdapterChannel, unanswered};
use cloud_api_proto::{
    AdapterError, Reason,
    v1alpha1::{
        ApplyRoutesRequest, ApplyRoutesResponse, BatchGetInstancesRequest, BatchGetInstancesResponse, Cost,
        DeleteLoadBalancerRequest, DeleteLoadBalancerResponse, EnsureLoadBalancerRequest,
        EnsureLoadBalancerResponse, Fence, GetInfoRequest, GetInfoResponse, InstanceRef, Priority,
        PutBackendSetRequest, PutBackendSetResponse, RequestContext,
        adapter_service_client::AdapterServiceClient, instance_service_client::InstanceServiceClient,
        load_balancer_service_client::LoadBalancerServiceClient, route_service_client::RouteServiceClient,
    },
};
use telemetry::traces;
use tokio::time::Instant;
use tonic::{Code, Request, Response, Status, Streaming};
use tracing::{Instrument as _, Span, debug, error, field::Empty};

pub use self::{
    call_health::{CallHealth, concerns_all, is_caller_refused},
    scope::{ScopeAcceptances, ScopeGuard},
};
use self::{delay::Delays, pending::PendingCalls};
use crate::{Clock, config::Cluster, leadership::Shards, metrics::AdapterMetrics, retry::is_message_limit};

/// Deadline of a verb. The adapter answers PENDING long before this deadline.
const DEADLINE: Duration = Duration::from_secs(30);
/// How much the client's own timeout exceeds the deadline, because the adapter normally ends the call at the deadline itself.
const DEADLINE_MARGIN: Duration = Duration::from_secs(1);

/// The priority of a call and the maximum age of its answer.
#[derive(Clone, Copy, Debug, Default)]
pub struct Call {
    /// The priority of the call. If the priority is unspecified, the adapter chooses it by method.
    pub priority: Priority,
    /// The maximum age of the answer. `None`: the adapter's snapshot may have any age. Zero: the vendor read must start after the request
    /// arrived.
    pub max_staleness: Option<Duration>,
}

impl Call {
    /// Returns a call with this priority that accepts the adapter's snapshot.
    #[must_use]
    pub fn with_priority(priority: Priority) -> Self {
        Self { priority, max_staleness: None }
    }

    /// Returns the same call, but its answer must not be older than `age`.
    #[must_use]
    pub fn no_older_than(mut self, age: Duration) -> Self {
        self.max_staleness = Some(age);
        self
    }
}

#[derive(Clone, Copy, Debug)]
enum Aim {
    Change,
    /// The verb is a dry run, which only reports what would change.
    Rehearsal,
}

/// A client of the adapter. Cloning is cheap and shares the connection.
#[derive(Clone, Debug)]
pub struct Adapter {
    channel: AdapterChannel,
    identity: Arc<Identity>,
    metrics: AdapterMetrics,
    call_health: CallHealth,
    pending: PendingCalls,
    scope: ScopeGuard,
    /// The shards in whose terms the cloud may be changed. `None`: no restriction.
    shards: Option<Shards>,
    /// Set by `--dry-run`: this client makes no changes.
    only_looks: bool,
}

#[derive(Debug)]
struct Identity {
    cluster: Cluster,
    /// Distinguishes this process's request IDs from those of earlier processes.
    prefix: String,
    counter: AtomicU64,
}

impl Adapter {
    /// Returns a client over a channel. The channel connects when it is first used; tests connect in memory.
    #[must_use]
    pub fn over(channel: impl Into<AdapterChannel>, cluster: Cluster, clock: &Clock) -> Self {
        let prefix = format!("{:x}", clock.now().as_millisecond());
        let scope = ScopeGuard::of_cluster(&cluster.id);
        let identity = Arc::new(Identity { cluster, prefix, counter: AtomicU64::new(0) });
        Self {
            channel: channel.into(),
            identity,
            metrics: AdapterMetrics::default(),
            call_health: CallHealth::default(),
            pending: PendingCalls::default(),
            scope,
            shards: None,
            only_looks: false,
        }
    }

    /// Returns a client that counts its calls in `metrics`.
    #[must_use]
    pub fn counting(mut self, metrics: AdapterMetrics) -> Self {
        self.metrics = metrics;
        self
    }

    /// Returns a client that refuses changes in shards that this process does not hold.
    #[must_use]
    pub fn writing_in(mut self, shards: Shards) -> Self {
        self.shards = Some(shards);
        self
    }

    /// Returns a client for dry runs: verbs that change the cloud are sent as dry runs or refused here.
    #[must_use]
    pub fn read_only(mut self) -> Self {
        self.only_looks = true;
        self
    }

    /// Returns the record of refused and unanswered calls of this client.
    #[must_use]
    pub fn call_health(&self) -> &CallHealth {
        &self.call_health
    }

    /// Returns the guard that checks whether the adapter still works in the scope of the cloud in which this controller has worked so far.
    #[must_use]
    pub fn scope(&self) -> &ScopeGuard {
        &self.scope
    }

    /// Returns the replica that gets the next call. `None`: no serving replica is known.
    #[must_use]
    pub fn replica(&self) -> Option<String> {
        self.channel.serving()
    }

    /// Returns why no replica serves. `None`: a replica serves.
    #[must_use]
    pub fn away(&self) -> Option<String> {
        self.channel.away()
    }

    /// Reports a call that has waited long for its answer although such calls are normally answered at once.
    #[must_use]
    pub fn overdue_call(&self) -> Option<String> {
        self.pending.overdue()
    }

    /// Returns the cluster's UID, as in the keys of load balancers and routes.
    #[must_use]
    pub fn cluster_id(&self) -> &str {
        &self.identity.cluster.id
    }

    /// Returns the request context: the caller, the priority, and a unique request ID.
    #[must_use]
    pub fn context(&self, call: Call) -> RequestContext {
        let Identity { cluster, prefix, counter } = self.identity.as_ref();
        let n = counter.fetch_add(1, Ordering::Relaxed);
        RequestContext {
            cluster_id: cluster.id.clone(),
            cluster_name: cluster.name.clone(),
            priority: call.priority.into(),
            max_staleness: call.max_staleness.and_then(|age| age.try_into().ok()),
            request_id: format!("{prefix}-{n}"),
        }
    }

    /// Gets the adapter's identity and capabilities. Cost: no vendor call.
    pub async fn get_info(&self) -> Result<GetInfoResponse, AdapterError> {
        let request = GetInfoRequest { context: Some(self.context(Call::default())) };
        let mut client = AdapterServiceClient::new(self.channel());
        let answer = self.unary("GetInfo", |answer| answer.cost.as_ref(), client.get_info(timed(request)));
        answer.await.inspect(|info| self.scope.report(info.scope.as_ref()))
    }

    /// Gets the state of these instances. Shape: one result per reference, in the order of the request; at most 500.
    pub async fn batch_get_instances(
        &self,
        call: Call,
        refs: Vec<InstanceRef>,
    ) -> Result<BatchGetInstancesResponse, AdapterError> {
        let request = BatchGetInstancesRequest { context: Some(self.context(call)), refs };
        let mut client = InstanceServiceClient::new(self.channel());
        self.unary(
            "BatchGetInstances",
            |answer| answer.cost.as_ref(),
            client.batch_get_instances(timed(request)),
        )
        .await
    }

    /// Uploads a backend set. This function sets the context of `request`. Cost: no vendor call.
    ///
    /// Errors: `BACKEND_SET_UNKNOWN` if the adapter does not know the backend set to which the difference applies. Upload the full set
    /// then.
    pub async fn put_backend_set(
        &self,
        call: Call,
        mut request: PutBackendSetRequest,
    ) -> Result<PutBackendSetResponse, AdapterError> {
        request.context = Some(self.context(call));
        let mut client = LoadBalancerServiceClient::new(self.channel());
        self.unary("PutBackendSet", |answer| answer.cost.as_ref(), client.put_backend_set(timed(request)))
            .await
    }

    /// Brings a load balancer to its desired state. This function sets the context of `request`. Cost: 0 vendor calls if nothing has to be
    /// done.
    pub async fn ensure_load_balancer(
        &self,
        call: Call,
        mut request: EnsureLoadBalancerRequest,
    ) -> Result<EnsureLoadBalancerResponse, AdapterError> {
        self.may(if request.dry_run { Aim::Rehearsal } else { Aim::Change })?;
        request.context = Some(self.context(call));
        let fence = request.fence.clone();
        let mut client = LoadBalancerServiceClient::new(self.channel());
        let answer = self.unary(
            "EnsureLoadBalancer",
            |answer| answer.cost.as_ref(),
            client.ensure_load_balancer(timed(request)),
        );
        self.in_this_term(fence, answer.await)
    }

    /// Deletes a load balancer. This function sets the context of `request`.
    pub async fn delete_load_balancer(
        &self,
        call: Call,
        mut request: DeleteLoadBalancerRequest,
    ) -> Result<DeleteLoadBalancerResponse, AdapterError> {
        self.may(if request.dry_run { Aim::Rehearsal } else { Aim::Change })?;
        request.context = Some(self.context(call));
        let fence = request.fence.clone();
        let mut client = LoadBalancerServiceClient::new(self.channel());
        let answer = self.unary(
            "DeleteLoadBalancer",
            |answer| answer.cost.as_ref(),
            client.delete_load_balancer(timed(request)),
        );
        self.in_this_term(fence, answer.await)
    }

    /// Creates and deletes routes. This function sets the context of `request`. Shape: at most 200 items, with one result each.
    pub async fn apply_routes(
        &self,
        call: Call,
        mut request: ApplyRoutesRequest,
    ) -> Result<ApplyRoutesResponse, AdapterError> {
        self.may(if request.dry_run { Aim::Rehearsal } else { Aim::Change })?;
        request.context = Some(self.context(call));
        let fence = request.fence.clone();
        let mut client = RouteServiceClient::new(self.channel());
        let answer =
            self.unary("ApplyRoutes", |answer| answer.cost.as_ref(), client.apply_routes(timed(request)));
        self.in_this_term(fence, answer.await)
    }

    /// Refuses a change if this process has no current term, because another process may be writing then. Also refuses a change if the
    /// adapter works in another scope of the cloud. The verbs that change the cloud call this function. Code that changes something because
    /// the cloud does not show an object must call this function, too.
    ///
    /// Errors: `NOT_LEADER`, with the cause.
    pub fn may_change(&self) -> Result<(), AdapterError> {
        match &self.shards {
            _ if self.only_looks => {
                let error = "this controller runs with --dry-run and changes nothing";
                Err(AdapterError::new(Reason::NotLeader, error))
            }
            Some(shards) if !shards.may_write() => {
                let error = "this controller does not hold its Lease and changes nothing";
                Err(AdapterError::new(Reason::NotLeader, error))
            }
            Some(_) | None => self.scope.may_change(),
        }
    }

    /// Like [`Self::may_change`], but allows a dry run outside of a term. If the adapter works in another scope, a dry run is refused like
    /// the real call.
    fn may(&self, aim: Aim) -> Result<(), AdapterError> {
        match aim {
            Aim::Change => self.may_change(),
            Aim::Rehearsal => self.scope.may_change(),
        }
    }

    /// Replaces `STALE_FENCE` if the request may come from an earlier term of this process. Such a request can arrive after a request from
    /// a later term of the same process. So the error does not prove that another process writes now.
    fn in_this_term<T>(
        &self,
        fence: Option<Fence>,
        answer: Result<T, AdapterError>,
    ) -> Result<T, AdapterError> {
        let asked_in = fence.map(|fence| fence.epoch);
        match (&self.shards, answer) {
            // With several shards, work in the other shards continues, and the object is retried if this process still holds its shard.
            (Some(shards), Err(error))
                if error.reason == Reason::StaleFence
                    && (shards.count() > 1 || asked_in != Some(shards.epoch())) =>
            {
                let text = format!("the request was sent in a term that may have ended: {}", error.message);
                Err(AdapterError::new(Reason::OutcomeUnknown, text))
            }
            (_, answer) => answer,
        }
    }

    pub(crate) fn channel(&self) -> AdapterChannel {
        self.channel.clone()
    }

    /// Waits until a stream begins, counts the call, and converts its error into an [`AdapterError`]. Mirrors report refusals themselves.
    pub(crate) async fn stream<T>(
        &self,
        name: &'static str,
        call: impl Future<Output = Result<Response<Streaming<T>>, Status>>,
    ) -> Result<Streaming<T>, AdapterError> {
        self.answered(name, |_stream| None, call).await
    }

    /// Waits for an answer, and records whether the adapter accepts this call.
    async fn unary<T: Delays>(
        &self,
        name: &'static str,
        cost: fn(&T) -> Option<&Cost>,
        call: impl Future<Output = Result<Response<T>, Status>>,
    ) -> Result<T, AdapterError> {
        let (span, began) = (traces::part(|| span(name)), Instant::now());
        let answer = self.answered(name, cost, call).instrument(span.clone()).await;
        match &answer {
            Ok(answer) => span.record("cloud.vendor_calls", cost(answer).map_or(0, |cost| cost.vendor_calls)),
            Err(error) => span.record("error.type", error.reason.word()).record("otel.status_code", "ERROR"),
        };
        self.call_health.record(name, began, answer.as_ref().map(drop));
        answer
    }

    /// Waits for an answer until the deadline, counts the call, bounds the delays in the answer, and converts the error into an
    /// [`AdapterError`].
    async fn answered<T: Delays>(
        &self,
        name: &'static str,
        cost: fn(&T) -> Option<&Cost>,
        call: impl Future<Output = Result<Response<T>, Status>>,
    ) -> Result<T, AdapterError> {
        let pending = self.pending.begin(name);
        let answer = match tokio::time::timeout(DEADLINE + DEADLINE_MARGIN, Box::pin(call)).await {
            Ok(Ok(answer)) => Ok(delay::bounded(answer.into_inner())),
            Ok(Err(status)) => Err(typed(&status)),
            Err(_elapsed) => Err(typed(&Status::deadline_exceeded("no answer within the deadline"))),
        };
        drop(pending);
        match &answer {
            Ok(answer) => self.metrics.count(name, Ok(cost(answer).map_or(0, |cost| cost.vendor_calls))),
            Err(error) => {
                if is_message_limit(error) {
                    error!(call = name, %error, "A gRPC message exceeds the size limit. This is a \
                    bug; please report it");
                } else {
                    debug!(call = name, %error, "Call to the cloud adapter failed");
                }
                self.metrics.count(name, Err(error));
            }
        }
        answer
    }
}

/// The span is a child of the reconcile that makes the call.
fn span(name: &'static str) -> Span {
    traces::span!(
        "call",
        otel.name = name,
        otel.kind = "client",
        rpc.system = "grpc",
        rpc.method = name,
        cloud.vendor_calls = Empty,
        "error.type" = Empty,
        otel.status_code = Empty,
    )
}

fn timed<T>(message: T) -> Request<T> {
    let mut request = Request::new(message);
    request.set_timeout(DEADLINE);
    request
}

/// Converts the status of a failed call into an [`AdapterError`]. A call that reached its deadline or lost its connection may have
/// succeeded; repeating the request shows the result. The gRPC code alone is ambiguous: a lost connection is reported with any of three
/// codes.
pub(crate) fn typed(status: &Status) -> AdapterError {
    let mut error = AdapterError::from(status);
    error.retry_after = error.retry_after.map(delay::clamped);
    let broken = unanswered(status);
    let expired = broken.is_none() && std::error::Error::source(status).is_some();
    let late = expired || error.code == Code::DeadlineExceeded;
    let unfinished = broken.is_some() || late || error.code == Code::Cancelled;
    if error.reason == Reason::Unspecified && unfinished {
        error.reason = Reason::OutcomeUnknown;
        if late {
            error.code = Code::DeadlineExceeded;
            error.message = format!("no answer from the cloud adapter within {} s", DEADLINE.as_secs());
        }
    }
    if let Some(why) = broken {
        error.message = format!("no answer from the cloud adapter: {why}");
    }
    error
}

/// Whether the adapter did not answer. An adapter that reports its vendor as unavailable has answered, and its error names a delay.
#[must_use]
pub fn is_unreachable(error: &AdapterError) -> bool {
    matches!(error.reason, Reason::VendorUnavailable | Reason::OutcomeUnknown) && error.retry_after.is_none()
}

#[cfg(test)]
mod tests {
    use std::io;

    use tonic::TimeoutExpired;

    use super::*;

    #[test]
    fn a_connection_that_breaks_during_a_call_names_the_adapter() {
        let broken = Status::from_error(Box::new(io::Error::from(io::ErrorKind::BrokenPipe)));
        assert_eq!(broken.code(), Code::Unknown);
        let error = typed(&broken);
        assert_eq!(error.reason, Reason::OutcomeUnknown);
        assert_eq!(error.message, "no answer from the cloud adapter: the connection was closed");
    }

    #[test]
    fn a_late_call_has_an_unknown_outcome() {
        for late in [Status::from_error(Box::new(TimeoutExpired(()))), Status::deadline_exceeded("timed out")]
        {
            let error = typed(&late);
            assert_eq!(error.reason, Reason::OutcomeUnknown, "{late:?}");
            assert_eq!(error.message, "no answer from the cloud adapter within 30 s", "{late:?}");
            assert!(is_unreachable(&error), "{late:?}");
        }
    }

    #[test]
    fn the_delay_of_an_error_is_bounded() {
        for (asked, kept) in
            [(Duration::ZERO, Duration::from_secs(1)), (Duration::MAX, Duration::from_hours(1))]
        {
            let error = AdapterError::new(Reason::Internal, "a defect").retry_after(asked);
            assert_eq!(typed(&error.into()).retry_after, Some(kept), "{asked:?}");
        }
    }

    #[test]
    fn an_error_from_the_adapter_is_not_changed() {
        let error = AdapterError::new(Reason::VendorQuota, "50 routes").retry_after(Duration::from_secs(300));
        assert_eq!(typed(&error.clone().into()), error);
        let silent = Status::unknown("no details");
        assert_eq!(typed(&silent).reason, Reason::Unspecified);
    }
}
