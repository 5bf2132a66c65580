//! Offline verification of ServiceAccount tokens, without calls to the API server.
//!
//! `jsonwebtoken` checks the signature, the times, the issuer and the audience. This module configures `jsonwebtoken`. It also checks that
//! the token has no other audience and that its subject is a ServiceAccount.

mod keys;

use std::time::Duration;

use jsonwebtoken::{Header, Validation, decode, decode_header, errors::ErrorKind, get_current_timestamp};
use serde::Deserialize;

pub use self::keys::{KeySet, KeySetError};
use crate::auth::ServiceAccount;

/// Tolerated difference between the clocks of the API server and the adapter, in seconds.
const LEEWAY: u64 = 10;

/// Why a token is refused. The error contains text from the token only if the signature is valid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// The token does not have the form that Kubernetes issues.
    #[error("is not a signed token with a key ID")]
    Malformed,
    /// The token has an algorithm such as `none`, or an algorithm with a shared secret.
    #[error("is not signed with RS256, ES256 or ES384, as its key requires")]
    Algorithm,
    /// The token was signed by another issuer, or with a key that was removed.
    #[error("is signed with a key that the cluster does not publish")]
    UnknownKey,
    /// The token was modified or forged.
    #[error("has an invalid signature")]
    Signature,
    /// The token has expired.
    #[error("has expired")]
    Expired,
    /// The token is not valid yet.
    #[error("is not valid yet")]
    Early,
    /// The token comes from another cluster.
    #[error("was not issued by {0}")]
    Issuer(String),
    /// The token is for another audience.
    #[error("is not for the audience {0}")]
    Audience(String),
    /// The token has further audiences. Another recipient, such as the API server, would accept this token if this process sent it.
    #[error("has audiences other than {0}: use a projected token with a single audience")]
    Shared(String),
    /// The API server does not accept the token, or no longer accepts it.
    #[error("is not accepted by the API server")]
    Refused,
    /// The token belongs to a user or a node, not to a ServiceAccount.
    #[error("does not belong to a ServiceAccount")]
    Subject,
}

/// A verified token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verified {
    /// The ServiceAccount to which the token belongs.
    pub account: ServiceAccount,
    /// Remaining time for which the token is valid.
    pub lasts: Duration,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Claims {
    sub: String,
    exp: u64,
    aud: Audience,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Audience {
    One(String),
    Many(Vec<String>),
}

impl Claims {
    /// Checks that `audience` is the only audience of the token.
    pub(crate) fn for_us_alone(&self, audience: &str) -> Result<(), TokenError> {
        let all = match &self.aud {
            Audience::One(one) => std::slice::from_ref(one),
            Audience::Many(many) => many,
        };
        if !all.iter().any(|one| one == audience) {
            return Err(TokenError::Audience(audience.to_owned()));
        }
        if all.iter().any(|one| one != audience) {
            return Err(TokenError::Shared(audience.to_owned()));
        }
        Ok(())
    }

    /// Returns the identity that the token proves, provided that all other checks have passed.
    pub(crate) fn verified(&self) -> Result<Verified, TokenError> {
        let account = ServiceAccount::from_subject(&self.sub).ok_or(TokenError::Subject)?;
        Ok(Verified { account, lasts: Duration::from_secs(self.exp.saturating_sub(get_current_timestamp())) })
    }
}

pub(crate) fn key_id(token: &str) -> Result<String, TokenError> {
    let header = decode_header(token).map_err(|error| judge(error.kind(), "", ""))?;
    match header {
        // Critical extensions are not supported, so tokens with such extensions are refused. Source: RFC 7515, section 4.1.11.
        Header { crit: Some(_), .. } => Err(TokenError::Malformed),
        Header { kid, .. } => kid.ok_or(TokenError::Malformed),
    }
}

pub(crate) fn verify(token: &str, keys: &KeySet, audience: &str) -> Result<Verified, TokenError> {
    let key = keys.find(&key_id(token)?).ok_or(TokenError::UnknownKey)?;
    // The key determines the algorithm. The algorithm in the token must not.
    let mut demands = Validation::new(key.algorithm);
    demands.leeway = LEEWAY;
    demands.validate_nbf = true;
    demands.set_audience(&[audience]);
    demands.set_issuer(&[keys.issuer()]);
    demands.set_required_spec_claims(&["exp", "iss", "aud", "sub"]);
    let token = decode::<Claims>(token, &key.decoding, &demands)
        .map_err(|error| judge(error.kind(), keys.issuer(), audience))?;
    token.claims.for_us_alone(audience)?;
    token.claims.verified()
}

#[expect(clippy::wildcard_enum_match_arm, reason = "all other errors mean that the token is malformed")]
fn judge(kind: &ErrorKind, issuer: &str, audience: &str) -> TokenError {
    match kind {
        ErrorKind::InvalidAlgorithm
        | ErrorKind::InvalidAlgorithmName
        | ErrorKind::MissingAlgorithm
        | ErrorKind::UnsupportedAlgorithm => TokenError::Algorithm,
        ErrorKind::InvalidSignature | ErrorKind::InvalidKeyFormat => TokenError::Signature,
        ErrorKind::ExpiredSignature => TokenError::Expired,
        ErrorKind::ImmatureSignature => TokenError::Early,
        ErrorKind::InvalidIssuer => TokenError::Issuer(issuer.to_owned()),
        ErrorKind::InvalidAudience => TokenError::Audience(audience.to_owned()),
        _ => TokenError::Malformed,
    }
}

#[cfg(test)]
mod tests;
