//! The driver for OpenStack: from the contract's words to Keystone, Nova, Neutron and Octavia and back, and nothing else.
//!
//! It has no policy, waits for nothing, retries nothing but a call whose token was rejected, and keeps no state but where the cloud is,
//! who we are there, and the token. In reading order: [`driver`] hands what the runtime asks to the rooms that know; `identity` has
//! credentials, token and catalogue; `client` has one function a vendor call, `classify` what answers mean; `instances` lists and looks
//! up; `provider_id` and `ownership` have the names by which objects are found again.
//!
//! `routes` lists and changes those of a router.

mod classify;
mod client;
pub mod driver;
mod identity;
mod instances;
mod load_balancers;
mod options;
mod ownership;
mod parameters;
mod plan;
mod provider_id;
mod routes;
mod step;
#[cfg(test)]
mod testing;

pub use self::{driver::OpenStackDriver, options::OpenStackOptions};
