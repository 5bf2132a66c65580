//! Several replicas of the adapter: the leader calls the vendor, the standbys follow the leader.
//!
//! Modules:
//!
//! - `options`: flags and their validation.
//! - [`Duty`], [`Replica`] and [`Term`]: the current role of this replica, for the services.
//! - `election`: turns verdicts on the Lease into duties, and limits how long vendor calls may be sent.
//! - `work`: the background work of each duty.
//! - `feed`: how a standby follows the leader. Makes no vendor call.

mod election;
mod feed;
mod options;
mod work;

pub use self::options::{ReplicaMode, ReplicaOptions};
pub(crate) use self::{
    election::Election,
    work::{Work, end_health_watches},
};
