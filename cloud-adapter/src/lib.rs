//! The adapter *runtime*: everything of a cloud adapter that is the same for every cloud.
//!
//! A vendor writes a [`driver::Driver`]; this crate is the gRPC server around it: the one way to the vendor with its budget
//! ([`vendor`]), shared listings and their watches (`snapshot`), convergence tasks that outlive the call (`load_balancers`),
//! routes, existence, health, metrics. It knows nothing of Kubernetes.

pub mod clock;
pub mod driver;
pub mod metrics;
pub mod vendor;
