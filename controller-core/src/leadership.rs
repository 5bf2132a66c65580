//! Which shards of the work this process holds, and for how long: Leases, terms and the permission to write.

mod election;
mod shards;
mod term;

pub(crate) use self::election::{Candidate, host};
pub use self::{
    shards::{Holdings, ShardAcquisitions, ShardPass, Shards, Share},
    term::Term,
};
