//! Leader election with one Lease of `coordination.k8s.io`: shows which process leads, in which term, and until when the leader may rely on
//! the lease.
//!
//! - A leader relies on the lease for [`Timing::renew_deadline`] (default: six seconds) after the *start* of its last successful renewal.
//!   Another process takes a held lease only after it has observed the Lease unchanged for [`Timing::duration`] (default: ten seconds).
//!   Each side measures with its own clock, so clocks may differ by any amount as long as they advance. Code that acts as leader checks
//!   `valid_until` itself.
//! - The epoch of a term is the second of its `acquireTime`. It is higher than the epochs of all earlier terms, even if the Lease was
//!   recreated or restored ([`Record::epoch`]).
//! - A process that shuts down releases its lease, and a standby that watches the Lease takes it at once. A Lease that is missing, or was
//!   emptied without a release, is not taken until the lease duration has passed.
//!
//! [`Candidate`] makes the decisions without side effects, and [`Elector`] executes them. The process needs `get`, `watch` and `patch` on
//! one named Lease, and `create` to create a missing Lease. No other client may write the Lease. A client that releases a Lease in the name
//! of a live leader causes two leaders for a moment.
//!
//! [`ShardElector`] does the same for divided work. It has a Lease for each shard, and gives each replica a fair share of the shards. A
//! [`ShardHandle`] for each shard shows what the process may do there.

mod api;
mod candidate;
mod causes;
mod elector;
mod layout;
mod member;
mod record;
mod settings;
mod shard_handle;
mod shards;
mod share;

pub use self::{
    candidate::{Action, Candidate, Lost},
    causes::{causes, without_secrets},
    elector::Elector,
    record::{Acquisition, Record},
    settings::{Settings, SettingsError, Timing},
    shard_handle::{Leadership, ShardHandle, Visit},
    shards::ShardElector,
};
