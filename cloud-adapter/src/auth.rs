//! Access control: TLS, identities, and the permissions of each identity.
//!
//! Well-known crates do all cryptography and token parsing; this module decides what they must check.
//!
//! Modules in reading order: `caller`, `identity` and `rules` define roles and permissions; `token`, `jwks`, `api_server`, `bearer` and
//! `spiffe` authenticate callers; `tls` keeps certificates current; `gate` decides whether to admit a request, and `guard`
//! calls `gate` in front of the services; `port` accepts connections and limits their cost.

mod api_server;
mod bearer;
mod body;
mod caller;
mod connection;
mod gate;
mod guard;
mod identity;
mod jwks;
mod metrics;
mod port;
mod refusals;
pub mod rules;
mod secret_name;
mod spiffe;
mod tls;
mod token;

pub use self::{
    api_server::{ApiServer, ApiServerError, Discovered, configuration},
    bearer::Bearers,
    body::{BodyMemory, Bounded},
    caller::{Caller, Role},
    connection::Times,
    gate::{Authentication, Gate},
    guard::Guard,
    identity::{Identities, Identity, ServiceAccount},
    jwks::{KeySource, Keys},
    metrics::Metrics,
    port::{Address, Port, Terms},
    refusals::Refusals,
    secret_name::SecretName,
    tls::{Occasion, ServerIdentity, Tls, TlsError, TlsFiles},
    token::{KeySet, KeySetError, TokenError, Verified},
};
