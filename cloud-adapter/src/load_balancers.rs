//! Load balancers: request validation, backend sets, one convergence task per key.

mod backend_sets;
mod candidates;
mod consent;
mod converge;
mod decide;
mod goal;
mod memory;
pub(crate) mod rehearsal;
mod response;
mod service;
mod validate;
mod verbs;

pub(crate) use self::{
    converge::{Converger, TaskReport},
    service::Service,
};
