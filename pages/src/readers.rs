//! Who may read which pages. Pure but for the routes.
//!
//! Metrics and probes are for all callers: they say how a process does. Status pages name objects of all namespaces and repeat words of
//! the cloud, and one of them has work done. They are read through a port-forward of the API server, which asks for a right, and which
//! ends at the loopback address. A connection whose other end is a loopback address was opened on this machine: the answers to a
//! forged one never leave it.

use std::net::IpAddr;

use axum::{Router, extract::Request, http::StatusCode, middleware};

/// What a caller elsewhere is answered.
const REFUSED: &str = "status pages are read on this machine alone: use cloudctl, or kubectl port-forward to the pod of this process, or \
                       start it with --status-pages=all\n";

/// Who may read the status pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Readers {
    /// Callers on the same machine, or in the same pod, as a port-forward is.
    #[default]
    Local,
    /// All callers that reach the port.
    All,
}

/// The pages of a process.
#[derive(Clone, Debug)]
pub struct Pages {
    near: Router,
    far: Router,
}

impl Pages {
    /// `open`: metrics and probes. `status`: the pages for `readers`.
    #[must_use]
    pub fn new(open: Router, status: Router, readers: Readers) -> Self {
        let near = open.clone().merge(status.clone());
        let far = match readers {
            Readers::All => near.clone(),
            Readers::Local => open.merge(status.route_layer(middleware::from_fn(refuse))),
        };
        Self { near, far }
    }

    /// Those for a caller at this address.
    pub(crate) fn of(&self, caller: IpAddr) -> Router {
        let pages = if caller.to_canonical().is_loopback() { &self.near } else { &self.far };
        pages.clone()
    }
}

async fn refuse(_asked: Request, _page: middleware::Next) -> (StatusCode, &'static str) {
    (StatusCode::FORBIDDEN, REFUSED)
}
