//! Bearer tokens: reads them from requests, checks them and caches the results.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use cloud_api_proto::{AdapterError, Reason};
use http::{HeaderMap, header::AUTHORIZATION};
use jsonwebtoken::dangerous::insecure_decode_claims;
use sha2::{Digest as _, Sha256};
use tokio::{sync::Semaphore, time::Instant};

use crate::auth::{ApiServer, KeySet, Keys, ServiceAccount, TokenError, token};

/// How long a positive review is cached. A token that is revoked during this time is still accepted.
const REVIEW_GOOD: Duration = Duration::from_secs(30);
/// How long a negative review is cached, so that the retries of a caller do not each cause a request to the API server.
const REVIEW_BAD: Duration = Duration::from_secs(10);
/// Maximum number of concurrent requests to the API server.
const REVIEWS: usize = 4;
/// Maximum number of callers that wait for a request to the API server or make such a request. Further callers get a retryable error,
/// because forged tokens are cheap to make.
const WAITING: usize = 64;
/// Maximum number of cached tokens. Each caller uses one token, and replaces it every few minutes.
const REMEMBERED: usize = 1024;

/// Checks the tokens of callers.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "a process has one instance, which is boxed")]
pub enum Bearers {
    /// Tokens are verified with the cluster's public keys.
    Offline {
        /// The required audience of tokens.
        audience: String,
        /// The public keys that verify tokens.
        keys: Arc<Keys>,
        /// Cache of verified tokens.
        seen: Seen<Arc<KeySet>>,
    },
    /// The API server reviews each token.
    Review {
        /// The required audience of tokens.
        audience: String,
        /// The client of the API server that reviews tokens.
        api: ApiServer,
        /// Cache of accepted tokens.
        seen: Seen<()>,
        /// Cache of refused tokens. This cache is separate, so that forged tokens do not evict accepted tokens.
        refused: Seen<()>,
        /// Permits for callers. A caller holds a permit while it waits for a request to the API server, and during that request.
        waiting: Semaphore,
        /// Permits for requests. A caller holds a permit during its request to the API server.
        asking: Semaphore,
    },
}

impl Bearers {
    /// Creates the variant that verifies tokens with public keys.
    #[must_use]
    pub fn offline(audience: String, keys: Arc<Keys>) -> Self {
        Self::Offline { audience, keys, seen: Seen::default() }
    }

    /// Creates the variant in which the API server reviews tokens.
    #[must_use]
    pub fn review(audience: String, api: ApiServer) -> Self {
        Self::Review {
            audience,
            api,
            seen: Seen::default(),
            refused: Seen::default(),
            waiting: Semaphore::new(REVIEWS + WAITING),
            asking: Semaphore::new(REVIEWS),
        }
    }

    pub(crate) async fn check(&self, headers: &HeaderMap) -> Result<ServiceAccount, AdapterError> {
        let token = bearer(headers)?;
        match self {
            Self::Offline { audience, keys, seen } => {
                let id = token::key_id(token).map_err(|error| wrong(&error))?;
                let keys = keys.with(&id).await.map_err(|why| not_now(&why))?;
                if let Some(known) = seen.find(token, |used| Arc::ptr_eq(used, &keys)) {
                    return known.map_err(|error| wrong(&error));
                }
                let verified = token::verify(token, &keys, audience).map_err(|error| wrong(&error))?;
                seen.remember(token, keys, Ok(verified.account.clone()), verified.lasts);
                Ok(verified.account)
            }
            Self::Review { audience, api, seen, refused, waiting, asking } => {
                let known = || seen.find(token, |()| true).or_else(|| refused.find(token, |()| true));
                if let Some(known) = known() {
                    return known.map_err(|error| wrong(&error));
                }
                let _place = waiting
                    .try_acquire()
                    .map_err(|_full| not_now("too many callers are waiting for a token review"))?;
                let _turn = asking.acquire().await.map_err(|closed| not_now(&closed.to_string()))?;
                // Another caller with the same token may have received a result while this caller waited.
                if let Some(known) = known() {
                    return known.map_err(|error| wrong(&error));
                }
                let answer = review(token, audience, api).await?;
                let (seen, lasts) = if answer.is_ok() { (seen, REVIEW_GOOD) } else { (refused, REVIEW_BAD) };
                seen.remember(token, (), answer.clone(), lasts);
                answer.map_err(|error| wrong(&error))
            }
        }
    }
}

/// Lets the API server review a token. The claims are read first, because a token for another audience needs no request.
async fn review(
    token: &str,
    audience: &str,
    api: &ApiServer,
) -> Result<Result<ServiceAccount, TokenError>, AdapterError> {
    let read = insecure_decode_claims::<token::Claims>(token).map_err(|_unreadable| TokenError::Malformed);
    if let Err(error) = read.and_then(|claims| claims.for_us_alone(audience)) {
        return Ok(Err(error));
    }
    let status = api.review(token, audience).await.map_err(|error| not_now(&error.to_string()))?;
    if status.authenticated != Some(true) {
        return Ok(Err(TokenError::Refused));
    }
    // An API server that does not support audiences omits them from the status. Then the token could be for any audience.
    if !status.audiences.unwrap_or_default().iter().any(|one| one == audience) {
        return Ok(Err(TokenError::Audience(audience.to_owned())));
    }
    let subject = status.user.and_then(|user| user.username).unwrap_or_default();
    Ok(ServiceAccount::from_subject(&subject).ok_or(TokenError::Subject))
}

/// Source: RFC 6750, section 2.1.
fn bearer(headers: &HeaderMap) -> Result<&str, AdapterError> {
    const MISSING: &str = "the call has no token: send `authorization: Bearer TOKEN`";
    let mut values = headers.get_all(AUTHORIZATION).iter();
    let (Some(value), None) = (values.next(), values.next()) else { return Err(unauthenticated(MISSING)) };
    let (scheme, token) = value
        .to_str()
        .ok()
        .and_then(|value| value.split_once(' '))
        .ok_or_else(|| unauthenticated(MISSING))?;
    let token = token.trim();
    if scheme.eq_ignore_ascii_case("bearer") && !token.is_empty() {
        Ok(token)
    } else {
        Err(unauthenticated(MISSING))
    }
}

pub(crate) fn unauthenticated(why: impl Into<String>) -> AdapterError {
    AdapterError::new(Reason::CallerUnauthenticated, why)
}

fn wrong(error: &TokenError) -> AdapterError {
    unauthenticated(format!("the token {error}"))
}

/// Returns the refusal of a caller whose token cannot be checked now. The caller should retry.
fn not_now(why: &str) -> AdapterError {
    AdapterError::new(Reason::Starting, format!("callers cannot be authenticated now: {why}"))
}

/// The cache of checked tokens, by digest. `C` is the context on which a result depends.
#[derive(Debug)]
pub struct Seen<C>(Mutex<BTreeMap<[u8; 32], Known<C>>>);

#[derive(Debug)]
struct Known<C> {
    under: C,
    answer: Result<ServiceAccount, TokenError>,
    until: Instant,
}

impl<C> Default for Seen<C> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<C> Seen<C> {
    fn find(&self, token: &str, still: impl Fn(&C) -> bool) -> Option<Result<ServiceAccount, TokenError>> {
        let seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let known = seen.get(&digest(token))?;
        (known.until > Instant::now() && still(&known.under)).then(|| known.answer.clone())
    }

    fn remember(&self, token: &str, under: C, answer: Result<ServiceAccount, TokenError>, lasts: Duration) {
        let now = Instant::now();
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if seen.len() >= REMEMBERED {
            seen.retain(|_, known| known.until > now);
        }
        if seen.len() >= REMEMBERED {
            // Digests are random, so the first entry is a random entry.
            seen.pop_first();
        }
        seen.insert(digest(token), Known { under, answer, until: now + lasts });
    }
}

fn digest(token: &str) -> [u8; 32] {
    Sha256::digest(token).into()
}

#[cfg(test)]
mod tests;
