//! What a vendor driver writes: translation between the contract's words and the vendor's API, and nothing else.
//!
//! A driver has no policy, waits for nothing, retries nothing and keeps no state but its endpoint and credentials. Its only way
//! to the vendor is the [`Session`] that the runtime passes in.

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

/// A vendor, as the runtime sees it.
///
/// The three collections are listed through [`Collection`], and instances looked up through [`InstanceLookup`]; load balancers and routes
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
    /// What only this driver knows of a load balancer: sub-objects and their IDs, as listed.
    type Detail: Clone + PartialEq + fmt::Debug + Send + Sync + 'static;
    /// One vendor write.
    type Step: Step;

    /// What this cloud can do, its sizes and habits. Cost: no vendor call.
    fn describe(&self) -> Description;

    /// Finds out whose credentials these are. Cost: one cheap vendor call.
    fn self_check(&self, session: &Session) -> impl Future<Output = Result<Scope, VendorError>> + Send;

    /// Credentials in a file that may be replaced while the adapter runs. `None`: they stay as they are.
    fn credentials(&self) -> Option<CredentialsFile<Self>>
    where
        Self: Sized,
    {
        None
    }

    /// PEM certificates by which the vendor's servers are known, in place of the system's. `None`: the system's.
    fn ca_certificates(&self) -> Option<Vec<u8>> {
        None
    }

    /// Reads a provider ID. Cost: no vendor call.
    fn locate(&self, provider_id: &str) -> Location;

    /// How listings spell the provider ID of this instance, where this cloud has several forms: callers may use any of them. Pure. As it is:
    /// there is one form.
    fn spelled(&self, provider_id: &str) -> String {
        provider_id.to_owned()
    }

    /// What is missing until the load balancer is as desired, in order; empty if nothing is.
    ///
    /// Pure. Steps may name parts that earlier steps make: the runtime observes and plans again after each step, and carries out
    /// only the first. The last step records `desired.hash` at the vendor, so that a half-built load balancer never looks complete.
    /// The first step of one that is observed without our tags, because it is adopted, is to tag it; unless it was made for the key, as its
    /// name says, with a tag by which it is listed as [`Origin::Adopted`] from then on.
    ///
    /// With [`DesiredLoadBalancer::shares`] a load balancer is observed that others may own and use, until it has a record of this key as
    /// well: nothing of theirs is touched. The first step says whose the key is, so that nobody deletes it from then on.
    ///
    /// `fence` goes into the tags of the steps that set tags anyway, as [`write_fence`] says it; another fence alone is no reason for
    /// a step. So is another version of the hash: then the fields decide.
    ///
    /// # Errors
    /// [`Fault::Immutable`] if it cannot be reached in place, once all else is done: nodes are followed whatever else is wished for.
    /// [`Fault::Invalid`] if this cloud cannot do it.
    fn plan(
        &self,
        desired: &DesiredLoadBalancer,
        fence: &Fence,
        observed: Option<&LoadBalancerRecord<Self::Detail>>,
    ) -> Result<Vec<Self::Step>, VendorError>;

    /// What builds a load balancer in place of one that was removed for it. Pure. As it is: what builds any.
    ///
    /// `former` is gone. What it had, such as its private address, may be asked for again: should the vendor refuse, the runtime goes on
    /// without. It is known to the process that removed it alone.
    ///
    /// # Errors
    /// As those of [`Self::plan`].
    fn plan_again(
        &self,
        desired: &DesiredLoadBalancer,
        fence: &Fence,
        former: &LoadBalancerRecord<Self::Detail>,
    ) -> Result<Vec<Self::Step>, VendorError> {
        let _gone = former;
        self.plan(desired, fence, None)
    }

    /// Recognises the names that load balancers of the key are made with, however its owner and cluster were called then. Pure.
    fn names_of(&self, key: &LoadBalancerKey) -> impl Fn(&str) -> bool;

    /// Recognises load balancers without our tags that the vendor's usual cloud controller manager made. Pure. As it is: none.
    ///
    /// It knows them by names of cluster, namespace and Service, which another cluster may have as well: so only a caller that adopts
    /// `IF_UNOWNED` gets the one that is the heir's. What is not the heir's alone stays as it is, even if a caller names its ID.
    fn heritage(&self, heir: &Heir) -> impl Fn(&LoadBalancerRecord<Self::Detail>) -> Heritage {
        let _none = heir;
        |_: &LoadBalancerRecord<Self::Detail>| Heritage::Unrelated
    }

    /// What removes a load balancer with all its parts, in dependency order. Pure. Empty while the vendor is at it already.
    ///
    /// Of one that others use only what is the key's own goes: the load balancer goes with the last of them, if any of them owned it.
    fn plan_deletion(&self, observed: &LoadBalancerRecord<Self::Detail>) -> Vec<Self::Step>;

    /// What releases a load balancer that was adopted ([`Origin::Adopted`]): the parts of its key go, and then our tags. The load balancer
    /// and what its key did not make stay. Pure. Empty while the vendor is changing it. As it is: none is listed as adopted.
    fn plan_release(&self, observed: &LoadBalancerRecord<Self::Detail>) -> Vec<Self::Step> {
        self.plan_deletion(observed)
    }

    /// Whether others use a load balancer beside the key that it is listed for. Pure. As it is: none is shared.
    ///
    /// Such a one is never deleted to be built anew for one of them, whatever the caller allows.
    fn is_used_by_others(&self, observed: &LoadBalancerRecord<Self::Detail>) -> bool {
        let _own = observed;
        false
    }

    /// The vendor's names of what a load balancer uses for its heir already: subnets, networks, pools of addresses, certificates, addresses.
    /// Of these it may ask for any without a grant. Pure. As it is: the driver cannot tell.
    fn uses(&self, heir: &Heir, observed: &LoadBalancerRecord<Self::Detail>) -> BTreeSet<String> {
        let _own = (heir, observed);
        BTreeSet::new()
    }

    /// Reads one load balancer by the vendor's ID, with all that a listing shows of it. As it is: the vendor has no such read, and the
    /// collection is listed instead. So do drivers that would need several calls.
    ///
    /// It is used while a user waits for one load balancer, where a listing has more pages than there are users who wait.
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

    /// Reads the load balancers whose tags name the key, with all that a listing shows of them, and as sure as a listing, within
    /// [`Description::consistency_horizon`]: none means that there are none. `None`: one call cannot tell that, and the collection is listed
    /// instead. So do drivers whose creates set no tags. As it is: that.
    ///
    /// It is used before one is created while a user waits, where a listing has more pages than there are users who wait. What bears the
    /// key's name and no tags is seen by the listing before, which may be as old as the cache allows and the caller takes: should somebody
    /// make such a one meanwhile, the key's own is made beside it.
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

    /// Groups route changes into vendor calls: one for all, or one each. What they bring stands in the order of the changes, removals
    /// first. Pure.
    fn plan_routes(&self, changes: &RouteChanges) -> Vec<Self::Step>;

    /// Makes one vendor write. Never sleeps, retries or loops.
    fn execute(
        &self,
        session: &Session,
        step: &Self::Step,
    ) -> impl Future<Output = Result<Outcome, VendorError>> + Send;
}

/// How a driver goes on with new credentials. The runtime follows the file, and proves what is in it by [`Driver::self_check`].
pub struct CredentialsFile<D> {
    /// Where they are.
    pub path: PathBuf,
    /// A driver of its own with the credentials of this content; or what is wrong with it, without repeating it.
    pub candidate: fn(&D, &[u8]) -> Result<D, String>,
    /// Goes on with the candidate's: they are good, and for the same part of the cloud.
    pub adopt: fn(&D, D),
}

impl<D> fmt::Debug for CredentialsFile<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CredentialsFile").field("path", &self.path).finish_non_exhaustive()
    }
}

/// A collection that the vendor can list.
pub trait Collection<T: Item> {
    /// One page of the listing, of at most `size` items; `None`: as many as the vendor gives. The runtime pages, removes duplicates
    /// and starts again where needed. Cost: one vendor call.
    fn list_page(
        &self,
        session: &Session,
        cursor: Option<&Cursor>,
        size: Option<u32>,
    ) -> impl Future<Output = Result<Page<T>, VendorError>> + Send;
}

/// Instances that the vendor can look up by its IDs: no other collection needs it.
pub trait InstanceLookup {
    /// Looks instances up by the vendor's IDs, at most [`Description::batch`] at once; one answer an ID, in order.
    ///
    /// Cost: one vendor call where the vendor has one for many, else one an ID. `None`: the vendor cannot, list instead.
    ///
    /// # Errors
    /// Those of the call. One that is about some of the IDs names them in [`VendorError::fields`]: they are left out and the others asked
    /// for once more. With [`Fault::NotFound`] the named ones are gone.
    fn get_batch(
        &self,
        session: &Session,
        ids: &[String],
    ) -> impl Future<Output = Result<Option<Vec<Lookup<Instance>>>, VendorError>> + Send;
}

/// Reads the vendor's answers.
pub trait Classify: Send + Sync {
    /// What an answer means: `None` for success. A table, tested on recorded answers.
    fn classify(&self, operation: Operation, response: &VendorResponse) -> Option<VendorError>;

    /// What the vendor says is left of its rate limit. As it is: the headers `RateLimit-Remaining`, `-Limit`, `-Reset`, with or
    /// without `X-`.
    fn hint(&self, _operation: Operation, response: &VendorResponse) -> Option<Hint> {
        headers::hint(response.headers())
    }

    /// The bucket that a throttled answer names, where a vendor counts by more than the family.
    fn bucket(&self, _operation: Operation, _response: &VendorResponse) -> Option<&'static str> {
        None
    }

    /// The vendor's own name for the request. As it is: one of the headers that most vendors use.
    fn request_id(&self, response: &VendorResponse) -> Option<String> {
        headers::request_id(response.headers())
    }

    /// Credentials, so that they are taken out of what the vendor says. As it is: none but those that a request carries in headers
    /// which are marked as sensitive.
    fn secrets(&self) -> Vec<SecretString> {
        Vec::new()
    }
}

/// One vendor write that a plan contains. `Display` says what it does: `create listener tcp/443`.
pub trait Step: Clone + fmt::Debug + fmt::Display + PartialEq + Send + Sync + 'static {
    /// The vendor operation, with the family whose budget pays.
    fn operation(&self) -> Operation;

    /// How urgent it is: [`Priority::Traffic`] if packets wait for it (backends, routes) or it frees an address, else
    /// [`Priority::Interactive`]. Source: budgets, section 2.
    fn class(&self) -> Priority;
}

/// A step as a dry run tells it.
pub(crate) fn planned<S: Step>(step: &S) -> PlannedStep {
    let operation = step.operation();
    PlannedStep {
        description: step.to_string(),
        operation: operation.name.to_owned(),
        family: operation.family.word().to_owned(),
    }
}

/// What became of a step.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// The vendor did it, or took it and works on it: the next observation tells.
    Accepted,
    /// The vendor made a load balancer, or is making it, and told its ID: it is looked up by that one.
    Created(String),
    /// One result a route of a batch, in the order of the step: first removals, then additions. An addition tells the route as laid, if
    /// the vendor does: then it is in the mirror without another listing.
    Items(Vec<Result<Option<Route>, VendorError>>),
}

/// What keeps a repeated create from making a second load balancer. Source: contract, section 6.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deduplication {
    /// The vendor takes a token, which the driver makes from the key, so that another process sends the same one.
    ClientToken,
    /// The vendor refuses a second one of the deterministic name.
    UniqueName,
    /// Nothing at the vendor. The runtime creates only after a listing, or [`Driver::find`], that is sure to show what this process, or the one before it,
    /// may have made; until then it only looks.
    ListThenCreate,
}

/// Where a provider ID points.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Location {
    /// Into this cloud: the vendor's ID.
    Here(String),
    /// To another provider or region.
    Elsewhere,
    /// Nowhere: it has this provider's scheme and is malformed.
    Malformed,
}

/// What a cloud can do, its sizes and habits.
#[derive(Clone, Debug)]
pub struct Description {
    /// The name of the adapter program.
    pub adapter_name: &'static str,
    /// Its version.
    pub adapter_version: &'static str,
    /// The scheme of provider IDs: the part before `://`.
    pub provider: &'static str,
    /// What it can do.
    pub capabilities: Vec<Capability>,
    /// The sizes that it takes.
    pub limits: Limits,
    /// The vendor's usual call limits, by bucket: `account`, a family, or `<family>:<operation>`. What an operator configures
    /// comes first.
    pub call_limits: Vec<(&'static str, VendorLimit)>,
    /// The vendor extras that it takes.
    pub parameters: Vec<Parameter>,
    /// For how long reads may lag behind writes.
    pub consistency_horizon: Duration,
    /// For how long the vendor may still work on a create whose answer was lost, from when the client stopped waiting until reads show
    /// the load balancer. Until then it is not repeated, and nothing proves that there is no load balancer. At least
    /// [`Self::consistency_horizon`]. A process that starts to lead cannot know what its predecessor has sent: the time counts from its
    /// start as well.
    pub create_horizon: Duration,
    /// What keeps a repeated create from making a second load balancer.
    pub deduplication: Deduplication,
    /// IDs in one [`InstanceLookup::get_batch`].
    pub batch: usize,
    /// How soon to look again after a step that the vendor works on; doubled up to 15 s.
    pub poll: Duration,
    /// How long an operation usually takes, by RPC name.
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
