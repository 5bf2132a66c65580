//! A Service to reconcile, the inputs of its plan, and what the adapter's answers mean for its conditions. This module does no I/O.

use std::{sync::Arc, time::Duration};

use tokio::time::Instant;

use crate::{
    error::Error,
    events,
    plan::{
        Ask, Fact, Facts, Plan,
        annotations::settings::Defaults,
        cloud::{Balancer, State},
        conditions::Readiness,
        features::Features,
        informational::informational_facts,
        memory::{Memory, Outcome},
        plan,
        readiness::{WRITE_FAILED, as_requested},
        refused::{Reaction, react},
        service::Service,
        targets::Targets,
        validated::Validated,
        without_nodes::WithoutNodes,
    },
};

#[derive(Debug)]
pub(crate) struct Job<'a> {
    pub(crate) service: Service,
    pub(crate) memory: &'a mut Memory,
    pub(crate) validated: Validated,
    pub(crate) targets: Arc<Targets>,
    /// The time since which the current nodes have been the targets.
    pub(crate) targets_since: Instant,
    pub(crate) defaults: &'a Defaults,
    pub(crate) features: Option<Arc<Features>>,
    pub(crate) seen: Option<Vec<Balancer>>,
    /// Time since the start of the process.
    pub(crate) now: Duration,
}

impl Job<'_> {
    pub(crate) fn plan(&self) -> Plan {
        plan(&self.service, self.memory, &self.facts())
    }

    /// Records what an answer means for the Service's conditions. While replacement settings are in use, `Pending` is not recorded, so that
    /// the refusal of the requested settings remains visible.
    pub(super) fn note(&mut self, ask: &Ask, state: State, outcome: &Outcome) {
        let budget = outcome.facts.iter().find_map(|fact| {
            let Fact::WaitsForBudget(words) = fact else { return None };
            Some(words)
        });
        let reason = match state {
            State::Degraded => "LoadBalancerDegraded",
            State::Unknown
            | State::Pending
            | State::Active
            | State::Error
            | State::Deleting
            | State::Absent => "LoadBalancerFailed",
        };
        if let Some(fact @ Fact::WriteFailed(..)) = &outcome.problem {
            let note = events::notice(fact, Some(&self.service.id)).note;
            self.memory.readiness = Some(Readiness::failing(WRITE_FAILED, events::cause(&note)));
        } else if let Some(Fact::Failed(_, why)) = &outcome.problem {
            self.memory.readiness = Some(Readiness::failing(reason, why));
        } else if let Some(words) = budget {
            self.memory.readiness = Some(Readiness::failing("WaitingForBudget", words));
        } else if !ask.stands_in && self.memory.is_building() {
            self.memory.readiness = Some(Readiness::Pending);
        }
    }

    pub(crate) fn react(&mut self, ask: &Ask, error: &Error) -> Reaction {
        let Some(refused) = error.refused() else { return Reaction::Report };
        self.with_memory(|service, memory, facts| react(service, memory, facts, ask, &refused))
    }

    /// Returns the informational Events that are due. `builds`: whether the plan creates or changes a load balancer.
    pub(crate) fn informational_facts(&mut self, builds: bool) -> Vec<Fact> {
        self.with_memory(|service, memory, facts| informational_facts(service, memory, facts, builds))
    }

    /// Why the load balancer has no nodes, if it has none.
    pub(crate) fn without_nodes(&self) -> Option<WithoutNodes> {
        WithoutNodes::of(&self.targets, &self.service, self.defaults)
    }

    pub(crate) fn as_requested(&self) -> Option<Readiness> {
        as_requested(&self.service, self.memory, &self.validated, self.without_nodes().as_ref())
    }

    fn with_memory<T>(&mut self, then: impl FnOnce(&Service, &mut Memory, &Facts<'_>) -> T) -> T {
        let mut memory = std::mem::take(self.memory);
        let result = then(&self.service, &mut memory, &self.facts());
        *self.memory = memory;
        result
    }

    fn facts(&self) -> Facts<'_> {
        Facts {
            validated: &self.validated,
            targets: &self.targets,
            defaults: self.defaults,
            features: self.features.as_deref(),
            cloud: self.seen.as_deref(),
            now: self.now,
        }
    }
}
