//! Plans the actions for one Service. The functions are pure: they use no I/O, clock, randomness, Kubernetes client or gRPC.
//!
//! The controller plans repeatedly until the plan is empty. Each plan therefore contains only what can be decided now. For example, the
//! status is written after the adapter's answer, and the finalizer is removed after the adapter confirmed the deletion.

pub(crate) mod annotations;
pub(crate) mod as_it_is;
pub(crate) mod bounds;
pub(crate) mod cloud;
pub(crate) mod compat;
pub(crate) mod conditions;
mod digest;
pub(crate) mod families;
pub(crate) mod features;
pub(crate) mod foreign;
mod health_check;
pub(crate) mod informational;
pub(crate) mod left_out;
pub(crate) mod left_over;
pub(crate) mod listeners;
pub(crate) mod members;
pub(crate) mod memory;
mod node_ports;
pub(crate) mod readiness;
pub(crate) mod refused;
pub(crate) mod report;
pub(crate) mod requested_address;
pub(crate) mod service;
pub(crate) mod source_ranges;
pub(crate) mod spec;
pub(crate) mod stale_id;
mod status;
pub(crate) mod targets;
pub(crate) mod validated;
pub(crate) mod verdict;
pub(crate) mod waiting;
pub(crate) mod wanted;
pub(crate) mod without_nodes;

use std::{fmt, sync::Arc, time::Duration};

use cloud_api_proto::v1alpha1::{LoadBalancerSpec, Recreate};

use self::{
    annotations::settings::Defaults,
    cloud::{Balancer, State, WriteFailure},
    features::{Features, name},
    members::Members,
    memory::Memory,
    service::{Class, Holder, Ingress, Role, Service, ServiceId, same_ingress},
    spec::Takeover,
    targets::{Hosts, Targets},
    validated::Validated,
    wanted::Wanted,
    without_nodes::WithoutNodes,
};

#[derive(Clone, Copy, Debug)]
pub(crate) struct Facts<'a> {
    /// The settings that the load balancer should have.
    pub(crate) validated: &'a Validated,
    /// The nodes, shared by all Services that select the same nodes.
    pub(crate) targets: &'a Targets,
    /// Defaults of the cluster, for settings that the Service does not contain.
    pub(crate) defaults: &'a Defaults,
    /// Capabilities of the adapter. `None`: the adapter was never reached.
    pub(crate) features: Option<&'a Features>,
    /// The load balancers in the cache whose owner tag names the Service. `None`: the cache is not synced.
    pub(crate) cloud: Option<&'a [Balancer]>,
    /// Time since the start of the process.
    pub(crate) now: Duration,
}

/// A request that cannot be fulfilled: the invalid field, and the reason with what to write instead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    field: String,
    why: String,
}

impl Refusal {
    /// `field`: a path in the Service, or `annotation <key>`.
    pub(crate) fn new(field: impl Into<String>, why: impl Into<String>) -> Self {
        Self { field: field.into(), why: why.into() }
    }

    /// The reason without the field.
    pub(crate) fn why(&self) -> &str {
        &self.why
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.why)
    }
}

/// A step of a reconcile. The reason of the Event about a failure depends on the failed step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    /// Creating, comparing or deleting the load balancer of a Service.
    Sync,
    /// Updating the backends after a change of nodes. Contains the nodes after the change.
    Hosts(Hosts),
    /// Deleting an orphan: a load balancer that no Service uses any more.
    LeftOver,
}

/// The facts that Events report. The texts are in `events.rs`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fact {
    Ensuring,
    Ensured,
    /// The nodes behind the load balancer changed.
    Updated,
    /// The load balancer has no nodes, for this reason.
    NoTargets(WithoutNodes),
    /// The node list is empty, and the controller does not trust it.
    NoNodes,
    Deleting,
    Deleted,
    /// A step failed. The text contains the cause, and what the controller waits for or what the user can do.
    Failed(Operation, String),
    /// A vendor write of this step fails repeatedly, and the adapter tries the write again.
    WriteFailed(Operation, WriteFailure),
    Refused(Vec<String>),
    /// No Service uses the load balancer with this ID. It is kept.
    Orphaned(String),
    /// A load balancer without a Service should be deleted, but this reason prevents the deletion.
    OrphanHeld(String),
    /// A load balancer without a Service is deleted because a user released it.
    OrphanReleased(String),
    /// A user released a load balancer under this name, but the load balancer's tags name this other Service.
    ReleaseRefused(String, ServiceId),
    /// The load balancer with this ID serves a Service whose class belongs to another controller.
    OfAnother(String),
    /// The Service is being deleted, but still has a finalizer that these field managers set.
    HeldByAnother(Option<String>),
    /// Annotations of another controller, with the replacement for each.
    Compatible(Vec<String>),
    /// Annotations of another controller, which are ignored because `--compat` is not set.
    Ignored(Vec<String>),
    /// The adapter does not support custom names, so the name template has no effect.
    Unnamed,
    /// The load balancer has waited for the call budget for some time. Contains the adapter's text.
    WaitsForBudget(String),
    /// Added nodes raised the number of members above the limit for new load balancers.
    Grown(Members),
}

/// Why the adapter is called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Why {
    /// The adapter has confirmed nothing yet, but the status contains an address. The cache shows a serving load balancer, or is not
    /// synced. Probably nothing needs to be done.
    FirstLook,
    /// The adapter has confirmed nothing yet. The status contains no address, or the cache shows no serving load balancer.
    Missing,
    /// The settings differ from those that the adapter confirmed.
    Changed,
    /// Only the nodes behind the load balancer changed.
    Hosts,
    /// The cache differs from what the adapter confirmed.
    Drift(String),
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::FirstLook => f.write_str("first comparison"),
            Self::Missing => f.write_str("not active yet"),
            Self::Changed => f.write_str("settings changed"),
            Self::Hosts => f.write_str("nodes changed"),
            Self::Drift(what) => f.write_str(what),
        }
    }
}

/// A call of `EnsureLoadBalancer`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Ask {
    pub(crate) spec: LoadBalancerSpec,
    /// The settings from which the specification is built.
    pub(crate) wanted: Arc<Wanted>,
    /// Whether these settings are replacements, because the requested settings cannot be applied.
    pub(crate) stands_in: bool,
    pub(crate) why: Why,
    pub(crate) recreate: Recreate,
    pub(crate) hosts: Hosts,
    /// Why the load balancer has no nodes, if it has none.
    pub(crate) without: Option<WithoutNodes>,
    /// Time of the call, since the start of the process.
    pub(crate) at: Duration,
}

impl Ask {
    /// The step to report if this call fails.
    pub(crate) fn step(&self) -> Operation {
        if self.why == Why::Hosts { Operation::Hosts(self.hosts.clone()) } else { Operation::Sync }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Action {
    /// Adds the finalizer before anything is created in the cloud. Without the finalizer, a deletion of the Service could leak the load
    /// balancer.
    AddFinalizer,
    Ensure(Box<Ask>),
    WriteStatus(Vec<Ingress>),
    /// Deletes the load balancer. The deletion is requested even if the cache shows none, because parts of an incomplete load balancer may
    /// exist. It also covers a load balancer that was to be adopted, even if the adoption did not happen.
    Delete(Takeover),
    /// Removes the finalizer and empties the status, in one write.
    Release,
    /// Drops the memory of the Service. The load balancer is gone, and the finalizer and the status belong to another controller.
    Forget,
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AddFinalizer => f.write_str("add finalizer"),
            Self::Ensure(ask) => {
                let nodes = if ask.hosts.is_empty() { ", no nodes" } else { "" };
                write!(f, "ensure ({}{nodes})", ask.why)
            }
            Self::WriteStatus(ingress) => {
                let words: Vec<String> = ingress.iter().map(ToString::to_string).collect();
                write!(f, "write status [{}]", words.join(" "))
            }
            Self::Delete(_) => f.write_str("delete"),
            Self::Release => f.write_str("release"),
            Self::Forget => f.write_str("forget"),
        }
    }
}

/// The actions for one Service. A plan without actions and waits means that everything is in sync.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Plan {
    /// The actions, executed in this sequence. The first action that fails ends the execution.
    pub(crate) actions: Vec<Action>,
    /// Why the Service's current settings cannot be applied. The last valid settings stay in force until the Service changes.
    pub(crate) refusals: Vec<Refusal>,
    /// What the plan must wait for, and whether to report the wait.
    pub(crate) waits: Option<Wait>,
    /// IDs of load balancers of this controller that are in use although their Service has another controller's class. They are reported
    /// but not changed.
    pub(crate) claimed: Vec<String>,
}

/// What a plan waits for. In most cases, that is the adapter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    /// The plan waits for the adapter. Nothing seems to be out of sync, so no Event is emitted.
    Unreported,
    /// The plan waits for the adapter, with work left to do. An Event is emitted.
    Reported,
    /// The plan waits for nodes. An ensure would remove the last nodes from a load balancer, and there is no proof that these nodes are
    /// gone.
    ForNodes,
    /// The plan waits for an adapter that supports load balancers, because a load balancer that this controller created must be deleted.
    ForBalancers,
    /// The plan waits for another controller, whose finalizer blocks the deletion of the Service.
    ForAnother,
}

impl Plan {
    pub(crate) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Whether the plan creates or changes a load balancer.
    pub(crate) fn builds(&self) -> bool {
        let builds = |ask: &Ask| matches!(ask.why, Why::Missing | Why::Changed);
        self.actions.iter().any(|it| matches!(it, Action::Ensure(ask) if builds(ask)))
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for action in &self.actions {
            writeln!(f, "{action}")?;
        }
        for refusal in &self.refusals {
            writeln!(f, "refuse {refusal}")?;
        }
        match self.waits {
            Some(Wait::Unreported) => writeln!(f, "wait for the adapter (not reported)")?,
            Some(Wait::Reported) => writeln!(f, "wait for the adapter (reported)")?,
            Some(Wait::ForNodes) => writeln!(f, "wait for nodes")?,
            Some(Wait::ForBalancers) => writeln!(f, "wait for an adapter with load balancers")?,
            Some(Wait::ForAnother) => writeln!(f, "wait for another controller")?,
            None => (),
        }
        for claimed in &self.claimed {
            writeln!(f, "keep {claimed}, whose Service has another controller's class")?;
        }
        Ok(())
    }
}

/// Compares the settings that the Service requests with the cache and with the settings that the adapter confirmed. Cost: no vendor calls.
pub(crate) fn plan(service: &Service, memory: &Memory, facts: &Facts<'_>) -> Plan {
    match service.role() {
        Role::Wanted => wanted(service, memory, facts),
        Role::Cleanup if service.class == Class::Lost && !is_ours(service, memory, facts) => {
            let waits = (service.deleting && has_load_balancers(facts)).then_some(Wait::ForAnother);
            Plan { waits, ..Plan::default() }
        }
        // The API server removed the class when the type changed. The class belonged to another controller, so the finalizer also belongs
        // to that controller.
        Role::Cleanup if service.class == Class::Lost && memory.owned.other_class.left_over => {
            removal(Takeover::None, Action::Forget, memory, facts)
        }
        Role::Cleanup => cleanup(service, memory, facts),
        Role::Ignored if service.class == Class::Others => of_another(service, memory, facts),
        Role::Ignored => Plan::default(),
    }
}

fn wanted(service: &Service, memory: &Memory, facts: &Facts<'_>) -> Plan {
    let Validated { wanted, refusals, .. } = facts.validated;
    let refusals = refusals.clone();
    let Some(wanted) = wanted else {
        // A deletion that has begun proceeds although the Service is invalid now, because the load balancer may target node ports that the
        // Service lost.
        if memory.is_removing() && !refusals.is_empty() && has_load_balancers(facts) {
            return Plan { actions: vec![Action::Delete(Takeover::None)], refusals, ..Plan::default() };
        }
        let undone = !service.finalizer || service.ingress.is_empty();
        let waits = match facts.features {
            None if !refusals.is_empty() => None,
            None if undone => Some(Wait::Reported),
            None => Some(Wait::Unreported),
            // The settings are allowed only if the load balancer exists already, so the plan waits for the listing.
            Some(_) if facts.validated.awaits_listing => Some(Wait::Unreported),
            // Waiting does not help, because the settings are invalid, or the adapter has no load balancers.
            Some(_) => None,
        };
        return Plan { waits, refusals, ..Plan::default() };
    };
    let why = why_ask(service, wanted, memory, facts);
    if why.is_some() && would_empty(memory, facts) {
        return Plan { waits: Some(Wait::ForNodes), refusals, ..Plan::default() };
    }
    let mut actions = Vec::new();
    if !service.finalizer {
        actions.push(Action::AddFinalizer);
    }
    // A change of nodes does not change the address. The address is therefore written to a Service without one before the nodes are
    // updated.
    let stays = why.is_none() || (why == Some(Why::Hosts) && service.ingress.is_empty());
    if let Some(settled) = memory.confirmed().filter(|_| stays) {
        let ingress = wanted.shown.of(&settled.ingress);
        if !same_ingress(&ingress, &service.ingress) {
            actions.push(Action::WriteStatus(ingress));
        }
    }
    if let Some(why) = why {
        actions.push(Action::Ensure(Box::new(ask(service, wanted, why, facts))));
    }
    Plan { actions, refusals, ..Plan::default() }
}

fn cleanup(service: &Service, memory: &Memory, facts: &Facts<'_>) -> Plan {
    // The user wrote the finalizer, so only the UID in the owner tag proves ownership. A load balancer with the right name may belong to
    // another cluster.
    let by_key = service.class == Class::Lost && service.holder == Holder::Author && !memory.owned.created;
    let takeover = if by_key { Takeover::None } else { Takeover::wished(service, facts.defaults) };
    removal(takeover, Action::Release, memory, facts)
}

/// Plans for a Service of another controller's class. Nothing changes unless the tags of a load balancer prove that this controller owns
/// that load balancer.
///
/// If the status contains the load balancer's address, or a hostname instead of addresses, the load balancer serves traffic. In that case
/// only this controller's flags changed, and the load balancer is kept as long as the Service exists. Otherwise the load balancer is older
/// than the Service's class and is deleted. The finalizer and the status then belong to the other controller.
fn of_another(service: &Service, memory: &Memory, facts: &Facts<'_>) -> Plan {
    let is_there = |it: &&Balancer| it.state != State::Deleting && !memory.is_gone(it);
    let there = || facts.cloud.unwrap_or_default().iter().filter(is_there);
    if memory.owned.other_class.serving {
        if service.deleting && service.finalizer {
            return cleanup(service, memory, facts);
        }
        return Plan { claimed: there().map(|it| it.vendor_id.clone()).collect(), ..Plan::default() };
    }
    if there().next().is_some() || memory.is_removing() || memory.is_removed() {
        return removal(Takeover::None, Action::Forget, memory, facts);
    }
    Plan::default()
}

fn removal(takeover: Takeover, then: Action, memory: &Memory, facts: &Facts<'_>) -> Plan {
    if memory.is_removed() {
        return Plan { actions: vec![then], ..Plan::default() };
    }
    let waits = match facts.features {
        None => Wait::Reported,
        Some(features) if features.has(name::LOAD_BALANCERS) => {
            return Plan { actions: vec![Action::Delete(takeover)], ..Plan::default() };
        }
        // All load balancer controllers use the same finalizer. Here it belongs to the controller that provides the load balancers.
        Some(_) if !memory.may_own(facts.cloud) => return Plan::default(),
        Some(_) => Wait::ForBalancers,
    };
    Plan { waits: Some(waits), ..Plan::default() }
}

/// Whether this controller may remove the finalizer of a Service that no longer has a class.
///
/// All load balancer controllers use the same finalizer. If the user wrote the finalizer with the Service, as in a manifest, no other
/// controller depends on the finalizer. A deletion by the Service's UID then finds what this controller created.
fn is_ours(service: &Service, memory: &Memory, facts: &Facts<'_>) -> bool {
    memory.may_own(facts.cloud)
        || (service.holder == Holder::Author && !memory.owned.other_class.with_finalizer)
}

fn has_load_balancers(facts: &Facts<'_>) -> bool {
    facts.features.is_some_and(|features| features.has(name::LOAD_BALANCERS))
}

fn why_ask(service: &Service, wanted: &Wanted, memory: &Memory, facts: &Facts<'_>) -> Option<Why> {
    let Some(settled) = memory.confirmed() else {
        let serves = |it: &Balancer| matches!(it.state, State::Active | State::Degraded);
        let active = facts.cloud.is_none_or(|all| all.iter().any(serves));
        // If the Service has no address, the ensure is urgent, whatever state the cloud shows.
        let awaited = service.ingress.is_empty();
        return Some(if active && !awaited { Why::FirstLook } else { Why::Missing });
    };
    if settled.shape != wanted.shape.digest {
        return Some(Why::Changed);
    }
    if settled.targets != facts.targets.id {
        return Some(Why::Hosts);
    }
    facts.cloud.and_then(|cloud| settled.drift(cloud, facts.now)).map(Why::Drift)
}

/// Whether an ensure would remove the last nodes from a load balancer only because the node list is empty.
fn would_empty(memory: &Memory, facts: &Facts<'_>) -> bool {
    let settled = memory.confirmed();
    let has_nodes = || facts.cloud.is_none_or(|all| all.iter().any(|it| it.backends > 0));
    facts.targets.blind && (settled.is_some_and(|it| it.targets != facts.targets.id) || has_nodes())
}

/// Permits recreating a failed load balancer only while the status has no address. Otherwise the load balancer may still serve traffic, and
/// a new load balancer would have another address, so the user decides.
fn ask(service: &Service, wanted: &Arc<Wanted>, why: Why, facts: &Facts<'_>) -> Ask {
    Ask {
        spec: wanted.shape.with_targets(&facts.targets.id),
        wanted: Arc::clone(wanted),
        stands_in: facts.validated.stands_in,
        why,
        recreate: if service.ingress.is_empty() { Recreate::IfError } else { Recreate::Never },
        hosts: facts.targets.hosts.clone(),
        without: WithoutNodes::of(facts.targets, service, facts.defaults),
        at: facts.now,
    }
}

#[cfg(test)]
mod tests;
