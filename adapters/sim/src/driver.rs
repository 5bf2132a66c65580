//! The driver. It implements the traits of the runtime and uses the other modules.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    time::Duration,
};

use cloud_adapter::{
    driver::{
        Adopter, Classify, Collection, CredentialsFile, Cursor, Deduplication, Description,
        DesiredLoadBalancer, Driver, Fault, Heritage, InstanceLookup, LoadBalancerRecord, Location, Lookup,
        Outcome, Page, RouteChanges, VendorError, VendorLimit,
    },
    kit::{self, Region},
    vendor::{Operation, Session, VendorResponse},
};
use cloud_api_proto::v1alpha1::{
    Capability, Fence, Instance, Limits, LoadBalancerKey, Route, Scope, capability::Level,
};
use http::Uri;
use secrecy::{ExposeSecret as _, SecretString};

use crate::{
    SCHEME,
    classify::{classify, classify_item},
    client::{BATCH_INSTANCES, BATCH_ROUTES, BATCH_ROUTES_CALL, Client},
    heritage, ownership,
    parameters::Parameters,
    plan, responses,
    simcloud::requests::{BatchRoutes, CreateLoadBalancer, SetMembers, UpdateListener, UpdateLoadBalancer},
    step::{RouteBatch, Step},
    translate,
};

/// The capabilities of this cloud. `tests/wire/driver/capabilities.rs` has a test for each of them.
const CAPABILITIES: [&str; 28] = [
    "instances",
    "instances.shutdown-state",
    "loadbalancers",
    "lb.internal",
    "lb.source-ranges",
    "lb.proxy-protocol",
    "lb.health-check.http",
    "lb.session-affinity",
    "lb.udp",
    "lb.sctp",
    "lb.mixed-protocols",
    "lb.dual-stack",
    "lb.reserved-ip",
    "lb.tls",
    "lb.address-pool",
    "lb.subnets",
    "lb.size",
    "lb.zone",
    "lb.name",
    "lb.algorithm",
    "lb.listener-protocol",
    "lb.connect-timeout",
    "lb.connection-limit",
    "lb.app-protocol",
    "lb.in-place-update",
    "lb.ownership-tags",
    "routes",
    "routes.ownership-tags",
];

/// The supported values of those capabilities that have a list of values.
const VALUES: [(&str, &str); 2] =
    [("lb.proxy-protocol", "v2"), ("lb.algorithm", "round-robin,least-connections,source-ip")];

/// The maximum number of listeners of a load balancer, and of members of a pool. They are the vendor's default quotas.
const LISTENERS_MAX: u32 = 50;
const MEMBERS_MAX: u32 = 5000;

/// The adapter's default limits on calls. The cloud has no limits unless a test sets them.
const CALL_LIMITS: [(&str, VendorLimit); 4] = [
    ("compute", VendorLimit::Bucket { rate: 20.0, burst: 40 }),
    ("network", VendorLimit::Bucket { rate: 20.0, burst: 40 }),
    ("loadbalancer", VendorLimit::Bucket { rate: 20.0, burst: 40 }),
    ("identity", VendorLimit::Bucket { rate: 5.0, burst: 10 }),
];

/// The delay between a write and the next read.
const POLL: Duration = Duration::from_millis(250);

/// The endpoint in the scope of a cloud inside this process. The cloud's port changes at each start, and no other process uses it. The
/// controllers show this text if the cloud lists no instances.
const BUILT_IN: &str = "built into adapter-sim (starts empty; set adapter.sim.endpoint)";

/// The cloud's address and properties.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The base URL, such as `http://127.0.0.1:9797`.
    pub endpoint: Uri,
    /// The project's token, if the cloud requires one.
    pub token: Option<SecretString>,
    /// The region that the endpoint serves; part of all provider IDs.
    pub region: String,
    /// The maximum time by which reads lag behind writes.
    pub consistency_horizon: Duration,
    /// Maximum time that the cloud may work on a create whose response was lost.
    pub create_horizon: Duration,
    /// Whether the cloud supports client tokens.
    pub client_tokens: ClientTokens,
}

/// Whether the cloud accepts a client token with a create. With the token, a repeated create does not create a second load balancer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum ClientTokens {
    /// Each create has a client token
    #[default]
    Sent,
    /// No create has a client token: the adapter looks for the load balancer before it creates one
    Unknown,
}

/// The driver. Its only state is the configuration of the cloud and the token.
#[derive(Clone, Debug)]
pub struct SimDriver {
    client: Client,
    region: String,
    consistency_horizon: Duration,
    create_horizon: Duration,
    client_tokens: ClientTokens,
    token_file: Option<PathBuf>,
    /// Whether the cloud runs inside this process.
    built_in: bool,
}

/// Returns the token in the content of a token file. `None`: the file is empty.
pub(crate) fn token(text: &str) -> Option<&str> {
    Some(text.trim()).filter(|token| !token.is_empty())
}

impl SimDriver {
    /// Creates the driver without connecting.
    pub fn new(settings: Settings) -> Result<Self, http::header::InvalidHeaderValue> {
        let Settings { endpoint, token, region, consistency_horizon, create_horizon, client_tokens } =
            settings;
        let client = Client::new(&endpoint, token.as_ref().map(|token| token.expose_secret()))?;
        let (token_file, built_in) = (None, false);
        Ok(Self { client, region, consistency_horizon, create_horizon, client_tokens, token_file, built_in })
    }

    /// Declares that the cloud runs inside this process.
    #[must_use]
    pub(crate) fn built_in(self) -> Self {
        Self { built_in: true, ..self }
    }

    /// Sets the token file. The driver reads the file again when it changes.
    #[must_use]
    pub fn following(self, token_file: PathBuf) -> Self {
        Self { token_file: Some(token_file), ..self }
    }

    pub(crate) fn candidate(&self, content: &[u8]) -> Result<Self, String> {
        let text = str::from_utf8(content).map_err(|error| format!("invalid token file: {error}"))?;
        let token = token(text).ok_or("the token file is empty")?;
        let endpoint =
            self.client.endpoint().parse().map_err(|error| format!("invalid endpoint: {error}"))?;
        let client = Client::new(&endpoint, Some(token)).map_err(|_secret| {
            "the token has characters that are not allowed in an HTTP header".to_owned()
        })?;
        Ok(Self { client, ..self.clone() })
    }

    pub(crate) fn adopt(&self, other: &Self) {
        self.client.adopt(&other.client);
    }

    async fn create_load_balancer(
        &self,
        session: &Session,
        request: &CreateLoadBalancer,
    ) -> Result<Outcome, VendorError> {
        let made = match self.client_tokens {
            ClientTokens::Sent => self.client.create_load_balancer(session, request).await,
            ClientTokens::Unknown => {
                let request = CreateLoadBalancer { client_token: None, ..request.clone() };
                self.client.create_load_balancer(session, &request).await
            }
        };
        Ok(made?.map_or(Outcome::Accepted, Outcome::Created))
    }

    async fn batch_routes(&self, session: &Session, batch: &RouteBatch) -> Result<Outcome, VendorError> {
        let add: Vec<_> = batch.add.iter().filter_map(|one| one.as_ref().ok().cloned()).collect();
        let request = BatchRoutes { add, remove: batch.remove.clone() };
        let mut results = Vec::with_capacity(batch.remove.len().saturating_add(batch.add.len()));
        let mut added = Vec::new().into_iter();
        if !request.add.is_empty() || !request.remove.is_empty() {
            let answer = self.client.batch_routes(session, &request).await?;
            if answer.added.len() != request.add.len() || answer.removed.len() != request.remove.len() {
                let text =
                    format!("{BATCH_ROUTES_CALL}: the number of results differs from the number of items");
                return Err(VendorError::new(Fault::OutcomeUnknown, text));
            }
            results.extend(answer.removed.into_iter().map(|result| gone(item(result))));
            added = answer.added.into_iter();
        }
        for one in &batch.add {
            results.push(match one {
                Err(error) => Err(error.clone()),
                Ok(_) => added.next().map_or(Ok(None), |result| self.created(result)),
            });
        }
        Ok(Outcome::Items(results))
    }

    fn created(&self, result: responses::RouteResult) -> Result<Option<Route>, VendorError> {
        Ok(Some(translate::route(&*item(result)?, &self.region)))
    }
}

fn capability(name: &str) -> Capability {
    let values = VALUES.iter().filter(|(choice, _)| *choice == name);
    Capability {
        name: name.to_owned(),
        level: Level::Stable.into(),
        attributes: values.map(|(_, values)| ("values".to_owned(), (*values).to_owned())).collect(),
    }
}

fn item(result: responses::RouteResult) -> Result<Box<responses::Route>, VendorError> {
    match result {
        responses::RouteResult::Ok(route) => Ok(route),
        responses::RouteResult::Error(error) => Err(classify_item(BATCH_ROUTES_CALL, error)),
    }
}

/// Converts the result of a deletion. Reads may lag, so the deletion counts as a success if the object is already gone.
fn gone(result: Result<Box<responses::Route>, VendorError>) -> Result<Option<Route>, VendorError> {
    match result {
        Err(error) if error.fault != Fault::NotFound => Err(error),
        Ok(_) | Err(_) => Ok(None),
    }
}

impl Classify for SimDriver {
    fn classify(&self, operation: Operation, response: &VendorResponse) -> Option<VendorError> {
        classify(operation, response)
    }

    fn secrets(&self) -> Vec<SecretString> {
        self.client.secret().into_iter().collect()
    }
}

impl Driver for SimDriver {
    type Detail = responses::LoadBalancer;
    type Step = Step;

    fn describe(&self) -> Description {
        let size = |size: usize| u32::try_from(size).unwrap_or(u32::MAX);
        Description {
            call_limits: CALL_LIMITS.to_vec(),
            adapter_name: "adapter-sim",
            adapter_version: env!("CARGO_PKG_VERSION"),
            provider: SCHEME,
            capabilities: CAPABILITIES.map(capability).into(),
            limits: Limits {
                batch_instances: size(BATCH_INSTANCES),
                batch_routes: size(BATCH_ROUTES),
                listeners: Some(LISTENERS_MAX),
                backends: Some(MEMBERS_MAX),
            },
            parameters: Parameters::declared(),
            consistency_horizon: self.consistency_horizon,
            create_horizon: self.create_horizon,
            deduplication: match self.client_tokens {
                ClientTokens::Sent => Deduplication::ClientToken,
                ClientTokens::Unknown => Deduplication::ListThenCreate,
            },
            batch: BATCH_INSTANCES,
            poll: POLL,
            expected_latency: vec![
                ("EnsureLoadBalancer", Duration::from_secs(2)),
                ("DeleteLoadBalancer", Duration::from_secs(1)),
                ("ApplyRoutes", Duration::from_millis(100)),
            ],
        }
    }

    fn credentials(&self) -> Option<CredentialsFile<Self>> {
        let path = self.token_file.clone()?;
        let adopt = |driver: &Self, candidate: Self| driver.adopt(&candidate);
        Some(CredentialsFile { path, candidate: Self::candidate, adopt })
    }

    async fn self_check(&self, session: &Session) -> Result<Scope, VendorError> {
        let project = self.client.get_project(session).await?;
        if project.region != self.region {
            let text = format!(
                "{} serves region {}, not {}: start the adapter with --region {}",
                self.client.endpoint(),
                project.region,
                self.region,
                project.region
            );
            return Err(VendorError::new(Fault::Invalid, text));
        }
        let endpoint = if self.built_in { BUILT_IN } else { self.client.endpoint() };
        Ok(translate::scope(project, endpoint))
    }

    fn locate(&self, provider_id: &str) -> Location {
        kit::locate(SCHEME, Region::Required(&self.region), provider_id)
    }

    fn plan(
        &self,
        desired: &DesiredLoadBalancer,
        fence: &Fence,
        observed: Option<&LoadBalancerRecord<Self::Detail>>,
    ) -> Result<Vec<Step>, VendorError> {
        plan::plan(desired, fence, observed, &self.region)
    }

    fn names_of(&self, key: &LoadBalancerKey) -> impl Fn(&str) -> bool {
        kit::names_of(key)
    }

    fn heritage(&self, adopter: &Adopter) -> impl Fn(&LoadBalancerRecord<Self::Detail>) -> Heritage {
        let of_name = heritage::of(adopter);
        move |record: &LoadBalancerRecord<Self::Detail>| of_name(&record.detail.name)
    }

    fn plan_deletion(&self, observed: &LoadBalancerRecord<Self::Detail>) -> Vec<Step> {
        plan::plan_deletion(&observed.detail)
    }

    fn plan_release(&self, observed: &LoadBalancerRecord<Self::Detail>) -> Vec<Step> {
        plan::plan_release(&observed.detail)
    }

    fn uses(&self, _heir: &Adopter, observed: &LoadBalancerRecord<Self::Detail>) -> BTreeSet<String> {
        let responses::LoadBalancer { placement, listeners, .. } = &observed.detail;
        let certificates =
            listeners.iter().filter_map(|one| one.traffic.known()).flat_map(|traffic| &traffic.certificates);
        let placement = placement.known().into_iter();
        let places = placement.flat_map(|there| there.subnets.iter().chain(&there.address_pool));
        places.chain(certificates).cloned().collect()
    }

    async fn look_up(
        &self,
        session: &Session,
        vendor_id: &str,
    ) -> Result<Lookup<LoadBalancerRecord<Self::Detail>>, VendorError> {
        match self.client.get_load_balancer(session, vendor_id).await {
            Ok(balancer) => Ok(Lookup::Found(translate::load_balancer(balancer))),
            Err(error) if error.fault == Fault::NotFound => Ok(Lookup::Gone),
            Err(error) => Err(error),
        }
    }

    async fn find(
        &self,
        session: &Session,
        key: &LoadBalancerKey,
    ) -> Result<Option<Vec<LoadBalancerRecord<Self::Detail>>>, VendorError> {
        let page = self.client.find_load_balancers(session, &ownership::key_tags(key)).await?;
        let whole = page.next.is_none();
        Ok(whole.then(|| page.load_balancers.into_iter().map(translate::load_balancer).collect()))
    }

    fn plan_routes(&self, changes: &RouteChanges) -> Vec<Step> {
        plan::plan_routes(changes, &self.region)
    }

    async fn execute(&self, session: &Session, step: &Step) -> Result<Outcome, VendorError> {
        let client = &self.client;
        match step {
            Step::BatchRoutes(batch) => return self.batch_routes(session, batch).await,
            Step::CreateLoadBalancer(request) => return self.create_load_balancer(session, request).await,
            Step::AdoptLoadBalancer { id, change } => client.update_load_balancer(session, id, change).await,
            Step::RenameLoadBalancer { id, name } => {
                let change = UpdateLoadBalancer { name: Some(name.clone()), tags: None };
                client.update_load_balancer(session, id, &change).await
            }
            Step::UpdateLoadBalancer { balancer, change } => {
                client.update_load_balancer(session, balancer.id()?, change).await
            }
            Step::DeleteLoadBalancer { id } => client.delete_load_balancer(session, id).await,
            Step::CreateListener { balancer, request } => {
                client.create_listener(session, balancer.id()?, request).await
            }
            Step::UpdateListener { id, change, pool, .. } => {
                let pool_id = pool.as_ref().map(|pool| pool.id().map(str::to_owned)).transpose()?;
                client.update_listener(session, id, &UpdateListener { pool_id, ..change.clone() }).await
            }
            Step::DeleteListener { id, .. } => client.delete_listener(session, id).await,
            Step::CreatePool { balancer, request } => client.create_pool(session, balancer, request).await,
            Step::UpdatePool { id, change, .. } => client.update_pool(session, id, change).await,
            Step::DeletePool { id, .. } => client.delete_pool(session, id).await,
            Step::SetMembers { pool, members, .. } => {
                client.set_members(session, pool, &SetMembers { members: members.clone() }).await
            }
            Step::UpdateMembers { pool, change, .. } => client.update_members(session, pool, change).await,
        }
        .map(|()| Outcome::Accepted)
    }
}

impl Collection<Instance> for SimDriver {
    async fn list_page(
        &self,
        session: &Session,
        cursor: Option<&Cursor>,
        size: Option<u32>,
    ) -> Result<Page<Instance>, VendorError> {
        let page = self.client.list_instances(session, cursor.map(Cursor::at), size).await?;
        Ok(Page {
            items: page.instances.iter().map(translate::instance).collect(),
            next: page.next.map(Cursor::from),
            total: None,
        })
    }
}

impl InstanceLookup for SimDriver {
    async fn get_batch(
        &self,
        session: &Session,
        ids: &[String],
    ) -> Result<Option<Vec<Lookup<Instance>>>, VendorError> {
        let answer = self.client.batch_get_instances(session, ids).await?;
        let found: BTreeMap<&str, &responses::Instance> =
            answer.instances.iter().map(|instance| (instance.id.as_str(), instance)).collect();
        let look_up = |id: &String| match found.get(id.as_str()) {
            Some(instance) => Lookup::Found(translate::instance(instance)),
            None if answer.missing.contains(id) => Lookup::Gone,
            None => Lookup::Unknown,
        };
        Ok(Some(ids.iter().map(look_up).collect()))
    }
}

impl Collection<LoadBalancerRecord<responses::LoadBalancer>> for SimDriver {
    async fn list_page(
        &self,
        session: &Session,
        cursor: Option<&Cursor>,
        size: Option<u32>,
    ) -> Result<Page<LoadBalancerRecord<responses::LoadBalancer>>, VendorError> {
        let page = self.client.list_load_balancers(session, cursor.map(Cursor::at), size).await?;
        Ok(Page {
            items: page.load_balancers.into_iter().map(translate::load_balancer).collect(),
            next: page.next.map(Cursor::from),
            total: None,
        })
    }
}

impl Collection<Route> for SimDriver {
    async fn list_page(
        &self,
        session: &Session,
        cursor: Option<&Cursor>,
        size: Option<u32>,
    ) -> Result<Page<Route>, VendorError> {
        let page = self.client.list_routes(session, cursor.map(Cursor::at), size).await?;
        let items = page.routes.iter().map(|route| translate::route(route, &self.region)).collect();
        Ok(Page { items, next: page.next.map(Cursor::from), total: None })
    }
}
