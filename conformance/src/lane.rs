//! One adapter with its environment: the clients of the adapter, the proxy between adapter and vendor, and the commands.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    sync::{
        Arc, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use adapter_client::{AdapterChannel, ChannelSecurity, Connection, Flags, Target};
use cloud_api_proto::v1alpha1::{GetInfoResponse, Instance, RequestContext};
use tokio::{sync::Mutex, time::Instant};

use crate::{
    api::{Api, Role},
    cluster::uuid,
    hooks::{Hook, Hooks},
    params::{IdentityParams, LaneParams, Params},
    proxy::{Proxy, ProxyError},
    tracker::Tracker,
    transcript::Transcript,
    verdict::{Need, Stop},
};

pub(crate) const FIRST_ANSWER: Duration = Duration::from_secs(5);
const TICK: Duration = Duration::from_millis(50);
/// Additional time after the deadline of a call, so that the call itself can report the missed deadline.
const GRACE: Duration = Duration::from_millis(500);
/// Names of the connection settings in errors: the flag, then the key in the parameter file.
const FLAGS: Flags = Flags {
    endpoint: "endpoint",
    ca: "--tls-ca-cert (tls.caFile)",
    server_name: "--tls-server-name (tls.serverName)",
    token: "--token-file (identities.*.tokenFile)",
    client_certificate: "--client-cert (identities.*.certificateFile)",
    client_key: "--client-key (identities.*.keyFile)",
};

/// The purpose of a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// One adapter that serves any cluster.
    Plain,
    /// One adapter that authenticates callers.
    Secured,
    /// Two replicas.
    Replicas,
}

/// A running lane.
#[derive(Debug)]
pub struct Lane {
    /// The lane's name in reports.
    pub name: String,
    /// The lane's purpose.
    pub kind: Kind,
    /// The lane's entry in the parameter file.
    pub params: LaneParams,
    /// The proxy between adapter and vendor.
    pub proxy: Option<Proxy>,
    /// The commands.
    pub hooks: Hooks,
    /// The adapter's `GetInfo` answer at the start of the run.
    pub info: GetInfoResponse,
    /// Time limit for an answer of the adapter.
    answer: Duration,
    channels: BTreeMap<Role, AdapterChannel>,
    /// Indices of the stopped replicas, from 0.
    pub(crate) down: std::sync::Mutex<BTreeSet<usize>>,
    /// Number of clusters created so far.
    pub(crate) clusters: AtomicU64,
    /// Instances that all checks of the lane share.
    pub(crate) machines: Mutex<Vec<Instance>>,
}

/// Why no check can run on a lane.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages describe the variants")]
pub enum LaneError {
    #[error("{lane}: endpoint {endpoint}")]
    Endpoint { lane: String, endpoint: String, source: adapter_client::TargetError },
    #[error("{lane}: {faults}")]
    ChannelSecurity { lane: String, faults: String },
    #[error("{lane}")]
    Proxy { lane: String, source: ProxyError },
    #[error("{lane}: {endpoint} does not answer GetInfo: {what}\n{hint}")]
    Adapter { lane: String, endpoint: String, what: String, hint: &'static str },
}

impl LaneError {
    /// Whether the cause is a flag or parameter, and not the adapter.
    pub fn is_usage(&self) -> bool {
        match self {
            Self::Endpoint { .. } | Self::ChannelSecurity { .. } | Self::Proxy { .. } => true,
            Self::Adapter { .. } => false,
        }
    }
}

impl Lane {
    /// Starts the proxy and reads the adapter's `GetInfo`.
    /// Returns an error if a parameter is invalid, or if no adapter answers within [`FIRST_ANSWER`] and becomes ready soon after.
    pub(crate) async fn open(kind: Kind, params: LaneParams, all: &Params) -> Result<Self, LaneError> {
        let name = params.name.clone();
        let proxy = match &params.proxy {
            None => None,
            Some(proxy) => {
                let started = Proxy::start(proxy.clone(), all.vendor.clone()).await;
                Some(started.map_err(|source| LaneError::Proxy { lane: name.clone(), source })?)
            }
        };
        let mut commands = all.hooks.clone();
        commands.extend(params.hooks.clone());
        let mut env = params.env.clone();
        env.insert("LANE".to_owned(), name.clone());
        let mut lane = Self {
            name,
            kind,
            proxy,
            hooks: Hooks::new(commands, env, all.timings.hook),
            answer: all.timings.answer,
            info: GetInfoResponse::default(),
            channels: channels(&params)?,
            params,
            down: std::sync::Mutex::default(),
            clusters: AtomicU64::new(0),
            machines: Mutex::default(),
        };
        lane.info = lane.introduced(all.timings.ready).await?;
        Ok(lane)
    }

    pub(crate) fn api(&self, role: Role, transcript: Transcript, tracker: Tracker) -> Option<Api> {
        let channel = self.channels.get(&role)?.clone();
        Some(Api::new(role, channel, self.answer, transcript, tracker))
    }

    fn mark(&self, replica: usize, down: bool) {
        let mut all = self.down.lock().unwrap_or_else(PoisonError::into_inner);
        if down {
            all.insert(replica);
        } else {
            all.remove(&replica);
        }
    }

    pub(crate) fn down(&self) -> Vec<usize> {
        self.down.lock().unwrap_or_else(PoisonError::into_inner).iter().copied().collect()
    }

    /// The prerequisites of a check that this lane lacks.
    pub fn lacks(&self, needs: &[Need], params: &Params) -> Vec<Need> {
        needs.iter().filter(|need| !self.offers(**need, params)).copied().collect()
    }

    fn offers(&self, need: Need, params: &Params) -> bool {
        match need {
            Need::Capability(name) => self.info.capabilities.iter().any(|one| one.name == name),
            Need::Hook(hook) => self.hooks.has(hook),
            Need::Proxy => self.proxy.is_some(),
            Need::Secured => self.kind == Kind::Secured,
            Need::Replicas => self.kind == Kind::Replicas,
            Need::Param(key) => has(params, &self.params, key),
        }
    }

    /// Whether a check with these prerequisites may run on this lane. Special lanes run only the checks that need them.
    pub fn suits(&self, needs: &[Need]) -> bool {
        self.kind == kind(needs)
    }

    /// Waits until the adapter answers and reports its scope in the cloud.
    pub(crate) async fn ready(&self, within: Duration) -> Result<GetInfoResponse, String> {
        let end = Instant::now() + within;
        loop {
            let came = match self.ask(FIRST_ANSWER.min(within)).await {
                Ok(info) if info.scope.is_some() => return Ok(info),
                Ok(_info) => format!("GetInfo has no scope: {}", self.self_check().await),
                Err(error) => error,
            };
            if Instant::now() >= end {
                return Err(came);
            }
            tokio::time::sleep(TICK).await;
        }
    }

    /// Sends one `GetInfo`.
    pub(crate) async fn ask(&self, within: Duration) -> Result<GetInfoResponse, String> {
        let (api, context) = self.asker()?;
        // The deadline of the call passes first, so that its error can name the cause. This timeout is for calls that ignore their
        // deadline.
        let asked = tokio::time::timeout(within + GRACE, api.within(within).info(&context)).await;
        match asked {
            Ok(answer) => answer.map_err(|error| match error.unreached() {
                Some(why) => format!("cannot connect to {}: {why}", self.params.endpoint),
                None => error.to_string(),
            }),
            Err(_elapsed) => Err(format!("no answer within {} s", within.as_secs())),
        }
    }

    /// Why the adapter has no scope yet, according to its status.
    async fn self_check(&self) -> String {
        let reported = async {
            let (api, context) = self.asker().ok()?;
            let report = api.watch_status(&context).await.ok()?.next(FIRST_ANSWER).await.ok()??;
            report.self_check_error
        };
        match tokio::time::timeout(FIRST_ANSWER, reported).await {
            Ok(Some(error)) => format!("its self-check failed: {}", error.message),
            Ok(None) | Err(_) => "its self-check has not passed yet".to_owned(),
        }
    }

    /// The client for requests before the first check.
    fn asker(&self) -> Result<(Api, RequestContext), String> {
        let role = if self.kind == Kind::Secured { Role::Operator } else { Role::ServiceController };
        let api = self.api(role, Transcript::new(), Tracker::default());
        let api = api.ok_or_else(|| format!("secured.identities: no identity for the role {role}"))?;
        let cluster_id = self.params.cluster_id.clone().unwrap_or_else(|| uuid(&["preflight"]));
        Ok((api, RequestContext { cluster_id, ..RequestContext::default() }))
    }

    async fn introduced(&self, within: Duration) -> Result<GetInfoResponse, LaneError> {
        let fault = |what, hint| LaneError::Adapter {
            lane: self.name.clone(),
            endpoint: self.params.endpoint.clone(),
            what,
            hint,
        };
        // The first limit is short, so that a wrong flag is reported soon. If the adapter is starting, it gets the full time.
        self.ready(FIRST_ANSWER).await.map(drop).or_else(|error| {
            let starting = error.contains("STARTING") || error.contains("the answer has no scope");
            if starting { Ok(()) } else { Err(fault(error, HINT)) }
        })?;
        self.ready(within).await.map_err(|error| fault(error, HINT_READY))
    }

    pub(crate) fn next_cluster(&self) -> u64 {
        self.clusters.fetch_add(1, Ordering::Relaxed)
    }
}

const HINT: &str = "check the endpoint (--endpoint: http or https?), the CA (--tls-ca-cert, \
                    tls.caFile), the server's name (--tls-server-name) and the identities (--token-file, identities); is the \
                    adapter running?";
const HINT_READY: &str =
    "check the adapter's log: can the adapter reach the vendor, through the proxy if lanes[].proxy is set?";

/// The kind of lane that a check with these prerequisites needs.
pub(crate) fn kind(needs: &[Need]) -> Kind {
    if needs.contains(&Need::Secured) {
        Kind::Secured
    } else if needs.contains(&Need::Replicas) {
        Kind::Replicas
    } else {
        Kind::Plain
    }
}

/// Whether the parameter file sets an optional key.
fn has(params: &Params, lane: &LaneParams, key: &str) -> bool {
    let Params { vendor, samples, limits, timings, .. } = params;
    let lists = |collection: &str| vendor.lists.iter().any(|list| list.collection == collection);
    match key {
        "vendor.lists" => !vendor.lists.is_empty(),
        "vendor.lists[instances]" => lists("instances"),
        "vendor.lists[load-balancers]" => lists("load-balancers"),
        "vendor.lists[routes]" => lists("routes"),
        "vendor.requestIdHeader" => vendor.request_id_header.is_some(),
        "samples.reservedAddress" => samples.reserved_address.is_some(),
        "samples.missingProviderId" => samples.missing_provider_id.is_some(),
        "samples.canary" => samples.canary.is_some(),
        "limits.buckets" => !limits.buckets.is_empty(),
        "timings.connectionAge" => timings.connection_age.is_some(),
        "lanes[].http" => lane.http.is_some(),
        "lanes[].log" => lane.log.is_some(),
        _ => false,
    }
}

/// A connection to one endpoint with an identity of a lane.
pub(crate) fn visit(params: &LaneParams, endpoint: &str, role: Role) -> Result<AdapterChannel, LaneError> {
    channel(params, &target(&params.name, endpoint)?, params.identities.of(role))
}

/// A connection to the endpoint of a lane through a relay, with an identity of the lane.
pub(crate) fn visit_through(
    params: &LaneParams,
    relay: SocketAddr,
    role: Role,
) -> Result<AdapterChannel, LaneError> {
    let mut params = params.clone();
    if let (Target::Single { host, tls: true }, None) =
        (target(&params.name, &params.endpoint)?, &params.tls.server_name)
    {
        params.tls.server_name = Some(host.host);
    }
    let scheme = if params.tls.ca_file.is_some() { "https" } else { "http" };
    visit(&params, &format!("{scheme}://{relay}"), role)
}

/// A plain-text connection without identity to another port of an adapter.
pub(crate) fn visit_plainly(params: &LaneParams, endpoint: &str) -> Result<AdapterChannel, LaneError> {
    let plain = LaneParams { name: params.name.clone(), ..LaneParams::default() };
    visit(&plain, endpoint, Role::Anonymous)
}

fn channels(params: &LaneParams) -> Result<BTreeMap<Role, AdapterChannel>, LaneError> {
    let LaneParams { identities, name, endpoint, .. } = params;
    let target = target(name, endpoint)?;
    // Without identities, the adapter authenticates no caller, so every role can connect.
    let anyone = identities.are_none();
    let mut channels = BTreeMap::new();
    for role in Role::ALL {
        let identity = identities.of(role);
        if identity.is_none() && !anyone && role != Role::Anonymous {
            continue;
        }
        channels.insert(role, channel(params, &target, identity)?);
    }
    Ok(channels)
}

fn target(lane: &str, endpoint: &str) -> Result<Target, LaneError> {
    let (lane, text) = (lane.to_owned(), endpoint.to_owned());
    endpoint.parse().map_err(|source| LaneError::Endpoint { lane, endpoint: text, source })
}

fn channel(
    params: &LaneParams,
    target: &Target,
    identity: Option<&IdentityParams>,
) -> Result<AdapterChannel, LaneError> {
    let IdentityParams { token_file, certificate_file, key_file } = identity.cloned().unwrap_or_default();
    let security = ChannelSecurity {
        ca: params.tls.ca_file.clone(),
        server_name: params.tls.server_name.clone(),
        token: token_file,
        client_certificate: certificate_file,
        client_key: key_file,
        flags: FLAGS,
    };
    let fault = |faults: String| LaneError::ChannelSecurity { lane: params.name.clone(), faults };
    let connection = Connection::new(target.clone(), &security)
        .map_err(|faults| fault(faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")))?;
    connection.open().map_err(|error| fault(error.to_string()))
}

impl crate::params::Identities {
    /// The identity of a role.
    pub fn of(&self, role: Role) -> Option<&IdentityParams> {
        match role {
            Role::NodeController => self.node_controller.as_ref(),
            Role::ServiceController => self.service_controller.as_ref(),
            Role::RouteController => self.route_controller.as_ref(),
            Role::Operator => self.operator.as_ref(),
            Role::Stranger => self.stranger.as_ref(),
            Role::Anonymous => None,
        }
    }

    /// Whether the lane has no identities at all.
    pub fn are_none(&self) -> bool {
        Role::ALL.iter().all(|&role| self.of(role).is_none())
    }
}

/// The process of the adapter or of one replica, for checks that stop it.
#[derive(Debug)]
pub struct Process {
    pub(crate) lane: Arc<Lane>,
    pub(crate) replica: usize,
    pub(crate) ready: Duration,
    pub(crate) transcript: Transcript,
}

impl Process {
    /// Kills the process at once. Returns when it is gone.
    /// Fails if the command fails.
    pub async fn kill(&self) -> Result<(), Stop> {
        self.lane.mark(self.replica, true);
        self.run(Hook::KillAdapter).await
    }

    /// Asks the process to end. Returns when it is gone.
    /// Fails if the command fails.
    pub async fn stop(&self) -> Result<(), Stop> {
        self.lane.mark(self.replica, true);
        self.run(Hook::StopAdapter).await
    }

    /// Starts the process and waits until the adapter is ready.
    /// Fails if the command fails, or if the adapter is not ready in time.
    pub async fn start(&self) -> Result<GetInfoResponse, Stop> {
        self.start_by(Hook::StartAdapter).await
    }

    /// Starts the process by another command and waits until the adapter is ready.
    /// Fails if the command fails, or if the adapter is not ready in time.
    pub async fn start_by(&self, hook: Hook) -> Result<GetInfoResponse, Stop> {
        self.run(hook).await?;
        self.lane.mark(self.replica, false);
        let ready = self.lane.ready(self.ready).await;
        let wants = format!("a started adapter is ready within {} s", self.ready.as_secs());
        let info = ready.map_err(|error| Stop::failed(wants, error))?;
        self.transcript.note(format!("the adapter is ready, its instance_id is {}", info.instance_id));
        Ok(info)
    }

    /// Kills the process, starts it again and waits until the adapter is ready.
    /// Fails if a command fails, or if the adapter is not ready in time.
    pub async fn restart(&self) -> Result<GetInfoResponse, Stop> {
        self.kill().await?;
        self.start().await
    }

    async fn run(&self, hook: Hook) -> Result<(), Stop> {
        self.transcript.note(format!("hook {hook}, replica {}", self.replica));
        self.lane.hooks.run(hook, &[("REPLICA", &self.replica.to_string())]).await?;
        Ok(())
    }
}
