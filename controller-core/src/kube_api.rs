//! Calls to the API server, each with a time limit: kube's client waits for ever on a server that hangs.

mod metrics;
mod pace;
mod requests;

use std::{
    future::Future,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context as _, anyhow, bail};
use cloud_lease::causes;
use kube::{
    Client, Config,
    client::ClientBuilder,
    config::{Kubeconfig, KubeconfigError},
    core::{Status, response::StatusCause},
};
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

/// What every pod has that may reach the API server. kube names none of them when it is missing.
const POD_VARIABLES: [&str; 2] = ["KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"];
const SERVICE_ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
/// The other way there.
const OR_A_FILE: &str = "name a kubeconfig file with --kubeconfig or KUBECONFIG";

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
    /// 409 answers a stale `resourceVersion`, or a deletion that names another UID. 422 without a cause answers a JSON patch whose
    /// `test` failed; one that names the fields at fault is a real refusal, but for [`Error::is_about_another`].
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

    /// The patch names the UID of an object that is gone, and another one has its name by now. Nothing was written.
    ///
    /// A UID cannot be changed, so the API server takes the guard for an attempt to do so: 422, with `metadata.uid` among the fields
    /// at fault. Whatever else it finds wrong was not meant for this object.
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

/// Why a kubeconfig cannot be read. The parser's own words show the lines around, and those have secrets.
fn unread(file: &Path, error: KubeconfigError) -> anyhow::Error {
    let KubeconfigError::Parse(error) = error else { return error.into() };
    let place = error.location().map(|at| format!(": look at line {}, column {}", at.line(), at.column()));
    anyhow!("{} is no kubeconfig{}", file.display(), place.unwrap_or_default())
}

/// With the pod's service account.
fn in_a_pod() -> anyhow::Result<Config> {
    if let Some(variable) = unset(|variable| std::env::var_os(variable).is_some()) {
        bail!("the environment variable {variable} is not set, so this is no pod of a cluster: {OR_A_FILE}");
    }
    Config::incluster()
        .with_context(|| format!("the pod's service account in {SERVICE_ACCOUNT}: {OR_A_FILE}"))
}

/// The first of the variables that every pod has and this process has not.
fn unset(is_set: impl Fn(&str) -> bool) -> Option<&'static str> {
    POD_VARIABLES.into_iter().find(|variable| !is_set(variable))
}

/// The client of a controller: its requests pass `requests`.
///
/// # Errors
/// The configuration makes no sense.
pub fn client(config: Config, requests: &Requests) -> anyhow::Result<Client> {
    let builder = ClientBuilder::try_from(config)
        .map_err(|error| unusable(&error))?
        .with_layer(&TimeoutLayer::new(ANSWER_LIMIT));
    // The layer clones what is below it for each request.
    Ok(builder.with_layer(&BufferLayer::new(REQUESTS_WAITING)).with_layer(requests).build())
}

/// A client for what must not wait for a term: the election itself.
///
/// # Errors
/// The configuration makes no sense.
pub fn plain_client(config: Config) -> anyhow::Result<Client> {
    Ok(ClientBuilder::try_from(config).map_err(|error| unusable(&error))?.build())
}

/// Why there is no client, without the secrets that a kubeconfig and its credential plugin have.
fn unusable(error: &kube::Error) -> anyhow::Error {
    anyhow!("the API server cannot be asked: {}", causes(error))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn secrets_of_a_broken_kubeconfig_are_not_told() {
        for text in ["users:\n- name: a\n   token: hunter2\n", "kind: Config\nusers: hunter2\n"] {
            let error = Kubeconfig::from_yaml(text).expect_err("is none");
            let told = format!("{:#}", unread(Path::new("/etc/config"), error));
            let place = told.starts_with("/etc/config is no kubeconfig: look at line ");
            assert!(place && !told.contains("hunter2"), "{told}");
        }
    }

    #[tokio::test]
    async fn secrets_of_a_kubeconfig_that_gives_no_client_are_not_told() {
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
            let error = plain_client(config.expect("complete")).err().expect("there is none");
            let told = format!("{error:#} {error:?}");
            assert!(told.contains(words) && !told.contains("hunter2"), "{told}");
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
    fn what_was_meant_for_another_object_is_stale_and_what_is_wrong_is_refused() {
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

    #[test]
    fn what_a_pod_would_have_is_missed_by_its_name() {
        let [host, port] = POD_VARIABLES;
        for (set, missed) in
            [([].as_slice(), Some(host)), (&[port], Some(host)), (&[host], Some(port)), (&[host, port], None)]
        {
            assert_eq!(unset(|variable| set.contains(&variable)), missed, "{set:?}");
        }
    }
}
