//! The identity of a pod towards the API server: its ServiceAccount, with a token that the API server issues as for a kubelet.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Context;
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{PodSpec, ServiceAccount};
use kube::Api;
use kube::api::PostParams;

use crate::control_plane::ControlPlane;
use crate::kubeconfig::{self, Credential};

/// Lifetime of the token. Longer than any demonstration, because this module does not renew the token.
const TOKEN_SECONDS: i64 = 24 * 60 * 60;

#[derive(Debug)]
pub(crate) struct Identity {
    /// The user name that the API server assigns to the pod.
    pub(crate) user: String,
    /// The environment of the process for this identity; empty if the pod gets no token.
    pub(crate) env: BTreeMap<String, String>,
}

/// Requests a token, unless the pod or its account opts out. A kubeconfig replaces the files that a kubelet would mount.
pub(crate) async fn of(
    control_plane: &ControlPlane,
    namespace: &str,
    pod: &PodSpec,
    dir: &Path,
) -> anyhow::Result<Identity> {
    let name = pod.service_account_name.as_deref().unwrap_or("default");
    let user = format!("system:serviceaccount:{namespace}:{name}");
    let accounts: Api<ServiceAccount> = Api::namespaced(control_plane.client(), namespace);
    let account =
        accounts.get_opt(name).await?.with_context(|| format!("ServiceAccount {name} does not exist"))?;
    let automount = pod.automount_service_account_token.or(account.automount_service_account_token);
    if automount == Some(false) {
        return Ok(Identity { user, env: BTreeMap::new() });
    }
    let token = token(&accounts, name, &[]).await?;
    let path = dir.join("kubeconfig");
    kubeconfig::write(&path, &control_plane.server(), namespace, &Credential::Token(&token))?;
    let env = BTreeMap::from([("KUBECONFIG".to_owned(), path.display().to_string())]);
    Ok(Identity { user, env })
}

/// Requests a token of a ServiceAccount for these audiences. Without audiences, the token is for the API server.
pub(crate) async fn token(
    accounts: &Api<ServiceAccount>,
    name: &str,
    audiences: &[&str],
) -> anyhow::Result<String> {
    let order = TokenRequest {
        spec: TokenRequestSpec {
            audiences: audiences.iter().map(|&it| it.to_owned()).collect(),
            expiration_seconds: Some(TOKEN_SECONDS),
            ..TokenRequestSpec::default()
        },
        ..TokenRequest::default()
    };
    let answer = accounts.create_token_request(name, &PostParams::default(), &order).await;
    let status = answer.with_context(|| format!("cannot get a token for {name}"))?.status;
    Ok(status.with_context(|| format!("the token of {name} is empty"))?.token)
}
