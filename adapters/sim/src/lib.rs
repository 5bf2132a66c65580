//! The simulated cloud and its adapter.
//!
//! [`simcloud`] is a small cloud of its own: a real HTTP/JSON server with instances, load balancers and routes, whose
//! latency, limits and faults are set while it runs. It knows nothing of Kubernetes and nothing of the adapter.

pub mod simcloud;
