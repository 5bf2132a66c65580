//! Finds the replicas: a fixed list, DNS, or the EndpointSlices of a Service.

mod dns;
#[cfg(feature = "kubernetes")]
mod kubernetes;

pub(crate) use self::dns::follow as follow_name;
pub use self::dns::{Resolve, SystemResolver};
#[cfg(feature = "kubernetes")]
pub(crate) use self::kubernetes::follow as follow_service;
