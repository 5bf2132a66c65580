//! Leader election over one Lease of `coordination.k8s.io`: who leads, until when it may rely on that, and in which term.
//!
//! - A leader relies on the lease for six seconds after the *start* of its last renewal that succeeded ([`Timing::renew_deadline`]);
//!   nobody takes a held lease that it has not seen unchanged for ten ([`Timing::duration`]). Each side measures with its own clock
//!   alone, so clocks may differ as much as they like as long as they tick: whoever acts as leader checks `valid_until` itself.
//! - Each term has an epoch, the second of `acquireTime`: greater than that of all terms before, also of a Lease that was made anew or
//!   restored ([`Record::epoch`]).
//! - A stop in order gives the lease back, and a standby that watches takes it at once. A Lease that is missing or was emptied without
//!   that is left alone until its duration is over.
//!
//! What it decides is the pure [`Candidate`]; [`Elector`] only carries that out. It needs `get`, `watch` and `patch` on one named Lease,
//! and `create` to make one that is missing. It assumes that nobody else writes the record: who gives a Lease back in the name of a
//! leader that lives makes two for a moment.
//!
//! [`ShardElector`] does the same for work that is divided: a Lease for each shard, fair shares of them for each replica, and a
//! [`Seat`] for each shard by which a process knows what it may do there.

mod api;
mod candidate;
mod causes;
mod elector;
mod layout;
mod member;
mod record;
mod seat;
mod settings;
mod shards;
mod share;

pub use self::{
    candidate::{Acquisition, Candidate, Lost, Step},
    causes::{causes, without_secrets},
    elector::{Elector, Leadership},
    record::Record,
    seat::{Seat, Visit},
    settings::{Settings, SettingsError, Timing},
    shards::ShardElector,
};
