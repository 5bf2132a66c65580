//! One of several replicas: one leads and talks to the vendor, the others stand by and follow it.
//!
//! In reading order:
//!
//! - `options`: flags to a checked way of being one of several.
//! - [`Duty`], [`Replica`] and [`Term`]: what this replica does now, for everything that serves.
//! - `election`: the Lease's verdict, turned into duties and into how long vendor calls may be sent.
//! - `work`: what a replica does in each duty.
//! - `feed`: how one that stands by follows the one that leads. Makes no vendor call.

mod duty;
mod election;
mod feed;
mod options;
mod work;

pub use self::options::{ReplicaMode, ReplicaOptions};
pub(crate) use self::{
    duty::{Duty, Replica, Term},
    election::Election,
    feed::STANDBY,
    work::{Work, end_health_watches},
};
