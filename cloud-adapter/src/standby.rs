//! Several replicas of the adapter: the leader calls the vendor, and the standbys follow the leader.
//!
//! Modules:
//!
//! - `election`: converts verdicts on the Lease to duties, and limits how long vendor calls may be sent.
//! - `work`: the background work of each duty.
//! - `feed`: follows the leader as a standby. Makes no vendor calls.

mod election;
mod feed;
mod work;

pub(crate) use self::{
    election::Election,
    work::{Work, end_health_watches},
};
