//! The driver. It passes the runtime's requests to the modules.

use std::time::Duration;

use cloud_adapter::{
    driver::{
        Classify, Deduplication, Description, DesiredLoadBalancer, Driver, LoadBalancerRecord, Location,
        Outcome, RouteChanges, VendorError, VendorLimit,
    },
    kit::{self, Region},
    vendor::{Operation, Session, VendorResponse},
};
use cloud_api_proto::v1alpha1::{Fence, Limits, LoadBalancerKey, Scope};
use secrecy::SecretString;

use crate::{
    classify::classify,
    client::Client,
    load_balancers::Detail,
    not_written::{not_written, nothing_written},
    plan,
    step::Step,
};

/// The part of provider IDs before `://`: `skeleton://<region>/<instance-id>`. Write them with [`kit::provider_id`].
const SCHEME: &str = "skeleton";

/// The default rate limits. They are the limits in the cloud's documentation, minus the share that users and other tools need.
const CALL_LIMITS: [(&str, VendorLimit); 4] = [
    ("compute", VendorLimit::Bucket { rate: 5.0, burst: 10 }),
    ("network", VendorLimit::Bucket { rate: 5.0, burst: 10 }),
    ("loadbalancer", VendorLimit::Bucket { rate: 5.0, burst: 10 }),
    ("identity", VendorLimit::Bucket { rate: 1.0, burst: 5 }),
];

/// The driver. Its only state is the configuration of the cloud and the credentials.
#[derive(Clone, Debug)]
pub struct SkeletonDriver {
    pub(crate) client: Client,
    pub(crate) region: String,
}

impl SkeletonDriver {
    pub(crate) fn new(client: Client, region: String) -> Self {
        Self { client, region }
    }
}

impl Classify for SkeletonDriver {
    fn classify(&self, operation: Operation, response: &VendorResponse) -> Option<VendorError> {
        classify(operation, response)
    }

    fn secrets(&self) -> Vec<SecretString> {
        vec![self.client.token.clone()]
    }
}

impl Driver for SkeletonDriver {
    type Detail = Detail;
    type Step = Step;

    fn describe(&self) -> Description {
        Description {
            adapter_name: "adapter-skeleton",
            adapter_version: env!("CARGO_PKG_VERSION"),
            provider: SCHEME,
            // Add each capability as soon as its code is written, and not earlier. The runtime refuses calls that need a missing
            // capability, and names this capability.
            capabilities: Vec::new(),
            limits: Limits { batch_instances: 500, batch_routes: 200, listeners: None, backends: None },
            call_limits: CALL_LIMITS.to_vec(),
            parameters: Vec::new(),
            // Measure this value while the cloud is slow; do not copy it from the documentation.
            consistency_horizon: Duration::from_secs(10),
            // Use a longer duration if the cloud continues a create for a long time after its client has disconnected.
            create_horizon: Duration::from_secs(10),
            // This method works with any cloud. Other methods are faster, but need idempotency tokens or unique names.
            deduplication: Deduplication::ListThenCreate,
            batch: 100,
            poll: Duration::from_secs(2),
            expected_latency: Vec::new(),
        }
    }

    async fn self_check(&self, _session: &Session) -> Result<Scope, VendorError> {
        Err(nothing_written())
    }

    fn locate(&self, provider_id: &str) -> Location {
        kit::locate(SCHEME, Region::Required(&self.region), provider_id)
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
        kit::names_of(key)
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
