//! The RBAC rights of the peer: the rights that vendors publish for their cloud controller managers.

use anyhow::Context;
use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use kube::api::PostParams;
use kube::{Api, Client};
use serde::de::DeserializeOwned;
use serde_json::{Value, from_value, json};

use crate::pods::token;

/// Creates the ServiceAccount, unless it exists, and returns a token for it.
pub(super) async fn grant(client: &Client, namespace: &str, name: &str) -> anyhow::Result<String> {
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), namespace);
    make(&accounts, json!({ "metadata": { "name": name } })).await?;
    let role = format!("system:{name}");
    let roles: Api<ClusterRole> = Api::all(client.clone());
    make(&roles, json!({ "metadata": { "name": role }, "rules": rules() })).await?;
    let bindings: Api<ClusterRoleBinding> = Api::all(client.clone());
    let binding = json!({
        "metadata": { "name": role },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role },
        "subjects": [{ "kind": "ServiceAccount", "name": name, "namespace": namespace }],
    });
    make(&bindings, binding).await?;
    token(&accounts, name, &[]).await
}

/// The ClusterRole of the peer. Source: the manifest of cloud-provider-openstack, without the rights for volumes.
fn rules() -> Value {
    let rule = |groups: &[&str], resources: &[&str], verbs: &[&str]| json!({ "apiGroups": groups, "resources": resources, "verbs": verbs });
    json!([
        rule(&["coordination.k8s.io"], &["leases"], &["get", "create", "update"]),
        rule(&["", "events.k8s.io"], &["events"], &["create", "patch", "update"]),
        rule(&[""], &["nodes"], &["*"]),
        rule(&[""], &["nodes/status"], &["patch"]),
        rule(&[""], &["services"], &["list", "patch", "update", "watch", "get"]),
        rule(&[""], &["services/status"], &["patch"]),
        rule(&[""], &["serviceaccounts/token"], &["create"]),
        rule(&[""], &["serviceaccounts"], &["create", "get"]),
        rule(&[""], &["endpoints", "secrets", "configmaps"], &["get", "list", "watch"]),
    ])
}

/// Creates an object, unless it exists.
async fn make<K>(api: &Api<K>, object: Value) -> anyhow::Result<()>
where
    K: kube::Resource + Clone + std::fmt::Debug + DeserializeOwned + serde::Serialize,
{
    let what = object.to_string();
    let object: K = from_value(object).with_context(|| format!("invalid object: {what}"))?;
    match api.create(&PostParams::default(), &object).await {
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
        made => made.map(drop).with_context(|| format!("cannot create {what}")),
    }
}
