//! A small cloud with the nuisances of a real one: things take time, limits are met, answers get lost.
//!
//! In reading order:
//! - [`model`] and [`requests`]: the JSON that goes over the wire; [`error`]: how a call is refused;
//! - `operation`: the table of all operations, which routing, counting and limits share;
//! - `tokens`: who may come in;
//! - `table`: rows that readers see only after the consistency lag; `instances`, `load_balancers`, `routes`: what there is;
//! - [`settings`], `limiter`, [`faults`]: the nuisances, which the admin API sets; [`counts`]: what was asked of the cloud;
//! - [`Cloud`]: all of it as one deterministic value without I/O, which is told the time; [`call`]: one call and its answer;
//! - [`serve`]: the same over HTTP.
//!
//! Deliberately absent: storage (a cloud lives as long as its process), TLS, and chance other than from a seed.

mod admin;
pub mod call;
mod cloud;
pub mod counts;
pub mod error;
pub mod faults;
mod http;
mod instances;
mod limiter;
mod load_balancers;
pub mod model;
mod operation;
mod perform;
mod quota;
pub mod requests;
mod routes;
mod server;
pub mod settings;
mod shared;
mod table;
#[cfg(test)]
mod testing;
mod tokens;

pub use self::cloud::Cloud;
pub use self::operation::{Access, Family, Operation};
pub use self::server::serve;
pub use self::shared::SharedCloud;

/// A point in time as the cloud knows it: how long it has been switched on.
pub type Moment = std::time::Duration;
