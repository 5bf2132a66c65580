//! Helpers that most drivers need for an HTTP API with JSON: names and digests, provider IDs, requests, answers, and the parts of a plan.
//!
//! No driver has to use these helpers, because the traits of [`driver`](crate::driver) are the whole interface.

mod address;
mod name;
mod part;
mod provider_id;
mod request;
mod response;
#[cfg(feature = "testing")]
pub mod testing;

pub use self::{
    address::add_address,
    name::{balancer_name, digest, is_outdated, key_digest, names_of},
    part::{Part, created},
    provider_id::{Region, is_word, locate, provider_id},
    request::{
        RECREATE, bearer, body, built, encode, in_listener, invalid, invalid_parameter, page,
        parameter_field, port_number, request, unsupported, whole_seconds,
    },
    response::{excerpt, fault_of_status, parse, retry_after},
};
