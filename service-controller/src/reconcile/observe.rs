//! Collects the inputs of a Service's plan from the caches.

use std::sync::Arc;

use tokio::time::Instant;

use super::Reconciler;
use crate::{
    execute::Job,
    plan::{
        members::Present, memory::Memory, service::Service, stale_id::without, targets::Targets,
        validated::Validated,
    },
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// The plan will be executed. From then on, changes of the selected nodes requeue the Service.
    Execute,
    /// The observation only reports what the plan would do, and changes no state.
    Rehearse,
}

impl Reconciler {
    /// Collects everything that is needed to plan for a Service. Cost: no calls.
    pub(super) fn observe<'a>(
        &'a self,
        service: Service,
        memory: &'a mut Memory,
        purpose: Purpose,
    ) -> Job<'a> {
        let seen = self.mirrors.balancers(&service.id.uid);
        let ignored = memory.settings.ignored_id.clone();
        let service = without(memory.pacing.overlay(service), ignored.as_deref(), seen.as_deref());
        let now = self.started.elapsed();
        let defaults = &self.mirrors.reading.defaults;
        memory.observe(&service, seen.as_deref(), now);
        let features = self.mirrors.features();
        memory.settings.widen(&service, features.as_deref());
        let targets_of = |validated: &Validated| match purpose {
            Purpose::Execute => self.mirrors.targets_of(&service.id, validated.selector()),
            Purpose::Rehearse => self.mirrors.targets(validated.selector()),
        };
        let validated = Validated::of(&service, memory, defaults, features.as_deref(), now);
        let (selector, mut targets) = (validated.selector().cloned(), targets_of(&validated));
        let (nodes, accepted) = (targets.0.len(), memory.settings.accepted.as_ref());
        let present = Present { nodes, accepted, seen: seen.as_deref() };
        let validated = validated.bounded(&service, defaults, &present);
        if validated.selector() != selector.as_ref() {
            targets = targets_of(&validated);
        }
        let (targets, targets_since): (Arc<Targets>, Instant) = targets;
        Job { service, memory, validated, targets, targets_since, defaults, features, seen, now }
    }
}
