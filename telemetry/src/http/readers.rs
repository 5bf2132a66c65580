//! Decides which clients may read which pages. Pure functions, except for the routes.
//!
//! Any client may read metrics and probes, which describe a process. Status pages name objects of all namespaces and repeat messages of the
//! cloud, and one page triggers work. Users read status pages through `kubectl port-forward`, which requires a permission and connects from
//! the loopback address. A connection from the loopback address was opened on this host, because responses to a forged loopback address
//! never leave the host.

use std::net::IpAddr;

use axum::{Router, extract::Request, http::StatusCode, middleware};

/// The response to clients that may not read status pages.
const REFUSED: &str = "status pages can only be read on this host: use cloudctl, or kubectl \
                       port-forward to the pod of this process, or start the process with --status-pages=all\n";

/// Which clients may read the status pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Readers {
    /// Clients on the same host or in the same pod, including port-forwards.
    #[default]
    Local,
    /// All clients that reach the port.
    All,
}

/// The HTTP endpoints of a process.
#[derive(Clone, Debug)]
pub struct Endpoints {
    near: Router,
    far: Router,
}

impl Endpoints {
    /// Combines the endpoints. `open` contains metrics and probes, which any client may read. `status` contains the pages that only
    /// `readers` may read.
    #[must_use]
    pub fn new(open: Router, status: Router, readers: Readers) -> Self {
        let near = open.clone().merge(status.clone());
        let far = match readers {
            Readers::All => near.clone(),
            Readers::Local => open.merge(status.route_layer(middleware::from_fn(refuse))),
        };
        Self { near, far }
    }

    /// Returns the pages that a client at this address may read.
    pub(crate) fn of(&self, caller: IpAddr) -> Router {
        let pages = if caller.to_canonical().is_loopback() { &self.near } else { &self.far };
        pages.clone()
    }
}

async fn refuse(_asked: Request, _page: middleware::Next) -> (StatusCode, &'static str) {
    (StatusCode::FORBIDDEN, REFUSED)
}
