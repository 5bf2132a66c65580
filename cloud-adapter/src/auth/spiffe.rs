//! Identities in client certificates.

use x509_parser::{extensions::GeneralName, parse_x509_certificate};

use crate::auth::ServiceAccount;

/// Parses the URI of a certificate as a SPIFFE ID; the certificate must contain exactly one URI. The handshake has verified the chain.
/// Source: SPIFFE, "X.509-SVID", section 2.
pub(crate) fn account(der: &[u8], trust_domain: &str) -> Result<ServiceAccount, String> {
    let (_rest, certificate) = parse_x509_certificate(der)
        .map_err(|error| format!("cannot read the client certificate: {error}"))?;
    let names = certificate
        .subject_alternative_name()
        .map_err(|error| format!("cannot read the names in the client certificate: {error}"))?;
    let names = names.map(|names| names.value.general_names.as_slice()).unwrap_or_default();
    let uris: Vec<&str> = names
        .iter()
        .filter_map(|name| if let GeneralName::URI(uri) = name { Some(*uri) } else { None })
        .collect();
    let form = format!("spiffe://{trust_domain}/ns/NAMESPACE/sa/NAME");
    let [uri] = uris.as_slice() else {
        return Err(format!(
            "the client certificate contains {} URIs: expected exactly one, {form}",
            uris.len()
        ));
    };
    ServiceAccount::from_spiffe(uri, trust_domain)
        .ok_or_else(|| format!("the client certificate contains URI {uri}: expected the form {form}"))
}

#[cfg(test)]
mod tests;
