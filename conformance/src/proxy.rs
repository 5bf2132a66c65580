//! The proxy between adapter and vendor: counts every call, and disturbs those that a rule names.
//!
//! It acts on HTTP alone and so works for adapters in any language. What it must know of the vendor (which calls list, how an empty
//! page looks) comes from the parameter file.
//!
//! In reading order: `rule` says which calls and what happens to them, `log` what was seen, `forward` takes one call to the vendor,
//! `server` listens, `authority` makes certificates.

mod authority;
mod forward;
mod log;
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
    check::Stop,
    params::{ProxyParams, VendorParams},
};

/// A running proxy. Cloning shares it; it ends with the last clone.
#[derive(Clone, Debug)]
pub struct Proxy {
    shared: Arc<Shared>,
    address: SocketAddr,
    _serving: Arc<JoinSet<()>>,
}

/// What all connections share.
#[derive(Debug)]
struct Shared {
    params: ProxyParams,
    vendor: VendorParams,
    client: reqwest::Client,
    authority: Option<Authority>,
    rules: Mutex<Rules>,
    log: Mutex<Log>,
}

/// Why a proxy does not start.
#[derive(Debug, thiserror::Error)]
pub enum ProxyError {
    /// Its port is taken.
    #[error("proxy.listen {address}: is another run under way?")]
    Listen {
        /// Where.
        address: SocketAddr,
        /// Why.
        source: std::io::Error,
    },
    /// Its CA cannot be used.
    #[error("proxy.caFile")]
    Authority(#[from] AuthorityError),
    /// The vendor's CA cannot be used.
    #[error("proxy.upstreamCaFile {path}")]
    UpstreamCa {
        /// The file.
        path: String,
        /// Why.
        source: anyhow::Error,
    },
    /// TLS is asked for without a CA.
    #[error("proxy.tls: needs caFile, which the adapter must trust")]
    NoCa,
}

impl Proxy {
    /// Listens. Nobody need call yet, and the vendor need not be there.
    ///
    /// # Errors
    /// A port that is taken, files that cannot be used.
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

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Adds a rule. It ends when the answer is dropped.
    #[must_use = "the rule ends when this is dropped"]
    pub fn inject(&self, rule: Rule, action: Action) -> Injection {
        let gate = Gate::default();
        let id = self.shared.rules().add(rule, action, gate.clone());
        Injection { proxy: self.clone(), id, gate }
    }

    /// A point in time, for [`Self::since`].
    #[must_use]
    pub fn mark(&self) -> usize {
        self.shared.log().len()
    }

    /// The calls since then, oldest first, those in flight included.
    #[must_use]
    pub fn since(&self, mark: usize) -> Calls {
        self.shared.log().since(mark)
    }

    /// Whether the parameter file tells how an empty page of this collection looks.
    #[must_use]
    pub fn knows_list(&self, collection: &str) -> bool {
        self.shared.vendor.lists.iter().any(|list| list.collection == collection)
    }

    /// Ends all rules. Held calls go on. Tells whether any acted since the last time.
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

/// A rule in force; it ends when this is dropped, and calls that it holds go on.
#[derive(Debug)]
pub struct Injection {
    proxy: Proxy,
    id: u64,
    gate: Gate,
}

impl Injection {
    /// On how many calls it acted so far.
    #[must_use]
    pub fn fired(&self) -> u64 {
        self.proxy.shared.rules().fired(self.id)
    }

    /// Waits until it acts on a call; for [`Action::HoldBefore`] and [`Action::HoldAfter`], until it holds one.
    ///
    /// # Errors
    /// If it does not within the limit: whatever should have made the call did not.
    pub async fn reached(&self, within: Duration) -> Result<(), Stop> {
        let mut reached = self.gate.reached.subscribe();
        let waited = tokio::time::timeout(within, reached.wait_for(|calls| *calls > 0)).await;
        match waited {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(_)) | Err(_) => {
                let came = format!("none within {} ms", within.as_millis());
                Err(Stop::failed("the adapter makes the vendor call that is to be disturbed", came))
            }
        }
    }

    /// Lets held calls go on, those to come included.
    pub fn release(&self) {
        self.gate.open();
    }
}

impl Drop for Injection {
    fn drop(&mut self) {
        self.proxy.shared.rules().remove(self.id);
    }
}

/// Where calls are held. Cloning shares it.
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

    /// Returns when it is open. The sender lives as long as this does.
    async fn passed(&self) {
        let mut opened = self.opened.subscribe();
        opened.wait_for(|open| *open).await.map(drop).unwrap_or_default();
    }
}
