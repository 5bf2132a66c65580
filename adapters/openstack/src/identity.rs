//! Manages authentication, which covers the credentials, the token, and the addresses of the services.
//!
//! Only one caller logs in at a time, through its own session, and other callers without a valid token wait. If the log-in is cancelled,
//! the next waiting caller logs in. If a token expires soon, or if the cloud has rejected the token early, the next caller renews the
//! token.

pub(crate) mod catalogue;
pub(crate) mod cloud;
mod keys;
pub(crate) mod login;
pub(crate) mod source;
#[cfg(test)]
mod tests;

use std::{
    fmt,
    sync::{Arc, PoisonError, RwLock},
    time::Duration,
};

use bytes::Bytes;
use cloud_adapter::{
    driver::{Fault, VendorError},
    kit::{built, request},
    vendor::{Family, Operation, Session},
};
use http::Method;
use secrecy::{ExposeSecret as _, SecretString};
use tokio::{sync::Mutex, time::Instant};

use self::{
    cloud::Cloud,
    login::{Access, Project},
};

pub(crate) const AUTH_TOKEN: &str = "x-auth-token";
/// Header with the token that is to be validated.
const SUBJECT_TOKEN: &str = "x-subject-token";

const CREATE_TOKEN: Operation = Operation::read(Family::Identity, "CreateToken");
const SHOW_TOKEN: Operation = Operation::read(Family::Identity, "ShowToken");

/// Interval between attempts to renew a token before it expires.
const AGAIN: Duration = Duration::from_secs(30);
/// The minimum length of secrets that are redacted. Shorter secrets occur in ordinary words, and redacting these words would garble names
/// and addresses.
const SECRET_MIN: usize = 8;

/// The state of the authentication. The credentials can be replaced.
pub(crate) struct Identity {
    login: RwLock<Arc<LogIn>>,
    /// The secret of new credentials that are being tested.
    candidate: RwLock<Option<SecretString>>,
}

struct LogIn {
    cloud: Cloud,
    access: RwLock<Option<Arc<Access>>>,
    /// The lock that is held during a log-in. The lock contains the time and the error of the last failed attempt.
    turn: Mutex<Option<(Instant, VendorError)>>,
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Identity").field("auth_url", &self.cloud().auth_url).finish_non_exhaustive()
    }
}

impl Identity {
    pub(crate) fn new(cloud: Cloud) -> Self {
        let login = LogIn { cloud, access: RwLock::default(), turn: Mutex::default() };
        Self { login: RwLock::new(Arc::new(login)), candidate: RwLock::default() }
    }

    fn login(&self) -> Arc<LogIn> {
        Arc::clone(&self.login.read().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn cloud(&self) -> Cloud {
        self.login().cloud.clone()
    }

    /// Adds the secret of credentials that are being tested to the secrets that are redacted from answers.
    pub(crate) fn tries(&self, cloud: &Cloud) {
        *self.candidate.write().unwrap_or_else(PoisonError::into_inner) =
            Some(cloud.credentials.secret().clone());
    }

    /// Switches to the credentials and the token of another `Identity`.
    pub(crate) fn adopt(&self, other: &Self) {
        *self.login.write().unwrap_or_else(PoisonError::into_inner) = other.login();
    }

    /// Returns the secrets that are redacted from answers.
    pub(crate) fn secrets(&self) -> Vec<SecretString> {
        let login = self.login();
        let candidate = self.candidate.read().unwrap_or_else(PoisonError::into_inner).clone();
        let ours = [Some(login.cloud.credentials.secret().clone()), candidate].into_iter().flatten();
        let ours = ours.filter(|secret| secret.expose_secret().len() >= SECRET_MIN);
        let token = login.known().and_then(|access| Some(access.token.to_str().ok()?.into()));
        ours.chain(token).collect()
    }

    /// Returns a valid token. The cost is no vendor call, or one vendor call for a log-in.
    pub(crate) async fn access(&self, session: &Session) -> Result<Arc<Access>, VendorError> {
        let login = self.login();
        match login.known() {
            Some(access) if Instant::now() < access.renew_at => Ok(access),
            Some(access) if Instant::now() < access.ends_at => Ok(login.renewed_early(session, access).await),
            stale => login.renewed(session, stale.as_ref()).await,
        }
    }

    /// Returns a token that differs from the token that the cloud has rejected. The cost is one vendor call, or none if another caller has
    /// already renewed the token.
    pub(crate) async fn renewed(
        &self,
        session: &Session,
        stale: &Arc<Access>,
    ) -> Result<Arc<Access>, VendorError> {
        self.login().renewed(session, Some(stale)).await
    }

    /// Validates the token, or logs in. Costs one vendor call, or two if the token is no longer valid.
    pub(crate) async fn check(&self, session: &Session) -> Result<Project, VendorError> {
        let login = self.login();
        let Some(access) = login.known().filter(|access| Instant::now() < access.ends_at) else {
            return Ok(login.renewed(session, None).await?.project.clone());
        };
        match login.show(session, &access).await {
            Ok(()) => Ok(access.project.clone()),
            Err(VendorError { fault: Fault::Auth, .. }) => {
                Ok(login.renewed(session, Some(&access)).await?.project.clone())
            }
            Err(error) => Err(error),
        }
    }
}

impl LogIn {
    fn known(&self) -> Option<Arc<Access>> {
        self.access.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    async fn renewed(
        &self,
        session: &Session,
        stale: Option<&Arc<Access>>,
    ) -> Result<Arc<Access>, VendorError> {
        let asked = Instant::now();
        let mut turn = self.turn.lock().await;
        if let Some(access) = self.newer(stale) {
            return Ok(access);
        }
        // A caller that waited while the cloud rejected the credentials gets the same error, because some clouds lock accounts after
        // repeated attempts.
        match &*turn {
            Some((at, error)) if *at >= asked => return Err(error.clone()),
            Some(_) | None => (),
        }
        let result = self.log_in(session).await;
        *turn = result
            .as_ref()
            .err()
            .filter(|error| rejected(error))
            .map(|error| (Instant::now(), error.clone()));
        result
    }

    /// Returns a new token if possible, or else the old token, which is still valid.
    async fn renewed_early(&self, session: &Session, old: Arc<Access>) -> Arc<Access> {
        let Ok(mut turn) = self.turn.try_lock() else { return old };
        if let Some(access) = self.newer(Some(&old)) {
            return access;
        }
        if turn.as_ref().is_some_and(|(at, _)| at.elapsed() < AGAIN) {
            return old;
        }
        match self.log_in(session).await {
            Ok(access) => {
                *turn = None;
                access
            }
            Err(error) => {
                tracing::warn!(%error, "Cannot renew the token; using the old token, which is still valid");
                *turn = Some((Instant::now(), error));
                old
            }
        }
    }

    fn newer(&self, stale: Option<&Arc<Access>>) -> Option<Arc<Access>> {
        let same = |access: &Arc<Access>| stale.is_some_and(|stale| Arc::ptr_eq(stale, access));
        self.known().filter(|access| !same(access) && Instant::now() < access.ends_at)
    }

    /// Logs in with one vendor call.
    async fn log_in(&self, session: &Session) -> Result<Arc<Access>, VendorError> {
        let body = Bytes::from(login::request(&self.cloud).to_string());
        let request = request(Method::POST, format!("{}/auth/tokens", self.cloud.auth_url), &body);
        let request = built(CREATE_TOKEN, request.body(body))?;
        let asked = Instant::now();
        let response = session.call(CREATE_TOKEN, request).await?;
        let access = Arc::new(login::read(&self.cloud, &response, asked)?);
        *self.access.write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(&access));
        Ok(access)
    }

    /// Validates the token with one vendor call.
    async fn show(&self, session: &Session, access: &Access) -> Result<(), VendorError> {
        let base = access.endpoints.base(catalogue::Service::Identity)?;
        let request = request(Method::GET, format!("{base}/auth/tokens?nocatalog"), &Bytes::new())
            .header(AUTH_TOKEN, &access.token)
            .header(SUBJECT_TOKEN, &access.token);
        session.call(SHOW_TOKEN, built(SHOW_TOKEN, request.body(Bytes::new()))?).await.map(drop)
    }
}

/// Whether the cloud rejected the credentials, as opposed to an error of the connection.
fn rejected(error: &VendorError) -> bool {
    matches!(error.fault, Fault::Auth | Fault::Forbidden)
}
