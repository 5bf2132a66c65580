//! Refuses fields of a specification that need a capability that the driver does not declare. This module is pure.

use cloud_api_proto::{
    AdapterError, Reason,
    features::{Need, name, needs},
    v1alpha1::LoadBalancerSpec,
};

use crate::driver::Description;

/// The service-controller refuses the same features before any call, with an error about the Service
/// (`service-controller/src/plan/features.rs`). This error names fields of the contract, because every caller gets it.
fn refusal(need: &Need, cloud: &Description) -> Option<AdapterError> {
    let Need { field, capability, value, listener: _ } = *need;
    let text = match cloud.capability(capability) {
        None => format!("{field}: this cloud does not support {capability}"),
        Some(there) => {
            let (value, values) = (value?, there.values()?.collect::<Vec<_>>());
            if values.contains(&value) {
                return None;
            }
            let values = values.join(",");
            format!("{field}: the {capability} of this cloud supports {values}, but not {value}")
        }
    };
    let error = AdapterError::new(Reason::UnsupportedFeature, text);
    Some(error.with("field", field).with("capability", capability))
}

/// Refuses the first requested feature whose capability this cloud lacks.
///
/// Returns `UNSUPPORTED_FEATURE` with `field` and `capability`.
pub(super) fn check(spec: &LoadBalancerSpec, cloud: &Description) -> Result<(), AdapterError> {
    needs(spec).iter().find_map(|need| refusal(need, cloud)).map_or(Ok(()), Err)
}

/// Removes hints that this cloud ignores. Hints are not hashed, so that neither a change nor an upgrade causes writes.
pub(super) fn forget_unread(spec: &mut LoadBalancerSpec, cloud: &Description) {
    if !cloud.can(name::APP_PROTOCOL) {
        spec.listeners.iter_mut().for_each(|listener| listener.app_protocol.clear());
    }
}

#[cfg(test)]
mod tests;
