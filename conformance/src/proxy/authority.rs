//! The proxy's CA. It issues a certificate for each host that an adapter connects to.

use std::{
    collections::BTreeMap,
    fmt, fs,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use rustls::{
    ServerConfig,
    crypto::aws_lc_rs,
    pki_types::{CertificateDer, PrivateKeyDer},
};

/// Issues certificates.
pub(super) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    made: Mutex<BTreeMap<String, Arc<ServerConfig>>>,
}

impl fmt::Debug for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Authority").finish_non_exhaustive()
    }
}

/// Why a CA cannot be used.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages describe the variants")]
pub enum AuthorityError {
    #[error("{path}")]
    File { path: PathBuf, source: std::io::Error },
    #[error(
        "{path}: not a CA certificate with its key beside it; remove both files to have new ones created"
    )]
    Content { path: PathBuf, source: rcgen::Error },
}

impl Authority {
    /// Reads the CA from a file, and its key from the file with the extension `.key`. Creates both if the file does not exist.
    pub(super) fn open(path: &Path) -> Result<Self, AuthorityError> {
        let key_path = path.with_extension("key");
        let file = |path: &Path| {
            let path = path.to_owned();
            |source| AuthorityError::File { path, source }
        };
        if !path.exists() {
            let (certificate, key) = make().map_err(|source| content(path, source))?;
            fs::write(&key_path, key).map_err(file(&key_path))?;
            fs::write(path, certificate).map_err(file(path))?;
        }
        let certificate = fs::read_to_string(path).map_err(file(path))?;
        let key = fs::read_to_string(&key_path).map_err(file(&key_path))?;
        let issuer = KeyPair::from_pem(&key)
            .and_then(|key| Issuer::from_ca_cert_pem(&certificate, key))
            .map_err(|source| content(path, source))?;
        Ok(Self { issuer, made: Mutex::default() })
    }

    /// The TLS settings for this host. `None`: no certificate can have that name.
    pub(super) fn server(&self, host: &str) -> Option<Arc<ServerConfig>> {
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(config) = made.get(host) {
            return Some(Arc::clone(config));
        }
        let config = Arc::new(self.issue(host)?);
        made.insert(host.to_owned(), Arc::clone(&config));
        Some(config)
    }

    fn issue(&self, host: &str) -> Option<ServerConfig> {
        let key = KeyPair::generate().ok()?;
        let mut params = CertificateParams::new([host.to_owned()]).ok()?;
        params.distinguished_name.push(DnType::CommonName, "adapter-conformance");
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.use_authority_key_identifier_extension = true;
        let certificate = params.signed_by(&key, &self.issuer).ok()?;
        let chain = vec![CertificateDer::from(certificate.der().to_vec())];
        let key = PrivateKeyDer::try_from(key.serialize_der()).ok()?;
        let builder = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()));
        let builder = builder.with_safe_default_protocol_versions().ok()?.with_no_client_auth();
        let mut config = builder.with_single_cert(chain, key).ok()?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Some(config)
    }
}

fn content(path: &Path, source: rcgen::Error) -> AuthorityError {
    AuthorityError::Content { path: path.to_owned(), source }
}

fn make() -> Result<(String, String), rcgen::Error> {
    let key = KeyPair::generate()?;
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params.distinguished_name.push(DnType::CommonName, "adapter-conformance proxy");
    let certificate = params.self_signed(&key)?;
    Ok((certificate.pem(), key.serialize_pem()))
}
