//! Who we are: credentials, the token that they bring, and where the services are.
//!
//! One logs in at a time. Whoever needs a token and finds none does it in its own session; if it leaves, the next one that waits does.
//! A token is renewed ahead of its end by whoever comes by then, and once more if the cloud rejects it early.

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
    vendor::{Family, Operation, Session, VendorRequest},
};
use http::{Method, header};
use secrecy::{ExposeSecret as _, SecretString};
use tokio::{sync::Mutex, time::Instant};

use self::{
    cloud::Cloud,
    login::{Access, Project},
};

/// The header that every call carries.
pub(crate) const AUTH_TOKEN: &str = "x-auth-token";
/// That of the token which is asked about.
const SUBJECT_TOKEN: &str = "x-subject-token";

const CREATE_TOKEN: Operation = Operation::read(Family::Identity, "CreateToken");
const SHOW_TOKEN: Operation = Operation::read(Family::Identity, "ShowToken");

/// A token that could not be renewed ahead of its end is tried again after this.
const AGAIN: Duration = Duration::from_secs(30);
/// A shorter password is found in ordinary words: taking it out of answers would garble names and addresses.
const SECRET_MIN: usize = 8;

/// Who we are. Credentials may be replaced.
pub(crate) struct Identity {
    login: RwLock<Arc<LogIn>>,
    /// Those that are being tried.
    candidate: RwLock<Option<SecretString>>,
}

/// Credentials, and what they have brought.
struct LogIn {
    cloud: Cloud,
    access: RwLock<Option<Arc<Access>>>,
    /// Held while somebody logs in: how the last attempt failed, and when.
    turn: Mutex<Option<(Instant, VendorError)>>,
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Identity").field("auth_url", &self.cloud().auth_url).finish_non_exhaustive()
    }
}

impl Identity {
    /// Connects nowhere yet.
    pub(crate) fn new(cloud: Cloud) -> Self {
        let login = LogIn { cloud, access: RwLock::default(), turn: Mutex::default() };
        Self { login: RwLock::new(Arc::new(login)), candidate: RwLock::default() }
    }

    fn login(&self) -> Arc<LogIn> {
        Arc::clone(&self.login.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// The cloud, as it is configured now.
    pub(crate) fn cloud(&self) -> Cloud {
        self.login().cloud.clone()
    }

    /// Other credentials are tried: what the cloud says of them is kept clean, too.
    pub(crate) fn tries(&self, cloud: &Cloud) {
        *self.candidate.write().unwrap_or_else(PoisonError::into_inner) =
            Some(cloud.credentials.secret().clone());
    }

    /// Goes on with another's credentials, and the token that they brought.
    pub(crate) fn adopt(&self, other: &Self) {
        *self.login.write().unwrap_or_else(PoisonError::into_inner) = other.login();
    }

    /// What nobody may see.
    pub(crate) fn secrets(&self) -> Vec<SecretString> {
        let login = self.login();
        let candidate = self.candidate.read().unwrap_or_else(PoisonError::into_inner).clone();
        let ours = [Some(login.cloud.credentials.secret().clone()), candidate].into_iter().flatten();
        let ours = ours.filter(|secret| secret.expose_secret().len() >= SECRET_MIN);
        let token = login.known().and_then(|access| Some(access.token.to_str().ok()?.into()));
        ours.chain(token).collect()
    }

    /// A token to speak with. Cost: no vendor call, one where a log-in is due.
    ///
    /// # Errors
    /// Those of the log-in.
    pub(crate) async fn access(&self, session: &Session) -> Result<Arc<Access>, VendorError> {
        let login = self.login();
        match login.known() {
            Some(access) if Instant::now() < access.renew_at => Ok(access),
            Some(access) if Instant::now() < access.ends_at => Ok(login.renewed_early(session, access).await),
            stale => login.renewed(session, stale.as_ref()).await,
        }
    }

    /// Another token than one that the cloud has rejected. Cost: one vendor call, none if somebody has one already.
    ///
    /// # Errors
    /// Those of the log-in.
    pub(crate) async fn renewed(
        &self,
        session: &Session,
        stale: &Arc<Access>,
    ) -> Result<Arc<Access>, VendorError> {
        self.login().renewed(session, Some(stale)).await
    }

    /// Asks the cloud whether the token is good, or for one. Cost: one vendor call, two if it is good no more.
    ///
    /// # Errors
    /// Those of the log-in, and of a project that is not the one that is wanted.
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

    /// A token that is not `stale`.
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
        // Who waited while the cloud rejected the credentials need not ask it again: some lock accounts.
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

    /// A newer token if that can be had, else the one that is still good.
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
                tracing::warn!(%error, "The token cannot be renewed yet: the old one is still good");
                *turn = Some((Instant::now(), error));
                old
            }
        }
    }

    fn newer(&self, stale: Option<&Arc<Access>>) -> Option<Arc<Access>> {
        let same = |access: &Arc<Access>| stale.is_some_and(|stale| Arc::ptr_eq(stale, access));
        self.known().filter(|access| !same(access) && Instant::now() < access.ends_at)
    }

    /// One vendor call.
    async fn log_in(&self, session: &Session) -> Result<Arc<Access>, VendorError> {
        let body = Bytes::from(login::request(&self.cloud).to_string());
        let request = http::Request::builder()
            .method(Method::POST)
            .uri(format!("{}/auth/tokens", self.cloud.auth_url))
            .header(header::ACCEPT, "application/json")
            .header(header::CONTENT_TYPE, "application/json");
        let request = finished(CREATE_TOKEN, request.body(body))?;
        let asked = Instant::now();
        let response = session.call(CREATE_TOKEN, request).await?;
        let access = Arc::new(login::read(&self.cloud, &response, asked)?);
        *self.access.write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(&access));
        Ok(access)
    }

    /// One vendor call: whether the cloud still takes the token.
    async fn show(&self, session: &Session, access: &Access) -> Result<(), VendorError> {
        let request = http::Request::builder()
            .uri(format!("{}/auth/tokens?nocatalog", access.endpoints.base(catalogue::Service::Identity)?))
            .header(header::ACCEPT, "application/json")
            .header(AUTH_TOKEN, &access.token)
            .header(SUBJECT_TOKEN, &access.token);
        session.call(SHOW_TOKEN, finished(SHOW_TOKEN, request.body(Bytes::new()))?).await.map(drop)
    }
}

/// The credentials are at fault, and not the way to the cloud.
fn rejected(error: &VendorError) -> bool {
    matches!(error.fault, Fault::Auth | Fault::Forbidden)
}

/// A request that could be written.
pub(crate) fn finished(
    operation: Operation,
    request: Result<VendorRequest, http::Error>,
) -> Result<VendorRequest, VendorError> {
    request.map_err(|error| VendorError::nonsense(format!("{operation}: cannot be written: {error}")))
}
