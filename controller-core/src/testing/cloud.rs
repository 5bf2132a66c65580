//! A stateful fake of a cloud behind its adapter: the whole contract over items in memory, served by a real gRPC server.
//!
//! It keeps items, counts calls and takes a next error. It knows no latency and no vendor calls: what things cost is told by the
//! simulated cloud, in the tests that run it.

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
        PutBackendSetRequest, Route, WatchRoutesRequest, WatchStatusRequest, WatchStatusResponse,
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

type Answer<T> = Result<Response<T>, Status>;
type Messages<T> = BoxStream<'static, Result<T, Status>>;

/// A stateful fake of a cloud behind its adapter. Cloning gives another handle to the same.
#[derive(Clone, Debug)]
pub struct FakeCloud {
    shared: Arc<Shared>,
    connector: Connector,
}

#[derive(Debug)]
struct Shared {
    clock: Clock,
    state: Mutex<State>,
    /// Wakes watches. The value does not matter.
    changed: Sender<()>,
}

/// All that there is. Tests may look at everything and change everything through [`FakeCloud::edit`].
#[derive(Debug, Default)]
pub struct State {
    /// By provider ID.
    pub instances: BTreeMap<String, Instance>,
    /// Provider IDs that a look-up finds and the watch does not show: the vendor's listing lags behind.
    pub unlisted: Vec<String>,
    /// Provider IDs of which a look-up says that they are gone, with evidence; of any other that is not there it says nothing sure.
    pub gone: BTreeSet<String>,
    /// Provider IDs of which a look-up cannot tell.
    pub untold: BTreeSet<String>,
    /// Nobody is gone but for who asks about one that is there in the same call: the adapter was just started, and knows of none that it
    /// is of this cluster.
    pub wants_witnesses: bool,
    /// What watches of the instances show instead, and when it was listed: the vendor answers no listings any more.
    pub listing: Option<(Timestamp, BTreeMap<String, Instance>)>,
    /// By vendor ID.
    pub load_balancers: BTreeMap<String, LoadBalancer>,
    /// By ID.
    pub backend_sets: BTreeMap<String, Vec<Backend>>,
    /// By vendor ID.
    pub routes: BTreeMap<String, Route>,
    /// How many calls of ensure and delete answer PENDING or DELETING, before the next one is done.
    pub pending: u32,
    /// When such a call is to be repeated, as the adapter says. `None`: after 2 s.
    pub retry_after: Option<prost_types::Duration>,
    /// What [`AdapterService`] tells of itself.
    pub info: GetInfoResponse,
    /// Calls so far by RPC name.
    pub calls: BTreeMap<&'static str, u32>,
    /// RPCs that this adapter does not have.
    pub missing: BTreeSet<&'static str>,
    /// How long calls of an RPC take.
    pub slow: BTreeMap<&'static str, Duration>,
    /// Ensures and deletions of one load balancer that are under way, by the UID of its owner: now, and the most so far.
    pub under_way: BTreeMap<String, (u32, u32)>,
    /// What the next calls of an RPC are answered with.
    pub errors: BTreeMap<&'static str, VecDeque<AdapterError>>,
    /// Verbs that were asked what they would do, so far.
    pub dry_runs: Vec<&'static str>,
    /// Requests so far.
    pub batch_gets: Vec<BatchGetInstancesRequest>,
    /// Requests so far.
    pub put_backend_sets: Vec<PutBackendSetRequest>,
    /// Requests so far.
    pub ensures: Vec<EnsureLoadBalancerRequest>,
    /// Requests so far.
    pub deletes: Vec<DeleteLoadBalancerRequest>,
    /// Requests so far.
    pub route_changes: Vec<ApplyRoutesRequest>,
    /// Requests so far.
    pub route_watches: Vec<WatchRoutesRequest>,
}

impl Default for FakeCloud {
    fn default() -> Self {
        Self::new()
    }
}

impl FakeCloud {
    /// A cloud without items.
    #[must_use]
    pub fn new() -> Self {
        let (clock, changed) = (Clock::starting_at(BEGIN), Sender::new(()));
        let state = State { info: info(), ..State::default() };
        let shared = Arc::new(Shared { clock, state: Mutex::new(state), changed });
        let connector = Connector::new(routes(&shared));
        Self { shared, connector }
    }

    /// A client of it. Must be called inside a tokio runtime.
    #[must_use]
    pub fn adapter(&self) -> Adapter {
        let endpoint = adapter_client::settings(http::Uri::from_static("http://adapter.test"));
        let channel = endpoint.connect_with_connector_lazy(self.connector.clone());
        Adapter::over(channel, cluster(), &self.clock())
    }

    /// The wall clock of the adapter.
    #[must_use]
    pub fn clock(&self) -> Clock {
        self.shared.clock
    }

    /// The vendor answers no listings any more: watches show what there is now, and with time it gets old. Or it does again.
    pub fn lists(&self, lists: bool) {
        let now = self.clock().now();
        self.edit(|state| state.listing = (!lists).then(|| (now, state.instances.clone())));
    }

    /// The adapter is started anew, with the credentials of this project.
    pub fn moves_to(&self, project: &str) {
        self.away(true);
        self.edit(|state| state.info.scope = Some(watch::scope_of(project)));
        self.away(false);
    }

    /// Puts an instance there, or changes it. Watches hear of it.
    pub fn put(&self, instance: impl Into<Instance>) {
        let instance = instance.into();
        self.edit(|state| drop(state.instances.insert(instance.provider_id.clone(), instance)));
    }

    /// A machine goes, and the cloud can prove it.
    pub fn end(&self, provider_id: &str) {
        self.edit(|state| {
            state.instances.remove(provider_id);
            state.gone.insert(provider_id.to_owned());
        });
    }

    /// Looks at all that there is.
    pub fn read<R>(&self, reader: impl FnOnce(&State) -> R) -> R {
        reader(&self.shared.state())
    }

    /// Changes anything. Watches hear of it.
    pub fn edit<R>(&self, editor: impl FnOnce(&mut State) -> R) -> R {
        let result = editor(&mut self.shared.state());
        self.shared.changed.send_replace(());
        result
    }

    /// How often an RPC was called so far.
    #[must_use]
    pub fn calls(&self, rpc: &'static str) -> u32 {
        self.read(|state| state.calls.get(rpc).copied().unwrap_or_default())
    }

    /// The next call of this RPC is answered with an error and does nothing.
    pub fn fail_next(&self, rpc: &'static str, error: AdapterError) {
        self.edit(|state| state.errors.entry(rpc).or_default().push_back(error));
    }

    /// From now on calls of this RPC take so long: they are done and answered at the end of it. Known to those that answer once, but
    /// for `GetInfo`.
    pub fn slow(&self, rpc: &'static str, by: Duration) {
        self.edit(|state| state.slow.insert(rpc, by));
    }

    /// From now on this is an adapter that does not have this RPC: an older one, or one that is half upgraded. Watches that run go on.
    pub fn without(&self, rpc: &'static str) {
        self.edit(|state| state.missing.insert(rpc));
    }

    /// It has the RPC again.
    pub fn with(&self, rpc: &'static str) {
        self.edit(|state| state.missing.remove(rpc));
    }

    /// The adapter is not there, connections break; or it is back.
    pub fn away(&self, away: bool) {
        self.connector.away(away);
    }

    /// The adapter is there, takes connections and says nothing any more; or it is started anew.
    pub fn hang(&self, hangs: bool) {
        self.connector.hang(hangs);
    }
}

/// It has routes; tests of what else it has say so themselves.
fn info() -> GetInfoResponse {
    let level = Level::Stable.into();
    let routes = Capability { name: "routes".to_owned(), level, ..Capability::default() };
    GetInfoResponse { capabilities: vec![routes], ..GetInfoResponse::default() }
}

/// The gRPC services of the contract.
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

    /// When the vendor was asked for what watches show.
    fn observed(&self, state: &State) -> prost_types::Timestamp {
        state.listing.as_ref().map_or_else(|| self.now(), |(at, _)| wire(*at))
    }

    fn now(&self) -> prost_types::Timestamp {
        wire(self.clock.now())
    }

    /// Lasts as long as the test ordered.
    async fn takes_its_time(&self, rpc: &'static str) {
        let slow = self.state().slow.get(rpc).copied();
        if let Some(slow) = slow.filter(|slow| !slow.is_zero()) {
            tokio::time::sleep(slow).await;
        }
    }

    /// Counts a call and returns the error that was ordered for it.
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

/// The gRPC side.
#[derive(Clone, Debug)]
struct Service(Arc<Shared>);

#[tonic::async_trait]
impl AdapterService for Service {
    type WatchStatusStream = Messages<WatchStatusResponse>;

    async fn get_info(&self, _request: Request<GetInfoRequest>) -> Answer<GetInfoResponse> {
        Ok(Response::new(self.0.called("GetInfo")?.info.clone()))
    }

    async fn watch_status(&self, _request: Request<WatchStatusRequest>) -> Answer<Self::WatchStatusStream> {
        Err(Status::unimplemented("the fake adapter has no status"))
    }
}

#[cfg(test)]
mod tests;
