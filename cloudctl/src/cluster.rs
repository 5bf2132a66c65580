//! Access to the API server: objects in the cluster, and port-forwards to pods.

use std::{path::Path, sync::OnceLock, time::Duration};

use futures::FutureExt;
use jiff::Timestamp;
use k8s_openapi::{
    api::{
        apps::v1::Deployment,
        coordination::v1::{Lease, LeaseSpec},
        core::v1::Pod,
    },
    apimachinery::pkg::apis::meta::v1::MicroTime,
};
use kube::{
    Api, Client,
    api::{ListParams, PartialObjectMeta},
    client::UpgradeConnectionError,
};
use tokio::time::timeout;

use crate::{
    errors::{CONNECT_TIMEOUT, chain, root},
    http::{self, HttpResponse},
    kubeconfig::{Unconnected, config},
    labels::selector,
    missing::Missing,
    page,
};

const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// Seconds since the last renewal after which a Lease counts as not held. This is longer than any Lease lasts, because clocks differ.
const LEASE_EXPIRY_SECONDS: i64 = 30;
/// The resource that the program must list to find the status pages.
const PODS: &str = "pods";

/// The name of the API server in the list of what is missing.
pub(crate) const API_SERVER: &str = "API server";

pub(crate) type Deployed = PartialObjectMeta<Deployment>;

pub(crate) struct Cluster {
    client: Client,
    /// The namespace in the kubeconfig.
    pub(crate) home: String,
    url: String,
    /// Why the API server did not answer an earlier request. Later requests then fail at once.
    away: OnceLock<Missing>,
}

impl std::fmt::Debug for Cluster {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cluster").field("url", &self.url).finish_non_exhaustive()
    }
}

impl Cluster {
    /// Creates a connection as the kubeconfig defines it, without sending a request yet.
    pub(crate) async fn connect(
        kubeconfig: Option<&Path>,
        context: Option<&str>,
    ) -> Result<Self, Unconnected> {
        let mut config = config(kubeconfig, context).await?;
        config.connect_timeout = Some(CONNECT_TIMEOUT);
        let (home, url) = (config.default_namespace.clone(), config.cluster_url.to_string());
        let client = Client::try_from(config);
        let client = client.map_err(|error| {
            Unconnected::Missing(format!("cannot create a client from this kubeconfig: {}", chain(&error)))
        })?;
        Ok(Self { client, home, url, away: OnceLock::new() })
    }

    pub(crate) fn namespaced<K>(&self, namespace: &str) -> Api<K>
    where
        K: kube::Resource<Scope = kube::core::NamespaceResourceScope, DynamicType = ()>,
    {
        Api::namespaced(self.client.clone(), namespace)
    }

    /// Returns the API of objects in all namespaces, or of cluster-scoped objects.
    pub(crate) fn all<K: kube::Resource<DynamicType = ()>>(&self) -> Api<K> {
        Api::all(self.client.clone())
    }

    /// Returns a connection to a fake API server that gives every request the same answer.
    #[cfg(test)]
    pub(crate) fn answering(status: u16, body: &serde_json::Value) -> Self {
        let body = body.to_string();
        let service = tower::service_fn(move |_: ::http::Request<kube::client::Body>| {
            let answer = ::http::Response::builder().status(status);
            let answer = answer.body(kube::client::Body::from(body.clone().into_bytes()));
            async { answer }
        });
        let (client, home) = (Client::new(service, "default"), "default".to_owned());
        Self { client, home, url: "https://a".to_owned(), away: OnceLock::new() }
    }

    pub(crate) async fn version(&self) -> Result<(u32, u32), Missing> {
        let version = self.ask("the version", self.client.apiserver_version()).await?;
        let number = |text: &str| {
            let digits: String = text.chars().take_while(char::is_ascii_digit).collect();
            digits.parse().unwrap_or_default()
        };
        Ok((number(&version.major), number(&version.minor)))
    }

    /// Lists the pods of releases, in one namespace or in all.
    pub(crate) async fn pods(&self, namespace: Option<&str>) -> Result<Vec<Pod>, Missing> {
        let api = namespace.map_or_else(|| self.all(), |namespace| self.namespaced(namespace));
        let of_chart = ListParams::default().labels(&selector());
        Ok(self.ask(PODS, async { api.list(&of_chart).await }).await?.items)
    }

    pub(crate) async fn deployments(&self, namespace: Option<&str>) -> Result<Vec<Deployed>, Missing> {
        let api: Api<Deployment> =
            namespace.map_or_else(|| self.all(), |namespace| self.namespaced(namespace));
        let of_chart = ListParams::default().labels(&selector());
        Ok(self.ask("deployments", async { api.list_metadata(&of_chart).await }).await?.items)
    }

    pub(crate) async fn leases(&self, namespace: &str) -> Result<Vec<Lease>, Missing> {
        let api: Api<Lease> = self.namespaced(namespace);
        Ok(self.ask("leases", async { api.list(&ListParams::default()).await }).await?.items)
    }

    /// Requests `what` from the API server within the time limit. Sends no request if an earlier one had no answer.
    pub(crate) async fn ask<T>(
        &self,
        what: &str,
        question: impl Future<Output = kube::Result<T>>,
    ) -> Result<T, Missing> {
        if let Some(known) = self.away.get() {
            return Err(known.clone());
        }
        let away = |why: String| {
            let why = format!("{} does not answer: {why}", self.url);
            self.away.get_or_init(|| Missing::new(API_SERVER, why)).clone()
        };
        match timeout(REQUEST_TIMEOUT, question).await {
            Ok(Ok(answer)) => Ok(answer),
            Err(_late) => Err(away(format!("timed out after {}s", REQUEST_TIMEOUT.as_secs()))),
            Ok(Err(kube::Error::Api(status))) if status.code == 401 => Err(Missing::new(
                API_SERVER,
                format!("{} rejects these credentials: log in again, or choose another --context", self.url),
            )),
            Ok(Err(kube::Error::Api(status))) if status.code == 403 => {
                Err(Missing::forbidden(what, format!("{}: {}", status.message, rights(what))))
            }
            Ok(Err(kube::Error::Api(status))) => Err(Missing::new(what, status.message.clone())),
            Ok(Err(error @ (kube::Error::Service(_) | kube::Error::HyperError(_)))) => {
                Err(away(root(&error)))
            }
            Ok(Err(error)) => Err(Missing::new(what, chain(&error))),
        }
    }

    /// Reads a page of a pod, by port-forward.
    pub(crate) async fn page(
        &self,
        namespace: &str,
        pod: &str,
        port: u16,
        path: &str,
    ) -> Result<HttpResponse, String> {
        let pods: Api<Pod> = self.namespaced(namespace);
        let mut forward = pods.portforward(pod, &[port]).await.map_err(|error| refused(&error, namespace))?;
        let error = forward.take_error(port);
        let Some(stream) = forward.take_stream(port) else {
            return Err("the port-forward has no stream".to_owned());
        };
        let answer = http::get(stream, pod, path).await;
        // The kubelet's error is more precise than the broken connection.
        let of_kubelet = error.and_then(FutureExt::now_or_never).flatten();
        forward.abort();
        answer.map_err(|error| of_kubelet.unwrap_or(error))
    }
}

pub(crate) fn is_held(spec: &LeaseSpec, now: Timestamp) -> bool {
    let renewed = spec.renew_time.as_ref();
    renewed.is_some_and(|MicroTime(at)| now.duration_since(*at).as_secs() <= LEASE_EXPIRY_SECONDS)
        && spec.holder_identity.as_ref().is_some_and(|holder| !holder.is_empty())
}

/// Advises what to do if a permission is missing. A user with `--url` does not need the permission to list pods.
fn rights(what: &str) -> String {
    let instead = if what == PODS { ", or use --url COMPONENT=URL" } else { "" };
    format!("bind the roles of {}{instead}", page::url("docs/cloudctl.md"))
}

/// Explains why the port-forward failed. If the API server refuses the upgrade, the API server's message may be lost.
fn refused(error: &kube::Error, namespace: &str) -> String {
    let (code, words) = if let kube::Error::Api(status) = error {
        (status.code, status.message.clone())
    } else if let kube::Error::UpgradeConnection(UpgradeConnectionError::ProtocolSwitch(status)) = error {
        (status.as_u16(), chain(error))
    } else {
        (0, chain(error))
    };
    match code {
        401 | 403 => format!(
            "port-forward is forbidden: it needs get and create on pods/portforward in {namespace}; \
            or use --url COMPONENT=URL"
        ),
        404 => "port-forward failed: the pod is gone".to_owned(),
        _ => format!("port-forward failed: {words}"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[tokio::test]
    async fn a_forbidden_request_names_the_roles_to_bind() {
        let no = json!({ "kind": "Status", "code": 403, "message": "it is forbidden" });
        let cluster = Cluster::answering(403, &no);
        let why = |missing: Missing| missing.why;
        let wanted = format!("it is forbidden: bind the roles of {}", page::url("docs/cloudctl.md"));
        assert_eq!(cluster.leases("ccm").await.map_err(why).expect_err("refused"), wanted);
        let pods = cluster.pods(Some("ccm")).await.map_err(why).expect_err("refused");
        assert_eq!(pods, format!("{wanted}, or use --url COMPONENT=URL"));
    }
}
