//! Who may talk to a cloud adapter: TLS, identities, and what each identity may do.
//!
//! All cryptography and all parsing of tokens is left to well-known crates; what is here decides what is asked of them.
//!
//! In reading order: `caller`, `identity` and `rules` say who may do what; `token`, `jwks`, `api_server`, `bearer` and `spiffe`
//! find out who calls; `tls` and [`reload`] keep certificates fresh; `gate` decides on a request, and `guard` stands before the
//! services and asks it; `port` takes connections and bounds what they may cost.

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
pub mod reload;
pub mod rules;
mod spiffe;
#[cfg(any(test, feature = "testing"))]
#[expect(clippy::expect_used, clippy::missing_panics_doc, reason = "what fails here fails a test")]
pub mod testing;
mod tls;
mod token;

pub use self::{
    api_server::{ApiServer, ApiServerError, Discovered, configuration},
    bearer::Bearers,
    body::{Bounded, Room},
    caller::{Caller, Role},
    connection::Times,
    gate::{Authentication, Gate},
    guard::Guard,
    identity::{Identities, Identity, ServiceAccount},
    jwks::{KeySource, Keys},
    metrics::Metrics,
    port::{Address, Port, Terms},
    refusals::Refusals,
    tls::{Occasion, ServerIdentity, Tls, TlsError, TlsFiles},
    token::{KeySet, KeySetError, TokenError, Verified},
};
