//! The settings in force for a Service. If the requested settings are invalid, these are the last valid settings, restricted to node ports
//! that the Service still has (`node_ports.rs`).
//!
//! A mistyped annotation must not cut off a running load balancer from node changes. The last valid settings therefore stay in force until
//! the user corrects the mistake, and an Event reports the mistake. The last valid settings are kept only in memory. After a restart, the
//! controller therefore only emits the Event for such a Service. If a setting merely cannot change on the existing load balancer, the other
//! settings are applied (`as_it_is.rs`).

use std::{sync::Arc, time::Duration};

use controller_core::selector::Selector;

use super::{
    Refusal,
    annotations::settings::Defaults,
    features::{Features, name},
    members::{Members, Present, Verdict, verdict},
    memory::Memory,
    node_ports::still_held,
    service::{Role, Service},
    spec::Checked,
    wanted::Wanted,
};

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Validated {
    /// The settings in force. `None`: no settings are in force, or the settings in force are not known yet.
    pub(crate) wanted: Option<Arc<Wanted>>,
    /// Why the requested settings are not possible.
    pub(crate) refusals: Vec<Refusal>,
    /// The settings in force replace the requested ones.
    pub(crate) stands_in: bool,
    /// Set if added nodes raised the number of members above the limit for new load balancers.
    pub(crate) grown: Option<Members>,
    /// Whether the settings depend on the existence of the load balancer, and the adapter has not listed the load balancers yet.
    pub(crate) awaits_listing: bool,
}

impl Validated {
    /// Validates a Service that needs a load balancer. Other Services need no settings. Cost: no calls.
    pub(crate) fn of(
        service: &Service,
        memory: &Memory,
        defaults: &Defaults,
        features: Option<&Features>,
        now: Duration,
    ) -> Self {
        if service.role() != Role::Wanted || features.is_some_and(|it| !it.has(name::LOAD_BALANCERS)) {
            return Self::default();
        }
        let Some(features) = features else {
            let refusals = Checked::new(service, defaults).err().unwrap_or_default();
            return Self { refusals, ..Self::default() };
        };
        let accepted = memory.settings.accepted.as_ref();
        match Wanted::of(service, defaults, features, memory.settings.family()) {
            Err(refusals) => Self::refused(service, defaults, accepted, refusals),
            // Refused settings are not retried with each plan, because only a change or the passing of time can help.
            Ok(wanted) if accepted.is_some() && memory.settings.is_refused(&wanted.shape, now) => {
                Self::refused(service, defaults, accepted, Vec::new())
            }
            Ok(wanted) => Self { wanted: Some(Arc::new(wanted)), ..Self::default() },
        }
    }

    /// Applies the limit on the members of a load balancer to the requested settings. The limit does not apply to the last valid settings,
    /// because they were in force before.
    pub(crate) fn bounded(self, service: &Service, defaults: &Defaults, present: &Present<'_>) -> Self {
        let Some(wanted) = self.wanted.as_ref().filter(|_| !self.stands_in) else { return self };
        match verdict(service, wanted, defaults.bounds().members, present) {
            Verdict::Fits => self,
            Verdict::Grown(members) => Self { grown: Some(members), ..self },
            Verdict::Refused(refusal) => Self::refused(service, defaults, present.accepted, vec![refusal]),
            Verdict::Unlisted => Self { awaits_listing: true, ..Self::default() },
        }
    }

    fn refused(
        service: &Service,
        defaults: &Defaults,
        accepted: Option<&Arc<Wanted>>,
        refusals: Vec<Refusal>,
    ) -> Self {
        let wanted = accepted.map(|good| still_held(good, service, defaults));
        Self { wanted, refusals, stands_in: true, ..Self::default() }
    }

    pub(crate) fn selector(&self) -> Option<&Selector> {
        self.wanted.as_ref().and_then(|wanted| wanted.selector.as_ref())
    }
}
