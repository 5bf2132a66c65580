use rustls::pki_types::{CertificateDer, pem::PemObject as _};

use super::*;
use crate::testing::Ca;

#[test]
fn the_one_uri_of_a_certificate_names_the_caller() {
    let ca = Ca::new("mesh");
    let good = "spiffe://example.org/ns/kube-system/sa/cnc";
    for (uris, wanted) in [
        (&[good][..], Ok("system:serviceaccount:kube-system:cnc")),
        (&[], Err("contains 0 URIs")),
        (&[good, "spiffe://example.org/ns/kube-system/sa/csc"], Err("contains 2 URIs")),
        (&["spiffe://evil.net/ns/kube-system/sa/cnc"], Err("spiffe://evil.net/ns/kube-system/sa/cnc")),
        (
            &["spiffe://example.org/workload"],
            Err("expected the form spiffe://example.org/ns/NAMESPACE/sa/NAME"),
        ),
    ] {
        let der = CertificateDer::from_pem_slice(ca.client(uris).certificate.as_bytes()).expect("PEM");
        match (account(&der, "example.org"), wanted) {
            (Ok(found), Ok(wanted)) => assert_eq!(found.to_string(), wanted),
            (Err(found), Err(wanted)) => assert!(found.contains(wanted), "{uris:?}: {found}"),
            (found, wanted) => panic!("{uris:?}: {found:?}, not {wanted:?}"),
        }
    }
    assert!(account(b"nonsense", "example.org").is_err());
}
