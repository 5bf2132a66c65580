//! Restricts the last valid settings of an invalid Service to the node ports that the Service still has.
//!
//! The API server assigns a released node port to the next Service that requests a node port, in any namespace. A load balancer that still
//! targets the port would send traffic to that Service. The settings in force therefore target and check only node ports that the Service
//! has now.

use std::sync::Arc;

use cloud_api_proto::v1alpha1::{HealthCheck, Listener, LoadBalancerSpec};
use controller_core::selector::Selector;

use super::{
    annotations::{settings::Defaults, share_with},
    bounds::KUBE_PROXY_PORT,
    health_check::moved_to,
    service::Service,
    wanted::Wanted,
};

/// Returns the settings without the listeners whose node ports the Service released. A load balancer needs at least one listener. If no
/// listener would be left, all listeners are kept, but without nodes behind them.
pub(super) fn still_held(good: &Arc<Wanted>, service: &Service, defaults: &Defaults) -> Arc<Wanted> {
    let spec = &good.shape.spec;
    let held = |it: &&Listener| it.node_port.is_none_or(|port| service.has_node_port(port));
    let listeners: Vec<Listener> = spec.listeners.iter().filter(held).cloned().collect();
    let may_be_probed = |check: &&HealthCheck| match check.port {
        None | Some(KUBE_PROXY_PORT) => true,
        Some(port) => defaults.bounds().health_check_ports.for_one(service, port).is_ok(),
    };
    let stale = spec.health_check.as_ref().filter(|check| !may_be_probed(check));
    // If the owner withdraws its consent to share, the consent ends at once, even while other settings of the Service are invalid.
    let consents = share_with(service, defaults);
    let may_share = |it: &String| consents.as_ref().is_none_or(|named| named.contains(it));
    let shared_with: Vec<String> = spec.shared_with.iter().filter(|it| may_share(it)).cloned().collect();
    let is_same = listeners.len() == spec.listeners.len() && shared_with.len() == spec.shared_with.len();
    if is_same && stale.is_none() {
        return Arc::clone(good);
    }
    let health_check = stale.map(|check| moved_to(check, &listeners)).or_else(|| spec.health_check.clone());
    let selector = if listeners.is_empty() { Some(Selector::nothing()) } else { good.selector.clone() };
    let listeners = if listeners.is_empty() { spec.listeners.clone() } else { listeners };
    let shape =
        good.shape.with_spec(LoadBalancerSpec { listeners, health_check, shared_with, ..spec.clone() });
    Arc::new(Wanted { shape, selector, ..Wanted::clone(good) })
}

#[cfg(test)]
mod tests;
