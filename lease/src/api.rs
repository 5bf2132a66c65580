//! Requests to the API server. Each request has a timeout, because the kube client waits forever for a server that hangs.

use std::{future::Future, time::Duration};

use futures::{StreamExt as _, future::BoxFuture, stream::BoxStream};
use k8s_openapi::api::coordination::v1::Lease;
use kube::{
    Api, Client,
    api::{Patch, PatchParams, PostParams, WatchEvent, WatchParams},
    core::Status,
};
use serde_json::Value;

use crate::{causes, record::Record, settings::Settings};

#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The request timed out; its outcome is unknown.
    #[error("no answer from the API server within {0:?}")]
    Timeout(Duration),
    #[error("{} ({} {})", .0.message, .0.code, .0.reason)]
    Refused(Box<Status>),
    #[error("{}", causes(.0.as_ref()))]
    Client(Box<kube::Error>),
    /// The body is not a valid Lease.
    #[error("cannot encode the Lease")]
    Body(#[source] serde_json::Error),
}

impl Error {
    pub(crate) fn status(&self) -> Option<u16> {
        match self {
            Self::Refused(status) => Some(status.code),
            Self::Timeout(_) | Self::Client(_) | Self::Body(_) => None,
        }
    }
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

/// A stream of the changes of the Lease, in which `None` means that the Lease was deleted. The stream ends with the connection.
pub(crate) type Changes = BoxStream<'static, Option<Record>>;

#[derive(Clone)]
pub(crate) struct LeaseApi {
    api: Api<Lease>,
    name: String,
    limit: Duration,
}

impl LeaseApi {
    pub(crate) fn new(client: Client, settings: &Settings) -> Self {
        Self {
            api: Api::namespaced(client, &settings.namespace),
            name: settings.name.clone(),
            limit: settings.timing.call_limit(),
        }
    }

    /// Reads the Lease. Returns `None` if the Lease does not exist.
    pub(crate) async fn get(&self) -> Result<Option<Record>, Error> {
        Ok(self.within(self.api.get_opt(&self.name)).await?.map(Record::from))
    }

    pub(crate) async fn patch(&self, body: &Value) -> Result<Record, Error> {
        let parameters = PatchParams::default();
        Ok(self.within(self.api.patch(&self.name, &parameters, &Patch::Merge(body))).await?.into())
    }

    pub(crate) async fn create(&self, body: Value) -> Result<Record, Error> {
        let lease = serde_json::from_value(body).map_err(Error::Body)?;
        Ok(self.within(self.api.create(&PostParams::default(), &lease)).await?.into())
    }

    /// Watches the Lease, starting after `version`.
    pub(crate) fn watch(&self, version: &str) -> BoxFuture<'static, Result<Changes, Error>> {
        let (this, version) = (self.clone(), version.to_owned());
        let parameters = WatchParams::default().fields(&format!("metadata.name={}", self.name));
        Box::pin(async move {
            let events = this.within(this.api.watch(&parameters, &version)).await?;
            let changes = events.scan((), |(), event| {
                std::future::ready(match event {
                    Ok(WatchEvent::Added(lease) | WatchEvent::Modified(lease)) => Some(Some(lease.into())),
                    Ok(WatchEvent::Deleted(_)) => Some(None),
                    Ok(WatchEvent::Bookmark(_) | WatchEvent::Error(_)) | Err(_) => None,
                })
            });
            Ok(changes.boxed())
        })
    }

    async fn within<T>(&self, call: impl Future<Output = kube::Result<T>>) -> Result<T, Error> {
        match tokio::time::timeout(self.limit, call).await {
            Ok(answer) => Ok(answer?),
            Err(_elapsed) => Err(Error::Timeout(self.limit)),
        }
    }
}
