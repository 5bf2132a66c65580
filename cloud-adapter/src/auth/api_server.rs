//! Requests to the API server: reads the signing keys of tokens, the ID of the cluster and the CA, and reviews tokens.

use std::{
    collections::BTreeMap,
    error::Error,
    future::Future,
    iter::successors,
    path::{Path, PathBuf},
    time::Duration,
};

use cloud_lease::without_secrets;
use k8s_openapi::{
    ByteString,
    api::{
        authentication::v1::{TokenReview, TokenReviewSpec, TokenReviewStatus},
        core::v1::{Namespace, Secret},
    },
};
use kube::{
    Api, Client, Config,
    api::{Patch, PatchParams, PostParams},
    config::{KubeConfigOptions, Kubeconfig, KubeconfigError},
};
use serde::Deserialize;
use serde_json::json;
use tokio::sync::Mutex;

use super::SecretName;

/// Timeout of a request. It is short, because callers wait for the answer.
const LIMIT: Duration = Duration::from_secs(5);
/// Paths of the discovery document and of the keys. Every ServiceAccount may read both. Source: Kubernetes, "Service account issuer
/// discovery".
const DISCOVERY: &str = "/.well-known/openid-configuration";
const KEYS: &str = "/openid/v1/jwks";

/// Error of a request to the API server.
#[derive(Debug, thiserror::Error)]
pub enum ApiServerError {
    /// Neither a pod's ServiceAccount nor a kubeconfig can be used.
    #[error("cannot connect to the API server: {0}")]
    Config(String),
    /// The API server did not answer in time.
    #[error("the API server did not answer within {} s", LIMIT.as_secs())]
    Timeout,
    /// The API server refused the request, or is unreachable.
    #[error("request to the API server failed: {0}")]
    Refused(String),
}

/// The issuer and the signing keys of the cluster's tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Discovered {
    /// The issuer of the tokens.
    pub issuer: String,
    /// The JSON Web Key Set.
    pub jwks: String,
}

/// Client of the API server that uses the pod's own token and the cluster's CA, or a kubeconfig.
#[derive(Default)]
pub struct ApiServer {
    kubeconfig: Option<PathBuf>,
    /// The client. It is recreated after an error, since the CA may have been replaced.
    client: Mutex<Option<Client>>,
}

impl std::fmt::Debug for ApiServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ApiServer").field("kubeconfig", &self.kubeconfig).finish_non_exhaustive()
    }
}

#[derive(Deserialize)]
struct Discovery {
    issuer: String,
}

impl ApiServer {
    /// Creates the client without connecting. Without a kubeconfig, the client uses the in-cluster configuration.
    #[must_use]
    pub fn new(kubeconfig: Option<PathBuf>) -> Self {
        Self { kubeconfig, client: Mutex::default() }
    }

    /// Reads the issuer and the signing keys of tokens.
    ///
    /// The keys are read from the fixed path on the API server, because the address in the discovery document is meant for other clients.
    pub async fn discover(&self) -> Result<Discovered, ApiServerError> {
        self.ask(async |client| {
            let discovery: Discovery = client.request(get(DISCOVERY)?).await?;
            let jwks = client.request_text(get(KEYS)?).await?;
            Ok(Discovered { issuer: discovery.issuer, jwks })
        })
        .await
    }

    /// Checks whether a token is valid for an audience.
    pub async fn review(&self, token: &str, audience: &str) -> Result<TokenReviewStatus, ApiServerError> {
        let review = TokenReview {
            spec: TokenReviewSpec {
                token: Some(token.to_owned()),
                audiences: Some(vec![audience.to_owned()]),
            },
            ..TokenReview::default()
        };
        let answer = self
            .ask(async |client| Api::<TokenReview>::all(client).create(&PostParams::default(), &review).await)
            .await?;
        Ok(answer.status.unwrap_or_default())
    }

    /// Reads the UID of the namespace kube-system, which identifies the cluster.
    pub(crate) async fn cluster_id(&self) -> Result<String, ApiServerError> {
        let namespace =
            self.ask(async |client| Api::<Namespace>::all(client).get_metadata("kube-system").await).await?;
        namespace.metadata.uid.ok_or_else(|| ApiServerError::Refused("the namespace has no UID".to_owned()))
    }

    pub(crate) async fn secret(&self, of: &SecretName) -> Result<Secret, ApiServerError> {
        self.ask(async |client| Api::<Secret>::namespaced(client, &of.namespace).get(&of.name).await).await
    }

    /// The API server refuses the request if the Secret no longer has this resource version.
    pub(crate) async fn fill_secret(
        &self,
        of: &SecretName,
        data: BTreeMap<&str, ByteString>,
        version: &str,
    ) -> Result<(), ApiServerError> {
        let patch = Patch::Merge(json!({ "metadata": { "resourceVersion": version }, "data": data }));
        self.ask(async |client| {
            let secrets = Api::<Secret>::namespaced(client, &of.namespace);
            secrets.patch_metadata(&of.name, &PatchParams::default(), &patch).await
        })
        .await
        .map(drop)
    }

    async fn ask<T>(
        &self,
        question: impl AsyncFnOnce(Client) -> kube::Result<T>,
    ) -> Result<T, ApiServerError> {
        let answer = within(question(self.client().await?)).await;
        if answer.is_err() {
            *self.client.lock().await = None;
        }
        answer
    }

    async fn client(&self) -> Result<Client, ApiServerError> {
        let mut client = self.client.lock().await;
        if let Some(client) = &*client {
            return Ok(client.clone());
        }
        let made = connect(self.kubeconfig.as_ref()).await?;
        Ok(client.insert(made).clone())
    }
}

async fn connect(kubeconfig: Option<&PathBuf>) -> Result<Client, ApiServerError> {
    let config = match kubeconfig {
        Some(path) => configuration(path).await.map_err(ApiServerError::Config)?,
        None => Config::incluster().map_err(|error| ApiServerError::Config(error.to_string()))?,
    };
    Client::try_from(config).map_err(|error| ApiServerError::Config(words(&error)))
}

/// Reads a kubeconfig file.
pub async fn configuration(kubeconfig: &Path) -> Result<Config, String> {
    let wrong = |error| format!("{}: {}", kubeconfig.display(), fault(&error));
    let read = Kubeconfig::read_from(kubeconfig).map_err(wrong)?;
    Config::from_custom_kubeconfig(read, &KubeConfigOptions::default()).await.map_err(wrong)
}

/// Formats a parser error without the parser's own message, which quotes neighbouring lines that contain secrets.
fn fault(error: &KubeconfigError) -> String {
    let KubeconfigError::Parse(error) = error else { return error.to_string() };
    let location = error.location().map(|at| format!(": see line {}, column {}", at.line(), at.column()));
    format!("invalid kubeconfig{}", location.unwrap_or_default())
}

/// Formats an error of the kube client without secrets.
fn words(error: &kube::Error) -> String {
    let mut all = successors(Some(error as &(dyn Error + 'static)), |error| (*error).source());
    all.find_map(without_secrets).unwrap_or_else(|| error.to_string())
}

async fn within<T>(answer: impl Future<Output = kube::Result<T>>) -> Result<T, ApiServerError> {
    match tokio::time::timeout(LIMIT, answer).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(error)) => Err(ApiServerError::Refused(words(&error))),
        Err(_elapsed) => Err(ApiServerError::Timeout),
    }
}

fn get(path: &str) -> kube::Result<http::Request<Vec<u8>>> {
    http::Request::get(path).body(Vec::new()).map_err(kube::Error::HttpError)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_of_a_broken_kubeconfig_are_not_printed() {
        for text in ["users:\n- name: a\n   token: hunter2\n", "kind: Config\nusers: hunter2\n"] {
            let reported = fault(&Kubeconfig::from_yaml(text).expect_err("YAML syntax"));
            assert!(
                reported.starts_with("invalid kubeconfig: see line ") && !reported.contains("hunter2"),
                "{reported}"
            );
        }
    }
}
