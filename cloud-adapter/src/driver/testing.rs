//! A driver for tests of the runtime.

use std::{fmt, time::Duration};

use cloud_api_proto::v1alpha1::{Fence, Instance, Limits, LoadBalancerKey, Priority, Scope};

use super::{
    Adopter, Classify, Collection, Cursor, Deduplication, Description, DesiredLoadBalancer, Driver, Fault,
    Heritage, InstanceLookup, Item, LoadBalancerRecord, Location, Lookup, Outcome, Page, RouteChanges, Step,
    VendorError,
};
use crate::vendor::{Family, Operation, Session, VendorResponse};

/// The names of load balancers that another controller created: for one owner, for two owners, for an owner without proof, and for another
/// owner.
pub(crate) const SOLE: &str = "sole";
pub(crate) const SHARED: &str = "shared";
pub(crate) const UNPROVEN: &str = "unproven";
pub(crate) const OTHERS: &str = "others";
/// The name of a load balancer that is also used by other keys.
pub(crate) const USED: &str = "used";
/// A size to which no existing load balancer can be changed.
pub(crate) const ANOTHER_SIZE: &str = "another";

pub(crate) const CREATE_HORIZON: Duration = Duration::from_mins(2);

/// A cloud without objects that accepts all writes.
#[derive(Debug)]
pub(crate) struct WriteOnly;

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Create {
    New,
    /// The create requests properties of a former load balancer.
    Again,
    Gone,
    Released,
}

impl Create {
    fn path(&self) -> &'static str {
        match self {
            Self::New => "write",
            Self::Again => "write-again",
            Self::Gone => "delete",
            Self::Released => "release",
        }
    }
}

impl fmt::Display for Create {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.path())
    }
}

impl Step for Create {
    fn operation(&self) -> Operation {
        Operation::write(Family::Compute, "Create")
    }

    fn class(&self) -> Priority {
        Priority::Traffic
    }
}

impl Classify for WriteOnly {
    fn classify(&self, _: Operation, _: &VendorResponse) -> Option<VendorError> {
        None
    }
}

impl<T: Item> Collection<T> for WriteOnly {
    async fn list_page(
        &self,
        _: &Session,
        _: Option<&Cursor>,
        _: Option<u32>,
    ) -> Result<Page<T>, VendorError> {
        Ok(Page { items: Vec::new(), next: None, total: None })
    }
}

impl InstanceLookup for WriteOnly {
    async fn get_batch(
        &self,
        _: &Session,
        _: &[String],
    ) -> Result<Option<Vec<Lookup<Instance>>>, VendorError> {
        Ok(None)
    }
}

impl Driver for WriteOnly {
    type Detail = ();
    type Step = Create;

    fn describe(&self) -> Description {
        Description {
            adapter_name: "test",
            adapter_version: "0",
            provider: "test",
            capabilities: Vec::new(),
            limits: Limits::default(),
            call_limits: Vec::new(),
            parameters: Vec::new(),
            consistency_horizon: Duration::ZERO,
            create_horizon: CREATE_HORIZON,
            deduplication: Deduplication::ClientToken,
            batch: 1,
            poll: Duration::from_secs(1),
            expected_latency: Vec::new(),
        }
    }

    async fn self_check(&self, _: &Session) -> Result<Scope, VendorError> {
        Ok(Scope::default())
    }

    fn locate(&self, _: &str) -> Location {
        Location::Elsewhere
    }

    fn plan(
        &self,
        desired: &DesiredLoadBalancer,
        _: &Fence,
        observed: Option<&LoadBalancerRecord<()>>,
    ) -> Result<Vec<Create>, VendorError> {
        match observed {
            Some(_) if desired.spec.size == ANOTHER_SIZE => {
                Err(VendorError::new(Fault::Immutable, "spec.size: cannot be changed"))
            }
            Some(record) if !desired.hash.is_empty() && record.summary.applied_hash == desired.hash => {
                Ok(Vec::new())
            }
            Some(_) | None => Ok(vec![Create::New]),
        }
    }

    fn plan_again(
        &self,
        _: &DesiredLoadBalancer,
        _: &Fence,
        _: &LoadBalancerRecord<()>,
    ) -> Result<Vec<Create>, VendorError> {
        Ok(vec![Create::Again])
    }

    fn names_of(&self, _: &LoadBalancerKey) -> impl Fn(&str) -> bool {
        |_: &str| false
    }

    fn heritage(&self, _: &Adopter) -> impl Fn(&LoadBalancerRecord<()>) -> Heritage {
        |record: &LoadBalancerRecord<()>| match record.summary.name.as_str() {
            SOLE => Heritage::Sole,
            SHARED => Heritage::Shared("shared by two".to_owned()),
            UNPROVEN => Heritage::Unproven("names prove nothing".to_owned()),
            OTHERS => Heritage::Others("owned by another Service".to_owned()),
            _ => Heritage::Unrelated,
        }
    }

    fn plan_deletion(&self, _: &LoadBalancerRecord<()>) -> Vec<Create> {
        vec![Create::Gone]
    }

    fn plan_release(&self, _: &LoadBalancerRecord<()>) -> Vec<Create> {
        vec![Create::Released]
    }

    fn is_used_by_others(&self, observed: &LoadBalancerRecord<()>) -> bool {
        observed.summary.name == USED
    }

    fn plan_routes(&self, _: &RouteChanges) -> Vec<Create> {
        vec![Create::New]
    }

    async fn execute(&self, session: &Session, step: &Create) -> Result<Outcome, VendorError> {
        let uri = format!("http://vendor/{}", step.path());
        let request = http::Request::post(uri).body(bytes::Bytes::new()).expect("a request");
        session.call(step.operation(), request).await.map(|_| Outcome::Accepted)
    }
}
