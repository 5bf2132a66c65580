//! Test fixtures that are created for each test: keys and tokens of a cluster, and certificates of a CA.

use std::time::{Duration, SystemTime};

use jsonwebtoken::{Algorithm, EncodingKey, Header, encode, get_current_timestamp, jwk::Jwk};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose, PKCS_ECDSA_P256_SHA256, PKCS_ECDSA_P384_SHA384, PKCS_RSA_SHA256, SanType,
};
use serde_json::{Value, json};

/// The issuer of the cluster's tokens.
pub const ISSUER: &str = "https://kubernetes.default.svc";
/// The audience of the tokens.
pub const AUDIENCE: &str = "cloud-adapter";

/// A key that a cluster signs tokens with.
#[derive(Debug)]
pub struct TokenKey {
    id: String,
    algorithm: Algorithm,
    pem: String,
}

impl TokenKey {
    /// Creates a key for ES256.
    #[must_use]
    pub fn elliptic(id: &str) -> Self {
        Self::new(id, Algorithm::ES256, KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256))
    }

    /// Creates a key for ES384.
    #[must_use]
    pub fn elliptic_384(id: &str) -> Self {
        Self::new(id, Algorithm::ES384, KeyPair::generate_for(&PKCS_ECDSA_P384_SHA384))
    }

    /// Creates a key for RS256.
    #[must_use]
    pub fn rsa(id: &str) -> Self {
        Self::new(id, Algorithm::RS256, KeyPair::generate_for(&PKCS_RSA_SHA256))
    }

    fn new(id: &str, algorithm: Algorithm, pair: Result<KeyPair, rcgen::Error>) -> Self {
        Self { id: id.to_owned(), algorithm, pem: pair.expect("a key").serialize_pem() }
    }

    fn encoding(&self) -> EncodingKey {
        let pem = self.pem.as_bytes();
        let rsa = self.algorithm == Algorithm::RS256;
        let key = if rsa { EncodingKey::from_rsa_pem(pem) } else { EncodingKey::from_ec_pem(pem) };
        key.expect("the key was generated above")
    }

    /// The public key as the API server publishes it.
    #[must_use]
    pub fn jwk(&self) -> Value {
        let mut jwk = Jwk::from_encoding_key(&self.encoding(), self.algorithm).expect("a public half");
        jwk.common.key_id = Some(self.id.clone());
        serde_json::to_value(jwk).expect("JSON")
    }

    /// Signs a token with these claims.
    #[must_use]
    pub fn sign(&self, claims: &Value) -> String {
        let header = Header { kid: Some(self.id.clone()), ..Header::new(self.algorithm) };
        self.sign_as(&header, claims)
    }

    /// Signs a token with these claims and this header.
    #[must_use]
    pub fn sign_as(&self, header: &Header, claims: &Value) -> String {
        encode(header, claims, &self.encoding()).expect("signs")
    }

    /// Creates a valid token of a ServiceAccount.
    #[must_use]
    pub fn token(&self, account: &str) -> String {
        self.sign(&claims(account))
    }
}

/// Returns a JSON Web Key Set with these keys.
#[must_use]
pub fn jwks(keys: &[&TokenKey]) -> String {
    json!({ "keys": keys.iter().map(|key| key.jwk()).collect::<Vec<_>>() }).to_string()
}

/// Returns the claims of a valid token for the ServiceAccount `NAMESPACE:NAME`. The token is valid for ten minutes from now.
#[must_use]
pub fn claims(account: &str) -> Value {
    let now = get_current_timestamp();
    json!({
        "iss": ISSUER,
        "aud": [AUDIENCE],
        "sub": format!("system:serviceaccount:{account}"),
        "iat": now,
        "nbf": now,
        "exp": now + 600,
    })
}

/// A certificate and its key, as PEM.
#[derive(Clone, Debug)]
pub struct Pair {
    /// The leaf certificate.
    pub certificate: String,
    /// The key of the certificate.
    pub key: String,
}

/// A CA that issues certificates for tests.
pub struct Ca {
    issuer: CertifiedIssuer<'static, KeyPair>,
}

impl std::fmt::Debug for Ca {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Ca")
    }
}

impl Ca {
    /// Creates a CA.
    #[must_use]
    pub fn new(name: &str) -> Self {
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        let key = KeyPair::generate().expect("a key");
        Self { issuer: CertifiedIssuer::self_signed(params, key).expect("self-signed") }
    }

    /// The CA's certificate and key.
    #[must_use]
    pub fn pair(&self) -> Pair {
        Pair { certificate: self.issuer.pem(), key: self.issuer.key().serialize_pem() }
    }

    /// Issues a server certificate that is valid until this time.
    #[must_use]
    pub fn server(&self, name: &str, until: SystemTime) -> Pair {
        self.issue(
            SanType::DnsName(name.try_into().expect("a name")),
            ExtendedKeyUsagePurpose::ServerAuth,
            until,
        )
    }

    /// Issues a client certificate that contains these URIs as subject alternative names.
    #[must_use]
    pub fn client(&self, uris: &[&str]) -> Pair {
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        params.subject_alt_names =
            uris.iter().map(|uri| SanType::URI((*uri).try_into().expect("a URI"))).collect();
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        self.sign(&params)
    }

    fn issue(&self, name: SanType, usage: ExtendedKeyUsagePurpose, until: SystemTime) -> Pair {
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        params.subject_alt_names = vec![name];
        params.extended_key_usages = vec![usage];
        params.not_before = (until - Duration::from_hours(24 * 365)).into();
        params.not_after = until.into();
        self.sign(&params)
    }

    fn sign(&self, params: &CertificateParams) -> Pair {
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &self.issuer).expect("signs");
        Pair { certificate: certificate.pem(), key: key.serialize_pem() }
    }
}
