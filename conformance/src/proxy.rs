//! The proxy between adapter and vendor: counts every call, and injects faults into those that match a rule.
//!
//! The proxy depends only on HTTP, so it works with adapters in any language. Vendor-specific facts (the calls that list, and the body of
//! an empty page) come from the parameter file.
//!
//! In reading order: `rule` decides which calls are affected and how, `log` records calls, `forward` sends one call to the vendor,
//! `response` builds the response, `server` listens, `authority` issues certificates.

mod authority;
mod forward;
mod log;
mod response;
mod rule;
mod server;

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{net::TcpListener, sync::watch, task::JoinSet};

use self::{authority::Authority, log::Log, rule::Rules};
pub use self::{
    authority::AuthorityError,
    log::{Call, Calls},
    rule::{Action, Rule},
};
use crate::{
    params::{ProxyParams, VendorParams},
    verdict::{Stop, Verdict},
};

/// A running proxy. Clones share it; it stops when the last clone is dropped.
#[derive(Clone, Debug)]
pub struct Proxy {
    shared: Arc<Shared>,
    address: SocketAddr,
    _serving: Arc<JoinSet<()>>,
}

#[derive(Debug)]
struct Shared {
    params: ProxyParams,
    vendor: VendorParams,
    client: reqwest::Client,
    authority: Option<Authority>,
    rules: Mutex<Rules>,
    log: Mutex<Log>,
}

/// Why a proxy cannot start.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages describe the variants")]
pub enum ProxyError {
    #[error("proxy.listen {address}: cannot listen, is another run in progress?")]
    Listen { address: SocketAddr, source: std::io::Error },
    #[error("proxy.caFile")]
    Authority(#[from] AuthorityError),
    #[error("proxy.upstreamCaFile {path}")]
    UpstreamCa { path: String, source: anyhow::Error },
    #[error("proxy.tls: caFile must be set, and the adapter must trust it")]
    NoCa,
}

impl Proxy {
    /// Listens on the configured address. Neither an adapter nor the vendor needs to be running yet.
    /// Returns an error if the port is in use or a file cannot be used.
    pub async fn start(params: ProxyParams, vendor: VendorParams) -> Result<Self, ProxyError> {
        let authority = params.ca_file.as_deref().map(Authority::open).transpose()?;
        if params.tls && authority.is_none() {
            return Err(ProxyError::NoCa);
        }
        let listen = |source| ProxyError::Listen { address: params.listen, source };
        let listener = TcpListener::bind(params.listen).await.map_err(listen)?;
        let address = listener.local_addr().map_err(listen)?;
        let client = forward::client(params.upstream_ca_file.as_deref())?;
        let (rules, log) = Default::default();
        let shared = Arc::new(Shared { params, vendor, client, authority, rules, log });
        let mut serving = JoinSet::new();
        serving.spawn(server::serve(listener, Arc::clone(&shared)));
        Ok(Self { shared, address, _serving: Arc::new(serving) })
    }

    /// The listen address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Adds a rule, which applies until the returned value is dropped.
    #[must_use = "the rule ends when this is dropped"]
    pub fn inject(&self, rule: Rule, action: Action) -> Injection {
        let gate = Gate::default();
        let id = self.shared.rules().add(rule, action, gate.clone());
        Injection { proxy: self.clone(), id, gate }
    }

    /// Marks the current position in the log of calls, for [`Self::since`].
    pub fn mark(&self) -> usize {
        self.shared.log().len()
    }

    /// The calls since `mark`, oldest first, including those in flight.
    pub fn since(&self, mark: usize) -> Calls {
        self.shared.log().since(mark)
    }

    /// Whether the parameter file defines the empty page of this collection.
    pub fn knows_list(&self, collection: &str) -> bool {
        self.shared.vendor.lists.iter().any(|list| list.collection == collection)
    }

    /// Removes all rules and releases held calls. Returns whether a rule affected a call since the last call of this function.
    pub(crate) fn clear(&self) -> bool {
        self.shared.rules().clear()
    }
}

impl Shared {
    fn rules(&self) -> MutexGuard<'_, Rules> {
        self.rules.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn log(&self) -> MutexGuard<'_, Log> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An active rule. Dropping this value removes the rule and releases the calls that it holds.
#[derive(Debug)]
pub struct Injection {
    proxy: Proxy,
    id: u64,
    gate: Gate,
}

impl Injection {
    /// The number of calls that the rule affected so far.
    pub fn fired(&self) -> u64 {
        self.proxy.shared.rules().fired(self.id)
    }

    /// Asserts that the rule affected a call; otherwise the check would have tested nothing.
    pub fn must_have_fired(&self, wants: &str) -> Verdict {
        if self.fired() > 0 { Ok(()) } else { Err(Stop::failed(wants, "the vendor received no such call")) }
    }

    /// Waits until the rule affects a call or, with [`Action::HoldBefore`] and [`Action::HoldAfter`], holds a call. Returns an error if the
    /// rule affects no call within the limit, which means that the adapter did not make the expected call.
    pub async fn reached(&self, within: Duration) -> Result<(), Stop> {
        let mut reached = self.gate.reached.subscribe();
        let waited = tokio::time::timeout(within, reached.wait_for(|calls| *calls > 0)).await;
        match waited {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(_)) | Err(_) => {
                let came = format!("the adapter made no such call within {} ms", within.as_millis());
                Err(Stop::failed("the adapter makes the vendor call in which the fault is injected", came))
            }
        }
    }

    /// Releases held calls, and holds no later ones.
    pub fn release(&self) {
        self.gate.open();
    }
}

impl Drop for Injection {
    fn drop(&mut self) {
        self.proxy.shared.rules().remove(self.id);
    }
}

/// Holds calls until it is opened. Clones share its state.
#[derive(Clone, Debug)]
struct Gate {
    reached: watch::Sender<u64>,
    opened: watch::Sender<bool>,
}

impl Default for Gate {
    fn default() -> Self {
        Self { reached: watch::Sender::new(0), opened: watch::Sender::new(false) }
    }
}

impl Gate {
    fn reach(&self) {
        self.reached.send_modify(|calls| *calls = calls.saturating_add(1));
    }

    fn open(&self) {
        self.opened.send_replace(true);
    }

    /// Returns when the gate is open. Waiting cannot fail, because this value keeps the sender alive.
    async fn passed(&self) {
        let mut opened = self.opened.subscribe();
        opened.wait_for(|open| *open).await.map(drop).unwrap_or_default();
    }
}
