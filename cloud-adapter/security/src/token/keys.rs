//! The keys that a cluster signs tokens with.

use std::{collections::BTreeMap, fmt};

use jsonwebtoken::{
    Algorithm, DecodingKey,
    jwk::{AlgorithmParameters, EllipticCurve, Jwk, JwkSet, KeyAlgorithm, PublicKeyUse},
};

/// Why a set of keys cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum KeySetError {
    /// Not a JWKS.
    #[error("is no JSON Web Key Set: {0}")]
    Malformed(String),
    /// Nothing in it can verify a token.
    #[error(
        "has no key with a kid for RS256, ES256 or ES384: with keys of other kinds use --authentication token-review"
    )]
    Empty,
}

/// Public keys by ID, and the issuer whose they are.
#[derive(Clone)]
pub struct KeySet {
    issuer: String,
    keys: BTreeMap<String, Key>,
}

/// One public key and the one algorithm that it is good for.
#[derive(Clone)]
pub(super) struct Key {
    pub(super) algorithm: Algorithm,
    pub(super) decoding: DecodingKey,
}

impl fmt::Debug for KeySet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeySet").field("issuer", &self.issuer).field("keys", &self.keys.keys()).finish()
    }
}

impl KeySet {
    /// Reads a JWKS. Keys of other kinds are skipped: nothing is accepted that they signed. Source: RFC 7517.
    ///
    /// # Errors
    /// If it is none, or no key is left.
    pub fn parse(issuer: impl Into<String>, jwks: &str) -> Result<Self, KeySetError> {
        // The parser's text may quote the file, which holds public keys and no secrets.
        let set: JwkSet =
            serde_json::from_str(jwks).map_err(|error| KeySetError::Malformed(error.to_string()))?;
        let keys: BTreeMap<String, Key> = set.keys.iter().filter_map(read).collect();
        if keys.is_empty() { Err(KeySetError::Empty) } else { Ok(Self { issuer: issuer.into(), keys }) }
    }

    /// Whose tokens are accepted.
    #[must_use]
    pub fn issuer(&self) -> &str {
        &self.issuer
    }

    /// Whether there is a key of this ID.
    #[must_use]
    pub fn has(&self, id: &str) -> bool {
        self.keys.contains_key(id)
    }

    pub(super) fn find(&self, id: &str) -> Option<&Key> {
        self.keys.get(id)
    }
}

#[expect(clippy::wildcard_enum_match_arm, reason = "a new kind of key is another kind")]
fn read(jwk: &Jwk) -> Option<(String, Key)> {
    if !matches!(jwk.common.public_key_use, None | Some(PublicKeyUse::Signature)) {
        return None;
    }
    let (algorithm, named) = match &jwk.algorithm {
        AlgorithmParameters::RSA(_) => (Algorithm::RS256, KeyAlgorithm::RS256),
        AlgorithmParameters::EllipticCurve(key) if key.curve == EllipticCurve::P256 => {
            (Algorithm::ES256, KeyAlgorithm::ES256)
        }
        AlgorithmParameters::EllipticCurve(key) if key.curve == EllipticCurve::P384 => {
            (Algorithm::ES384, KeyAlgorithm::ES384)
        }
        _ => return None,
    };
    if jwk.common.key_algorithm.is_some_and(|algorithm| algorithm != named) {
        return None;
    }
    let decoding = DecodingKey::from_jwk(jwk).ok()?;
    Some((jwk.common.key_id.clone()?, Key { algorithm, decoding }))
}
