//! The server's side of TLS: version 1.3 alone, certificates that are replaced while connections stay.

mod authority;
mod pair;

use std::{
    fmt,
    path::PathBuf,
    sync::Arc,
    time::{Duration, SystemTime},
};

use rustls::{
    RootCertStore, ServerConfig,
    crypto::aws_lc_rs,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
    server::{NoServerSessionStorage, WebPkiClientVerifier, danger::ClientCertVerifier},
    version::TLS13,
};
use tokio::sync::watch;

use self::authority::Authority;
use crate::reload::{Follow, ReloadError};

/// Certificates that are issued here are replaced at half their life, as the wall clock counts it: while a machine is suspended,
/// and after its clock was set, the monotonic one says nothing of them.
const RENEW: Duration = Duration::from_hours(authority::LIFE_HOURS / 2);
/// How often that is looked at, and tried again.
const LOOK: Duration = Duration::from_mins(1);

/// Where the server's identity comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerIdentity {
    /// Short-lived certificates, issued here in memory by an authority whose key is mounted.
    Authority {
        /// PEM; the first certificate issues, all are sent along.
        certificate: PathBuf,
        /// PEM.
        key: PathBuf,
        /// The DNS names and addresses that clients expect.
        names: Vec<String>,
    },
    /// A certificate that somebody else keeps fresh.
    Pair {
        /// PEM; the leaf first.
        certificate: PathBuf,
        /// PEM.
        key: PathBuf,
    },
}

/// The files that TLS needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// Who we are.
    pub identity: ServerIdentity,
    /// PEM: whose certificates callers must have. `None`: callers need none.
    pub client_ca: Option<PathBuf>,
}

/// Why there is a new certificate, or should be one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Occasion {
    /// The files changed.
    Changed,
    /// What was issued here grew old. It is of the files in force, which may not be those that are there now.
    Due,
}

/// Why files cannot be used for TLS.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// Not PEM, or not what is expected in it.
    #[error("{what} cannot be read: {why}")]
    Unreadable {
        /// Which of them.
        what: &'static str,
        /// Why.
        why: String,
    },
    /// Nothing in the file.
    #[error("there is no certificate in it")]
    Empty,
    /// A leaf, which may not issue anything.
    #[error("the certificate is not that of an authority (CA)")]
    NoAuthority,
    /// Of two different pairs.
    #[error("the key does not belong to the certificate")]
    Mismatch,
    /// Its time is over.
    #[error("the certificate expired on {0}")]
    Expired(String),
    /// The library refused.
    #[error("{0}")]
    Refused(String),
}

type Parse = Box<dyn Fn(&[Vec<u8>]) -> Result<Source, TlsError> + Send + Sync>;

/// TLS as it is now, and what keeps it fresh.
pub struct Tls {
    follow: Follow<Source, Parse>,
    config: watch::Sender<Arc<ServerConfig>>,
    wall: fn() -> SystemTime,
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls").field("follow", &self.follow).finish_non_exhaustive()
    }
}

impl Tls {
    /// Reads the files. `wall` tells the wall-clock time, which certificates are about.
    ///
    /// # Errors
    /// If they cannot be used: names them.
    pub fn start(files: TlsFiles, wall: fn() -> SystemTime) -> Result<Self, ReloadError<TlsError>> {
        let TlsFiles { identity, client_ca } = files;
        let (certificate, key, names) = match identity {
            ServerIdentity::Authority { certificate, key, names } => (certificate, key, Some(names)),
            ServerIdentity::Pair { certificate, key } => (certificate, key, None),
        };
        let paths = [certificate, key].into_iter().chain(client_ca);
        let parse: Parse = Box::new(move |contents| Source::read(contents, names.as_deref(), wall()));
        let follow = Follow::start(paths, parse)?;
        let first = follow.current().borrow().first.clone();
        Ok(Self { follow, config: watch::Sender::new(first), wall })
    }

    /// What new connections use, now and from now on.
    #[must_use]
    pub fn current(&self) -> watch::Receiver<Arc<ServerConfig>> {
        self.config.subscribe()
    }

    /// Looks at the files again and again, and renews what is issued here; never ends. `told` hears of every new certificate, and of
    /// what is not taken over and why.
    pub async fn run(self, every: Duration, told: impl Fn(Occasion, Result<(), String>)) {
        let Self { follow, config, wall } = self;
        let mut sources = follow.current();
        let renew = async {
            let mut issued = sources.borrow().read_at;
            loop {
                let changed = tokio::time::timeout(LOOK, sources.changed()).await.is_ok();
                let source = Arc::clone(&sources.borrow_and_update());
                if !changed && !source.is_due(issued, wall()) {
                    continue;
                }
                let occasion = if changed { Occasion::Changed } else { Occasion::Due };
                match if changed { Ok(Arc::clone(&source.first)) } else { source.config(wall()) } {
                    Ok(fresh) => {
                        issued = if changed { source.read_at } else { wall() };
                        config.send_replace(fresh);
                        told(occasion, Ok(()));
                    }
                    Err(error) => told(occasion, Err(error.to_string())),
                }
            }
        };
        let refused = |result: Result<&Source, &ReloadError<TlsError>>| {
            if let Err(error) = result {
                told(Occasion::Changed, Err(error.to_string()));
            }
        };
        tokio::join!(follow.run(every, refused), renew);
    }
}

/// Checked files, with what becomes of them at once: so what cannot be used is never taken over.
struct Source {
    identity: Identity,
    clients: Option<Arc<dyn ClientCertVerifier>>,
    first: Arc<ServerConfig>,
    read_at: SystemTime,
}

enum Identity {
    Authority { authority: Box<Authority>, names: Vec<String> },
    Pair { chain: Vec<CertificateDer<'static>>, key: PrivateKeyDer<'static> },
}

impl Source {
    /// The certificate, its key, and the authority of clients if there is one; with `names`, the certificate is an authority's.
    fn read(contents: &[Vec<u8>], names: Option<&[String]>, now: SystemTime) -> Result<Self, TlsError> {
        let [certificate, key, clients @ ..] = contents else { return Err(TlsError::Empty) };
        let identity = match names {
            Some(names) => Identity::Authority {
                authority: Box::new(Authority::read(certificate, key, now)?),
                names: names.to_vec(),
            },
            None => {
                let (chain, key) = pair::read(certificate, key, now)?;
                Identity::Pair { chain, key }
            }
        };
        let clients = clients.first().map(|pem| verifier(pem)).transpose()?;
        let first = config(&identity, clients.as_ref(), now)?;
        Ok(Self { identity, clients, first, read_at: now })
    }

    /// Whether what was issued then is to be replaced: at half its life, or if the clock was set back to before it began.
    fn is_due(&self, issued: SystemTime, now: SystemTime) -> bool {
        let age = now.duration_since(issued);
        matches!(self.identity, Identity::Authority { .. })
            && age.map_or_else(|back| back.duration() >= authority::EARLIER, |age| age >= RENEW)
    }

    fn config(&self, now: SystemTime) -> Result<Arc<ServerConfig>, TlsError> {
        config(&self.identity, self.clients.as_ref(), now)
    }
}

fn config(
    identity: &Identity,
    clients: Option<&Arc<dyn ClientCertVerifier>>,
    now: SystemTime,
) -> Result<Arc<ServerConfig>, TlsError> {
    let (chain, key) = match identity {
        Identity::Authority { authority, names } => authority.issue(names, now)?,
        Identity::Pair { chain, key } => (chain.clone(), key.clone_key()),
    };
    let refused = |error: rustls::Error| {
        let mismatch = matches!(error, rustls::Error::InconsistentKeys(_));
        if mismatch { TlsError::Mismatch } else { TlsError::Refused(error.to_string()) }
    };
    let builder = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_protocol_versions(&[&TLS13])
        .map_err(refused)?;
    let builder = match clients {
        Some(clients) => builder.with_client_cert_verifier(Arc::clone(clients)),
        None => builder.with_no_client_auth(),
    };
    let mut config = builder.with_single_cert(chain, key).map_err(refused)?;
    config.alpn_protocols = vec![b"h2".to_vec()];
    // A resumed session would carry on with a client certificate that is not looked at again.
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(Arc::new(config))
}

fn verifier(pem: &[u8]) -> Result<Arc<dyn ClientCertVerifier>, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates("the client CA", pem)? {
        roots.add(certificate).map_err(|error| unreadable("the client CA", &error))?;
    }
    // Who shows none is told so by the contract's own error, which a handshake cannot carry.
    WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::new(aws_lc_rs::default_provider()))
        .allow_unauthenticated()
        .build()
        .map_err(|error| TlsError::Refused(error.to_string()))
}

fn certificates(what: &'static str, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    let all = all.map_err(|error| unreadable(what, &error))?;
    if all.is_empty() { Err(TlsError::Empty) } else { Ok(all) }
}

fn unreadable(what: &'static str, why: &dyn fmt::Display) -> TlsError {
    TlsError::Unreadable { what, why: why.to_string() }
}

#[cfg(test)]
mod tests;
