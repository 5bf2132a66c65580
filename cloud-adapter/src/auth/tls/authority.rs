//! Short-lived certificates issued by a long-lived CA, so that no certificate expires unnoticed.

use std::time::{Duration, SystemTime};

use rcgen::{
    CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, Issuer, KeyPair, KeyUsagePurpose,
    PublicKeyData as _,
};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};

use super::{TlsError, certificates, pair, unreadable};

pub(super) const LIFE_HOURS: u64 = 24;
/// Certificates are valid from this long before they are issued, because clients' clocks may be slow.
pub(super) const EARLIER: Duration = Duration::from_mins(10);

pub(super) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    /// CA certificates that are sent with each certificate, for clients that trust a CA further up the chain.
    chain: Vec<CertificateDer<'static>>,
}

impl Authority {
    /// Parses a CA certificate and its key, both PEM.
    pub(super) fn read(certificate: &[u8], key: &[u8], now: SystemTime) -> Result<Self, TlsError> {
        let chain = certificates("the certificate", certificate)?;
        let first = chain.first().ok_or(TlsError::Empty)?;
        let parsed = pair::parsed(first)?;
        pair::in_force(&parsed, now)?;
        if !parsed.is_ca() {
            return Err(TlsError::NoAuthority);
        }
        let key = std::str::from_utf8(key).map_err(|error| unreadable("the key", &error))?;
        let key = KeyPair::from_pem(key).map_err(|error| unreadable("the key", &error))?;
        if parsed.public_key().subject_public_key.data != key.der_bytes() {
            return Err(TlsError::Mismatch);
        }
        let issuer =
            Issuer::from_ca_cert_der(first, key).map_err(|error| unreadable("the certificate", &error))?;
        Ok(Self { issuer, chain })
    }

    /// Issues a certificate with a new key for these names. The certificate is valid from shortly before `now`.
    pub(super) fn issue(
        &self,
        names: &[String],
        now: SystemTime,
    ) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), TlsError> {
        let refused = |error: rcgen::Error| TlsError::Refused(format!("cannot issue a certificate: {error}"));
        let key = KeyPair::generate().map_err(refused)?;
        let mut params = CertificateParams::new(names).map_err(refused)?;
        params.distinguished_name = DistinguishedName::new();
        // The name must differ from the CA's name, because a certificate whose subject equals its issuer counts as self-signed. Source: RFC
        // 5280,
        // 3.2.
        params.distinguished_name.push(DnType::CommonName, "server of the cloud adapter contract");
        params.not_before = (now - EARLIER).into();
        params.not_after = (now + Duration::from_hours(LIFE_HOURS)).into();
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.use_authority_key_identifier_extension = true;
        let leaf = params.signed_by(&key, &self.issuer).map_err(refused)?;
        let chain = [leaf.der().clone()].into_iter().chain(self.chain.iter().cloned()).collect();
        Ok((chain, PrivatePkcs8KeyDer::from(key.serialize_der()).into()))
    }
}
