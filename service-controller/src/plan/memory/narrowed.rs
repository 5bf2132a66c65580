//! The one family that is asked for where two are merely preferred, since what is there cannot get the other one; and how long that
//! holds. It is about one load balancer, one adapter and one wish: of any other nobody has said so.

use super::super::{
    cloud::Balancer,
    features::Features,
    service::{Family, FamilyPolicy, Service},
};

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Narrowed {
    /// The family that is there.
    pub(super) to: Family,
    /// What was preferred when the adapter refused it.
    families: Vec<Family>,
    policy: FamilyPolicy,
    /// What the adapter could then.
    features: Features,
    /// The mirror has shown a load balancer since: one that is not taken over yet it does not show.
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

    /// Takes note of what the mirror shows. Whether the load balancer that has this family is there no more.
    pub(super) fn went(&mut self, cloud: &[Balancer]) -> bool {
        self.shown |= !cloud.is_empty();
        self.shown && cloud.is_empty()
    }

    /// Whether the Service prefers what it did, of an adapter that can do what it could.
    pub(super) fn holds(&self, (service, features): (&Service, &Features)) -> bool {
        (&self.families, self.policy) == (&service.families, service.family_policy)
            && self.features == *features
    }
}
