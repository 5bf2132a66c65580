//! The driver, which passes the runtime's requests to the modules.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use cloud_adapter::{
    driver::{
        Adopter, Classify, CredentialsFile, Deduplication, Description, DesiredLoadBalancer, Driver, Fault,
        Heritage, LoadBalancerRecord, Location, Outcome, RouteChanges, VendorError, VendorLimit,
    },
    kit::{self, Part, created},
    vendor::{Operation, Session, VendorResponse},
};
use cloud_api_proto::v1alpha1::{Capability, Fence, Limits, LoadBalancerKey, Scope, capability::Level};
use secrecy::SecretString;

use crate::{
    api::requests::{CreateLoadBalancer, Neighbour, NewMember},
    classify::{classify, request_id},
    client::{Client, Ports, octavia::Which},
    identity::{
        Identity,
        catalogue::Service,
        cloud::{Cloud, Given},
        source::Source,
    },
    instances::{Networking, Shared},
    load_balancers::{
        self, Detail, LoadBalancers,
        settings::{LoadBalancerOptions, Site},
    },
    ownership::{self, GoNames},
    parameters::Parameters,
    plan,
    provider_id::{self, Form},
    routes::{self, Routes},
    step::Step,
};

/// Capabilities that do not depend on flags.
const CAPABILITIES: [&str; 2] = ["instances", "instances.shutdown-state"];

/// The default rate limits of the adapter. The services themselves limit rates only if the operator of the cloud has configured limits. A
/// running request occupies a worker of the service, and a service has as many workers as its host has cores.
const CALL_LIMITS: [(&str, VendorLimit); 4] = [
    ("compute", VendorLimit::Bucket { rate: 5.0, burst: 20 }),
    ("network", VendorLimit::Bucket { rate: 5.0, burst: 20 }),
    ("loadbalancer", VendorLimit::Bucket { rate: 5.0, burst: 20 }),
    ("identity", VendorLimit::Bucket { rate: 1.0, burst: 5 }),
];

/// The maximum time by which reads lag behind writes. A service reads from the database that it writes to, or from a replica of this
/// database, which may lag.
const CONSISTENCY_HORIZON: Duration = Duration::from_secs(30);
/// The time after a lost answer in which the cloud may still execute a creation. Octavia requests a port from Neutron before it stores the
/// new load balancer, and continues after its client has disconnected. Under load, this has taken longer than a minute, and proxies in
/// front of Octavia usually time out after one minute.
const CREATE_HORIZON: Duration = Duration::from_mins(2);

/// The driver, which keeps the configuration of the cloud, the credentials, and caches of what listings have read.
#[derive(Clone, Debug)]
pub struct OpenStackDriver {
    pub(crate) client: Client,
    pub(crate) settings: Arc<Settings>,
    pub(crate) balancers: Arc<LoadBalancers>,
    pub(crate) routes: Arc<Routes>,
    region: String,
    ca: Option<Vec<u8>>,
}

/// The configuration, without the credentials.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) source: Source,
    /// Values of flags, which take precedence over the source.
    pub(crate) given: Given,
    pub(crate) networking: Networking,
    pub(crate) form: Form,
    pub(crate) load_balancers: LoadBalancerOptions,
    /// The ID of the router that contains the pod routes.
    pub(crate) router: Option<String>,
}

impl OpenStackDriver {
    /// Builds the driver without connecting to the cloud. `ca` is the content, as PEM, of the certificate file that `cloud` names.
    pub(crate) fn new(cloud: Cloud, ca: Option<Vec<u8>>, settings: Settings) -> Self {
        let region = cloud.region.clone();
        let client = Client { identity: Arc::new(Identity::new(cloud)) };
        let balancers = Arc::new(LoadBalancers::new(settings.load_balancers.clone()));
        let routes = Arc::new(Routes::new(settings.router.clone()));
        Self { client, settings: Arc::new(settings), balancers, routes, region, ca }
    }

    pub(crate) fn place(&self) -> Shared<'_> {
        Shared { region: &self.region, networking: &self.settings.networking, form: self.settings.form }
    }

    /// If no subnet is configured, looks up the subnet of the node first. The subnet of the last node is cached, so this usually costs no
    /// call.
    async fn create_load_balancer(
        &self,
        session: &Session,
        new: &CreateLoadBalancer,
    ) -> Result<(), VendorError> {
        let subnet = match &new.beside {
            Some(node) => Some(self.subnet_beside(session, node).await?),
            None => None,
        };
        self.client.create_load_balancer(session, new, subnet.as_deref()).await
    }

    async fn subnet_beside(&self, session: &Session, node: &Neighbour) -> Result<String, VendorError> {
        if let Some(known) = self.balancers.subnet_beside(node) {
            return Ok(known);
        }
        let unknown = |why: &str| {
            let text = format!(
                "no subnet is given, and the subnet of node {} is not known: {why}; \
                 set adapter.openstack.loadBalancers.subnetId (--subnet-id)",
                node.provider_id
            );
            kit::invalid("spec.subnets", text)
        };
        let Location::Here(server) = self.locate(&node.provider_id) else {
            return Err(unknown("the provider ID belongs to another cloud"));
        };
        let page = self.client.list_ports(session, Ports::At(&server), None).await?;
        let subnet = page.items.iter().find_map(|port| port.subnet_of(node.address));
        let subnet =
            subnet.ok_or_else(|| unknown("no port of the instance has the node's address"))?.to_owned();
        self.balancers.learn_subnet(node, &subnet);
        Ok(subnet)
    }

    async fn update_members(
        &self,
        session: &Session,
        pool: &Part,
        which: Which,
        members: &[NewMember],
    ) -> Result<(), VendorError> {
        let pool = pool.id()?;
        let known = &self.balancers.members;
        // The cache is dropped before and after the write, because a listing in progress may store members that it read before the write.
        known.forget(pool);
        let done = self.client.update_members(session, pool, which, members).await;
        known.forget(pool);
        done
    }

    /// Builds a driver with the credentials in `content`, which is the content of the credentials file.
    fn candidate(&self, content: &[u8]) -> Result<Self, String> {
        let cloud = self.settings.source.read_with(content, &self.settings.given)?;
        self.client.identity.tries(&cloud);
        let region = cloud.region.clone();
        Ok(Self { client: Client { identity: Arc::new(Identity::new(cloud)) }, region, ..self.clone() })
    }

    fn adopt(&self, other: &Self) {
        self.client.identity.adopt(&other.client.identity);
    }
}

impl Classify for OpenStackDriver {
    fn classify(&self, operation: Operation, response: &VendorResponse) -> Option<VendorError> {
        classify(operation, response)
    }

    fn request_id(&self, response: &VendorResponse) -> Option<String> {
        request_id(response)
    }

    fn secrets(&self) -> Vec<SecretString> {
        self.client.identity.secrets()
    }
}

impl Driver for OpenStackDriver {
    type Detail = Detail;
    type Step = Step;

    fn describe(&self) -> Description {
        let capability = |(name, values): (&str, Option<String>)| Capability {
            name: name.to_owned(),
            level: Level::Stable.into(),
            attributes: values
                .map(|values| ("values".to_owned(), values))
                .into_iter()
                .chain(load_balancers::attributes(name))
                .collect(),
        };
        let plain = |name| (name, None);
        Description {
            adapter_name: "adapter-openstack",
            adapter_version: env!("CARGO_PKG_VERSION"),
            provider: provider_id::SCHEME,
            capabilities: CAPABILITIES
                .map(plain)
                .into_iter()
                .chain(self.balancers.site().capabilities())
                .chain(self.routes.capabilities().iter().copied().map(plain))
                .map(capability)
                .collect(),
            limits: Limits {
                batch_instances: 500,
                batch_routes: routes::BATCH,
                listeners: None,
                backends: None,
            },
            call_limits: CALL_LIMITS.to_vec(),
            parameters: Parameters::declared(),
            consistency_horizon: CONSISTENCY_HORIZON,
            create_horizon: CREATE_HORIZON,
            // Octavia accepts several load balancers with the same name, and has no idempotency token for a creation.
            deduplication: Deduplication::ListThenCreate,
            // Each ID costs one call, so a listing is cheaper than look-ups of more than a few IDs. The runtime chooses between the two.
            batch: 1,
            poll: Duration::from_secs(2),
            // Each amphora is a virtual machine that has to boot.
            expected_latency: vec![
                ("EnsureLoadBalancer", Duration::from_mins(2)),
                ("DeleteLoadBalancer", Duration::from_secs(30)),
            ],
        }
    }

    async fn self_check(&self, session: &Session) -> Result<Scope, VendorError> {
        let identity = &self.client.identity;
        let project = identity.check(session).await?;
        let access = identity.access(session).await?;
        // Checks the addresses here, so that a wrong region is reported at once instead of at the first look-up of an instance.
        for service in [Service::Compute, Service::Network] {
            access.endpoints.base(service)?;
        }
        let (region, endpoint) = (self.region.clone(), identity.cloud().auth_url);
        // The fingerprint contains IDs, because the names of projects and domains may change while the scope stays the same.
        let fingerprint = kit::digest(&[&project.domain.id, &project.id, &region, &endpoint]);
        Ok(Scope { account: project.domain.id, project: project.id, region, endpoint, fingerprint })
    }

    fn credentials(&self) -> Option<CredentialsFile<Self>> {
        let path = self.settings.source.followed()?;
        let adopt = |driver: &Self, candidate: Self| driver.adopt(&candidate);
        Some(CredentialsFile { path, candidate: Self::candidate, adopt })
    }

    fn ca_certificates(&self) -> Option<Vec<u8>> {
        self.ca.clone()
    }

    fn locate(&self, provider_id: &str) -> Location {
        provider_id::locate(&self.region, provider_id)
    }

    fn spelled(&self, provider_id: &str) -> String {
        match self.locate(provider_id) {
            Location::Here(server) => provider_id::write(self.settings.form, &self.region, &server),
            Location::Elsewhere | Location::Malformed => provider_id.to_owned(),
        }
    }

    fn plan(
        &self,
        desired: &DesiredLoadBalancer,
        fence: &Fence,
        observed: Option<&LoadBalancerRecord<Detail>>,
    ) -> Result<Vec<Step>, VendorError> {
        let guards = self.balancers.guards.last();
        plan::plan(desired, fence, observed, &Site { guards: guards.as_deref(), ..self.balancers.site() })
    }

    fn plan_again(
        &self,
        desired: &DesiredLoadBalancer,
        fence: &Fence,
        former: &LoadBalancerRecord<Detail>,
    ) -> Result<Vec<Step>, VendorError> {
        plan::plan_again(desired, fence, former, &self.balancers.site())
    }

    fn names_of(&self, key: &LoadBalancerKey) -> impl Fn(&str) -> bool {
        kit::names_of(key)
    }

    fn heritage(&self, adopter: &Adopter) -> impl Fn(&LoadBalancerRecord<Detail>) -> Heritage {
        let (names, key) = (GoNames::of(adopter), adopter.key.clone());
        move |record| match &record.detail.balancer {
            Some(balancer)
                if !ownership::is_given_up(&balancer.tags)
                    && !ownership::shares_by_consent(&balancer.tags, &key) =>
            {
                names.heritage(&balancer.name, &balancer.tags)
            }
            Some(_) | None => Heritage::Unrelated,
        }
    }

    fn plan_deletion(&self, observed: &LoadBalancerRecord<Detail>) -> Vec<Step> {
        plan::plan_deletion(observed, self.balancers.guards.last().as_deref())
    }

    fn plan_release(&self, observed: &LoadBalancerRecord<Detail>) -> Vec<Step> {
        plan::plan_release(observed, self.balancers.guards.last().as_deref())
    }

    fn is_used_by_others(&self, observed: &LoadBalancerRecord<Detail>) -> bool {
        let there = observed.detail.balancer.as_ref();
        there.is_some_and(|one| {
            ownership::is_used_by_others(&one.name, &one.tags, observed.summary.key.as_ref())
        })
    }

    fn uses(&self, adopter: &Adopter, observed: &LoadBalancerRecord<Detail>) -> BTreeSet<String> {
        load_balancers::uses(adopter, observed)
    }

    fn plan_routes(&self, changes: &RouteChanges) -> Vec<Step> {
        plan::plan_routes(changes)
    }

    async fn execute(&self, session: &Session, step: &Step) -> Result<Outcome, VendorError> {
        // The cache is dropped before and after the write, because a listing in progress may store state that it read before the write.
        self.balancers.parts.forget();
        let kept = step.keeps();
        if let Some(record) = kept.as_ref().filter(|record| !self.balancers.begins_to_keep(record)) {
            let text = format!(
                "namespace {} already keeps its maximum number of addresses",
                record.owner().namespace
            );
            return Err(VendorError::new(Fault::Busy, text));
        }
        let done = self.carry_out(session, step).await;
        self.balancers.parts.forget();
        if let Some(record) = kept {
            self.balancers.kept.done(&record, self.balancers.parts.writes());
        }
        done
    }
}

impl OpenStackDriver {
    async fn carry_out(&self, session: &Session, step: &Step) -> Result<Outcome, VendorError> {
        let client = &self.client;
        match step {
            Step::ChangeRoutes(changes) => return self.change_routes(session, changes).await,
            Step::CreateLoadBalancer(new) => self.create_load_balancer(session, new).await,
            Step::AdoptLoadBalancer { id, tags } => self.tag(session, id, tags).await,
            Step::RenameLoadBalancer { id, name } => client.rename_load_balancer(session, id, name).await,
            Step::CompleteLoadBalancer { id, tags } => self.tag(session, id.id()?, tags).await,
            Step::ShareLoadBalancer { id, sharing, .. } => self.share(session, id, sharing).await,
            Step::LeaveLoadBalancer { id, whose } => self.leave(session, id, whose.as_ref()).await,
            Step::ReleaseLoadBalancer { id } => self.release(session, id).await,
            Step::DeleteLoadBalancer { id, whose, seen } => {
                self.delete_unshared(session, id, whose.as_ref(), seen).await
            }
            Step::CreateListener { balancer, listener, pool, .. } => {
                client.create_listener(session, balancer.id()?, pool.id()?, listener).await
            }
            Step::UpdateListener { id, change, pool, .. } => {
                let pool = pool.as_ref().map(Part::id).transpose()?;
                client.update_listener(session, id, pool, change).await
            }
            Step::DeleteListener { id, .. } => client.delete_listener(session, id).await,
            Step::CreatePool { balancer, pool } => client.create_pool(session, balancer.id()?, pool).await,
            Step::UpdatePool { id, change, .. } => client.update_pool(session, id, change).await,
            Step::DeletePool { id, .. } => client.delete_pool(session, id).await,
            Step::SetMembers { pool, members, .. } => {
                self.update_members(session, pool, Which::All, members).await
            }
            Step::AddMembers { pool, members, .. } => {
                self.update_members(session, pool, Which::Named, members).await
            }
            Step::CreateMonitor { pool, monitor, .. } => {
                client.create_monitor(session, pool.id()?, monitor).await
            }
            Step::UpdateMonitor { id, change, .. } => client.update_monitor(session, id, change).await,
            Step::DeleteMonitor { id, .. } => client.delete_monitor(session, id).await,
            Step::CreateFloatingIp { new, target } => {
                client.create_floating_ip(session, new, created(target.as_ref())?).await
            }
            Step::ReserveFloatingIp { new, former } => {
                client.reserve_floating_ip(session, new, former.as_ref()).await
            }
            Step::AttachFloatingIp { id, target, .. } => {
                client.attach_floating_ip(session, id.id()?, created(target.as_ref())?).await
            }
            Step::AttachReserved { address, target, claim } => {
                client.attach_reserved(session, *address, claim, created(target.as_ref())?).await
            }
            Step::DescribeFloatingIp { id, description, .. } => {
                client.describe_floating_ip(session, id.id()?, description).await
            }
            Step::DetachFloatingIp { id, for_reserved, .. } => {
                client.detach_floating_ip(session, id, for_reserved.as_ref()).await
            }
            Step::DeleteFloatingIp { id, .. } => client.delete_floating_ip(session, id).await,
            Step::OpenNodes(opening) => self.open_nodes(session, created(opening.as_deref())?).await,
            Step::CloseNodes(closing) => self.close_nodes(session, closing).await,
        }
        .map(|()| Outcome::Accepted)
    }
}
