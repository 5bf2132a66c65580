//! Room 2: what is to be done for one Service. Pure: no I/O, no clock, no chance, no Kubernetes client, no gRPC.
//!
//! A look at a Service is repeated until its plan is empty, so each plan holds only what can be decided now: the status is
//! planned after the adapter's answer, the release after its word that nothing is left.

pub(crate) mod annotations;
pub(crate) mod cloud;
pub(crate) mod compat;
pub(crate) mod features;
mod health_check;
pub(crate) mod listeners;
pub(crate) mod memory;
mod requested_address;
pub(crate) mod service;
pub(crate) mod source_ranges;
pub(crate) mod spec;
mod status;
pub(crate) mod targets;

use std::{fmt, time::Duration};

use cloud_api_proto::v1alpha1::{LoadBalancerSpec, Recreate};

use self::{
    annotations::settings::Defaults,
    cloud::{Balancer, State},
    features::Features,
    memory::Memory,
    service::{Ingress, Role, Service, same_ingress},
    spec::{Checked, Shape, Takeover},
    status::shown,
    targets::Targets,
};

/// What is known beside the Service itself.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Facts<'a> {
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

/// What people shall hear; the words are in `events.rs`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum News {
    Ensuring,
    Ensured,
    /// The nodes behind it changed.
    Updated,
    NoTargets,
    Deleting,
    Deleted,
    /// What is wrong and what is being waited for.
    Trouble(String),
    /// Annotations of another controller, and what to write in place of each.
    Compatible(Vec<String>),
    /// Annotations of another controller that nobody was asked to understand.
    Ignored(Vec<String>),
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
    /// Digest of the specification but for its backends.
    pub(crate) shape: String,
    pub(crate) why: Why,
    pub(crate) recreate: Recreate,
    pub(crate) takeover: Takeover,
    /// No node stands behind it.
    pub(crate) no_targets: bool,
    /// When, since the start of the process.
    pub(crate) at: Duration,
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
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AddFinalizer => f.write_str("add finalizer"),
            Self::Ensure(ask) => {
                let nodes = if ask.no_targets { ", no nodes" } else { "" };
                write!(f, "ensure ({}{nodes})", ask.why)
            }
            Self::WriteStatus(ingress) => {
                let words: Vec<String> = ingress.iter().map(ToString::to_string).collect();
                write!(f, "write status [{}]", words.join(" "))
            }
            Self::Delete(_) => f.write_str("delete"),
            Self::Release => f.write_str("release"),
        }
    }
}

/// What is to be done for one Service. Empty: all is as it should be.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Plan {
    /// In this order; the first that fails ends the look.
    pub(crate) actions: Vec<Action>,
    /// What keeps us from calling anything until the Service changes.
    pub(crate) refusals: Vec<Refusal>,
    /// Whether the adapter must be there first, and whether anybody misses it.
    pub(crate) waits: Option<Wait>,
    /// Vendor IDs of load balancers that carry our key while nobody wants them. Reported, never deleted.
    pub(crate) orphans: Vec<String>,
}

/// Waiting for the adapter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    /// As far as we can see all is well: nobody needs to hear of it.
    Quietly,
    /// Something is visibly left undone.
    Aloud,
}

impl Plan {
    /// Whether all is as it should be.
    pub(crate) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Whether the adapter is called, and with it perhaps the cloud.
    pub(crate) fn calls_the_adapter(&self) -> bool {
        self.actions.iter().any(|action| matches!(action, Action::Ensure(_) | Action::Delete(_)))
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
        if let Some(wait) = self.waits {
            writeln!(f, "wait for the adapter, {}", if wait == Wait::Aloud { "aloud" } else { "quietly" })?;
        }
        for orphan in &self.orphans {
            writeln!(f, "report orphan {orphan}")?;
        }
        Ok(())
    }
}

/// Compares what the Service asks for with what the adapter confirmed and shows. Cost: no vendor calls.
pub(crate) fn plan(service: &Service, memory: &Memory, facts: &Facts<'_>) -> Plan {
    match service.role() {
        Role::Wanted => wanted(service, memory, facts),
        Role::Cleanup => cleanup(service, memory, facts),
        Role::Ignored => Plan { orphans: orphans(facts.cloud.unwrap_or_default()), ..Plan::default() },
    }
}

/// Load balancers under the key of a Service that nobody wants one for.
pub(crate) fn orphans(cloud: &[Balancer]) -> Vec<String> {
    cloud.iter().filter(|it| it.state != State::Deleting).map(|it| it.vendor_id.clone()).collect()
}

fn wanted(service: &Service, memory: &Memory, facts: &Facts<'_>) -> Plan {
    let checked = match Checked::new(service, facts.defaults) {
        Ok(checked) => checked,
        Err(refusals) => return Plan { refusals, ..Plan::default() },
    };
    let Some(features) = facts.features else {
        let undone = !service.finalizer || service.ingress.is_empty();
        return Plan { waits: Some(if undone { Wait::Aloud } else { Wait::Quietly }), ..Plan::default() };
    };
    let shape = match checked.shape(features) {
        Ok(shape) => shape,
        Err(refusals) => return Plan { refusals, ..Plan::default() },
    };
    let mut actions = Vec::new();
    if !service.finalizer {
        actions.push(Action::AddFinalizer);
    }
    if let Some(why) = why_ask(&shape, memory, facts) {
        actions.push(Action::Ensure(Box::new(ask(service, &shape, why, facts))));
    } else if let Some(settled) = &memory.settled {
        let ingress = shown(&settled.ingress, &checked.wishes);
        if !same_ingress(&ingress, &service.ingress) {
            actions.push(Action::WriteStatus(ingress));
        }
    }
    Plan { actions, ..Plan::default() }
}

fn cleanup(service: &Service, memory: &Memory, facts: &Facts<'_>) -> Plan {
    if memory.removed {
        return Plan { actions: vec![Action::Release], ..Plan::default() };
    }
    match facts.features {
        Some(_) => {
            let takeover = Takeover::wished(service, facts.defaults);
            Plan { actions: vec![Action::Delete(takeover)], ..Plan::default() }
        }
        None => Plan { waits: Some(Wait::Aloud), ..Plan::default() },
    }
}

fn why_ask(shape: &Shape, memory: &Memory, facts: &Facts<'_>) -> Option<Why> {
    let Some(settled) = &memory.settled else {
        let serves = |it: &Balancer| matches!(it.state, State::Active | State::Degraded);
        let active = facts.cloud.is_none_or(|all| all.iter().any(serves));
        return Some(if active { Why::FirstLook } else { Why::Missing });
    };
    if settled.shape != shape.digest {
        return Some(Why::Changed);
    }
    if settled.targets != facts.targets.id {
        return Some(Why::Hosts);
    }
    facts.cloud.and_then(|cloud| memory.drift(cloud, facts.now)).map(Why::Drift)
}

/// A load balancer that failed before anybody learnt its address may be built anew; one whose address is in the status may
/// still serve, and a new one would have another address: that is for a person to decide.
fn ask(service: &Service, shape: &Shape, why: Why, facts: &Facts<'_>) -> Ask {
    Ask {
        spec: shape.with_targets(&facts.targets.id),
        shape: shape.digest.clone(),
        why,
        takeover: shape.takeover.clone(),
        recreate: if service.ingress.is_empty() { Recreate::IfError } else { Recreate::Never },
        no_targets: facts.targets.is_empty(),
        at: facts.now,
    }
}

#[cfg(test)]
mod tests;
