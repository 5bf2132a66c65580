//! The environment of a check.

mod heal;

use std::{
    collections::BTreeSet,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use adapter_client::AdapterChannel;
use cloud_api_proto::{
    Reason,
    v1alpha1::{
        BatchGetInstancesResponse, Capability, DeleteLoadBalancerResponse, EnsureLoadBalancerResponse,
        Existence, GetInfoResponse, Instance, LoadBalancer, LoadBalancerState, Route, RouteOwner,
        WatchInstancesRequest, WatchLoadBalancersRequest, WatchRoutesRequest,
    },
};
use prost_types::Duration as Span;
use sha2::{Digest as _, Sha256};
use tokio::time::Instant;

use crate::{
    api::{Api, CallResult, Listing, Role},
    cluster::{Balancer, Cluster, uuid},
    expect,
    hooks::Hook,
    lane::{self, Kind, Lane, Process},
    params::Params,
    proxy::Proxy,
    tracker::Tracker,
    transcript::Transcript,
    verdict::{Need, Stop},
};

/// The capability of vendors that can store the owner of a route.
pub const ROUTE_TAGS: &str = "routes.ownership-tags";

const TICK: Duration = Duration::from_millis(25);
/// Longest retry delay that a healthy adapter sends.
const PAUSE_MAX: Duration = Duration::from_secs(15);
/// Maximum number of provider IDs in an environment variable of a command, because systems limit the size of a variable. Source: Linux,
/// execve(2), MAX_ARG_STRLEN.
const IDS_MAX: usize = 400;

/// The environment of a check: clients of the adapter, the check's own clusters, the proxy and commands. All objects that the check creates
/// are removed after the check.
#[derive(Debug)]
pub struct Context {
    params: Arc<Params>,
    lane: Arc<Lane>,
    run: Run,
    clusters: Mutex<Vec<Cluster>>,
    dice: AtomicU64,
    unseen: Mutex<BTreeSet<String>>,
    transcript: Transcript,
    tracker: Tracker,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) check: &'static str,
    pub(crate) visits_replicas: bool,
    pub(crate) seed: u64,
    /// Distinguishes the objects that two runs with the same seed create in the cloud.
    pub(crate) nonce: u64,
    pub(crate) repetition: u32,
}

impl Context {
    pub(crate) fn new(params: Arc<Params>, lane: Arc<Lane>, run: Run) -> Self {
        Self {
            params,
            lane,
            run,
            clusters: Mutex::default(),
            dice: AtomicU64::new(0),
            unseen: Mutex::default(),
            transcript: Transcript::new(),
            tracker: Tracker::default(),
        }
    }

    /// The parameter file.
    pub fn params(&self) -> &Params {
        &self.params
    }

    /// The adapter under test, with its proxy and commands.
    pub fn lane(&self) -> &Lane {
        &self.lane
    }

    /// The adapter's `GetInfo` answer at the start of the run.
    pub fn info(&self) -> &GetInfoResponse {
        &self.lane.info
    }

    /// Whether the adapter reports a capability.
    pub fn can(&self, capability: &str) -> bool {
        self.info().capabilities.iter().any(|one| one.name == capability)
    }

    /// Whether the adapter reports this value of a capability.
    pub fn has_attribute(&self, capability: &str, attribute: &str, value: &str) -> bool {
        let named = self.info().capabilities.iter().find(|one| one.name == capability);
        named.and_then(|one| one.attributes.get(attribute)).is_some_and(|said| said == value)
    }

    /// Whether the vendor can store the owner of a route. Otherwise, a cluster owns a route if its CIDRs contain the destination and the
    /// next hop is the instance of the named node.
    pub fn has_route_tags(&self) -> bool {
        self.can(ROUTE_TAGS)
    }

    /// The owner that the watch reports for routes that this cluster created.
    pub fn own_routes(&self) -> RouteOwner {
        if self.has_route_tags() { RouteOwner::Mine } else { RouteOwner::Unmanaged }
    }

    /// Whether the adapter reports a capability and, if the capability has a list of values, this value.
    pub fn takes(&self, capability: &str, value: &str) -> bool {
        let info = self.info();
        let values = |one: &Capability| one.attributes.get("values").cloned();
        let listed = info.capabilities.iter().find(|one| one.name == capability);
        listed.is_some_and(|one| {
            value.is_empty() || values(one).is_none_or(|values| values.split(',').any(|one| one == value))
        })
    }

    /// Records that a part of the check is skipped because this prerequisite is missing. The check may still pass; the report names the
    /// part.
    pub fn without(&self, missing: Need) {
        self.unseen.lock().unwrap_or_else(PoisonError::into_inner).insert(missing.lack());
    }

    pub(crate) fn unseen(&self) -> Vec<String> {
        self.unseen.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
    }

    /// How long the vendor's reads may lag behind its writes.
    pub fn consistency(&self) -> Duration {
        let said = self.info().consistency_horizon.and_then(|span| Duration::try_from(span).ok());
        self.params.timings.consistency.or(said).unwrap_or_default()
    }

    /// Adds a line to the transcript, which is printed if the check fails.
    pub fn note(&self, text: impl AsRef<str>) {
        self.transcript.note(text);
    }

    /// A pseudo-random number, determined by the seed.
    pub fn random(&self) -> u64 {
        let Run { check, seed, repetition, .. } = self.run;
        let n = self.dice.fetch_add(1, Ordering::Relaxed);
        let digest = Sha256::digest(format!("{seed}/{check}/{repetition}/{n}"));
        digest.iter().take(8).fold(0, |sum, &byte| (sum << 8) | u64::from(byte))
    }

    // Callers.

    /// A client of the adapter with this role.
    /// Skips the check if the parameter file has no identity for the role.
    pub fn api(&self, role: Role) -> Result<Api, Stop> {
        let api = self.lane.api(role, self.transcript.clone(), self.tracker.clone());
        api.ok_or_else(|| Stop::skipped(format!("identities: no identity for the role {role}")))
    }

    /// A client as the node-controller.
    pub fn node(&self) -> Result<Api, Stop> {
        self.api(Role::NodeController)
    }

    /// A client as the service-controller.
    pub fn service(&self) -> Result<Api, Stop> {
        self.api(Role::ServiceController)
    }

    /// A client as the route-controller.
    pub fn route(&self) -> Result<Api, Stop> {
        self.api(Role::RouteController)
    }

    /// A client with this role over a given channel.
    pub fn over(&self, role: Role, channel: AdapterChannel) -> Api {
        let (transcript, tracker) = (self.transcript.clone(), self.tracker.clone());
        Api::new(role, channel, self.params.timings.answer, transcript, tracker)
    }

    /// A client with this role over its own connection.
    /// Returns an error if endpoint and identity do not match.
    pub fn connect(&self, role: Role) -> Result<Api, Stop> {
        let params = &self.lane.params;
        let channel = lane::visit(params, &params.endpoint, role);
        let channel =
            channel.map_err(|error| Stop::failed("identities can be read at any time", error.to_string()))?;
        Ok(self.over(role, channel))
    }

    /// A client with this role for each replica: the replicas under test, or those that a check
    /// [visits](crate::check::Check::visits_replicas). Empty without replicas.
    /// Returns an error if an endpoint or the identity is invalid.
    pub fn replicas(&self, role: Role) -> Result<Vec<Api>, Stop> {
        let lane = match self.lane.kind {
            Kind::Replicas => Some(&self.lane.params),
            Kind::Plain | Kind::Secured => self.params.replicas.as_ref(),
        };
        let lane = lane.filter(|_| self.run.visits_replicas || self.lane.kind == Kind::Replicas);
        let open = |lane, endpoint: &String| match lane::visit(lane, endpoint, role) {
            Ok(channel) => Ok(self.over(role, channel)),
            Err(error) => Err(Stop::failed("the parameter file names replicas", error.to_string())),
        };
        let endpoints = lane.into_iter().flat_map(|lane| lane.replicas.iter().map(move |one| (lane, one)));
        endpoints.map(|(lane, endpoint)| open(lane, endpoint)).collect()
    }

    // Clusters.

    /// Returns the check's own virtual cluster, which is the same on each call. If the adapter serves only one cluster, returns that
    /// cluster.
    pub fn cluster(&self) -> Cluster {
        let mut clusters = self.clusters.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(first) = clusters.first() {
            return first.clone();
        }
        let id = self.lane.params.cluster_id.clone().unwrap_or_else(|| self.cluster_id(0));
        self.add_cluster(&mut clusters, &id)
    }

    /// A new virtual cluster on each call.
    pub fn new_cluster(&self) -> Cluster {
        let mut clusters = self.clusters.lock().unwrap_or_else(PoisonError::into_inner);
        // Index 0 is the check's own cluster.
        if clusters.is_empty() {
            let id = self.lane.params.cluster_id.clone().unwrap_or_else(|| self.cluster_id(0));
            self.add_cluster(&mut clusters, &id);
        }
        let id = self.cluster_id(clusters.len());
        self.add_cluster(&mut clusters, &id)
    }

    fn add_cluster(&self, clusters: &mut Vec<Cluster>, id: &str) -> Cluster {
        let samples = Arc::new(self.params.samples.clone());
        let mut cluster = Cluster::new(id, self.lane.next_cluster(), samples);
        if self.lane.params.cluster_id.is_some() {
            let Run { check, nonce, repetition, .. } = self.run;
            cluster = cluster.sharded(&format!("{nonce:x}-{check}-{repetition}"));
        }
        clusters.push(cluster.clone());
        cluster
    }

    fn cluster_id(&self, n: usize) -> String {
        let Run { check, seed, nonce, repetition, .. } = self.run;
        uuid(&[&format!("{seed}/{nonce}/{check}/{repetition}/{n}"), &self.lane.name])
    }

    pub(crate) fn clusters(&self) -> Vec<Cluster> {
        self.clusters.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    // Load balancers.

    /// The load balancer of the Service `shop/web` in the check's own cluster, with this number of shared instances as backends.
    pub async fn web(&self, backends: usize) -> Result<Balancer, Stop> {
        Ok(self.cluster().balancer("web").backends(&self.machines(backends).await?))
    }

    /// Puts the backend set of a load balancer.
    pub async fn put(&self, balancer: &Balancer) -> Result<(), Stop> {
        self.service()?.put_backend_set(balancer.set.clone()).await?;
        Ok(())
    }

    /// Sends one Ensure, and puts the backend set first if the adapter does not know it.
    pub async fn ensure(&self, balancer: &Balancer) -> Result<CallResult<EnsureLoadBalancerResponse>, Stop> {
        let api = self.service()?;
        match api.ensure_load_balancer(balancer.request.clone()).await {
            Err(error) if error.reason == Reason::BackendSetUnknown => {
                self.put(balancer).await?;
                Ok(api.ensure_load_balancer(balancer.request.clone()).await)
            }
            answer => Ok(answer),
        }
    }

    /// Repeats Ensure until the load balancer is no longer PENDING, with the delays that the adapter returns. Also retries errors that have
    /// a retry delay.
    /// Fails on an error without a retry delay, or if the state is still PENDING after `timings.converge`.
    pub async fn settle(&self, balancer: &Balancer) -> Result<EnsureLoadBalancerResponse, Stop> {
        let end = Instant::now() + self.params.timings.converge;
        loop {
            let (pause, came) = match self.ensure(balancer).await? {
                Ok(answer) if answer.state() == LoadBalancerState::Pending => {
                    let wants = "a PENDING answer has a retry delay (retry_after)";
                    (span(expect::some(answer.retry_after, wants)?), "PENDING".to_owned())
                }
                Ok(answer) => return Ok(answer),
                Err(error) => match error.retry_after {
                    Some(pause) => (pause, error.to_string()),
                    None => return Err(error.into()),
                },
            };
            self.pause(end, pause, "the load balancer reaches a final state", &came).await?;
        }
    }

    /// Repeats Ensure until the load balancer is ACTIVE.
    pub async fn converge(&self, balancer: &Balancer) -> Result<EnsureLoadBalancerResponse, Stop> {
        let answer = self.settle(balancer).await?;
        expect::equal("the load balancer becomes ACTIVE", &answer.state(), &LoadBalancerState::Active)?;
        Ok(answer)
    }

    /// Repeats Delete until the load balancer is ABSENT.
    /// Fails on an error without a retry delay, or if the state is not ABSENT after `timings.converge`.
    pub async fn remove(&self, balancer: &Balancer) -> Result<DeleteLoadBalancerResponse, Stop> {
        let end = Instant::now() + self.params.timings.converge;
        let api = self.service()?;
        loop {
            let (pause, came) = match api.delete_load_balancer(balancer.removal()).await {
                Ok(answer) if answer.state() == LoadBalancerState::Absent => return Ok(answer),
                Ok(answer) => {
                    let wants = "a DELETING answer has a retry delay (retry_after)";
                    (span(expect::some(answer.retry_after, wants)?), format!("{:?}", answer.state()))
                }
                Err(error) => match error.retry_after {
                    Some(pause) => (pause, error.to_string()),
                    None => return Err(error.into()),
                },
            };
            self.pause(end, pause, "the load balancer becomes ABSENT", &came).await?;
        }
    }

    /// Waits for the adapter's retry delay, but not beyond the deadline.
    async fn pause(&self, end: Instant, pause: Duration, wants: &str, came: &str) -> Result<(), Stop> {
        let limit = self.params.timings.converge.as_secs();
        let in_time = Instant::now() < end;
        expect::that(in_time, &format!("{wants} within {limit} s"), || format!("still {came}"))?;
        tokio::time::sleep(pause.clamp(TICK, PAUSE_MAX)).await;
        Ok(())
    }

    // Fresh listings.

    /// The load balancers that a cluster owns, listed fresh from the vendor.
    /// Fails if the listing is not complete in time.
    pub async fn load_balancers(&self, cluster: &Cluster) -> Result<Listing<LoadBalancer>, Stop> {
        let request = WatchLoadBalancersRequest {
            context: Some(cluster.live()),
            stop_when_synced: true,
            ..WatchLoadBalancersRequest::default()
        };
        let mut watch = self.service()?.watch_load_balancers(request).await?;
        watch.listing(self.params.timings.ready).await
    }

    /// The routes that a cluster sees, listed fresh from the vendor.
    /// Fails if the listing is not complete in time.
    pub async fn routes(&self, cluster: &Cluster) -> Result<Listing<Route>, Stop> {
        let request = WatchRoutesRequest {
            context: Some(cluster.live()),
            stop_when_synced: true,
            cluster_cidrs: vec![cluster.cluster_cidr()],
            ..WatchRoutesRequest::default()
        };
        let mut watch = self.route()?.watch_routes(request).await?;
        watch.listing(self.params.timings.ready).await
    }

    /// All instances, listed fresh from the vendor.
    /// Fails if the listing is not complete in time.
    pub async fn instances(&self) -> Result<Listing<Instance>, Stop> {
        let request = WatchInstancesRequest {
            context: Some(self.cluster().live()),
            stop_when_synced: true,
            ..WatchInstancesRequest::default()
        };
        let mut watch = self.node()?.watch_instances(request).await?;
        watch.listing(self.params.timings.ready).await
    }

    // The vendor's side.

    /// The proxy between adapter and vendor.
    /// Skips the check if the lane has no proxy.
    pub fn proxy(&self) -> Result<&Proxy, Stop> {
        self.lane.proxy.as_ref().ok_or_else(|| Stop::skipped("lanes[].proxy is not set"))
    }

    /// Runs a command of the parameter file.
    /// Fails if the command fails; skips the check if the command is not set.
    pub async fn hook(&self, hook: Hook, variables: &[(&str, &str)]) -> Result<String, Stop> {
        self.transcript.note(format!("hook {hook} {variables:?}"));
        let printed = self.lane.hooks.run(hook, variables).await?;
        self.transcript.note(format!("the hook {hook} printed {}", crate::transcript::brief(&printed)));
        Ok(printed)
    }

    /// Runs a command, or records that the part of the check that needs it is skipped.
    pub async fn optional_hook(
        &self,
        hook: Hook,
        variables: &[(&str, &str)],
    ) -> Result<Option<String>, Stop> {
        if !self.lane.hooks.has(hook) {
            self.without(Need::Hook(hook));
            return Ok(None);
        }
        self.hook(hook, variables).await.map(Some)
    }

    /// Running instances that all checks of this adapter share and must not change. They stay until the end of the run.
    /// Skips the check if there are too few and `hooks.createInstances` is not set.
    pub async fn machines(&self, count: usize) -> Result<Vec<Instance>, Stop> {
        let mut machines = self.lane.machines.lock().await;
        let missing = count.saturating_sub(machines.len());
        if missing > 0 {
            let name = format!("conformance-shared-{:x}-{}", self.run.nonce, machines.len());
            let ids = self.make_machines(&name, missing).await?;
            machines.extend(self.all_seen(&ids).await?);
        }
        Ok(machines.iter().take(count).cloned().collect())
    }

    /// The result of [`Self::machines`] as an array.
    pub async fn these_machines<const N: usize>(&self) -> Result<[Instance; N], Stop> {
        exactly(self.machines(N).await?)
    }

    /// Running instances of this check alone. They are removed after the check.
    /// Skips the check without `hooks.createInstances`. Returns an error if the adapter does not report the new instances.
    pub async fn new_machines(&self, count: usize) -> Result<Vec<Instance>, Stop> {
        let name = format!("conformance-{}", self.cluster().uid(&self.random().to_string()));
        let ids = self.make_machines(&name, count).await?;
        for some in ids.chunks(IDS_MAX) {
            self.tracker.undo_by(Hook::DeleteInstances, vec![("PROVIDER_IDS", some.join(" "))]);
        }
        self.all_seen(&ids).await
    }

    /// The result of [`Self::new_machines`] as an array.
    pub async fn these_new_machines<const N: usize>(&self) -> Result<[Instance; N], Stop> {
        exactly(self.new_machines(N).await?)
    }

    /// Deletes an instance of this check in the cloud.
    pub async fn delete_machine(&self, machine: &Instance) -> Result<(), Stop> {
        self.hook(Hook::DeleteInstances, &[("PROVIDER_IDS", &machine.provider_id)]).await.map(drop)
    }

    async fn make_machines(&self, name: &str, count: usize) -> Result<Vec<String>, Stop> {
        let variables = [("NAME", name), ("COUNT", &count.to_string())];
        let printed = self.hook(Hook::CreateInstances, &variables).await?;
        let ids: Vec<String> =
            printed.lines().map(str::trim).filter(|line| !line.is_empty()).map(str::to_owned).collect();
        expect::equal("hooks.createInstances prints one provider ID per line", &ids.len(), &count)?;
        Ok(ids)
    }

    async fn all_seen(&self, ids: &[String]) -> Result<Vec<Instance>, Stop> {
        self.until(self.params.timings.converge, "the adapter reports new instances", || self.seen(ids)).await
    }

    /// Maximum time in which an adapter must list this many instances.
    pub fn listing_timeout(&self, machines: usize) -> Duration {
        let each = Duration::from_millis(20) * u32::try_from(machines).unwrap_or(u32::MAX);
        self.params.timings.answer.saturating_add(each)
    }

    async fn seen(&self, ids: &[String]) -> Result<Option<Vec<Instance>>, Stop> {
        let mut seen = Vec::new();
        let begin = Instant::now();
        let node = self.node()?.within(self.listing_timeout(ids.len()));
        let cluster = self.cluster();
        let mut context = cluster.live();
        for chunk in ids.chunks(500) {
            let request = cluster.instances(context, chunk.iter().map(String::as_str));
            let BatchGetInstancesResponse { results, .. } = node.batch_get_instances(request).await?;
            for result in results {
                match (result.existence(), result.instance) {
                    (Existence::Exists, Some(instance)) => seen.push(instance),
                    _ => return Ok(None),
                }
            }
            // Later batches may be answered with data that the adapter read after the first batch began.
            context = cluster.as_of(begin);
        }
        Ok((seen.len() == ids.len()).then_some(seen))
    }

    /// Registers a command that runs after the check and removes an object that another command created, such as `DeleteLoadBalancer` with
    /// `VENDOR_ID`.
    pub fn undo_by(&self, hook: Hook, variables: Vec<(&'static str, String)>) {
        self.tracker.undo_by(hook, variables);
    }

    /// Unregisters a command of [`Self::undo_by`].
    pub fn undone(&self, hook: Hook, value: &str) {
        self.tracker.undone(hook, value);
    }

    /// The adapter's process. If the check stops the process, the suite starts it again afterwards.
    pub fn process(&self) -> Process {
        self.replica_process(0)
    }

    /// The process of one replica, counted from 0.
    pub fn replica_process(&self, replica: usize) -> Process {
        let (lane, ready) = (Arc::clone(&self.lane), self.params.timings.ready);
        Process { lane, replica, ready, transcript: self.transcript.clone() }
    }

    /// Evaluates a condition repeatedly until it returns a value.
    /// Fails if the evaluation fails, or if no value was returned within the limit.
    pub async fn until<T, F>(&self, limit: Duration, wants: &str, observe: impl Fn() -> F) -> Result<T, Stop>
    where
        F: Future<Output = Result<Option<T>, Stop>>,
    {
        let end = Instant::now() + limit;
        loop {
            if let Some(found) = observe().await? {
                return Ok(found);
            }
            let in_time = Instant::now() < end;
            expect::that(in_time, wants, || {
                format!("the condition did not hold within {} s", limit.as_secs_f64())
            })?;
            tokio::time::sleep(TICK).await;
        }
    }

    pub(crate) fn transcript(&self) -> &Transcript {
        &self.transcript
    }

    pub(crate) fn tracker(&self) -> &Tracker {
        &self.tracker
    }
}

fn exactly<const N: usize>(machines: Vec<Instance>) -> Result<[Instance; N], Stop> {
    let wants = "hooks.createInstances creates the requested number of instances";
    machines.try_into().map_err(|machines| Stop::failed(wants, format!("{machines:?}")))
}

/// Converts a protobuf duration; an invalid one becomes zero.
fn span(span: Span) -> Duration {
    Duration::try_from(span).unwrap_or_default()
}
