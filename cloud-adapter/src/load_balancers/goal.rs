//! The goal of a key's task.

use std::sync::Arc;

use cloud_api_proto::v1alpha1::{Adoption, LoadBalancerKey, Recreate};

use crate::driver::{Adopter, DesiredLoadBalancer};

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Goal {
    Present(Arc<DesiredLoadBalancer>, Terms),
    /// The load balancer must not exist. `known` is the vendor's ID, if the caller knows it.
    Absent {
        adopter: Box<Adopter>,
        adoption: Adoption,
        known: Option<String>,
    },
}

/// What the caller permits in order to reach the desired state.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Terms {
    pub(crate) recreate: Recreate,
    pub(crate) adoption: Adoption,
    /// The vendor's ID of the load balancer to adopt.
    pub(crate) known: Option<String>,
}

impl Goal {
    pub(crate) fn key(&self) -> &LoadBalancerKey {
        match self {
            Self::Present(desired, _) => &desired.key,
            Self::Absent { adopter, .. } => &adopter.key,
        }
    }

    pub(crate) fn adoption(&self) -> Adoption {
        match self {
            Self::Present(_, Terms { adoption, .. }) | Self::Absent { adoption, .. } => *adoption,
        }
    }

    pub(crate) fn namespace(&self) -> &str {
        match self {
            Self::Present(desired, _) => &desired.owner.namespace,
            Self::Absent { adopter, .. } => &adopter.owner.namespace,
        }
    }

    pub(crate) fn adopter(&self) -> Adopter {
        match self {
            Self::Present(desired, _) => desired.adopter(),
            Self::Absent { adopter, .. } => (**adopter).clone(),
        }
    }

    pub(crate) fn shares(&self) -> Option<&str> {
        match self {
            Self::Present(desired, _) => desired.shares(),
            Self::Absent { .. } => None,
        }
    }

    pub(crate) fn known(&self) -> Option<&str> {
        match self {
            Self::Present(_, Terms { known, .. }) | Self::Absent { known, .. } => known.as_deref(),
        }
    }
}
