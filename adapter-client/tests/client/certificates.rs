//! Temporary CAs and certificates that they issue.

use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use rustls::{
    RootCertStore, ServerConfig,
    crypto::aws_lc_rs,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
    server::{ClientHello, ResolvesServerCert, WebPkiClientVerifier},
    sign::CertifiedKey,
};

pub(crate) struct Authority(CertifiedIssuer<'static, KeyPair>);

pub(crate) struct Pair {
    pub(crate) certificate: String,
    pub(crate) key: String,
}

impl Authority {
    pub(crate) fn new(name: &str) -> Self {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    pub(crate) fn pem(&self) -> String {
        self.0.pem()
    }

    pub(crate) fn sign(&self, name: &str) -> Pair {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        let certificate = params.signed_by(&key, &self.0).unwrap().pem();
        Pair { certificate, key: key.serialize_pem() }
    }

    /// Configures a server with a certificate of this CA for `name`.
    pub(crate) fn server(&self, name: &str) -> ServerConfig {
        let pair = self.sign(name).der();
        let mut config = builder().with_no_client_auth().with_single_cert(vec![pair.0], pair.1).unwrap();
        config.alpn_protocols = vec![b"h2".to_vec()];
        config
    }

    /// Like [`Self::server`], but requires a client certificate of this CA.
    pub(crate) fn strict_server(&self, name: &str) -> ServerConfig {
        let mut roots = RootCertStore::empty();
        roots.add(self.0.der().clone()).unwrap();
        let provider = Arc::new(aws_lc_rs::default_provider());
        let verifier =
            WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build().unwrap();
        let pair = self.sign(name).der();
        let config = builder().with_client_cert_verifier(verifier).with_single_cert(vec![pair.0], pair.1);
        let mut config = config.unwrap();
        config.alpn_protocols = vec![b"h2".to_vec()];
        config
    }
}

impl Pair {
    fn der(&self) -> (CertificateDer<'static>, PrivateKeyDer<'static>) {
        let certificate = CertificateDer::from_pem_slice(self.certificate.as_bytes()).unwrap();
        (certificate, PrivateKeyDer::from_pem_slice(self.key.as_bytes()).unwrap())
    }
}

fn builder() -> rustls::ConfigBuilder<ServerConfig, rustls::WantsVerifier> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap()
}

/// A certificate that changes while the server runs. New connections get the latest one.
#[derive(Debug)]
pub(crate) struct Changing(std::sync::Mutex<Arc<CertifiedKey>>);

impl Changing {
    pub(crate) fn new(pair: &Pair) -> Arc<Self> {
        Arc::new(Self(std::sync::Mutex::new(certified(pair))))
    }

    pub(crate) fn show(&self, pair: &Pair) {
        *self.0.lock().unwrap() = certified(pair);
    }

    pub(crate) fn server(self: &Arc<Self>) -> ServerConfig {
        let mut config = builder().with_no_client_auth().with_cert_resolver(Arc::clone(self) as _);
        // Session tickets are off, because the server does not send the certificate again when a session is resumed.
        config.send_tls13_tickets = 0;
        config.alpn_protocols = vec![b"h2".to_vec()];
        config
    }
}

impl ResolvesServerCert for Changing {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0.lock().unwrap()))
    }
}

fn certified(pair: &Pair) -> Arc<CertifiedKey> {
    let (certificate, key) = pair.der();
    let key = aws_lc_rs::sign::any_supported_type(&key).unwrap();
    Arc::new(CertifiedKey::new(vec![certificate], key))
}
