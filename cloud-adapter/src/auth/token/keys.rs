//! The keys with which a cluster signs tokens.

use std::{collections::BTreeMap, fmt};

use jsonwebtoken::{
    Algorithm, DecodingKey,
    jwk::{AlgorithmParameters, EllipticCurve, Jwk, JwkSet, KeyAlgorithm, PublicKeyUse},
};

/// Why a key set cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum KeySetError {
    /// The content is not a JWKS.
    #[error("is not a JSON Web Key Set: {0}")]
    Malformed(String),
    /// The set has no key that can verify a token.
    #[error(
        "has no key with a kid for RS256, ES256 or ES384: for other keys, use --authentication token-review"
    )]
    Empty,
}

/// Public keys by ID, and the issuer of their tokens.
#[derive(Clone)]
pub struct KeySet {
    issuer: String,
    keys: BTreeMap<String, Key>,
}

/// A public key and the only algorithm permitted with it.
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
    /// Parses a JWKS. Keys for algorithms other than RS256, ES256 and ES384 are skipped, so tokens signed with such keys are refused.
    /// Source: RFC 7517.
    pub fn parse(issuer: impl Into<String>, jwks: &str) -> Result<Self, KeySetError> {
        // The parser's message may quote the file. The file has only public keys, so this reveals no secrets.
        let set: JwkSet =
            serde_json::from_str(jwks).map_err(|error| KeySetError::Malformed(error.to_string()))?;
        let keys: BTreeMap<String, Key> = set.keys.iter().filter_map(read).collect();
        if keys.is_empty() { Err(KeySetError::Empty) } else { Ok(Self { issuer: issuer.into(), keys }) }
    }

    /// Returns the issuer whose tokens are accepted.
    #[must_use]
    pub fn issuer(&self) -> &str {
        &self.issuer
    }

    /// Returns whether the set contains a key with this ID.
    #[must_use]
    pub fn has(&self, id: &str) -> bool {
        self.keys.contains_key(id)
    }

    pub(super) fn find(&self, id: &str) -> Option<&Key> {
        self.keys.get(id)
    }
}

#[expect(clippy::wildcard_enum_match_arm, reason = "any other kind of key is unsupported")]
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
