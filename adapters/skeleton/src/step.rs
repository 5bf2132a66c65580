//! The steps of a plan: each step is one vendor write.

use std::fmt;

use cloud_adapter::{
    driver::Step as DriverStep,
    vendor::{Family, Operation},
};
use cloud_api_proto::v1alpha1::Priority;

/// One vendor write, with one variant for each call: `CreateLoadBalancer(request)`, `DeleteListener { id }`.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Placeholder for a plan that is not written yet.
    NotWritten(&'static str),
}

impl DriverStep for Step {
    fn operation(&self) -> Operation {
        match self {
            Self::NotWritten(_) => Operation::write(Family::LoadBalancer, "NotWritten"),
        }
    }

    fn class(&self) -> Priority {
        match self {
            Self::NotWritten(_) => Priority::Interactive,
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotWritten(part) => write!(f, "write {part}"),
        }
    }
}
