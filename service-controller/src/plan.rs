//! Room 2: what is to be done for one Service. Pure: no I/O, no clock, no chance, no Kubernetes client, no gRPC.
//!
//! A look at a Service is repeated until its plan is empty, so each plan holds only what can be decided now: the status is
//! planned after the adapter's answer, the release after its word that nothing is left.

pub(crate) mod annotations;
pub(crate) mod as_it_is;
pub(crate) mod bounds;
pub(crate) mod cloud;
pub(crate) mod compat;
pub(crate) mod families;
pub(crate) mod features;
mod health_check;
pub(crate) mod left_over;
pub(crate) mod listeners;
pub(crate) mod members;
pub(crate) mod memory;
mod node_ports;
pub(crate) mod requested_address;
pub(crate) mod service;
pub(crate) mod source_ranges;
pub(crate) mod spec;
pub(crate) mod stale_id;
mod status;
pub(crate) mod targets;
pub(crate) mod wanted;

use std::{fmt, sync::Arc, time::Duration};

use cloud_api_proto::v1alpha1::{LoadBalancerSpec, Recreate};

use self::{
    annotations::{selector::Selector, settings::Defaults},
    cloud::{Balancer, State},
    features::{Features, name},
    members::Members,
    memory::Memory,
    service::{Class, Holder, Ingress, Role, Service, ServiceId, same_ingress},
    spec::Takeover,
    targets::{Hosts, Targets},
    wanted::{Judged, Wanted},
};

/// What is known beside the Service itself.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Facts<'a> {
    /// What shall be in force.
    pub(crate) judged: &'a Judged,
    /// Shared by all Services that select the same nodes.
    pub(crate) targets: &'a Targets,
    /// What the cluster says of every Service that says nothing itself.
    pub(crate) defaults: &'a Defaults,
    /// What the adapter can do. `None`: it was never reached.
    pub(crate) features: Option<&'a Features>,
    /// What the adapter's mirror shows under the Service's key. `None`: the mirror is not complete.
    pub(crate) cloud: Option<&'a [Balancer]>,
    /// Since the start of the process.
    pub(crate) now: Duration,
}

/// Something that a user asked for and that is not done, with the field and the repair.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    field: String,
    why: String,
}

impl Refusal {
    /// `field` as the user wrote it: a path in the Service, or `annotation <key>`.
    pub(crate) fn new(field: impl Into<String>, why: impl Into<String>) -> Self {
        Self { field: field.into(), why: why.into() }
    }

    /// Without the field.
    pub(crate) fn why(&self) -> &str {
        &self.why
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.why)
    }
}

/// What failed: it decides under which reason people hear of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// To build, to compare, or to remove for a Service.
    Sync,
    /// To follow a change of nodes; these should be behind it.
    Hosts(Hosts),
    /// To remove what no Service wants any more.
    LeftOver,
}

/// What people shall hear; the words are in `events.rs`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum News {
    Ensuring,
    Ensured,
    /// The nodes behind it changed.
    Updated,
    /// It has no nodes; the selector, if it matches none.
    NoTargets(Option<Selector>),
    /// No node is listed, which is not believed.
    NoNodes,
    Deleting,
    Deleted,
    /// What is wrong and what is being waited for.
    Failed(Step, String),
    /// No Service wants the load balancer of this ID; it stays.
    Orphaned(String),
    /// The same, and it shall go; this holds it.
    OrphanHeld(String),
    /// The same, and it goes, for a person has released it.
    OrphanReleased(String),
    /// A person has released it under this name, and its tags say the other one.
    ReleaseRefused(String, ServiceId),
    /// The load balancer of this ID serves a Service of a class that is not ours.
    OfAnother(String),
    /// It shall go, and our finalizer is on it, which these put there.
    HeldByAnother(Option<String>),
    /// Annotations of another controller, and what to write in place of each.
    Compatible(Vec<String>),
    /// Annotations of another controller that nobody was asked to understand.
    Ignored(Vec<String>),
    /// The adapter calls load balancers as it likes, and the template does nothing.
    Unnamed,
    /// It has waited for its turn at the cloud for a while, in these words.
    WaitsForBudget(String),
    /// Nodes came, and it has more members by now than a new Service may have.
    Grown(Members),
}

/// Why the adapter is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Why {
    /// Nothing is remembered, and the mirror shows a load balancer that serves: most likely there is nothing to do.
    FirstLook,
    /// Nothing is remembered, and the mirror shows no active load balancer.
    Missing,
    /// Something else is wanted than was confirmed.
    Changed,
    /// Only the nodes behind it changed.
    Hosts,
    /// The mirror shows something else than was confirmed.
    Drift(String),
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::FirstLook => f.write_str("first look"),
            Self::Missing => f.write_str("not active yet"),
            Self::Changed => f.write_str("something else is wanted"),
            Self::Hosts => f.write_str("other nodes"),
            Self::Drift(what) => f.write_str(what),
        }
    }
}

/// One question to the adapter.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Ask {
    pub(crate) spec: LoadBalancerSpec,
    /// What the specification was made from.
    pub(crate) wanted: Arc<Wanted>,
    /// It stands in for what the Service asks for now, which cannot be done.
    pub(crate) stands_in: bool,
    pub(crate) why: Why,
    pub(crate) recreate: Recreate,
    /// The nodes behind it.
    pub(crate) hosts: Hosts,
    /// The selector, if no node matches it.
    pub(crate) unmatched: Option<Selector>,
    /// When, since the start of the process.
    pub(crate) at: Duration,
}

impl Ask {
    /// What fails if this does.
    pub(crate) fn step(&self) -> Step {
        if self.why == Why::Hosts { Step::Hosts(self.hosts.clone()) } else { Step::Sync }
    }
}

/// One thing to do.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Action {
    /// Before anything is made in the cloud, so that nothing can be forgotten there.
    AddFinalizer,
    Ensure(Box<Ask>),
    WriteStatus(Vec<Ingress>),
    /// Always asked, even if the mirror shows nothing: parts of a half-built load balancer may be left. One that was to be taken over
    /// goes, too, though nobody came to it.
    Delete(Takeover),
    /// Our finalizer off and the status empty, in one write.
    Release,
    /// Nothing is left of what was ours: the finalizer and the status are another's.
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

/// What is to be done for one Service. Empty: all is as it should be.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Plan {
    /// In this order; the first that fails ends the look.
    pub(crate) actions: Vec<Action>,
    /// What keeps that from being done which the Service asks for, until it changes. What was good before stays in force.
    pub(crate) refusals: Vec<Refusal>,
    /// What must be there first, and whether anybody misses it.
    pub(crate) waits: Option<Wait>,
    /// Vendor IDs of load balancers that are ours and in use, while their Service is of another's class. Reported, and left alone.
    pub(crate) claimed: Vec<String>,
}

/// Waiting, mostly for the adapter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    /// As far as we can see all is well: nobody needs to hear of it.
    Quietly,
    /// Something is visibly left undone.
    Aloud,
    /// Not for the adapter: it would take the last nodes from a load balancer, and that they are gone is not proven.
    ForNodes,
    /// The adapter is there and has no load balancers, while one that we made is to go.
    ForBalancers,
    /// For another controller, whose finalizer holds a Service that is to go.
    ForAnother,
}

impl Plan {
    /// Whether all is as it should be.
    pub(crate) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Whether it makes something that is not there yet.
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
            Some(Wait::Quietly) => writeln!(f, "wait for the adapter, quietly")?,
            Some(Wait::Aloud) => writeln!(f, "wait for the adapter, aloud")?,
            Some(Wait::ForNodes) => writeln!(f, "wait for nodes")?,
            Some(Wait::ForBalancers) => writeln!(f, "wait for an adapter with load balancers")?,
            Some(Wait::ForAnother) => writeln!(f, "wait for another controller")?,
            None => (),
        }
        for claimed in &self.claimed {
            writeln!(f, "leave {claimed}, though of another's class")?;
        }
        Ok(())
    }
}

/// Compares what the Service asks for with what the adapter confirmed and shows. Cost: no vendor calls.
pub(crate) fn plan(service: &Service, memory: &Memory, facts: &Facts<'_>) -> Plan {
    match service.role() {
        Role::Wanted => wanted(service, memory, facts),
        Role::Cleanup if service.class == Class::Lost && !is_ours(service, memory, facts) => {
            let waits = (service.deleting && has_load_balancers(facts)).then_some(Wait::ForAnother);
            Plan { waits, ..Plan::default() }
        }
        // Its class went with its type, and it was another's: so is the finalizer.
        Role::Cleanup if service.class == Class::Lost && memory.of_another => {
            removal(Takeover::None, Action::Forget, memory, facts)
        }
        Role::Cleanup => cleanup(service, memory, facts),
        Role::Ignored if service.class == Class::Others => of_another(service, memory, facts),
        Role::Ignored => Plan::default(),
    }
}

fn wanted(service: &Service, memory: &Memory, facts: &Facts<'_>) -> Plan {
    let Judged { wanted, refusals, stands_in, .. } = facts.judged;
    let refusals = refusals.clone();
    let Some(wanted) = wanted else {
        // What was to go is wanted no more than before, and the Service may have lost the node ports to which it leads.
        if memory.removes() && !refusals.is_empty() && has_load_balancers(facts) {
            return Plan { actions: vec![Action::Delete(Takeover::None)], refusals, ..Plan::default() };
        }
        let undone = !service.finalizer || service.ingress.is_empty();
        let waits = match facts.features {
            None if !refusals.is_empty() => None,
            None if undone => Some(Wait::Aloud),
            None => Some(Wait::Quietly),
            // Whether it exists decides whether it can be done.
            Some(_) if facts.judged.awaits_listing => Some(Wait::Quietly),
            // Nothing to wait for: it cannot be done, or this adapter has no load balancers.
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
    // Other nodes behind it leave the address as it is: who waits for that does not wait for them.
    let stays = why.is_none() || (why == Some(Why::Hosts) && service.ingress.is_empty());
    if let Some(settled) = memory.settled.as_ref().filter(|_| stays) {
        let ingress = wanted.shown.of(&settled.ingress);
        if !same_ingress(&ingress, &service.ingress) {
            actions.push(Action::WriteStatus(ingress));
        }
    }
    if let Some(why) = why {
        actions.push(Action::Ensure(Box::new(ask(service, wanted, (why, *stands_in), facts))));
    }
    Plan { actions, refusals, ..Plan::default() }
}

fn cleanup(service: &Service, memory: &Memory, facts: &Facts<'_>) -> Plan {
    // Of one whose finalizer merely came with it, nothing but the key says what is its own: what has its name may be another cluster's.
    let by_key = service.class == Class::Lost && service.holder == Holder::Author && !memory.made;
    let takeover = if by_key { Takeover::None } else { Takeover::wished(service, facts.defaults) };
    removal(takeover, Action::Release, memory, facts)
}

/// Of a Service of another's class nothing is touched, unless it is proven to be ours: by its tags, a load balancer is.
///
/// One whose address, or the name asked for in its place, stands in the status serves: then the class is new to us and not to the
/// Service, and the load balancer stays as long as the Service does. Any other is left from before the Service had that class; its
/// finalizer and its status are the other's.
fn of_another(service: &Service, memory: &Memory, facts: &Facts<'_>) -> Plan {
    let is_there = |it: &&Balancer| it.state != State::Deleting && !memory.is_gone(it);
    let there = || facts.cloud.unwrap_or_default().iter().filter(is_there);
    if memory.claimed {
        if service.deleting && service.finalizer {
            return cleanup(service, memory, facts);
        }
        return Plan { claimed: there().map(|it| it.vendor_id.clone()).collect(), ..Plan::default() };
    }
    if there().next().is_some() || memory.removes() || memory.removed {
        return removal(Takeover::None, Action::Forget, memory, facts);
    }
    Plan::default()
}

fn removal(takeover: Takeover, then: Action, memory: &Memory, facts: &Facts<'_>) -> Plan {
    if memory.removed {
        return Plan { actions: vec![then], ..Plan::default() };
    }
    let waits = match facts.features {
        None => Wait::Aloud,
        Some(features) if features.has(name::LOAD_BALANCERS) => {
            return Plan { actions: vec![Action::Delete(takeover)], ..Plan::default() };
        }
        // The finalizer has one name for all controllers: it is of the one that serves what this adapter does not.
        Some(_) if !is_proven(memory, facts) => return Plan::default(),
        Some(_) => Wait::ForBalancers,
    };
    Plan { waits: Some(waits), ..Plan::default() }
}

/// Whether what holds a Service without a class any more is ours to take off.
///
/// The finalizer has one name for all controllers of load balancers. One that was written with the Service, as with a manifest, is no
/// controller's: there was never anything of another's, and what is ours a deletion by key finds.
fn is_ours(service: &Service, memory: &Memory, facts: &Facts<'_>) -> bool {
    is_proven(memory, facts) || (service.holder == Holder::Author && !memory.classed)
}

fn has_load_balancers(facts: &Facts<'_>) -> bool {
    facts.features.is_some_and(|features| features.has(name::LOAD_BALANCERS))
}

/// Whether a Service was ours of which nothing else says so: it has no class any more, or this adapter serves none.
fn is_proven(memory: &Memory, facts: &Facts<'_>) -> bool {
    let shown = facts.cloud.is_some_and(|cloud| cloud.iter().any(|it| !memory.is_gone(it)));
    memory.made || memory.removed || memory.removes() || shown
}

fn why_ask(service: &Service, wanted: &Wanted, memory: &Memory, facts: &Facts<'_>) -> Option<Why> {
    let Some(settled) = &memory.settled else {
        let serves = |it: &Balancer| matches!(it.state, State::Active | State::Degraded);
        let active = facts.cloud.is_none_or(|all| all.iter().any(serves));
        // Whoever waits for the address does so until it is there, whatever the cloud shows by then.
        let awaited = service.ingress.is_empty();
        return Some(if active && !awaited { Why::FirstLook } else { Why::Missing });
    };
    if settled.shape != wanted.shape.digest {
        return Some(Why::Changed);
    }
    if settled.targets != facts.targets.id {
        return Some(Why::Hosts);
    }
    facts.cloud.and_then(|cloud| memory.drift(cloud, facts.now)).map(Why::Drift)
}

/// Whether an ensure takes the last nodes from a load balancer, and nothing but an empty list says that they are gone.
fn would_empty(memory: &Memory, facts: &Facts<'_>) -> bool {
    let settled = memory.settled.as_ref();
    let has_nodes = || facts.cloud.is_none_or(|all| all.iter().any(|it| it.backends > 0));
    facts.targets.blind && (settled.is_some_and(|it| it.targets != facts.targets.id) || has_nodes())
}

/// A load balancer that failed before anybody learnt its address may be built anew; one whose address is in the status may
/// still serve, and a new one would have another address: that is for a person to decide.
fn ask(service: &Service, wanted: &Arc<Wanted>, (why, stands_in): (Why, bool), facts: &Facts<'_>) -> Ask {
    Ask {
        spec: wanted.shape.with_targets(&facts.targets.id),
        wanted: Arc::clone(wanted),
        stands_in,
        why,
        recreate: if service.ingress.is_empty() { Recreate::IfError } else { Recreate::Never },
        hosts: facts.targets.hosts.clone(),
        unmatched: facts.targets.unmatched().cloned(),
        at: facts.now,
    }
}

#[cfg(test)]
mod tests;
