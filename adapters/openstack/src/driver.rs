//! The driver: what the runtime asks, handed to the rooms that know.

use std::{sync::Arc, time::Duration};

use cloud_adapter::{
    driver::{
        Classify, CredentialsFile, Deduplication, Description, DesiredLoadBalancer, Driver,
        LoadBalancerRecord, Location, Outcome, RouteChanges, VendorError, VendorLimit,
    },
    vendor::{Operation, Session, VendorResponse},
};
use cloud_api_proto::v1alpha1::{Capability, Fence, Limits, LoadBalancerKey, Scope, capability::Level};
use secrecy::SecretString;

use crate::{
    classify::{classify, request_id},
    client::Client,
    identity::{
        Identity,
        catalogue::Service,
        cloud::{Cloud, Given},
        source::Source,
    },
    instances::{Networking, Place},
    load_balancers::Detail,
    not_written::not_written,
    ownership, plan,
    provider_id::{self, Form},
    step::Step,
};

/// What this cloud can do.
const CAPABILITIES: [&str; 2] = ["instances", "instances.shutdown-state"];

/// How often the cloud may be asked, if nobody says otherwise. OpenStack has no limits of its own as it is delivered; each request
/// takes a worker of the service for as long as it lasts, and there are as many as the machine has cores.
const CALL_LIMITS: [(&str, VendorLimit); 4] = [
    ("compute", VendorLimit::Bucket { rate: 5.0, burst: 20 }),
    ("network", VendorLimit::Bucket { rate: 5.0, burst: 20 }),
    ("loadbalancer", VendorLimit::Bucket { rate: 5.0, burst: 20 }),
    ("identity", VendorLimit::Bucket { rate: 1.0, burst: 5 }),
];

/// Reads come from the database that writes go to. Replicas of it lag for seconds when it is slow.
const CONSISTENCY_HORIZON: Duration = Duration::from_secs(10);

/// The driver. Keeps no state but where the cloud is and who we are there.
#[derive(Clone, Debug)]
pub struct OpenStackDriver {
    pub(crate) client: Client,
    pub(crate) settings: Arc<Settings>,
    region: String,
    ca: Option<Vec<u8>>,
}

/// What is configured, credentials apart.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// Where the credentials come from.
    pub(crate) source: Source,
    /// What flags say in their place.
    pub(crate) given: Given,
    pub(crate) networking: Networking,
    pub(crate) form: Form,
}

impl OpenStackDriver {
    /// Connects nowhere yet. `ca`: the certificates that `cloud` names, as PEM.
    pub(crate) fn new(cloud: Cloud, ca: Option<Vec<u8>>, settings: Settings) -> Self {
        let region = cloud.region.clone();
        let client = Client { identity: Arc::new(Identity::new(cloud)) };
        Self { client, settings: Arc::new(settings), region, ca }
    }

    /// What is the same for all machines.
    pub(crate) fn place(&self) -> Place<'_> {
        Place { region: &self.region, networking: &self.settings.networking, form: self.settings.form }
    }

    /// The same with the credentials of this content.
    fn candidate(&self, content: &[u8]) -> Result<Self, String> {
        let cloud = self.settings.source.read_with(content, &self.settings.given)?;
        self.client.identity.tries(&cloud);
        let region = cloud.region.clone();
        Ok(Self { client: Client { identity: Arc::new(Identity::new(cloud)) }, region, ..self.clone() })
    }

    /// Goes on with another's credentials.
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
        let capability = |name: &str| Capability {
            name: name.to_owned(),
            level: Level::Stable.into(),
            ..Capability::default()
        };
        Description {
            adapter_name: "adapter-openstack",
            adapter_version: env!("CARGO_PKG_VERSION"),
            provider: provider_id::SCHEME,
            capabilities: CAPABILITIES.map(capability).into(),
            limits: Limits { batch_instances: 500, batch_routes: 200, listeners: None, backends: None },
            call_limits: CALL_LIMITS.to_vec(),
            parameters: Vec::new(),
            consistency_horizon: CONSISTENCY_HORIZON,
            // Octavia takes any number of load balancers of one name, and no token with a create.
            deduplication: Deduplication::ListThenCreate,
            // One ID, one call: more than a few are cheaper listed, which the runtime decides.
            batch: 1,
            poll: Duration::from_secs(2),
            expected_latency: Vec::new(),
        }
    }

    async fn self_check(&self, session: &Session) -> Result<Scope, VendorError> {
        let identity = &self.client.identity;
        let project = identity.check(session).await?;
        let access = identity.access(session).await?;
        // A wrong region shows here, and not when the first machine is asked for.
        for service in [Service::Compute, Service::Network] {
            access.endpoints.base(service)?;
        }
        let (region, endpoint) = (self.region.clone(), identity.cloud().auth_url);
        // Names may change, and mean the same project still.
        let fingerprint = ownership::digest(&[&project.domain.id, &project.id, &region, &endpoint]);
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

    fn plan(
        &self,
        desired: &DesiredLoadBalancer,
        fence: &Fence,
        observed: Option<&LoadBalancerRecord<Detail>>,
    ) -> Result<Vec<Step>, VendorError> {
        plan::plan(desired, fence, observed)
    }

    fn names_of(&self, key: &LoadBalancerKey) -> impl Fn(&str) -> bool {
        ownership::names_of(key)
    }

    fn plan_deletion(&self, observed: &LoadBalancerRecord<Detail>) -> Vec<Step> {
        plan::plan_deletion(observed)
    }

    fn plan_routes(&self, changes: &RouteChanges) -> Vec<Step> {
        plan::plan_routes(changes)
    }

    async fn execute(&self, _session: &Session, step: &Step) -> Result<Outcome, VendorError> {
        match step {
            Step::NotWritten(part) => Err(not_written(part, "src/plan.rs")),
        }
    }
}
