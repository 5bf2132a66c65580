//! The interface of a vendor driver, which translates between the contract and the vendor's API, and does nothing else.
//!
//! A driver has no policy, never waits, never retries, and has no state but its endpoint and credentials. It calls the vendor only through
//! the [`Session`] that the runtime passes in.

mod cursor;
mod desired;
mod error;
mod fence_tag;
mod headers;
mod item;
mod limit;
mod name;
#[cfg(test)]
pub(crate) mod testing;

use std::{collections::BTreeSet, fmt, future::Future, path::PathBuf, time::Duration};

use cloud_api_proto::v1alpha1::{
    Capability, Fence, Instance, Limits, LoadBalancerKey, Parameter, PlannedStep, Priority, Route, Scope,
};
pub use cloud_budget::Hint;
use secrecy::SecretString;

pub(crate) use self::error::shown;
pub use self::{
    cursor::Cursor,
    desired::{DesiredLoadBalancer, Heir, Heritage, Inheritance, RouteChanges, WantedRoute},
    error::{Fault, VendorError},
    fence_tag::{read_fence, write_fence},
    item::{Item, LoadBalancerRecord, Lookup, Namespaces, Origin, Page},
    limit::VendorLimit,
    name::wished_name,
};
use crate::vendor::{Operation, Session, VendorResponse};

/// A vendor, as seen by the runtime.
///
/// The three collections are listed through [`Collection`], and instances looked up through [`InstanceLookup`]. Load balancers and routes
/// are changed by [`Self::plan`], [`Self::plan_deletion`], [`Self::plan_routes`] (pure) and [`Self::execute`] (one vendor write).
pub trait Driver:
    Classify
    + Collection<Instance>
    + InstanceLookup
    + Collection<LoadBalancerRecord<<Self as Driver>::Detail>>
    + Collection<Route>
    + fmt::Debug
    + Send
    + Sync
    + 'static
{
    /// Driver-specific details of a load balancer: sub-objects and their IDs, as listed.
    type Detail: Clone + PartialEq + fmt::Debug + Send + Sync + 'static;
    /// One vendor write.
    type Step: Step;

    /// The capabilities, sizes and limits of this cloud. Cost: no vendor call.
    fn describe(&self) -> Description;

    /// Returns the scope of the credentials. Cost: one cheap vendor call.
    fn self_check(&self, session: &Session) -> impl Future<Output = Result<Scope, VendorError>> + Send;

    /// The credentials file that may be replaced while the adapter runs. `None`: the credentials never change.
    fn credentials(&self) -> Option<CredentialsFile<Self>>
    where
        Self: Sized,
    {
        None
    }

    /// PEM certificates that replace the system's trusted CAs for the vendor's servers. `None`: the system's.
    fn ca_certificates(&self) -> Option<Vec<u8>> {
        None
    }

    /// Parses a provider ID. Cost: no vendor call.
    fn locate(&self, provider_id: &str) -> Location;

    /// The form of this provider ID that listings use, where this cloud has several forms: callers may use any of them. Pure. Default:
    /// there is only one form.
    fn spelled(&self, provider_id: &str) -> String {
        provider_id.to_owned()
    }

    /// The steps to the desired state, in order; empty if the load balancer is in sync.
    ///
    /// Pure. Steps may refer to parts that earlier steps create: the runtime executes only the first step, then observes and plans again.
    /// The last step records `desired.hash` in the cloud, so that a half-built load balancer never looks complete. To adopt a load balancer
    /// without our tags, the first step tags it. Unless its name shows that it was created for the key, that tag makes listings return it
    /// as [`Origin::Adopted`].
    ///
    /// With [`DesiredLoadBalancer::shares`], `observed` may be a load balancer that others own and use, until it has a record of this key
    /// as well. The driver changes nothing of theirs. The first step records the key, so that the load balancer is not deleted while the
    /// key uses it.
    ///
    /// `fence` goes into the tags of steps that set tags anyway, in the form of [`write_fence`]; a different fence alone requires no step.
    /// Nor does another version of the hash: then the fields are compared.
    ///
    /// # Errors
    /// [`Fault::Immutable`] if the desired state cannot be reached in place, after all other steps are done: backends are updated in any
    /// case. [`Fault::Invalid`] if this cloud does not support it.
    fn plan(
        &self,
        desired: &DesiredLoadBalancer,
        fence: &Fence,
        observed: Option<&LoadBalancerRecord<Self::Detail>>,
    ) -> Result<Vec<Self::Step>, VendorError>;

    /// The steps that create a load balancer in place of one that was deleted for it. Pure. Default: the same as for any other.
    ///
    /// `former` is gone. Its properties, such as the private address, may be requested again; if the vendor refuses, the runtime continues
    /// without them. Only the process that deleted it knows `former`.
    ///
    /// # Errors
    /// The same as for [`Self::plan`].
    fn plan_again(
        &self,
        desired: &DesiredLoadBalancer,
        fence: &Fence,
        former: &LoadBalancerRecord<Self::Detail>,
    ) -> Result<Vec<Self::Step>, VendorError> {
        let _gone = former;
        self.plan(desired, fence, None)
    }

    /// Whether load balancers of the key may have this name, whatever the owner and the cluster were called when it was created. Pure.
    fn names_of(&self, key: &LoadBalancerKey) -> impl Fn(&str) -> bool;

    /// Recognises load balancers without our tags that the vendor's usual cloud controller manager created. Pure. Default: none.
    ///
    /// They are recognised by the names of cluster, namespace and Service, which another cluster may use, too. Therefore a caller gets one
    /// only if it belongs to the heir alone and the caller adopts `IF_UNOWNED`. One that others use, too, stays unchanged, even if the
    /// caller gives its ID.
    fn heritage(&self, heir: &Heir) -> impl Fn(&LoadBalancerRecord<Self::Detail>) -> Heritage {
        let _none = heir;
        |_: &LoadBalancerRecord<Self::Detail>| Heritage::Unrelated
    }

    /// The steps that delete a load balancer with all its parts, in dependency order. Pure. Empty while the vendor is already deleting it.
    ///
    /// Of a shared load balancer only the parts of the key are deleted: the load balancer itself is deleted with its last user, if any of
    /// its users owned it.
    fn plan_deletion(&self, observed: &LoadBalancerRecord<Self::Detail>) -> Vec<Self::Step>;

    /// The steps that release an adopted load balancer ([`Origin::Adopted`]): they delete the parts of its key, then our tags. The load
    /// balancer and all that was not created for the key stay. Pure. Empty while the vendor is changing it. Default: no load balancer is
    /// listed as adopted.
    fn plan_release(&self, observed: &LoadBalancerRecord<Self::Detail>) -> Vec<Self::Step> {
        self.plan_deletion(observed)
    }

    /// Whether others use a load balancer beside the key that it is listed for. Pure. Default: no load balancer is shared.
    ///
    /// A shared load balancer is never deleted and created again for one of its users, whatever the caller allows.
    fn is_used_by_others(&self, observed: &LoadBalancerRecord<Self::Detail>) -> bool {
        let _own = observed;
        false
    }

    /// The vendor's names of the resources that a load balancer already uses for its heir: subnets, networks, address pools, certificates,
    /// addresses. The heir needs no grant to request them. Pure. Default: unknown.
    fn uses(&self, heir: &Heir, observed: &LoadBalancerRecord<Self::Detail>) -> BTreeSet<String> {
        let _own = (heir, observed);
        BTreeSet::new()
    }

    /// Reads one load balancer by the vendor's ID, complete as in a listing. Default: the vendor has no such read, and the collection is
    /// listed instead. Drivers that would need several calls keep this default.
    ///
    /// Used while a user waits for one load balancer, if a listing has more pages than there are waiting users.
    ///
    /// Cost: one vendor call.
    fn look_up(
        &self,
        session: &Session,
        vendor_id: &str,
    ) -> impl Future<Output = Result<Lookup<LoadBalancerRecord<Self::Detail>>, VendorError>> + Send {
        let _none = (session, vendor_id);
        async { Ok(Lookup::Unknown) }
    }

    /// Reads the load balancers whose tags name the key, complete as in a listing and, within
    /// [`Description::consistency_horizon`], as reliable: an empty result means that there are none. `None` (the default): one call cannot
    /// tell, and the collection is listed instead. Drivers whose creates set no tags return that, too.
    ///
    /// Used before a create while a user waits, if a listing has more pages than there are waiting users. Load balancers with the name of
    /// the key and without tags are known only from the last listing, which may be as old as the cache and the caller allow: if a third
    /// party has created one since, the key gets another.
    ///
    /// Cost: one vendor call.
    fn find(
        &self,
        session: &Session,
        key: &LoadBalancerKey,
    ) -> impl Future<Output = Result<Option<Vec<LoadBalancerRecord<Self::Detail>>>, VendorError>> + Send {
        let _none = (session, key);
        async { Ok(None) }
    }

    /// Groups route changes into vendor calls: one for all, or one each. The results are in the order of the changes, removals first. Pure.
    fn plan_routes(&self, changes: &RouteChanges) -> Vec<Self::Step>;

    /// Makes one vendor write. Never sleeps, retries or loops.
    fn execute(
        &self,
        session: &Session,
        step: &Self::Step,
    ) -> impl Future<Output = Result<Outcome, VendorError>> + Send;
}

/// How a driver switches to new credentials. The runtime follows the file, and verifies its content by [`Driver::self_check`].
pub struct CredentialsFile<D> {
    /// The path of the file.
    pub path: PathBuf,
    /// Creates another driver with the credentials of this content, or returns what is wrong with it, without quoting the content.
    pub candidate: fn(&D, &[u8]) -> Result<D, String>,
    /// Takes over the candidate's credentials: they are valid and have the same scope.
    pub adopt: fn(&D, D),
}

impl<D> fmt::Debug for CredentialsFile<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CredentialsFile").field("path", &self.path).finish_non_exhaustive()
    }
}

/// A collection that the vendor can list.
pub trait Collection<T: Item> {
    /// Returns one page of the listing, of at most `size` items; `None`: the vendor's page size. The runtime follows pages, removes
    /// duplicates and restarts a listing where needed. Cost: one vendor call.
    fn list_page(
        &self,
        session: &Session,
        cursor: Option<&Cursor>,
        size: Option<u32>,
    ) -> impl Future<Output = Result<Page<T>, VendorError>> + Send;
}

/// Instances that the vendor can look up by ID: no other collection needs it.
pub trait InstanceLookup {
    /// Looks up instances by the vendor's IDs, at most [`Description::batch`] at once; returns one answer per ID, in order.
    ///
    /// Cost: one vendor call if the vendor has a batch read, else one per ID. `None`: the vendor cannot look up by ID, list instead.
    ///
    /// # Errors
    /// The errors of the call. An error about some of the IDs has them in [`VendorError::fields`]: the runtime repeats the call once
    /// without them. With [`Fault::NotFound`] these instances are gone.
    fn get_batch(
        &self,
        session: &Session,
        ids: &[String],
    ) -> impl Future<Output = Result<Option<Vec<Lookup<Instance>>>, VendorError>> + Send;
}

/// Interprets the vendor's answers.
pub trait Classify: Send + Sync {
    /// Classifies an answer: `None` for success. A table, tested on recorded answers.
    fn classify(&self, operation: Operation, response: &VendorResponse) -> Option<VendorError>;

    /// The remaining calls of the vendor's rate limit, as its answer states them. Default: from the headers `RateLimit-Remaining`,
    /// `-Limit`, `-Reset`, with or without `X-`.
    fn hint(&self, _operation: Operation, response: &VendorResponse) -> Option<Hint> {
        headers::hint(response.headers())
    }

    /// The bucket that a throttled answer names, if the vendor has more limits than one per family.
    fn bucket(&self, _operation: Operation, _response: &VendorResponse) -> Option<&'static str> {
        None
    }

    /// The vendor's ID of the request. Default: from one of the headers that most vendors use.
    fn request_id(&self, response: &VendorResponse) -> Option<String> {
        headers::request_id(response.headers())
    }

    /// Credentials to remove from texts of the vendor. Default: only the values of request headers that are marked as sensitive.
    fn secrets(&self) -> Vec<SecretString> {
        Vec::new()
    }
}

/// One vendor write of a plan. `Display` says what it does: `create listener tcp/443`.
pub trait Step: Clone + fmt::Debug + fmt::Display + PartialEq + Send + Sync + 'static {
    /// The vendor operation, with the family whose budget it is charged to.
    fn operation(&self) -> Operation;

    /// The priority: [`Priority::Traffic`] if traffic depends on it (backends, routes) or it frees an address, else
    /// [`Priority::Interactive`].
    fn class(&self) -> Priority;
}

/// The step as a dry run reports it.
pub(crate) fn planned<S: Step>(step: &S) -> PlannedStep {
    let operation = step.operation();
    PlannedStep {
        description: step.to_string(),
        operation: operation.name.to_owned(),
        family: operation.family.word().to_owned(),
    }
}

/// The outcome of a step.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// The vendor has done it, or has accepted it: the next observation shows the result.
    Accepted,
    /// The vendor has created, or is creating, a load balancer, and returned this ID: the runtime looks it up by the ID.
    Created(String),
    /// One result for each route of a batch, in the order of the step: removals first, then additions. An addition has the created route,
    /// if the vendor returns it: then the snapshot has it without another listing.
    Items(Vec<Result<Option<Route>, VendorError>>),
}

/// How a repeated create is kept from creating a second load balancer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deduplication {
    /// By an idempotency token, which the driver derives from the key, so that another process sends the same one.
    ClientToken,
    /// By a deterministic name: the vendor refuses a second load balancer with that name.
    UniqueName,
    /// Not at all. The runtime creates only after a listing, or [`Driver::find`], that reliably shows all creates of this process and its
    /// predecessor; until then it only observes.
    ListThenCreate,
}

/// The result of parsing a provider ID.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Location {
    /// An instance of this cloud: the vendor's ID.
    Here(String),
    /// An instance of another provider or region.
    Elsewhere,
    /// Malformed, with the scheme of this provider.
    Malformed,
}

/// The capabilities, sizes and limits of a cloud.
#[derive(Clone, Debug)]
pub struct Description {
    /// The name of the adapter program.
    pub adapter_name: &'static str,
    /// Its version.
    pub adapter_version: &'static str,
    /// The scheme of provider IDs: the part before `://`.
    pub provider: &'static str,
    /// The capabilities.
    pub capabilities: Vec<Capability>,
    /// The supported sizes of load balancers.
    pub limits: Limits,
    /// The vendor's default call limits, by bucket: `account`, a family, or `<family>:<operation>`. The operator's configuration takes
    /// precedence.
    pub call_limits: Vec<(&'static str, VendorLimit)>,
    /// The supported vendor parameters.
    pub parameters: Vec<Parameter>,
    /// How long reads may lag behind writes.
    pub consistency_horizon: Duration,
    /// How long after a lost answer the vendor may still execute a create, including the time until reads show the load balancer. Until
    /// then the create is not repeated, and its absence is not proven. At least [`Self::consistency_horizon`]. A new leader cannot know the
    /// last creates of its predecessor, so the time counts from its start, too.
    pub create_horizon: Duration,
    /// How a repeated create is kept from creating a second load balancer.
    pub deduplication: Deduplication,
    /// Maximum number of IDs in one [`InstanceLookup::get_batch`].
    pub batch: usize,
    /// Delay before the first poll after a step that the vendor executes asynchronously; doubled up to 15 s.
    pub poll: Duration,
    /// Typical duration of operations, by RPC name.
    pub expected_latency: Vec<(&'static str, Duration)>,
}

impl Description {
    /// Whether the cloud has a capability.
    #[must_use]
    pub fn can(&self, name: &str) -> bool {
        self.capability(name).is_some()
    }

    /// A capability, if the cloud has it.
    #[must_use]
    pub fn capability(&self, name: &str) -> Option<&Capability> {
        self.capabilities.iter().find(|capability| capability.name == name)
    }
}
