//! What the status pages say, as JSON: made by the controllers (`/status`, `/explain`, `/plan`) and the adapter (`/status.json`), read by people and
//! by `cloudctl`.
//!
//! Field names are camelCase and do not change their meaning. A reader takes what it does not know for absent and what is absent for
//! empty, so that it reads the pages of older and newer processes. Nothing here is a secret: whoever reaches the port reads it.

mod adapter;
mod controller;
#[cfg(test)]
mod tests;

pub use self::{
    adapter::{
        AdapterStatus, Breaker, BreakerState, Budget, ClusterObjects, Queue, Snapshot, Step, Task,
        VendorWrite,
    },
    controller::{
        AdapterLink, ControllerStatus, Explanation, Explanations, Orphan, Plans, Priced, State, VendorStep,
        Waiting, WorkQueue,
    },
};
