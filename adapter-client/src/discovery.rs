//! Which replicas there are: fixed, by name, or by a Service's EndpointSlices.

mod dns;
#[cfg(feature = "kubernetes")]
mod kubernetes;

use std::collections::BTreeSet;

pub(crate) use self::dns::follow as follow_name;
pub use self::dns::{Resolve, SystemResolver};
#[cfg(feature = "kubernetes")]
pub(crate) use self::kubernetes::follow as follow_service;
use crate::connector::Address;

/// What a look tells.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Found {
    /// The last that are known of, though the last look may have failed.
    pub(crate) addresses: BTreeSet<Address>,
    /// Why the last look failed.
    pub(crate) trouble: Option<String>,
}
