//! A stateful fake of a cloud behind its adapter. It implements the whole contract with items in memory and a real gRPC server.
//!
//! The fake stores items, counts calls and can return an error for the next call. It has no latency and no vendor calls; tests of costs use
//! the simulated cloud instead.

mod connection;
mod instances;
mod load_balancers;
mod routes;
mod watch;

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use cloud_api_proto::{
    AdapterError,
    v1alpha1::{
        ApplyRoutesRequest, Backend, BatchGetInstancesRequest, Capability, DeleteLoadBalancerRequest,
        EnsureLoadBalancerRequest, GetInfoRequest, GetInfoResponse, Instance, LoadBalancer,
        LoadBalancerCondition, PutBackendSetRequest, Route, WatchRoutesRequest, WatchStatusRequest,
        WatchStatusResponse,
        adapter_service_server::{AdapterService, AdapterServiceServer},
        capability::Level,
        instance_service_server::InstanceServiceServer,
        load_balancer_service_server::LoadBalancerServiceServer,
        route_service_server::RouteServiceServer,
    },
};
use futures::stream::BoxStream;
use jiff::Timestamp;
use tokio::sync::watch::Sender;
use tonic::{Request, Response, Status, service::Routes};

use self::connection::Connector;
use super::{BEGIN, cluster};
use crate::{Clock, adapter::Adapter};

type RpcResult<T> = Result<Response<T>, Status>;
type Messages<T> = BoxStream<'static, Result<T, Status>>;

/// A stateful fake of a cloud behind its adapter. Cloning gives another handle.
#[derive(Clone, Debug)]
pub struct FakeCloud {
    shared: Arc<Shared>,
    connector: Connector,
}

#[derive(Debug)]
struct Shared {
    clock: Clock,
    state: Mutex<State>,
    /// A channel that wakes the watches. The value does not matter.
    changed: Sender<()>,
}

/// The whole state. Tests read it through [`FakeCloud::read`] and change it through [`FakeCloud::edit`].
#[derive(Debug, Default)]
pub struct State {
    /// Instances by provider ID.
    pub instances: BTreeMap<String, Instance>,
    /// Provider IDs that a look-up finds but the watch does not show. This simulates a vendor whose listing lags.
    pub unlisted: Vec<String>,
    /// Provider IDs that a look-up reports as gone, with evidence. For any other missing ID, a look-up proves nothing.
    pub gone: BTreeSet<String>,
    /// Provider IDs for which a look-up returns an error.
    pub failing: BTreeSet<String>,
    /// If set, an instance is reported as gone only if the same call also asks about an existing instance. This simulates an adapter that
    /// has just started and knows no instance of this cluster.
    pub wants_witnesses: bool,
    /// If set, watches of the instances show these instances of this time instead of the current ones. This simulates a vendor that no
    /// longer answers listings.
    pub listing: Option<(Timestamp, BTreeMap<String, Instance>)>,
    /// Load balancers by vendor ID.
    pub load_balancers: BTreeMap<String, LoadBalancer>,
    /// Backend sets by ID.
    pub backend_sets: BTreeMap<String, Vec<Backend>>,
    /// Routes by vendor ID.
    pub routes: BTreeMap<String, Route>,
    /// The number of ensure and delete calls that answer PENDING or DELETING before the next call completes.
    pub pending: u32,
    /// The conditions in answers with PENDING or DELETING.
    pub conditions: Vec<LoadBalancerCondition>,
    /// The retry delay in answers with PENDING or DELETING. `None` means 2 s.
    pub retry_after: Option<prost_types::Duration>,
    /// The answer of `GetInfo`.
    pub info: GetInfoResponse,
    /// Calls so far by RPC name.
    pub calls: BTreeMap<&'static str, u32>,
    /// RPCs that this adapter does not implement.
    pub missing: BTreeSet<&'static str>,
    /// The duration of calls, by RPC name.
    pub slow: BTreeMap<&'static str, Duration>,
    /// The number of ensures and deletions in progress for each load balancer, and the maximum so far. The key is the UID of the load
    /// balancer's owner.
    pub under_way: BTreeMap<String, (u32, u32)>,
    /// Errors for the next calls, by RPC.
    pub errors: BTreeMap<&'static str, VecDeque<AdapterError>>,
    /// Dry-run calls so far, as RPC names.
    pub dry_runs: Vec<&'static str>,
    /// The `BatchGetInstances` requests so far.
    pub batch_gets: Vec<BatchGetInstancesRequest>,
    /// The `PutBackendSet` requests so far.
    pub put_backend_sets: Vec<PutBackendSetRequest>,
    /// The `EnsureLoadBalancer` requests so far.
    pub ensures: Vec<EnsureLoadBalancerRequest>,
    /// The `DeleteLoadBalancer` requests so far.
    pub deletes: Vec<DeleteLoadBalancerRequest>,
    /// The `ApplyRoutes` requests so far.
    pub route_changes: Vec<ApplyRoutesRequest>,
    /// The `WatchRoutes` requests so far.
    pub route_watches: Vec<WatchRoutesRequest>,
}

impl Default for FakeCloud {
    fn default() -> Self {
        Self::new()
    }
}

impl FakeCloud {
    /// Creates a cloud without items.
    #[must_use]
    pub fn new() -> Self {
        let (clock, changed) = (Clock::starting_at(BEGIN), Sender::new(()));
        let state = State { info: info(), ..State::default() };
        let shared = Arc::new(Shared { clock, state: Mutex::new(state), changed });
        let connector = Connector::new(routes(&shared));
        Self { shared, connector }
    }

    /// Returns a client of the fake. Must be called inside a tokio runtime.
    #[must_use]
    pub fn adapter(&self) -> Adapter {
        let endpoint = adapter_client::settings(http::Uri::from_static("http://adapter.test"));
        let channel = endpoint.connect_with_connector_lazy(self.connector.clone());
        Adapter::over(channel, cluster(), &self.clock())
    }

    /// Returns the wall clock of the adapter.
    #[must_use]
    pub fn clock(&self) -> Clock {
        self.shared.clock
    }

    /// Makes the vendor stop answering listings (`false`) or answer them again (`true`). In the meantime, watches keep showing the present
    /// items with an increasing age.
    pub fn lists(&self, lists: bool) {
        let now = self.clock().now();
        self.edit(|state| state.listing = (!lists).then(|| (now, state.instances.clone())));
    }

    /// Restarts the adapter with the credentials of this project.
    pub fn moves_to(&self, project: &str) {
        self.away(true);
        self.edit(|state| state.info.scope = Some(watch::scope_of(project)));
        self.away(false);
    }

    /// Adds or changes an instance, and notifies watches.
    pub fn put(&self, instance: impl Into<Instance>) {
        let instance = instance.into();
        self.edit(|state| drop(state.instances.insert(instance.provider_id.clone(), instance)));
    }

    /// Deletes an instance, and lets look-ups prove that the instance is gone.
    pub fn end(&self, provider_id: &str) {
        self.edit(|state| {
            state.instances.remove(provider_id);
            state.gone.insert(provider_id.to_owned());
        });
    }

    /// Reads the state.
    pub fn read<R>(&self, reader: impl FnOnce(&State) -> R) -> R {
        reader(&self.shared.state())
    }

    /// Changes the state, and notifies watches.
    pub fn edit<R>(&self, editor: impl FnOnce(&mut State) -> R) -> R {
        let result = editor(&mut self.shared.state());
        self.shared.changed.send_replace(());
        result
    }

    /// Returns how often an RPC was called so far.
    #[must_use]
    pub fn calls(&self, rpc: &'static str) -> u32 {
        self.read(|state| state.calls.get(rpc).copied().unwrap_or_default())
    }

    /// Makes the next call of this RPC fail without an effect.
    pub fn fail_next(&self, rpc: &'static str, error: AdapterError) {
        self.edit(|state| state.errors.entry(rpc).or_default().push_back(error));
    }

    /// Delays calls of this RPC by this time. A call takes effect only after the delay, and is then answered. Applies to unary RPCs except
    /// `GetInfo`.
    pub fn slow(&self, rpc: &'static str, by: Duration) {
        self.edit(|state| state.slow.insert(rpc, by));
    }

    /// Removes this RPC from the adapter, as in an older adapter or during an upgrade. Running watches continue.
    pub fn without(&self, rpc: &'static str) {
        self.edit(|state| state.missing.insert(rpc));
    }

    /// Makes the adapter implement the RPC again.
    pub fn with(&self, rpc: &'static str) {
        self.edit(|state| state.missing.remove(rpc));
    }

    /// Makes the adapter unreachable and breaks its connections, or makes the adapter reachable again.
    pub fn away(&self, away: bool) {
        self.connector.away(away);
    }

    /// Makes the adapter accept connections without ever answering, or restarts the adapter.
    pub fn hang(&self, hangs: bool) {
        self.connector.hang(hangs);
    }
}

/// Returns the default answer, in which routes are the only capability. Tests set other capabilities themselves.
fn info() -> GetInfoResponse {
    let level = Level::Stable.into();
    let routes = Capability { name: "routes".to_owned(), level, ..Capability::default() };
    GetInfoResponse { capabilities: vec![routes], ..GetInfoResponse::default() }
}

fn routes(shared: &Arc<Shared>) -> Routes {
    let service = Service(Arc::clone(shared));
    Routes::new(AdapterServiceServer::new(service.clone()))
        .add_service(InstanceServiceServer::new(service.clone()))
        .add_service(LoadBalancerServiceServer::new(service.clone()))
        .add_service(RouteServiceServer::new(service))
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the time of the vendor's answer from which the content of the watches comes.
    fn observed(&self, state: &State) -> prost_types::Timestamp {
        state.listing.as_ref().map_or_else(|| self.now(), |(at, _)| wire(*at))
    }

    fn now(&self) -> prost_types::Timestamp {
        wire(self.clock.now())
    }

    /// Waits for the time that the test has set.
    async fn takes_its_time(&self, rpc: &'static str) {
        let slow = self.state().slow.get(rpc).copied();
        if let Some(slow) = slow.filter(|slow| !slow.is_zero()) {
            tokio::time::sleep(slow).await;
        }
    }

    /// Counts a call and returns the error that the test has set for it.
    fn called(&self, rpc: &'static str) -> Result<MutexGuard<'_, State>, Status> {
        let mut state = self.state();
        *state.calls.entry(rpc).or_default() += 1;
        if state.missing.contains(rpc) {
            return Err(Status::unimplemented(""));
        }
        match state.errors.get_mut(rpc).and_then(VecDeque::pop_front) {
            Some(error) => Err(error.into()),
            None => Ok(state),
        }
    }
}

fn wire(at: Timestamp) -> prost_types::Timestamp {
    prost_types::Timestamp { seconds: at.as_second(), nanos: at.subsec_nanosecond() }
}

#[derive(Clone, Debug)]
struct Service(Arc<Shared>);

#[tonic::async_trait]
impl AdapterService for Service {
    type WatchStatusStream = Messages<WatchStatusResponse>;

    async fn get_info(&self, _request: Request<GetInfoRequest>) -> RpcResult<GetInfoResponse> {
        Ok(Response::new(self.0.called("GetInfo")?.info.clone()))
    }

    async fn watch_status(
        &self,
        _request: Request<WatchStatusRequest>,
    ) -> RpcResult<Self::WatchStatusStream> {
        Err(Status::unimplemented("the fake adapter has no status"))
    }
}

#[cfg(test)]
mod tests;
