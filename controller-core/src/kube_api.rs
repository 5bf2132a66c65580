//! Calls to the API server, each with a time limit: kube's client waits for ever on a server that hangs.

use std::{future::Future, path::PathBuf, time::Duration};

use kube::{Client, Config, client::ClientBuilder, config::Kubeconfig, core::Status};
use tower::timeout::TimeoutLayer;

/// Longer than any answer of a healthy API server, shorter than anybody's patience.
const LIMIT: Duration = Duration::from_secs(15);
/// Until an answer begins: this also limits the begin of a watch, which has no limit of its own.
const ANSWER_LIMIT: Duration = Duration::from_secs(30);
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
    /// The connection or our side of it.
    #[error("{}", causes(.0.as_ref()))]
    Client(Box<kube::Error>),
}

impl From<kube::Error> for Error {
    fn from(error: kube::Error) -> Self {
        if let kube::Error::Api(status) = error {
            Self::Refused(status)
        } else {
            Self::Client(Box::new(error))
        }
    }
}

impl Error {
    /// The HTTP status, if the server answered.
    #[must_use]
    pub fn status(&self) -> Option<u16> {
        match self {
            Self::Refused(status) => Some(status.code),
            Self::Timeout | Self::Client(_) => None,
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
            Self::Timeout | Self::Client(_) => false,
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

/// A client from kubeconfig files, merged in this order, or from the pod's service account if there are none.
///
/// Connects to nothing yet: the API server may come later. Retries belong to our queues, so kube's own are off.
///
/// # Errors
/// The configuration cannot be read or makes no sense.
pub async fn client(kubeconfig: &[PathBuf]) -> anyhow::Result<Client> {
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
    Ok(ClientBuilder::try_from(config)?.with_layer(&TimeoutLayer::new(ANSWER_LIMIT)).build())
}
