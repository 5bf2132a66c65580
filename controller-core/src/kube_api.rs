//! Calls to the API server, each with a time limit, since kube's client would wait for a hanging server without limit.

mod metrics;
mod pace;
mod requests;

use std::{
    fmt,
    future::Future,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context as _, anyhow, bail};
use cloud_lease::causes;
use kube::{
    Api, Client, Config,
    api::ListParams,
    client::ClientBuilder,
    config::{Kubeconfig, KubeconfigError},
    core::{Status, response::StatusCause},
};
use serde::de::DeserializeOwned;
use tower::{buffer::BufferLayer, timeout::TimeoutLayer};

pub use self::requests::{Held, Requests};

/// Time limit for a call: longer than a healthy API server ever takes.
const LIMIT: Duration = Duration::from_secs(15);
/// Number of objects in a page of a listing.
const PAGE: u32 = 500;
/// Time limit until an answer begins. For the start of a watch, this is the only limit.
pub(crate) const ANSWER_LIMIT: Duration = Duration::from_secs(30);
/// Capacity of the buffer between two layers. No request waits for a slot, since the worker takes each request at once.
const REQUESTS_WAITING: usize = 64;
/// Time limit for a connection. Shorter than the limit for a call, because the address of the API server may not respond at all.
const CONNECT_LIMIT: Duration = Duration::from_secs(5);

/// The environment variables of a pod that contain the address of the API server. If a variable is missing, kube's error does not name it.
const POD_VARIABLES: [&str; 2] = ["KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"];
const SERVICE_ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
/// The alternative to a pod's service account.
const OR_A_FILE: &str = "name a kubeconfig file with --kubeconfig or KUBECONFIG";

/// Why a call to the API server failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No answer arrived within the time limit; the outcome of a write is unknown.
    #[error("no answer from the API server within {} s", LIMIT.as_secs())]
    Timeout,
    /// The server refused the request.
    #[error("{} ({} {})", .0.message, .0.code, .0.reason)]
    Refused(Box<Status>),
    /// The server asked for a pause, or this process may not write any more.
    #[error(transparent)]
    Held(Held),
    /// The connection or the client failed.
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
    /// Returns the HTTP status, if the server answered.
    #[must_use]
    pub fn status(&self) -> Option<u16> {
        match self {
            Self::Refused(status) => Some(status.code),
            Self::Held(Held::Busy { status, .. }) => Some(status.as_u16()),
            Self::Timeout | Self::Held(_) | Self::Client(_) => None,
        }
    }

    /// Whether the object does not exist (any more).
    #[must_use]
    pub fn is_not_found(&self) -> bool {
        self.status() == Some(404)
    }

    /// Whether another client wrote first, or a guard in the patch failed. The caller should read the current state and decide again.
    ///
    /// The API server answers 409 for a stale `resourceVersion` or a deletion that names another UID. It answers 422 without a cause for a
    /// JSON patch whose `test` failed. A 422 that names invalid fields is a real refusal, except for [`Error::is_about_another`].
    #[must_use]
    pub fn is_stale(&self) -> bool {
        match self {
            Self::Refused(status) if status.code == 422 => {
                causes_of(status).is_empty() || names_another(status)
            }
            Self::Refused(status) => status.code == 409,
            Self::Timeout | Self::Held(_) | Self::Client(_) => false,
        }
    }

    /// Whether the patch names the UID of a deleted object whose name now belongs to another object. In this case, the patch wrote nothing.
    ///
    /// A UID is immutable, so the API server treats the guard as an attempt to change the UID: 422, with `metadata.uid` among the invalid
    /// fields. Other invalid fields then do not matter, since the patch was not meant for this object.
    #[must_use]
    pub fn is_about_another(&self) -> bool {
        match self {
            Self::Refused(status) => status.code == 422 && names_another(status),
            Self::Timeout | Self::Held(_) | Self::Client(_) => false,
        }
    }
}

fn causes_of(status: &Status) -> &[StatusCause] {
    status.details.as_ref().map_or(&[], |details| &details.causes)
}

fn names_another(status: &Status) -> bool {
    causes_of(status).iter().any(|cause| cause.field == "metadata.uid")
}

/// Waits for a call to the API server, within the time limit.
pub async fn within<T>(call: impl Future<Output = kube::Result<T>>) -> Result<T, Error> {
    match tokio::time::timeout(LIMIT, call).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(error)) => Err(error.into()),
        Err(_elapsed) => Err(Error::Timeout),
    }
}

/// Returns how to reach the API server: from kubeconfig files, merged in this order, or from the pod's service account if there are no
/// files.
///
/// Makes no connection, since the API server may become available later. kube's own retries are disabled, because the work queues retry.
pub async fn config(kubeconfig: &[PathBuf]) -> anyhow::Result<Config> {
    let mut merged: Option<Kubeconfig> = None;
    for file in kubeconfig {
        let next = Kubeconfig::read_from(file).map_err(|error| unread(file, error))?;
        merged = Some(match merged {
            Some(earlier) => earlier.merge(next)?,
            None => next,
        });
    }
    let mut config = match merged {
        Some(merged) => Config::from_custom_kubeconfig(merged, &Default::default()).await?,
        None => in_a_pod()?,
    };
    config.connect_timeout = Some(CONNECT_LIMIT);
    config.default_retry = false;
    Ok(config)
}

/// Describes why a kubeconfig cannot be read. The parser's own text is not used, since it quotes the surrounding lines, which contain
/// secrets.
fn unread(file: &Path, error: KubeconfigError) -> anyhow::Error {
    let KubeconfigError::Parse(error) = error else { return error.into() };
    let location = error.location().map(|at| format!(": see line {}, column {}", at.line(), at.column()));
    anyhow!("{} is not a valid kubeconfig{}", file.display(), location.unwrap_or_default())
}

fn in_a_pod() -> anyhow::Result<Config> {
    if let Some(variable) = unset(|variable| std::env::var_os(variable).is_some()) {
        bail!(
            "the environment variable {variable} is not set, so this process does not run in a pod: {OR_A_FILE}"
        );
    }
    Config::incluster()
        .with_context(|| format!("cannot use the pod's service account in {SERVICE_ACCOUNT}: {OR_A_FILE}"))
}

fn unset(is_set: impl Fn(&str) -> bool) -> Option<&'static str> {
    POD_VARIABLES.into_iter().find(|variable| !is_set(variable))
}

/// Whether any object satisfies `matches`. Reads the current objects, page by page, until the first match.
pub async fn any<K>(api: &Api<K>, matches: impl Fn(&K) -> bool) -> Result<bool, Error>
where
    K: Clone + fmt::Debug + DeserializeOwned,
{
    let mut page = ListParams::default().limit(PAGE);
    loop {
        let found = within(api.list(&page)).await?;
        if found.items.iter().any(&matches) {
            return Ok(true);
        }
        match found.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => page = page.continue_token(&token),
            None => return Ok(false),
        }
    }
}

/// Creates the client of a controller, whose requests pass through `requests`.
pub fn client(config: Config, requests: &Requests) -> anyhow::Result<Client> {
    let builder = ClientBuilder::try_from(config)
        .map_err(|error| unusable(&error))?
        .with_layer(&TimeoutLayer::new(ANSWER_LIMIT));
    // The layer clones the service below it for each request.
    Ok(builder.with_layer(&BufferLayer::new(REQUESTS_WAITING)).with_layer(requests).build())
}

/// Creates a client for the requests of the election itself, which must not depend on a term.
pub fn plain_client(config: Config) -> anyhow::Result<Client> {
    Ok(ClientBuilder::try_from(config).map_err(|error| unusable(&error))?.build())
}

/// Describes why a client cannot be created, without the secrets of a kubeconfig and its credential plugin.
fn unusable(error: &kube::Error) -> anyhow::Error {
    anyhow!("cannot create a client for the API server: {}", causes(error))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn secrets_of_a_broken_kubeconfig_are_not_printed() {
        for text in ["users:\n- name: a\n   token: hunter2\n", "kind: Config\nusers: hunter2\n"] {
            let error = Kubeconfig::from_yaml(text).expect_err("is not a valid kubeconfig");
            let text = format!("{:#}", unread(Path::new("/etc/config"), error));
            let is_located = text.starts_with("/etc/config is not a valid kubeconfig: see line ");
            assert!(is_located && !text.contains("hunter2"), "{text}");
        }
    }

    #[tokio::test]
    async fn secrets_of_an_unusable_kubeconfig_are_not_printed() {
        for (proxy, script, words) in [
            (None, r#"echo '{"status": {"token": "hunter2" oops'"#, "printed no ExecCredential"),
            (None, "echo hunter2; exit 7", "failed: exit status: 7"),
            (Some("http://me:hunter2@127.0.0.1:2"), "", "proxy-url http://127.0.0.1: "),
        ] {
            let exec = json!({
                "apiVersion": "client.authentication.k8s.io/v1",
                "command": "/bin/sh",
                "args": ["-c", script],
                "env": [{ "name": "KEY", "value": "hunter2" }],
                "interactiveMode": "Never",
            });
            let kubeconfig = json!({
                "current-context": "a",
                "contexts": [{ "name": "a", "context": { "cluster": "a", "user": "a" } }],
                "clusters": [{ "name": "a", "cluster": { "server": "http://127.0.0.1:9", "proxy-url": proxy } }],
                "users": [{ "name": "a", "user": { "exec": exec } }],
            });
            let kubeconfig = Kubeconfig::from_yaml(&kubeconfig.to_string()).expect("one");
            let config = Config::from_custom_kubeconfig(kubeconfig, &Default::default()).await;
            let error = plain_client(config.expect("complete")).err().expect("the variable is missing");
            let text = format!("{error:#} {error:?}");
            assert!(text.contains(words) && !text.contains("hunter2"), "{text}");
        }
    }

    fn refused(code: u16, fields: &[&str]) -> Error {
        let causes: Vec<_> = fields
            .iter()
            .map(|field| json!({ "reason": "FieldValueInvalid", "message": "Invalid value", "field": field }))
            .collect();
        let body = json!({ "status": "Failure", "code": code, "details": { "causes": causes } });
        Error::Refused(Box::new(serde_json::from_value(body).expect("a Status")))
    }

    #[test]
    fn a_patch_for_another_object_is_stale_and_a_bad_one_refused() {
        for (code, fields, stale, about_another) in [
            (409, [].as_slice(), true, false),
            (422, &[], true, false),
            (422, &["metadata.uid"], true, true),
            (422, &["metadata.labels", "metadata.uid"], true, true),
            (422, &["metadata.labels"], false, false),
            (422, &["spec.template.metadata.uid"], false, false),
            (400, &["metadata.uid"], false, false),
            (404, &[], false, false),
        ] {
            let error = refused(code, fields);
            assert_eq!(
                (error.is_stale(), error.is_about_another()),
                (stale, about_another),
                "{code} {fields:?}"
            );
        }
        assert!(!Error::Timeout.is_stale() && !Error::Timeout.is_about_another());
    }

    // Behaviour: P27
    #[test]
    fn a_missing_pod_variable_is_named() {
        let [host, port] = POD_VARIABLES;
        for (set, missed) in
            [([].as_slice(), Some(host)), (&[port], Some(host)), (&[host], Some(port)), (&[host, port], None)]
        {
            assert_eq!(unset(|variable| set.contains(&variable)), missed, "{set:?}");
        }
    }
}
