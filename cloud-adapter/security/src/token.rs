//! ServiceAccount tokens, checked offline: no call to the API server.
//!
//! The signature, the times, the issuer and the audience are checked by `jsonwebtoken`; here it is told what to demand, and two
//! things are added: the token is for nobody but us, and its subject is a ServiceAccount.

mod keys;

use std::time::Duration;

use jsonwebtoken::{Header, Validation, decode, decode_header, errors::ErrorKind, get_current_timestamp};
use serde::Deserialize;

pub use self::keys::{KeySet, KeySetError};
use crate::ServiceAccount;

/// The API server's clock and ours may differ by this much, in seconds.
const LEEWAY: u64 = 10;

/// Why a token proves nothing. Says nothing that the token says, unless its signature is good.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// Not of the form that Kubernetes issues.
    #[error("is no signed token with a key ID")]
    Malformed,
    /// Such as `none`, or one with a shared secret.
    #[error("is not signed with RS256, ES256 or ES384, as its key demands")]
    Algorithm,
    /// Signed by somebody else, or by a key that is gone.
    #[error("is signed with a key that the cluster does not publish")]
    UnknownKey,
    /// Changed on the way, or made up.
    #[error("has a signature that does not fit")]
    Signature,
    /// Too old.
    #[error("has expired")]
    Expired,
    /// Its time has not come.
    #[error("is not valid yet")]
    Early,
    /// Of another cluster.
    #[error("is not of the issuer {0}")]
    Issuer(String),
    /// For somebody else.
    #[error("is not for the audience {0}")]
    Audience(String),
    /// For us and for others: whom we told it, such as the API server, could be spoken to in the caller's name by us.
    #[error("is good for others than {0} too: use a projected token with this audience alone")]
    Shared(String),
    /// The API server does not know it, or not any more.
    #[error("is not accepted by the API server")]
    Refused,
    /// A user or a node.
    #[error("is not of a ServiceAccount")]
    Subject,
}

/// A token that proved who its bearer is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verified {
    /// Who.
    pub account: ServiceAccount,
    /// For how long from now.
    pub lasts: Duration,
}

/// What a token says of itself.
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
    /// That it is for us and for nobody else.
    ///
    /// # Errors
    /// [`TokenError::Audience`], [`TokenError::Shared`].
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

    /// What it proves, if all else was checked.
    ///
    /// # Errors
    /// [`TokenError::Subject`].
    pub(crate) fn verified(&self) -> Result<Verified, TokenError> {
        let account = ServiceAccount::from_subject(&self.sub).ok_or(TokenError::Subject)?;
        Ok(Verified { account, lasts: Duration::from_secs(self.exp.saturating_sub(get_current_timestamp())) })
    }
}

/// The ID of the key that a token says it was signed with.
///
/// # Errors
/// [`TokenError::Malformed`], and [`TokenError::Algorithm`] for one that is signed with no key at all.
pub(crate) fn key_id(token: &str) -> Result<String, TokenError> {
    let header = decode_header(token).map_err(|error| judge(error.kind(), "", ""))?;
    match header {
        // Extensions that must be understood, and are not. Source: RFC 7515, section 4.1.11.
        Header { crit: Some(_), .. } => Err(TokenError::Malformed),
        Header { kid, .. } => kid.ok_or(TokenError::Malformed),
    }
}

/// Checks a token.
///
/// # Errors
/// What is wrong with it.
pub(crate) fn verify(token: &str, keys: &KeySet, audience: &str) -> Result<Verified, TokenError> {
    let key = keys.find(&key_id(token)?).ok_or(TokenError::UnknownKey)?;
    // The algorithm is the key's, never the token's.
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

#[expect(clippy::wildcard_enum_match_arm, reason = "what is not named is a token that cannot be read")]
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
