//! Short-lived certificates out of a long-lived authority, so that nothing expires unattended.

use std::time::{Duration, SystemTime};

use rcgen::{
    CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, Issuer, KeyPair, KeyUsagePurpose,
    PublicKeyData as _,
};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};

use super::{TlsError, certificates, pair, unreadable};

/// How long a certificate is good.
pub(super) const LIFE_HOURS: u64 = 24;
/// It begins this much before it is issued: clients' clocks may be behind.
pub(super) const EARLIER: Duration = Duration::from_mins(10);

/// Who issues our certificates.
pub(super) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    /// Sent along, for clients that trust what is above it.
    chain: Vec<CertificateDer<'static>>,
}

impl Authority {
    /// Reads a certificate with its key, both PEM.
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

    /// A new key and its certificate for these names, good from a little before `now`.
    pub(super) fn issue(
        &self,
        names: &[String],
        now: SystemTime,
    ) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), TlsError> {
        let refused =
            |error: rcgen::Error| TlsError::Refused(format!("no certificate can be issued: {error}"));
        let key = KeyPair::generate().map_err(refused)?;
        let mut params = CertificateParams::new(names).map_err(refused)?;
        params.distinguished_name = DistinguishedName::new();
        // Never the authority's own name: a certificate whose subject is its issuer counts as self-signed. Source: RFC 5280, 3.2.
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
