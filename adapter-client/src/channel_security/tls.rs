//! TLS of the client, with trust in a CA file and an optional client certificate.

use std::{
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use rustls::{
    ClientConfig, RootCertStore,
    crypto::aws_lc_rs,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem, pem::PemObject as _},
    version::TLS13,
};
use tokio::net::TcpStream;
use tokio_rustls::{TlsConnector, client::TlsStream};
use tracing::{info, warn};

use super::{Fault, Flags};

#[derive(Debug)]
pub(crate) struct Tls {
    files: Files,
    flags: Flags,
    server_name: ServerName<'static>,
    current: Mutex<Current>,
}

#[derive(Clone, Debug)]
pub(super) struct Files {
    pub(super) ca: PathBuf,
    /// Paths of the certificate and its key.
    pub(super) client: Option<(PathBuf, PathBuf)>,
}

/// The contents of [`Files`]. They include the private key, so this type has no `Debug`.
#[derive(Clone, PartialEq, Eq)]
struct Content {
    ca: Vec<u8>,
    client: Option<(Vec<u8>, Vec<u8>)>,
}

#[derive(Debug)]
struct Current {
    content: Hidden,
    config: Arc<ClientConfig>,
    /// The error in the current contents of the files. `None` if all files are valid.
    trouble: Option<Fault>,
}

struct Hidden(Content);

impl std::fmt::Debug for Hidden {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("..")
    }
}

impl Tls {
    pub(super) fn load(files: Files, server_name: ServerName<'static>, flags: Flags) -> Result<Self, Fault> {
        let content = files.read(&flags)?;
        let config = Arc::new(files.config(&content, &flags)?);
        let current = Current { content: Hidden(content), config, trouble: None };
        Ok(Self { files, flags, server_name, current: Mutex::new(current) })
    }

    /// The name that the server's certificate must carry.
    pub(crate) fn server_name(&self) -> &ServerName<'static> {
        &self.server_name
    }

    /// Performs the handshake, and trusts the CA in the current file.
    pub(crate) async fn connect(&self, stream: TcpStream) -> std::io::Result<TlsStream<TcpStream>> {
        TlsConnector::from(self.config()).connect(self.server_name.clone(), stream).await
    }

    /// Returns the configuration from the current files. If a file is invalid, the last valid contents remain in use.
    ///
    /// The files are small and local, so they are read for each connection.
    fn config(&self) -> Arc<ClientConfig> {
        let read = self.files.read(&self.flags);
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        let fresh = read.and_then(|content| {
            if content == current.content.0 {
                return Ok(None);
            }
            let config = self.files.config(&content, &self.flags)?;
            Ok(Some((content, config)))
        });
        match fresh {
            Ok(fresh) => {
                current.trouble = None;
                if let Some((content, config)) = fresh {
                    info!(file = %self.files.ca.display(), "Using the changed certificates for new \
                    connections to the cloud adapter");
                    (current.content, current.config) = (Hidden(content), Arc::new(config));
                }
            }
            Err(fault) => {
                if current.trouble.as_ref() != Some(&fault) {
                    warn!(error = %fault, "Cannot use the changed certificates for the cloud \
                    adapter; keeping the last valid ones");
                }
                current.trouble = Some(fault);
            }
        }
        Arc::clone(&current.config)
    }
}

impl Files {
    fn read(&self, flags: &Flags) -> Result<Content, Fault> {
        let read = |flag, path: &Path| {
            std::fs::read(path)
                .map_err(|error| Fault::of_file(flag, path, format!("cannot be read: {error}")))
        };
        let ca = read(flags.ca, &self.ca)?;
        let client = match &self.client {
            Some((certificate, key)) => {
                Some((read(flags.client_certificate, certificate)?, read(flags.client_key, key)?))
            }
            None => None,
        };
        Ok(Content { ca, client })
    }

    fn config(&self, content: &Content, flags: &Flags) -> Result<ClientConfig, Fault> {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&TLS13])
            .map_err(|error| Fault::of_file(flags.ca, &self.ca, error.to_string()))?
            .with_root_certificates(self.roots(&content.ca, flags)?);
        let mut config = match (&self.client, &content.client) {
            (Some((path, key_path)), Some((certificate, key))) => {
                let chain = certificates(certificate)
                    .map_err(|reason| Fault::of_file(flags.client_certificate, path, reason))?;
                let key = PrivateKeyDer::from_pem_slice(key).map_err(|_error| {
                    Fault::of_file(flags.client_key, key_path, "contains no private key in PEM format")
                })?;
                builder.with_client_auth_cert(chain, key).map_err(|error| {
                    let reason = format!("does not match {}: {error}", key_path.display());
                    Fault::of_file(flags.client_certificate, path, reason)
                })?
            }
            _ => builder.with_no_client_auth(),
        };
        config.alpn_protocols = vec![b"h2".to_vec()];
        Ok(config)
    }

    fn roots(&self, ca: &[u8], flags: &Flags) -> Result<RootCertStore, Fault> {
        let fault = |reason: String| Fault::of_file(flags.ca, &self.ca, reason);
        let mut roots = RootCertStore::empty();
        for certificate in certificates(ca).map_err(fault)? {
            roots
                .add(certificate)
                .map_err(|error| fault(format!("contains an invalid certificate: {error}")))?;
        }
        Ok(roots)
    }
}

/// Parses the certificates in a PEM file, which must contain at least one.
fn certificates(text: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let found: Result<Vec<_>, pem::Error> = CertificateDer::pem_slice_iter(text).collect();
    match found {
        Ok(found) if !found.is_empty() => Ok(found),
        Ok(_) => Err("contains no certificate in PEM format".to_owned()),
        Err(error) => Err(format!("contains no certificate in PEM format: {error}")),
    }
}
