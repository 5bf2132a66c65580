//! Remembers which settings of a Service the adapter accepted and refused.
//!
//! Settings that cannot be applied to the existing load balancer are replaced; see [`super::super::as_it_is`]. A replacement takes
//! precedence over the last valid settings. An adapter first applies the new settings as far as possible, and the old settings would revert
//! that.

use std::{sync::Arc, time::Duration};

use super::{
    super::{
        Ask,
        cloud::{Balancer, State as CloudState},
        features::Features,
        service::{Family, FamilyPolicy, Service},
        spec::Shape,
        wanted::Wanted,
    },
    Event, LAG,
};

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Settings {
    /// The settings that the adapter accepted last. They stay in force while the adapter cannot apply the current settings.
    pub(crate) accepted: Option<Arc<Wanted>>,
    /// Digest of the settings that the adapter refused last, and the time of the refusal.
    refused: Option<(String, Duration)>,
    /// Set if [`Self::accepted`] was derived from the existing load balancer, and was not requested by the Service.
    replacement: Option<Replacement>,
    /// The only address family of the existing load balancer, if the adapter cannot add the preferred second one.
    narrowed: Option<Narrowed>,
    /// The load balancer ID recorded by another controller, if the adapter refused that ID for this Service.
    pub(crate) ignored_id: Option<String>,
}

/// Settings that replace refused settings, because those cannot be applied to the existing load balancer.
#[derive(Clone, Debug, PartialEq)]
struct Replacement {
    /// Digest of the refused settings.
    refused: String,
    /// The valid or replacement settings that were in force before.
    before: Option<Arc<Wanted>>,
    accepted: bool,
}

/// The restriction to one address family. Like the refusal that caused it, the restriction applies to one load balancer, one adapter and
/// one set of preferences.
#[derive(Clone, Debug, PartialEq)]
struct Narrowed {
    /// The address family of the existing load balancer.
    to: Family,
    /// The Service's preferences at the time of the refusal.
    families: Vec<Family>,
    policy: FamilyPolicy,
    /// The adapter's capabilities at the time of the refusal.
    features: Features,
    /// Whether the cache has shown a load balancer since the refusal. The cache does not show a load balancer that is not adopted yet.
    shown: bool,
}

impl Settings {
    pub(super) fn step(self, event: &Event<'_>) -> Self {
        match *event {
            Event::Observed { cloud: Some(cloud), .. } => self.observe(cloud),
            Event::EnsureAnswered { ask, answer, .. }
                if matches!(
                    answer.state,
                    CloudState::Active | CloudState::Degraded | CloudState::Pending
                ) =>
            {
                self.accept(ask)
            }
            Event::DeleteCalled { .. } => Self { ignored_id: self.ignored_id, ..Self::default() },
            Event::InSync { as_requested: true } => Self { refused: None, replacement: None, ..self },
            Event::Observed { cloud: None, .. }
            | Event::ServiceMissing { .. }
            | Event::OrphanKept(_)
            | Event::EnsureCalled { .. }
            | Event::EnsureAnswered { .. }
            | Event::FellBack
            | Event::DeleteAnswered { .. }
            | Event::InSync { as_requested: false }
            | Event::Released
            | Event::Forgotten { .. } => self,
        }
    }

    fn accept(self, ask: &Ask) -> Self {
        if ask.stands_in {
            let replacement = self.replacement.map(|it| Replacement { accepted: true, ..it });
            return Self { replacement, ..self };
        }
        Self { accepted: Some(Arc::clone(&ask.wanted)), refused: None, replacement: None, ..self }
    }

    /// Drops the restriction to one family when its load balancer is gone.
    fn observe(self, cloud: &[Balancer]) -> Self {
        let narrowed = self.narrowed.map(|it| Narrowed { shown: it.shown || !cloud.is_empty(), ..it });
        Self { narrowed: narrowed.filter(|it| !(it.shown && cloud.is_empty())), ..self }
    }

    pub(super) fn refuse(&mut self, ask: &Ask) {
        let digest = &ask.wanted.shape.digest;
        // If the adapter now refuses settings that it accepted before, no accepted settings are left to fall back to.
        self.accepted.take_if(|accepted| accepted.shape.digest == *digest);
        self.refused = Some((digest.clone(), ask.at));
    }

    /// Clears the last refusal, so that the settings are retried at once.
    pub(crate) fn retry(&mut self) {
        self.refused = None;
    }

    /// Whether the adapter's last refusal, at any time, was for these settings.
    pub(super) fn were_refused(&self, shape: &Shape) -> bool {
        self.refused.as_ref().is_some_and(|(digest, _at)| *digest == shape.digest)
    }

    /// Whether the adapter refused these settings so recently that they are not retried yet.
    pub(crate) fn is_refused(&self, shape: &Shape, now: Duration) -> bool {
        let refused = self.refused.as_ref().filter(|(digest, _at)| *digest == shape.digest);
        refused.is_some_and(|(_digest, at)| now.saturating_sub(*at) < LAG)
    }

    /// Requests only the family of the existing load balancer from now on, because the adapter cannot add the preferred second family.
    pub(super) fn narrow(&mut self, to: Family, service: &Service, features: &Features) {
        self.narrowed = Some(Narrowed {
            to,
            families: service.families.clone(),
            policy: service.family_policy,
            features: features.clone(),
            shown: false,
        });
    }

    /// Requests two families again if the Service's preference or the adapter's capabilities have changed. `features`: `None` if the
    /// adapter was never reached.
    pub(crate) fn widen(&mut self, service: &Service, features: Option<&Features>) {
        self.narrowed.take_if(|it| {
            let same = (&it.families, it.policy) == (&service.families, service.family_policy);
            features.is_some_and(|features| !same || it.features != *features)
        });
    }

    pub(crate) fn family(&self) -> Option<Family> {
        self.narrowed.as_ref().map(|it| it.to)
    }

    /// Whether a replacement for these refused settings can be tried. Each replacement is tried once.
    pub(super) fn may_replace(&self, refused: &Shape) -> bool {
        let tried = self.replacement.as_ref().is_some_and(|it| it.refused == refused.digest);
        self.were_refused(refused) && !tried
    }

    pub(super) fn replace(&mut self, refused: &Shape, replacement: Wanted) {
        let before = self.accepted.replace(Arc::new(replacement));
        self.replacement = Some(Replacement { refused: refused.digest.clone(), before, accepted: false });
    }

    /// Records that the adapter refuses the replacement. If the adapter never accepted the replacement, restores the previous settings and
    /// returns true.
    pub(crate) fn restore(&mut self) -> bool {
        let Some(tried) = self.replacement.as_mut().filter(|it| !it.accepted) else { return false };
        self.accepted = tried.before.take();
        true
    }
}
