//! A mounted certificate and its key.

use std::time::{SystemTime, UNIX_EPOCH};

use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _};
use x509_parser::{certificate::X509Certificate, parse_x509_certificate};

use super::{TlsError, certificates, unreadable};

/// rustls checks later that the key matches the certificate.
pub(super) fn read(
    certificate: &[u8],
    key: &[u8],
    now: SystemTime,
) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), TlsError> {
    let chain = certificates("the certificate", certificate)?;
    let leaf = chain.first().ok_or(TlsError::Empty)?;
    in_force(&parsed(leaf)?, now)?;
    // The parser's errors name the PEM section, never the content.
    let key = PrivateKeyDer::from_pem_slice(key).map_err(|error| unreadable("the key", &error))?;
    Ok((chain, key))
}

pub(super) fn parsed<'a>(der: &'a CertificateDer<'_>) -> Result<X509Certificate<'a>, TlsError> {
    let (_rest, certificate) =
        parse_x509_certificate(der).map_err(|error| unreadable("the certificate", &error))?;
    Ok(certificate)
}

/// Refuses an expired certificate, but accepts a certificate that is not valid yet, because clocks differ.
pub(super) fn in_force(certificate: &X509Certificate<'_>, now: SystemTime) -> Result<(), TlsError> {
    let end = certificate.validity().not_after;
    let now = now.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    if u64::try_from(end.timestamp()).unwrap_or_default() < now {
        return Err(TlsError::Expired(end.to_string()));
    }
    Ok(())
}
