//! What a plan consists of: one step, one vendor write.

use std::fmt;

use cloud_adapter::{
    driver::Step as DriverStep,
    vendor::{Family, Operation},
};
use cloud_api_proto::v1alpha1::Priority;

/// One vendor write. One variant a call: `CreateLoadBalancer(request)`, `DeleteListener { id }`.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// In place of a plan that nobody has written.
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
