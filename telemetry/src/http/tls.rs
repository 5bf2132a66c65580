//! TLS for pages. Reads or creates the certificate, and renews it while the process runs.
//!
//! Clients are not authenticated. As over plain HTTP, any client that reaches the port may read.

use std::{
    fmt, fs, io,
    io::Write as _,
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use rustls::{
    ServerConfig, SupportedProtocolVersion,
    crypto::aws_lc_rs,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
    version::{TLS12, TLS13},
};
use tokio::net::TcpStream;
use tokio_rustls::{TlsAcceptor, server::TlsStream};
use tracing::{info, warn};

/// File name of the pair in a directory, without its extension. Source: Kubernetes cloud controller manager, `--cert-dir`.
const PAIR: &str = "cloud-controller-manager";

/// Source of the certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Certificate {
    /// Files in PEM format that another process renews, with the leaf certificate first. The files are read again for each connection.
    Files {
        /// The certificate and its intermediate certificates.
        certificate: PathBuf,
        /// The private key.
        key: PathBuf,
    },
    /// `cloud-controller-manager.crt` and `.key` in this directory. If neither file exists, a self-signed pair is created.
    Directory(PathBuf),
    /// A self-signed certificate in memory.
    Own,
}

/// The minimum TLS version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// TLS 1.2.
    Tls12,
    /// TLS 1.3.
    Tls13,
}

/// Why TLS cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read or written.
    #[error("{path}: {source}", path = .path.display())]
    File {
        /// Path of the file.
        path: PathBuf,
        /// The cause of the error.
        source: io::Error,
    },
    /// The file is not PEM, or has the wrong content.
    #[error("{path}: {why}", path = .path.display())]
    Content {
        /// Path of the file.
        path: PathBuf,
        /// The cause of the error, without any contents of the file.
        why: String,
    },
    /// The key does not match the certificate, or the TLS library refuses one of them.
    #[error("cannot use the certificate and its key: {0}")]
    Pair(rustls::Error),
    /// A self-signed certificate cannot be created.
    #[error("cannot create a certificate: {0}")]
    Make(#[from] rcgen::Error),
}

/// TLS settings of one listening port.
pub struct Tls {
    /// The files to reload, or `None` for a certificate in memory, which never changes.
    files: Option<(PathBuf, PathBuf)>,
    minimum: Version,
    current: Mutex<Current>,
}

struct Current {
    /// The contents of the files from which `config` was built.
    content: Option<Content>,
    config: Arc<ServerConfig>,
    /// The error in the current files. Kept so that each error is logged once.
    trouble: Option<String>,
}

/// A certificate and its key, as PEM.
type Content = (Vec<u8>, Vec<u8>);

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls")
            .field("files", &self.files)
            .field("minimum", &self.minimum)
            .finish_non_exhaustive()
    }
}

impl Tls {
    /// Reads or creates the certificate. `names`: the names in a certificate that is created.
    pub fn start(certificate: Certificate, minimum: Version, names: &[String]) -> Result<Self, TlsError> {
        let files = match certificate {
            Certificate::Files { certificate, key } => Some((certificate, key)),
            Certificate::Directory(directory) => Some(pair_in(&directory, names)?),
            Certificate::Own => None,
        };
        let (content, config) = match &files {
            Some((certificate, key)) => {
                let content = (read(certificate)?, read(key)?);
                let config = from_files(&content, certificate, key, minimum)?;
                (Some(content), config)
            }
            None => {
                let made = rcgen::generate_simple_self_signed(names)?;
                let key = PrivateKeyDer::Pkcs8(made.signing_key.serialize_der().into());
                (None, config(vec![made.cert.der().clone()], key, minimum)?)
            }
        };
        Ok(Self { files, minimum, current: Mutex::new(Current { content, config, trouble: None }) })
    }

    pub(crate) async fn accept(&self, stream: TcpStream) -> io::Result<TlsStream<TcpStream>> {
        TlsAcceptor::from(self.config()).accept(stream).await
    }

    /// Returns the configuration from the current files. If they are invalid, the last valid configuration remains in use.
    ///
    /// The files are small and local, so they are read for each connection.
    fn config(&self) -> Arc<ServerConfig> {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(files) = &self.files else { return Arc::clone(&current.config) };
        match self.fresh(files, current.content.as_ref()) {
            Ok(fresh) => {
                current.trouble = None;
                if let Some((content, config)) = fresh {
                    info!(certificate = %files.0.display(), "Using the changed certificate for metrics and probes");
                    (current.content, current.config) = (Some(content), config);
                }
            }
            Err(error) => {
                let trouble = error.to_string();
                if current.trouble.as_ref() != Some(&trouble) {
                    warn!(
                        error = trouble,
                        "Cannot use the changed certificate for metrics and probes; keeping the last valid one"
                    );
                    current.trouble = Some(trouble);
                }
            }
        }
        Arc::clone(&current.config)
    }

    fn fresh(
        &self,
        (certificate, key): &(PathBuf, PathBuf),
        before: Option<&Content>,
    ) -> Result<Option<(Content, Arc<ServerConfig>)>, TlsError> {
        let content = (read(certificate)?, read(key)?);
        if before == Some(&content) {
            return Ok(None);
        }
        let config = from_files(&content, certificate, key, self.minimum)?;
        Ok(Some((content, config)))
    }
}

fn read(path: &Path) -> Result<Vec<u8>, TlsError> {
    fs::read(path).map_err(|source| TlsError::File { path: path.to_owned(), source })
}

fn from_files(
    (certificate, key): &Content,
    certificate_path: &Path,
    key_path: &Path,
    minimum: Version,
) -> Result<Arc<ServerConfig>, TlsError> {
    let wrong = |path: &Path, why: String| TlsError::Content { path: path.to_owned(), why };
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(certificate).collect();
    let chain = chain.map_err(|error| wrong(certificate_path, error.to_string()))?;
    if chain.is_empty() {
        return Err(wrong(certificate_path, "contains no certificate in PEM format".to_owned()));
    }
    // The parser's errors name the PEM section, but never its content.
    let key = PrivateKeyDer::from_pem_slice(key).map_err(|error| wrong(key_path, error.to_string()))?;
    config(chain, key, minimum)
}

fn config(
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
    minimum: Version,
) -> Result<Arc<ServerConfig>, TlsError> {
    let versions: &[&SupportedProtocolVersion] = match minimum {
        Version::Tls12 => &[&TLS13, &TLS12],
        Version::Tls13 => &[&TLS13],
    };
    let builder = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()));
    let builder = builder.with_protocol_versions(versions).map_err(TlsError::Pair)?;
    let mut config = builder.with_no_client_auth().with_single_cert(chain, key).map_err(TlsError::Pair)?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

/// Reads the pair in a directory. If neither file exists, creates both.
fn pair_in(directory: &Path, names: &[String]) -> Result<(PathBuf, PathBuf), TlsError> {
    let [certificate, key] = ["crt", "key"].map(|end| directory.join(format!("{PAIR}.{end}")));
    if !certificate.exists() && !key.exists() {
        let made = rcgen::generate_simple_self_signed(names)?;
        write(directory, || fs::create_dir_all(directory))?;
        // The key is written first, because a certificate without a key would look like an incomplete pair of the user.
        write(&key, || secret(&key, &made.signing_key.serialize_pem()))?;
        write(&certificate, || fs::write(&certificate, made.cert.pem()))?;
    }
    Ok((certificate, key))
}

fn write(path: &Path, act: impl FnOnce() -> io::Result<()>) -> Result<(), TlsError> {
    act().map_err(|source| TlsError::File { path: path.to_owned(), source })
}

/// Creates a file that only this user may read.
fn secret(path: &Path, text: &str) -> io::Result<()> {
    let file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    file?.write_all(text.as_bytes())
}
