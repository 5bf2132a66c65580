//! The contents of status pages as JSON. The controllers (`/status`, `/explain`, `/plan`) and the adapter (`/status.json`) write them, and
//! users and `cloudctl` read them.
//!
//! Field names are camelCase and never change their meaning. A reader ignores unknown fields and treats missing fields as empty, so that it
//! can read the pages of older and newer processes. The pages contain no secrets, because they may be open to any client that reaches the
//! port.

mod adapter;
mod causes;
mod controller;
#[cfg(test)]
mod tests;

pub use self::{
    adapter::{
        AdapterStatus, Breaker, BreakerState, BucketSample, Budget, ClusterObjects, Queue, Snapshot, Task,
        VendorWrite,
    },
    causes::grouped,
    controller::{
        AdapterLink, ControllerStatus, Explanation, Explanations, Orphan, Plans, Priced, State, VendorStep,
        Waiting, WorkQueue,
    },
};
