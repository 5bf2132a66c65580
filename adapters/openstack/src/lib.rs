//! The driver for OpenStack. It only translates between the adapter API and the APIs of Keystone, Nova, Neutron and Octavia.
//!
//! The driver makes no policy decisions, does not wait, and retries only a call whose token was rejected. It keeps the configuration of the
//! cloud, the credentials, the token, and caches of what listings have read.
//!
//! A reader may start with [`driver`], which passes the runtime's requests to the modules. `identity` manages the credentials, the token
//! and the catalogue. `api` defines the messages of the services, `client` has one function for each vendor call, and `classify` maps
//! answers to faults. `instances` lists and looks up instances. `provider_id` and `ownership` define the names by which objects are
//! recognised later. `load_balancers` lists load balancers, and `plan` computes their changes as the steps in `step`. `routes` lists and
//! changes the routes of a router.

mod api;
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
mod port;
mod provider_id;
mod routes;
mod step;
#[cfg(test)]
mod testing;

pub use self::{driver::OpenStackDriver, options::OpenStackOptions};
