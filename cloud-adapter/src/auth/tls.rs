//! TLS of the server, version 1.3 only. Certificates are replaced without closing connections.

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

/// Age at which issued certificates are replaced: half their lifetime. The wall clock measures the age. The monotonic clock does not
/// advance while the host is suspended, and does not follow changes of the wall clock.
const RENEW: Duration = Duration::from_hours(authority::LIFE_HOURS / 2);
/// Interval between checks of the certificate's age, and between retries.
const CHECK_EVERY: Duration = Duration::from_mins(1);

/// Source of the server's certificate and key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerIdentity {
    /// Short-lived certificates, issued in memory with a mounted CA key.
    Authority {
        /// PEM file of the CA. The first certificate is the issuer; all certificates are sent to clients.
        certificate: PathBuf,
        /// PEM file of the CA's key.
        key: PathBuf,
        /// The DNS names and IP addresses in the certificates, as clients expect them.
        names: Vec<String>,
    },
    /// A mounted certificate that another process renews.
    Pair {
        /// PEM file of the certificates, the leaf first.
        certificate: PathBuf,
        /// PEM file of the key.
        key: PathBuf,
    },
}

/// The files that TLS needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// The files of the server's certificate.
    pub identity: ServerIdentity,
    /// PEM file of the CA of client certificates. `None`: clients need no certificate.
    pub client_ca: Option<PathBuf>,
}

/// Why a certificate is replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Occasion {
    /// The contents of a certificate or key file changed.
    Changed,
    /// The issued certificate is due for renewal. The renewal uses the CA files that were last applied, which may differ from those on
    /// disk.
    Due,
}

/// Why the certificate and key files cannot be used for TLS.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// The content is not PEM, or not of the expected kind.
    #[error("cannot read {what}: {why}")]
    Unreadable {
        /// The name of the faulty item, such as "the key".
        what: &'static str,
        /// The cause of the error.
        why: String,
    },
    /// The file contains no certificate.
    #[error("the file contains no certificate")]
    Empty,
    /// The certificate is a leaf certificate, which cannot issue certificates.
    #[error("the certificate is not a CA certificate")]
    NoAuthority,
    /// The key does not match the certificate.
    #[error("the key does not belong to the certificate")]
    Mismatch,
    /// The certificate has expired.
    #[error("the certificate expired on {0}")]
    Expired(String),
    /// The TLS library refused the certificate or the key.
    #[error("{0}")]
    Refused(String),
}

type Parse = Box<dyn Fn(&[Vec<u8>]) -> Result<Source, TlsError> + Send + Sync>;

/// The current TLS configuration and its renewal.
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
    /// Reads the certificate and key files. `wall` returns the wall-clock time, to which the validity of certificates refers.
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

    /// Returns the configuration for new connections, and its later updates.
    #[must_use]
    pub fn current(&self) -> watch::Receiver<Arc<ServerConfig>> {
        self.config.subscribe()
    }

    /// Reads the certificate and key files periodically, and renews issued certificates. Never returns. Calls `report` for every new
    /// certificate, and with the reason for every change that cannot be used.
    pub async fn run(self, every: Duration, report: impl Fn(Occasion, Result<(), String>)) {
        let Self { follow, config, wall } = self;
        let mut sources = follow.current();
        let renew = async {
            let mut issued = sources.borrow().read_at;
            loop {
                let changed = tokio::time::timeout(CHECK_EVERY, sources.changed()).await.is_ok();
                let source = Arc::clone(&sources.borrow_and_update());
                if !changed && !source.is_due(issued, wall()) {
                    continue;
                }
                let occasion = if changed { Occasion::Changed } else { Occasion::Due };
                match if changed { Ok(Arc::clone(&source.first)) } else { source.config(wall()) } {
                    Ok(fresh) => {
                        issued = if changed { source.read_at } else { wall() };
                        config.send_replace(fresh);
                        report(occasion, Ok(()));
                    }
                    Err(error) => report(occasion, Err(error.to_string())),
                }
            }
        };
        let refused = |result: Result<&Source, &ReloadError<TlsError>>| {
            if let Err(error) = result {
                report(Occasion::Changed, Err(error.to_string()));
            }
        };
        tokio::join!(follow.run(every, refused), renew);
    }
}

/// The validated files and the first configuration made from these files. The validation ensures that unusable files are never applied.
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
    /// Parses the certificate, its key and, if present, the CA of clients. If `names` is given, the certificate is a CA certificate that
    /// issues the server's certificates.
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

    /// Returns whether a certificate issued at `issued` must be replaced. It must be replaced at half its lifetime, or if the clock was set
    /// back to a time before the certificate is valid.
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
    // Sessions are not resumed, because a resumed session would keep the earlier client certificate without checking it again.
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(Arc::new(config))
}

fn verifier(pem: &[u8]) -> Result<Arc<dyn ClientCertVerifier>, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates("the client CA", pem)? {
        roots.add(certificate).map_err(|error| unreadable("the client CA", &error))?;
    }
    // The handshake accepts clients without a certificate, because only a gRPC response, not a failed handshake, can contain the reason of
    // a refusal.
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
