//! Calls to the API server, each with a time limit: kube's client waits for ever on a server that hangs.

mod metrics;
mod pace;
mod requests;

use std::{future::Future, path::PathBuf, time::Duration};

use kube::{Client, Config, client::ClientBuilder, config::Kubeconfig, core::Status};
use tower::{buffer::BufferLayer, timeout::TimeoutLayer};

pub use self::{
    pace::Rate,
    requests::{Held, Requests},
};

/// Longer than any answer of a healthy API server, shorter than anybody's patience.
const LIMIT: Duration = Duration::from_secs(15);
/// Until an answer begins: this also limits the begin of a watch, which has no limit of its own.
pub(crate) const ANSWER_LIMIT: Duration = Duration::from_secs(30);
/// Requests between two layers. Nobody waits for a place: each is taken at once.
const REQUESTS_WAITING: usize = 64;
/// A pod's address that leads nowhere is noticed sooner.
const CONNECT_LIMIT: Duration = Duration::from_secs(5);

/// Why a call to the API server failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No answer within the time limit; whether a write happened is not known.
    #[error("no answer from the API server within {} s", LIMIT.as_secs())]
    Timeout,
    /// The server said no.
    #[error("{} ({} {})", .0.message, .0.code, .0.reason)]
    Refused(Box<Status>),
    /// It is busy and wants to be left in peace, or this process must not write any more.
    #[error(transparent)]
    Held(Held),
    /// The connection or our side of it.
    #[error("{}", causes(.0.as_ref()))]
    Client(Box<kube::Error>),
}

impl From<kube::Error> for Error {
    fn from(error: kube::Error) -> Self {
        if let kube::Error::Api(status) = error {
            return Self::Refused(status);
        }
        if let kube::Error::Service(cause) = &error
            && let Some(held) = cause.downcast_ref::<Held>()
        {
            return Self::Held(*held);
        }
        Self::Client(Box::new(error))
    }
}

impl Error {
    /// The HTTP status, if the server answered.
    #[must_use]
    pub fn status(&self) -> Option<u16> {
        match self {
            Self::Refused(status) => Some(status.code),
            Self::Held(Held::Busy { status, .. }) => Some(status.as_u16()),
            Self::Timeout | Self::Held(_) | Self::Client(_) => None,
        }
    }

    /// The object is not there (any more).
    #[must_use]
    pub fn is_not_found(&self) -> bool {
        self.status() == Some(404)
    }

    /// Somebody else wrote first, or a guard in the patch did not hold: look at what is there now, decide again.
    ///
    /// 409 answers a stale `resourceVersion` or another UID. 422 without a cause answers a JSON patch whose `test` failed; one that
    /// names the fields at fault is a real refusal.
    #[must_use]
    pub fn is_stale(&self) -> bool {
        match self {
            Self::Refused(status) if status.code == 422 => {
                status.details.as_ref().is_none_or(|details| details.causes.is_empty())
            }
            Self::Refused(status) => status.code == 409,
            Self::Timeout | Self::Held(_) | Self::Client(_) => false,
        }
    }
}

/// An error with its causes, each once: kube's own texts stop at the first.
pub(crate) fn causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let words = cause.to_string();
        if !text.contains(&words) {
            text = format!("{text}: {words}");
        }
        source = cause.source();
    }
    text
}

/// Waits for a call to the API server, within the time limit.
///
/// # Errors
/// The call's own, or [`Error::Timeout`].
pub async fn within<T>(call: impl Future<Output = kube::Result<T>>) -> Result<T, Error> {
    match tokio::time::timeout(LIMIT, call).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(error)) => Err(error.into()),
        Err(_elapsed) => Err(Error::Timeout),
    }
}

/// How to reach the API server: from kubeconfig files, merged in this order, or from the pod's service account if there are none.
///
/// Connects to nothing: the API server may come later. Retries belong to our queues, so kube's own are off.
///
/// # Errors
/// The configuration cannot be read or makes no sense.
pub async fn config(kubeconfig: &[PathBuf]) -> anyhow::Result<Config> {
    let mut merged: Option<Kubeconfig> = None;
    for file in kubeconfig {
        let next = Kubeconfig::read_from(file)?;
        merged = Some(match merged {
            Some(earlier) => earlier.merge(next)?,
            None => next,
        });
    }
    let mut config = match merged {
        Some(merged) => Config::from_custom_kubeconfig(merged, &Default::default()).await?,
        None => Config::incluster()?,
    };
    config.connect_timeout = Some(CONNECT_LIMIT);
    config.default_retry = false;
    Ok(config)
}

/// The client of a controller: its requests pass `requests`.
///
/// # Errors
/// The configuration makes no sense.
pub fn client(config: Config, requests: &Requests) -> anyhow::Result<Client> {
    let builder = ClientBuilder::try_from(config)?.with_layer(&TimeoutLayer::new(ANSWER_LIMIT));
    // The layer clones what is below it for each request.
    Ok(builder.with_layer(&BufferLayer::new(REQUESTS_WAITING)).with_layer(requests).build())
}

/// A client for what must not wait for a term: the election itself.
///
/// # Errors
/// The configuration makes no sense.
pub fn plain_client(config: Config) -> anyhow::Result<Client> {
    Ok(ClientBuilder::try_from(config)?.build())
}
