//! Several replicas of the adapter: the leader calls the vendor, and the standbys follow the leader.
//!
//! Modules:
//!
//! - `election`: converts verdicts on the Lease to duties, and limits how long vendor calls may be sent.
//! - `duties`: does the work of the current duty, until this replica shuts down.
//! - `work`: the background work of the leader, and the state that all duties share.
//! - `peer`: the connection to the leader.
//! - `feed`: follows the leader as a standby. Makes no vendor calls.

mod duties;
mod election;
mod feed;
mod peer;
mod work;

pub(crate) use self::{
    election::Election,
    work::{Work, end_health_watches},
};
