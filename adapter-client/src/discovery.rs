//! Finds the replicas: a fixed list, DNS, or the EndpointSlices of a Service.

mod dns;
#[cfg(feature = "kubernetes")]
mod kubernetes;

use std::collections::BTreeSet;

pub(crate) use self::dns::follow as follow_name;
pub use self::dns::{Resolve, SystemResolver};
#[cfg(feature = "kubernetes")]
pub(crate) use self::kubernetes::follow as follow_service;
use crate::connector::Address;

/// The result of discovery.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Found {
    /// The last known replicas, even if discovery has failed since.
    pub(crate) addresses: BTreeSet<Address>,
    /// Why the last attempt failed.
    pub(crate) trouble: Option<String>,
}
