//! Load balancers: checked requests, backend sets, one convergence task per key.

mod backend_sets;
mod converge;
mod decide;
mod service;
mod validate;

pub(crate) use self::{converge::Converger, service::Service};
