//! TLS for pages: where the certificate is from, and how it is replaced while the process runs.
//!
//! Callers are not asked who they are: whoever reaches the port may read, as over plain HTTP.

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

/// The name of the pair in a directory. Source: kube's cloud controller manager, `--cert-dir`.
const PAIR: &str = "cloud-controller-manager";

/// Where the certificate is from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Certificate {
    /// Somebody keeps these fresh. PEM, the leaf first; they are looked at again at each connection.
    Files {
        /// The certificate, with those that lead to its root.
        certificate: PathBuf,
        /// Its key.
        key: PathBuf,
    },
    /// `cloud-controller-manager.crt` and `.key` in this directory; where neither is there, they are made and signed by themselves.
    Directory(PathBuf),
    /// Made now, signed by itself, and kept in memory.
    Own,
}

/// The oldest version that is spoken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// 1.2.
    Tls12,
    /// 1.3.
    Tls13,
}

/// Why there is no TLS.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read or written.
    #[error("{path}: {source}", path = .path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It is no PEM, or holds something else.
    #[error("{path}: {why}", path = .path.display())]
    Content {
        /// Which.
        path: PathBuf,
        /// Why. Nothing of what the file holds.
        why: String,
    },
    /// The two do not belong together, or the library does not take them.
    #[error("certificate and key cannot be used: {0}")]
    Pair(rustls::Error),
    /// No certificate could be made.
    #[error("no certificate can be made: {0}")]
    Make(#[from] rcgen::Error),
}

/// TLS of a port.
pub struct Tls {
    /// `None`: what is in memory stays.
    files: Option<(PathBuf, PathBuf)>,
    minimum: Version,
    current: Mutex<Current>,
}

struct Current {
    /// What the files held that `config` is from.
    content: Option<Content>,
    config: Arc<ServerConfig>,
    /// What is wrong with what the files hold now: each trouble is told once.
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
    /// Reads or makes the certificate. `names`: what one that is made is for.
    ///
    /// # Errors
    /// What cannot be used.
    pub fn start(certificate: Certificate, minimum: Version, names: &[String]) -> Result<Self, TlsError> {
        let files = match certificate {
            Certificate::Files { certificate, key } => Some((certificate, key)),
            Certificate::Directory(directory) => Some(pair_in(&directory, names)?),
            Certificate::Own => None,
        };
        let (content, config) = match &files {
            Some((certificate, key)) => {
                let content = (read(certificate)?, read(key)?);
                let config = from_files(&content, (certificate, key), minimum)?;
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

    /// Shakes hands with who has connected, with the certificate as it is now.
    pub(crate) async fn accept(&self, stream: TcpStream) -> io::Result<TlsStream<TcpStream>> {
        TlsAcceptor::from(self.config()).accept(stream).await
    }

    /// As the files say now. What cannot be used leaves in force what was good before.
    ///
    /// The files are small and local: they are read where they are needed, once a connection.
    fn config(&self) -> Arc<ServerConfig> {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(files) = &self.files else { return Arc::clone(&current.config) };
        match self.fresh(files, current.content.as_ref()) {
            Ok(fresh) => {
                current.trouble = None;
                if let Some((content, config)) = fresh {
                    info!(certificate = %files.0.display(), "The pages have a new certificate");
                    (current.content, current.config) = (Some(content), config);
                }
            }
            Err(error) => {
                let trouble = error.to_string();
                if current.trouble.as_ref() != Some(&trouble) {
                    warn!(error = trouble, "The pages keep their certificate: the new one cannot be used");
                    current.trouble = Some(trouble);
                }
            }
        }
        Arc::clone(&current.config)
    }

    /// What the files hold, if that is something else than before.
    fn fresh(
        &self,
        (certificate, key): &(PathBuf, PathBuf),
        before: Option<&Content>,
    ) -> Result<Option<(Content, Arc<ServerConfig>)>, TlsError> {
        let content = (read(certificate)?, read(key)?);
        if before == Some(&content) {
            return Ok(None);
        }
        let config = from_files(&content, (certificate, key), self.minimum)?;
        Ok(Some((content, config)))
    }
}

fn read(path: &Path) -> Result<Vec<u8>, TlsError> {
    fs::read(path).map_err(|source| TlsError::File { path: path.to_owned(), source })
}

fn from_files(
    (certificate, key): &Content,
    (certificate_path, key_path): (&Path, &Path),
    minimum: Version,
) -> Result<Arc<ServerConfig>, TlsError> {
    let wrong = |path: &Path, why: String| TlsError::Content { path: path.to_owned(), why };
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(certificate).collect();
    let chain = chain.map_err(|error| wrong(certificate_path, error.to_string()))?;
    if chain.is_empty() {
        return Err(wrong(certificate_path, "there is no certificate in it: use PEM".to_owned()));
    }
    // The parser's errors name the section, never the content.
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

/// The pair of a directory, which is made where neither part is there.
fn pair_in(directory: &Path, names: &[String]) -> Result<(PathBuf, PathBuf), TlsError> {
    let [certificate, key] = ["crt", "key"].map(|end| directory.join(format!("{PAIR}.{end}")));
    if !certificate.exists() && !key.exists() {
        let made = rcgen::generate_simple_self_signed(names)?;
        write(directory, || fs::create_dir_all(directory))?;
        // The key first: a certificate without one would be taken for a mistake of somebody else's.
        write(&key, || secret(&key, &made.signing_key.serialize_pem()))?;
        write(&certificate, || fs::write(&certificate, made.cert.pem()))?;
    }
    Ok((certificate, key))
}

fn write(path: &Path, act: impl FnOnce() -> io::Result<()>) -> Result<(), TlsError> {
    act().map_err(|source| TlsError::File { path: path.to_owned(), source })
}

/// A file that only we may read.
fn secret(path: &Path, text: &str) -> io::Result<()> {
    let file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    file?.write_all(text.as_bytes())
}
