//! Restricts a Service that prefers two address families to one, if its load balancer cannot get the second. The restriction, like the
//! refusal, holds for one load balancer, one adapter and one set of preferences.

use super::super::{
    cloud::Balancer,
    features::Features,
    service::{Family, FamilyPolicy, Service},
};

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Narrowed {
    /// The address family of the existing load balancer.
    pub(super) to: Family,
    /// The Service's preferences when the adapter refused them.
    families: Vec<Family>,
    policy: FamilyPolicy,
    /// The adapter's capabilities at that time.
    features: Features,
    /// The cache has shown a load balancer since then. It does not show a load balancer that is not adopted yet.
    shown: bool,
}

impl Narrowed {
    pub(super) fn new(to: Family, (service, features): (&Service, &Features)) -> Self {
        Self {
            to,
            families: service.families.clone(),
            policy: service.family_policy,
            features: features.clone(),
            shown: false,
        }
    }

    /// Records what the cache shows. Returns whether the load balancer with this family is gone.
    pub(super) fn went(&mut self, cloud: &[Balancer]) -> bool {
        self.shown |= !cloud.is_empty();
        self.shown && cloud.is_empty()
    }

    /// Whether the Service's preferences and the adapter's capabilities are unchanged.
    pub(super) fn holds(&self, (service, features): (&Service, &Features)) -> bool {
        (&self.families, self.policy) == (&service.families, service.family_policy)
            && self.features == *features
    }
}
