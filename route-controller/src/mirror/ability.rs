//! What the adapter can do about routes, according to its capabilities.

use std::sync::PoisonError;
use std::time::Duration;

use cloud_api_proto::AdapterError;
use cloud_api_proto::v1alpha1::GetInfoResponse;
use cloud_api_proto::v1alpha1::capability::Level;
use controller_core::Link;
use controller_core::adapter::Adapter;
use tokio::time::{sleep, timeout};
use tonic::Code;
use tracing::{debug, info, warn};

use super::{Mirrors, Trigger};

/// The capability of a cloud that has routes. Source: contract, `Capability`.
const ROUTES: &str = "routes";
/// The capability of a cloud that stores the owner of a route.
const MARKS: &str = "routes.ownership-tags";

/// Interval of requests to an adapter that has no routes, or whose routes cannot be watched yet. The adapter answers from memory.
const NO_ROUTES_POLL_INTERVAL: Duration = Duration::from_secs(10);
/// Interval of requests to a working adapter, since another version may replace it at any time.
const CHECK_AGAIN_AFTER: Duration = Duration::from_mins(5);
const UNREACHABLE_POLL_INTERVAL: Duration = Duration::from_secs(2);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ability {
    /// No routes.
    None,
    /// Creates and removes routes. The cloud cannot store their owner.
    Unmarked,
    Marked,
}

impl Ability {
    /// A capability of an unknown level is ignored. Source: contract, `Capability.Level`.
    fn of(info: &GetInfoResponse) -> Self {
        let can = |name: &str| {
            let mut capabilities = info.capabilities.iter();
            capabilities.any(|one| one.name == name && one.level() != Level::Unspecified)
        };
        match (can(ROUTES), can(MARKS)) {
            (false, _) => Self::None,
            (true, false) => Self::Unmarked,
            (true, true) => Self::Marked,
        }
    }

    /// Returns the ability of an adapter without `GetInfo`. Untagged routes then do not count as owned by this cluster, which is safe.
    fn of_error(error: &AdapterError) -> Option<Self> {
        (error.code == Code::Unimplemented).then_some(Self::Marked)
    }
}

impl Mirrors {
    /// Gets the adapter's capabilities: at once, after each reconnect, and at intervals. Never ends; drop the future to stop.
    pub(crate) async fn follow_ability(&self, adapter: &Adapter, trigger: &Trigger) {
        let mut links = self.routes.links();
        loop {
            let known = match adapter.get_info().await {
                Ok(info) => {
                    self.learn_scheme(&info.provider, trigger);
                    Some(Ability::of(&info))
                }
                Err(error) => {
                    debug!(%error, "Cannot get the capabilities of the cloud adapter; retrying");
                    Ability::of_error(&error)
                }
            };
            if let Some(ability) = known {
                self.learn(ability, trigger);
            }
            match known {
                // Waiting fails only when the process stops, since `self` owns the sender.
                Some(Ability::Unmarked | Ability::Marked) if links.borrow().is_up() => {
                    let _down =
                        timeout(CHECK_AGAIN_AFTER, links.wait_for(|link| !link.is_up())).await.is_err();
                }
                Some(Ability::Unmarked | Ability::Marked) => {
                    let _up = timeout(NO_ROUTES_POLL_INTERVAL, links.wait_for(Link::is_up)).await.is_err();
                }
                Some(Ability::None) => sleep(NO_ROUTES_POLL_INTERVAL).await,
                None => sleep(UNREACHABLE_POLL_INTERVAL).await,
            }
        }
    }

    /// Records the scheme. Nodes whose provider IDs have another scheme belong to other clouds.
    fn learn_scheme(&self, scheme: &str, trigger: &Trigger) {
        let scheme = Some(scheme.to_owned()).filter(|scheme| !scheme.is_empty());
        let mut known = self.scheme.lock().unwrap_or_else(PoisonError::into_inner);
        if *known != scheme {
            info!(scheme, "Learned the provider ID scheme of this cloud");
            *known = scheme;
            trigger.wake();
        }
    }

    fn learn(&self, ability: Ability, trigger: &Trigger) {
        let is_news = self.ability.send_if_modified(|known| known.replace(ability) != Some(ability));
        if !is_news {
            return;
        }
        match ability {
            Ability::None => warn!("{NO_ROUTES}"),
            Ability::Unmarked | Ability::Marked => {
                info!(remembers_owner = ability == Ability::Marked, "The cloud adapter supports routes");
            }
        }
        trigger.wake();
    }
}

pub(super) const NO_ROUTES: &str = "the cloud adapter does not support routes (no capability `routes`): \
                                    configure the adapter for routes, such as with a router, or do not run route-controller";

#[cfg(test)]
mod tests {
    use cloud_api_proto::v1alpha1::Capability;

    use super::*;

    #[test]
    fn missing_capabilities_count_as_absent() {
        let (stable, experimental, unknown) = (Level::Stable.into(), Level::Experimental.into(), 99);
        for (name, declared, ability) in [
            ("nothing", vec![], Ability::None),
            ("routes", vec![(ROUTES, stable)], Ability::Unmarked),
            ("both", vec![(ROUTES, stable), (MARKS, experimental)], Ability::Marked),
            ("marks without routes", vec![(MARKS, stable)], Ability::None),
            ("an unknown level", vec![(ROUTES, unknown)], Ability::None),
            ("no level", vec![(ROUTES, stable), (MARKS, 0)], Ability::Unmarked),
            ("an unknown capability", vec![(ROUTES, stable), ("routes.anycast", stable)], Ability::Unmarked),
        ] {
            let capability = |(name, level): (&str, i32)| Capability {
                name: name.to_owned(),
                level,
                ..Capability::default()
            };
            let capabilities = declared.into_iter().map(capability).collect();
            assert_eq!(
                Ability::of(&GetInfoResponse { capabilities, ..Default::default() }),
                ability,
                "{name}"
            );
        }
    }
}
