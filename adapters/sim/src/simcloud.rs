//! A small cloud with the difficulties of a real cloud: changes take time, limits apply, and responses get lost.
//!
//! In reading order:
//! - [`model`] and [`requests`]: the JSON of the API; [`error`]: how a call is refused;
//! - `operation`: the table of all operations, used for routing, counts and limits;
//! - `tokens`: authentication;
//! - `table`: rows that reads show only after the consistency lag; `instances`, `load_balancers`, `routes`: the objects;
//! - [`settings`], `limiter`, [`faults`]: configurable latency, limits and faults; [`counts`]: statistics of requests;
//! - [`Cloud`]: combines these modules into one deterministic value without I/O, which gets the time as an argument; [`call`]: one call and
//!   its response;
//! - [`serve`]: the HTTP server.
//!
//! Intentionally missing: persistence (the state is lost when the process ends), TLS, and any randomness that does not come from a seed.

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

/// A point in time: the duration since the cloud was started.
pub type Moment = std::time::Duration;
