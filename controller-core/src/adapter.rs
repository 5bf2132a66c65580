//! The client of the cloud adapter: the only place where a request context is made and where calls get their deadline.
//!
//! Connects when it is first used, and again by itself. How a replica is found, and which call is repeated there, is the subject of
//! [`adapter_client`]; whatever fails after that is tried again by the queue, in one place.

mod awaited;
mod delay;
mod scope;
mod standing;

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
use tokio::time::Instant;
use tonic::{Code, Request, Response, Status, Streaming};
use tracing::{Instrument as _, Span, debug, error, field::Empty};

use self::{awaited::Awaited, delay::Delays};
pub use self::{
    scope::ScopeGuard,
    standing::{Standing, concerns_all, is_caller_refused},
};
use crate::{Clock, config::Cluster, metrics::AdapterMetrics, start::Shards};

/// How long a verb may take. The adapter answers PENDING long before that.
const DEADLINE: Duration = Duration::from_secs(30);
/// The adapter ends a call at its deadline; ours comes only if it does not.
const DEADLINE_MARGIN: Duration = Duration::from_secs(1);

/// How urgent a call is and how old its answer may be.
#[derive(Clone, Copy, Debug, Default)]
pub struct Call {
    /// Unspecified: the adapter chooses by method.
    pub priority: Priority,
    /// `None`: whatever the adapter's snapshot holds. Zero: a vendor read that starts after the request arrived.
    pub max_staleness: Option<Duration>,
}

impl Call {
    /// A call with this priority, content with the adapter's snapshot.
    #[must_use]
    pub fn with_priority(priority: Priority) -> Self {
        Self { priority, max_staleness: None }
    }

    /// The same call, but the answer must not be older than `age`.
    #[must_use]
    pub fn no_older_than(mut self, age: Duration) -> Self {
        self.max_staleness = Some(age);
        self
    }
}

/// What a verb is called for.
#[derive(Clone, Copy, Debug)]
enum Aim {
    /// To change something.
    Change,
    /// To hear what would be changed.
    Rehearsal,
}

/// A client of the adapter. Cloning is cheap and shares the connection.
#[derive(Clone, Debug)]
pub struct Adapter {
    channel: AdapterChannel,
    identity: Arc<Identity>,
    metrics: AdapterMetrics,
    standing: Standing,
    awaited: Awaited,
    scope: ScopeGuard,
    /// When the cloud may be changed. `None`: always.
    shards: Option<Shards>,
    /// It changes nothing: `--dry-run`.
    only_looks: bool,
}

#[derive(Debug)]
struct Identity {
    cluster: Cluster,
    /// Sets this process's request IDs apart from those of earlier ones.
    prefix: String,
    counter: AtomicU64,
}

impl Adapter {
    /// A client over a channel, which connects when it is first used; tests connect in memory.
    #[must_use]
    pub fn over(channel: impl Into<AdapterChannel>, cluster: Cluster, clock: &Clock) -> Self {
        let prefix = format!("{:x}", clock.now().as_millisecond());
        let identity = Arc::new(Identity { cluster, prefix, counter: AtomicU64::new(0) });
        Self {
            channel: channel.into(),
            identity,
            metrics: AdapterMetrics::default(),
            standing: Standing::default(),
            awaited: Awaited::default(),
            scope: ScopeGuard::default(),
            shards: None,
            only_looks: false,
        }
    }

    /// The same client, counting its calls in `metrics`.
    #[must_use]
    pub fn counting(mut self, metrics: AdapterMetrics) -> Self {
        self.metrics = metrics;
        self
    }

    /// The same client, which changes nothing in shards of others.
    #[must_use]
    pub fn writing_in(mut self, shards: Shards) -> Self {
        self.shards = Some(shards);
        self
    }

    /// The same client, which changes nothing: the verbs that change the cloud are dry runs, or refused here.
    #[must_use]
    pub fn only_looking(mut self) -> Self {
        self.only_looks = true;
        self
    }

    /// Whether the adapter takes the calls of this client at all.
    #[must_use]
    pub fn standing(&self) -> &Standing {
        &self.standing
    }

    /// Whether the adapter works in the part of the cloud that this controller has worked in so far.
    #[must_use]
    pub fn scope(&self) -> &ScopeGuard {
        &self.scope
    }

    /// The replica that the next call goes to. `None`: none is known that serves.
    #[must_use]
    pub fn replica(&self) -> Option<String> {
        self.channel.serving()
    }

    /// Why no call goes through now: no replica serves.
    #[must_use]
    pub fn away(&self) -> Option<String> {
        self.channel.away()
    }

    /// That a call has had no answer for long, of those that are answered at once.
    #[must_use]
    pub fn silence(&self) -> Option<String> {
        self.awaited.silence()
    }

    /// The cluster's UID, as keys of load balancers and routes carry it.
    #[must_use]
    pub fn cluster_id(&self) -> &str {
        &self.identity.cluster.id
    }

    /// Who asks, how urgent it is, and an ID that no other request has.
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

    /// What the adapter is and can do. Cost: no vendor call.
    ///
    /// # Errors
    /// As every call: a typed reason, never text.
    pub async fn get_info(&self) -> Result<GetInfoResponse, AdapterError> {
        let request = GetInfoRequest { context: Some(self.context(Call::default())) };
        let mut client = AdapterServiceClient::new(self.channel());
        let answer = self.unary("GetInfo", |answer| answer.cost.as_ref(), client.get_info(timed(request)));
        answer.await.inspect(|info| self.scope.heard(info.scope.as_ref()))
    }

    /// What became of these instances. Shape: one result a reference, in the order asked; at most 500.
    ///
    /// # Errors
    /// Of the call as a whole; a bad reference fails alone. No error means «gone».
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

    /// Uploads a backend set. The context of `request` is filled in here. Cost: no vendor call.
    ///
    /// # Errors
    /// `BACKEND_SET_UNKNOWN` if the base of a difference is not known: put the full set.
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

    /// Converges a load balancer. The context of `request` is filled in here. Cost: 0 vendor calls if nothing is to be done.
    ///
    /// # Errors
    /// As in the contract; a load balancer that is not ready yet is no error but PENDING.
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

    /// Removes a load balancer. The context of `request` is filled in here.
    ///
    /// # Errors
    /// As in the contract; a removal under way is no error but DELETING.
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

    /// Lays and removes routes. The context of `request` is filled in here. Shape: at most 200 items, a result for each.
    ///
    /// # Errors
    /// Of the call as a whole; a route fails alone.
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

    /// Nothing is changed outside of the term, since another process may be at it, nor in a part of the cloud that is not ours. The
    /// verbs that change the cloud ask themselves; so does whoever changes something because the cloud does not show it.
    ///
    /// # Errors
    /// `NOT_LEADER`, and why.
    pub fn may_change(&self) -> Result<(), AdapterError> {
        match &self.shards {
            _ if self.only_looks => {
                let error = "this controller runs with --dry-run, and changes nothing";
                Err(AdapterError::new(Reason::NotLeader, error))
            }
            Some(shards) if !shards.may_write() => {
                let error = "this controller does not hold its Lease, and changes nothing";
                Err(AdapterError::new(Reason::NotLeader, error))
            }
            Some(_) | None => self.scope.may_change(),
        }
    }

    /// What would be done can be asked at any time, but in another part of the cloud it would not be done.
    fn may(&self, aim: Aim) -> Result<(), AdapterError> {
        match aim {
            Aim::Change => self.may_change(),
            Aim::Rehearsal => self.scope.may_change(),
        }
    }

    /// What was asked for in an earlier term of this process, and came late, may have met what it asked for in a later one. That is
    /// no newer writer.
    fn in_this_term<T>(
        &self,
        fence: Option<Fence>,
        answer: Result<T, AdapterError>,
    ) -> Result<T, AdapterError> {
        let asked_in = fence.map(|fence| fence.epoch);
        match (&self.shards, answer) {
            // Of several shards the others go on: this one is asked about anew, if it is still ours.
            (Some(shards), Err(error))
                if error.reason == Reason::StaleFence
                    && (shards.count() > 1 || asked_in != Some(shards.epoch())) =>
            {
                let text = format!("asked for in a term that may be over: {}", error.message);
                Err(AdapterError::new(Reason::OutcomeUnknown, text))
            }
            (_, answer) => answer,
        }
    }

    pub(crate) fn channel(&self) -> AdapterChannel {
        self.channel.clone()
    }

    /// Waits for the begin of a stream, counts it, and types its error. A mirror tells of refusals itself.
    pub(crate) async fn stream<T>(
        &self,
        name: &'static str,
        call: impl Future<Output = Result<Response<Streaming<T>>, Status>>,
    ) -> Result<Streaming<T>, AdapterError> {
        self.answered(name, |_stream| None, call).await
    }

    /// Waits for an answer, and notes whether the adapter takes such calls.
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
        self.standing.heard(name, began, answer.as_ref().map(drop));
        answer
    }

    /// Waits for an answer, within the deadline, counts it, bounds its delays, and types its error.
    async fn answered<T: Delays>(
        &self,
        name: &'static str,
        cost: fn(&T) -> Option<&Cost>,
        call: impl Future<Output = Result<Response<T>, Status>>,
    ) -> Result<T, AdapterError> {
        let pending = self.awaited.begin(name);
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
                    error!(call = name, %error, "A message is larger than gRPC allows: this is a bug, please report it");
                } else {
                    debug!(call = name, %error, "Adapter call failed");
                }
                self.metrics.count(name, Err(error));
            }
        }
        answer
    }
}

/// A call, as part of the turn that makes it.
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

/// What a failed call means. One that ran into its deadline, or whose connection broke under it, may have done its work: the
/// same request, repeated, finds out. The code says little: a connection that breaks under a call is told as any of three.
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

/// Whether a message was larger than gRPC allows: a defect of whoever made it. Throttling has a reason of the contract, or at
/// least (from an adapter that is newer than we are) a delay. Source: contract, section 4.
#[must_use]
pub fn is_message_limit(error: &AdapterError) -> bool {
    error.reason == Reason::Unspecified
        && error.code == Code::ResourceExhausted
        && error.retry_after.is_none()
}

/// Whether nobody answered, in difference to an adapter that says that its vendor is not there: that one names a delay.
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
    fn a_connection_that_breaks_under_a_call_names_who_is_away() {
        let broken = Status::from_error(Box::new(io::Error::from(io::ErrorKind::BrokenPipe)));
        assert_eq!(broken.code(), Code::Unknown);
        let error = typed(&broken);
        assert_eq!(error.reason, Reason::OutcomeUnknown);
        assert_eq!(error.message, "no answer from the cloud adapter: the connection was closed");
    }

    #[test]
    fn a_call_that_takes_too_long_may_have_done_its_work() {
        for late in
            [Status::from_error(Box::new(TimeoutExpired(()))), Status::deadline_exceeded("no answer in time")]
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
            let said = AdapterError::new(Reason::Internal, "a defect").retry_after(asked);
            assert_eq!(typed(&said.into()).retry_after, Some(kept), "{asked:?}");
        }
    }

    #[test]
    fn what_the_adapter_says_itself_stays_as_it_is() {
        let said = AdapterError::new(Reason::VendorQuota, "50 routes").retry_after(Duration::from_secs(300));
        assert_eq!(typed(&said.clone().into()), said);
        let silent = Status::unknown("no details");
        assert_eq!(typed(&silent).reason, Reason::Unspecified);
    }
}
