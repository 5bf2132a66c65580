//! The interface of a vendor driver, which only translates between the contract and the vendor's API.
//!
//! A driver makes no policy decisions, never waits, never retries, and has no state except its endpoint and credentials. It calls the
//! vendor only through the [`Session`] that the runtime passes to it.

mod cursor;
mod desired;
mod fence_tag;
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

pub use self::{
    cursor::Cursor,
    desired::{Adopter, DesiredLoadBalancer, Heritage, Inheritance, RouteChanges, WantedRoute},
    fence_tag::{read_fence, write_fence},
    item::{Item, LoadBalancerRecord, Lookup, Namespaces, Origin, Page},
    limit::VendorLimit,
    name::wished_name,
};
pub use crate::vendor::{Classify, Fault, VendorError};
use crate::vendor::{Operation, Session};

/// A vendor, as seen by the runtime.
///
/// The runtime lists the three collections through [`Collection`], and looks up instances through [`InstanceLookup`]. It changes load
/// balancers and routes through the pure functions [`Self::plan`], [`Self::plan_deletion`] and [`Self::plan_routes`], and
/// [`Self::execute`], which makes one vendor write.
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
    /// The type of one vendor write.
    type Step: Step;

    /// Returns the capabilities, sizes and limits of this cloud. Cost: no vendor call.
    fn describe(&self) -> Description;

    /// Returns the scope of the credentials. Cost: one cheap vendor call.
    fn self_check(&self, session: &Session) -> impl Future<Output = Result<Scope, VendorError>> + Send;

    /// Returns the credentials file, if it may be replaced while the adapter runs. `None`: the credentials never change.
    fn credentials(&self) -> Option<CredentialsFile<Self>>
    where
        Self: Sized,
    {
        None
    }

    /// Returns PEM certificates that are trusted for the vendor's servers in place of the system's CAs. `None`: the system's CAs are
    /// trusted.
    fn ca_certificates(&self) -> Option<Vec<u8>> {
        None
    }

    /// Parses a provider ID. Cost: no vendor call.
    fn locate(&self, provider_id: &str) -> Location;

    /// Converts a provider ID to the form that listings use. Some clouds have several forms of provider IDs, and callers may use any of
    /// these forms. Pure function. Default: there is only one form.
    fn spelled(&self, provider_id: &str) -> String {
        provider_id.to_owned()
    }

    /// Returns the steps to the desired state, in order. If the load balancer is in sync, there are no steps.
    ///
    /// Pure function. Steps may refer to parts that earlier steps create, because the runtime executes only the first step, then observes
    /// and plans again. The last step records `desired.hash` in the cloud, so that a half-built load balancer never looks complete.
    ///
    /// To adopt a load balancer without the adapter's tags, the first step sets the tags. Listings then return the load balancer as
    /// [`Origin::Adopted`], unless its name shows that it was created for the key.
    ///
    /// If [`DesiredLoadBalancer::shares`] is set, `observed` may be a load balancer of other owners and users that has no record of this
    /// key yet. The driver must not change the parts of other users. The first step records the key, so that the load balancer is not
    /// deleted while a Service with this key uses it.
    ///
    /// Steps that set tags anyway also write `fence` into the tags, in the form of [`write_fence`]. A different fence alone requires no
    /// step. If the recorded hash has another version, the driver compares the fields, and the hash alone requires no step.
    ///
    /// # Errors
    /// Returns [`Fault::Immutable`] if the desired state cannot be reached in place. This error comes only after all other steps are done,
    /// so that backends are always updated. Returns [`Fault::Invalid`] if this cloud does not support the desired state.
    fn plan(
        &self,
        desired: &DesiredLoadBalancer,
        fence: &Fence,
        observed: Option<&LoadBalancerRecord<Self::Detail>>,
    ) -> Result<Vec<Self::Step>, VendorError>;

    /// Returns the steps that recreate a load balancer, which the runtime deleted for this purpose. Pure function. Default:
    /// [`Self::plan`] without an observed load balancer.
    ///
    /// `former` is the load balancer that was deleted. The steps may request its properties again, such as the private address. If the
    /// vendor refuses, the runtime continues without these properties. A process that did not delete `former` itself calls [`Self::plan`]
    /// instead.
    ///
    /// # Errors
    /// Returns the same errors as [`Self::plan`].
    fn plan_again(
        &self,
        desired: &DesiredLoadBalancer,
        fence: &Fence,
        former: &LoadBalancerRecord<Self::Detail>,
    ) -> Result<Vec<Self::Step>, VendorError> {
        let _gone = former;
        self.plan(desired, fence, None)
    }

    /// Returns a function that tells whether a name may belong to a load balancer of the key. The names that owner and cluster had at its
    /// creation do not matter. Pure function.
    fn names_of(&self, key: &LoadBalancerKey) -> impl Fn(&str) -> bool;

    /// Returns a function that recognises load balancers without the adapter's tags that the vendor's usual cloud controller manager
    /// created. Pure function. Default: no load balancer is recognised.
    ///
    /// The names of cluster, namespace and Service identify these load balancers, but another cluster may use the same names. Therefore a
    /// caller gets such a load balancer only if it belongs to the adopter alone and the caller requests adoption `IF_UNOWNED`. A load balancer
    /// that others use, too, stays unchanged, even if the caller passes its ID.
    fn heritage(&self, adopter: &Adopter) -> impl Fn(&LoadBalancerRecord<Self::Detail>) -> Heritage {
        let _none = adopter;
        |_: &LoadBalancerRecord<Self::Detail>| Heritage::Unrelated
    }

    /// Returns the steps that delete a load balancer with all its parts, in dependency order. While the vendor is already deleting the load
    /// balancer, there are no steps. Pure function.
    ///
    /// For a shared load balancer, only the parts of the key are deleted. The load balancer itself is deleted with its last user, if it was
    /// owned by any of its users.
    fn plan_deletion(&self, observed: &LoadBalancerRecord<Self::Detail>) -> Vec<Self::Step>;

    /// Returns the steps that release an adopted load balancer ([`Origin::Adopted`]). The steps delete the parts that were created for the
    /// key of `observed`, then the adapter's tags. The load balancer and its other parts stay. While the vendor is changing the load
    /// balancer, there are no steps. Pure function. Default: the steps of [`Driver::plan_deletion`], for drivers that list no load balancer
    /// as adopted.
    fn plan_release(&self, observed: &LoadBalancerRecord<Self::Detail>) -> Vec<Self::Step> {
        self.plan_deletion(observed)
    }

    /// Returns whether a load balancer is also used by keys other than the key for which it is listed. Pure function. Default: no load
    /// balancer is shared.
    ///
    /// A shared load balancer is never deleted and recreated for one of its users, even if the caller allows recreation.
    fn is_used_by_others(&self, observed: &LoadBalancerRecord<Self::Detail>) -> bool {
        let _own = observed;
        false
    }

    /// The vendor's names of the resources that a load balancer already uses for its adopter: subnets, networks, address pools, certificates,
    /// addresses. The adopter needs no grant for these. Pure function. Default: unknown.
    fn uses(&self, adopter: &Adopter, observed: &LoadBalancerRecord<Self::Detail>) -> BTreeSet<String> {
        let _own = (adopter, observed);
        BTreeSet::new()
    }

    /// Reads one load balancer by the vendor's ID, as complete as in a listing. The default is for vendors without such a read: the runtime
    /// lists the collection instead. Drivers that would need several calls keep the default.
    ///
    /// The runtime calls this function while a user waits for one load balancer, if no more users wait than a listing has pages.
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

    /// Reads the load balancers whose tags name the key. Each of these load balancers is as complete as in a listing. Within
    /// [`Description::consistency_horizon`], the result is as reliable as a listing: an empty result proves that there are no such load
    /// balancers. `None` (the default): one call proves nothing, and the runtime lists the collection instead. Drivers that create load
    /// balancers without tags also return `None`.
    ///
    /// The runtime calls this function before a create while a user waits, if no more users wait than a listing has pages. Load
    /// balancers with the key's name but without tags are known only from the last listing. The cache settings and the caller limit the age
    /// of this listing. If a third party has created such a load balancer since then, the runtime creates another load balancer for the
    /// key.
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

    /// Groups route changes into vendor calls: one call for all changes, or one call per change. Pure function. The results of the steps
    /// are in the order of the changes, removals first.
    fn plan_routes(&self, changes: &RouteChanges) -> Vec<Self::Step>;

    /// Makes one vendor write. Must not sleep, retry or loop.
    fn execute(
        &self,
        session: &Session,
        step: &Self::Step,
    ) -> impl Future<Output = Result<Outcome, VendorError>> + Send;
}

/// How a driver switches to new credentials. The runtime reads the file periodically, and verifies its content by [`Driver::self_check`].
pub struct CredentialsFile<D> {
    /// The path of the credentials file.
    pub path: PathBuf,
    /// Creates another driver with the credentials in this content, or returns the fault of the content without quoting it.
    pub candidate: fn(&D, &[u8]) -> Result<D, String>,
    /// Switches to the candidate's credentials, which were verified and have the same scope.
    pub adopt: fn(&D, D),
}

impl<D> fmt::Debug for CredentialsFile<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CredentialsFile").field("path", &self.path).finish_non_exhaustive()
    }
}

/// A collection that the vendor can list.
pub trait Collection<T: Item> {
    /// Returns one page of the listing, with at most `size` items. If `size` is `None`, the vendor's page size applies. The runtime
    /// requests further pages, removes duplicates and restarts a listing if necessary. Cost: one vendor call.
    fn list_page(
        &self,
        session: &Session,
        cursor: Option<&Cursor>,
        size: Option<u32>,
    ) -> impl Future<Output = Result<Page<T>, VendorError>> + Send;
}

/// Instances that the vendor can look up by ID. No other collection needs such look-ups.
pub trait InstanceLookup {
    /// Looks up instances by the vendor's IDs, at most [`Description::batch`] at once. Returns one answer per ID, in order.
    ///
    /// Cost: one vendor call if the vendor has a batch read, else one call per ID. `None`: the vendor cannot look up by ID, so the runtime
    /// lists instances.
    ///
    /// # Errors
    /// Returns the errors of the call. An error about some of the IDs names these IDs in [`VendorError::fields`]; the runtime then repeats
    /// the call once without them. With [`Fault::NotFound`], the instances with these IDs do not exist.
    fn get_batch(
        &self,
        session: &Session,
        ids: &[String],
    ) -> impl Future<Output = Result<Option<Vec<Lookup<Instance>>>, VendorError>> + Send;
}

/// One vendor write of a plan. `Display` describes the write, such as `create listener tcp/443`.
pub trait Step: Clone + fmt::Debug + fmt::Display + PartialEq + Send + Sync + 'static {
    /// Returns the vendor operation. The call is charged to the budget of the operation's family.
    fn operation(&self) -> Operation;

    /// Returns the priority: [`Priority::Traffic`] if traffic depends on the write (backends, routes) or if it frees an address, else
    /// [`Priority::Interactive`].
    fn class(&self) -> Priority;
}

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
    /// The vendor has executed or accepted the write; the next observation shows the result.
    Accepted,
    /// The vendor has created a load balancer, or is creating it, and returned this ID. The runtime looks the load balancer up by this ID.
    Created(String),
    /// One result for each route of a batch, in the order of the step: removals first, then additions. The result of an addition contains
    /// the created route if the vendor returns it. Then the snapshot needs no further listing.
    Items(Vec<Result<Option<Route>, VendorError>>),
}

/// How a repeated create is prevented from creating a second load balancer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deduplication {
    /// The create has an idempotency token. The driver derives the token from the key, so that another process sends the same token.
    ClientToken,
    /// The create has a deterministic name, and the vendor refuses a second load balancer with that name.
    UniqueName,
    /// The vendor has no protection. The runtime first needs a listing, or [`Driver::find`], that reliably shows all creates of this
    /// process and its predecessor. Until then the runtime only observes.
    ListThenCreate,
}

/// The result of parsing a provider ID.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Location {
    /// An instance of this cloud, with the vendor's ID.
    Here(String),
    /// An instance of another provider or region.
    Elsewhere,
    /// A malformed provider ID with the scheme of this cloud.
    Malformed,
}

/// The capabilities, sizes and limits of a cloud.
#[derive(Clone, Debug)]
pub struct Description {
    /// The name of the adapter program.
    pub adapter_name: &'static str,
    /// The version of the adapter program.
    pub adapter_version: &'static str,
    /// The scheme of provider IDs, which is the part before `://`.
    pub provider: &'static str,
    /// The capabilities of this cloud.
    pub capabilities: Vec<Capability>,
    /// The supported sizes of load balancers.
    pub limits: Limits,
    /// The vendor's default call limits, by bucket: `account`, a family, or `<family>:<operation>`. The operator's configuration takes
    /// precedence over them.
    pub call_limits: Vec<(&'static str, VendorLimit)>,
    /// The supported vendor parameters.
    pub parameters: Vec<Parameter>,
    /// Maximum time by which reads lag behind writes.
    pub consistency_horizon: Duration,
    /// Time after a lost answer within which the vendor may still execute a create, including the time until reads show the load balancer.
    /// During this time the create is not repeated, and absence is not proven. Must be at least [`Self::consistency_horizon`]. A new leader
    /// cannot know the last creates of its predecessor, so the same time also applies from the start of the new term.
    pub create_horizon: Duration,
    /// How a repeated create is prevented from creating a second load balancer.
    pub deduplication: Deduplication,
    /// Maximum number of IDs in one [`InstanceLookup::get_batch`].
    pub batch: usize,
    /// Delay before the first poll after a step that the vendor executes asynchronously. The delay doubles after each poll, up to 15 s. While
    /// a user waits for one load balancer, the runtime polls earlier or later: when steps of this operation have been done so far.
    pub poll: Duration,
    /// Typical duration of operations, by RPC name.
    pub expected_latency: Vec<(&'static str, Duration)>,
}

impl Description {
    /// Returns whether this cloud has a capability.
    #[must_use]
    pub fn can(&self, name: &str) -> bool {
        self.capability(name).is_some()
    }

    /// Returns a capability if the cloud has it.
    #[must_use]
    pub fn capability(&self, name: &str) -> Option<&Capability> {
        self.capabilities.iter().find(|capability| capability.name == name)
    }
}
