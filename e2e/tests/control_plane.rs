//! The harness itself, on a real control plane.

use e2e::ControlPlane;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::PostParams;
use serde_json::{from_value, json};

/// Data, port and audit log outlive the API server's process.
#[tokio::test]
async fn an_api_server_that_was_killed_comes_back_as_it_was() {
    let mut control_plane = ControlPlane::start(&e2e::tools().unwrap()).await.unwrap();
    let config_maps: Api<ConfigMap> = Api::namespaced(control_plane.client(), "kube-system");
    let object = from_value(json!({ "metadata": { "name": "kept" }, "data": { "a": "1" } })).unwrap();
    config_maps.create(&PostParams::default(), &object).await.unwrap();
    let mark = control_plane.audit_log().mark().unwrap();

    control_plane.restart_apiserver().await.unwrap();

    assert_eq!(config_maps.get("kept").await.unwrap().data, object.data);
    assert!(control_plane.audit_log().writes_since(mark, "admin").unwrap().is_empty());
    let writes = control_plane.audit_writes("admin").unwrap();
    let seen: Vec<_> = writes.iter().map(|it| (&*it.verb, &*it.resource, &*it.name, it.code)).collect();
    assert_eq!(seen, [("create", "configmaps", "kept", 201)]);
    control_plane.stop().await.unwrap();
}

/// kubectl and helm see this cluster, whatever the user's own settings say.
#[tokio::test]
async fn the_commands_talk_to_the_control_plane() {
    let control_plane = ControlPlane::start(&e2e::tools().unwrap()).await.unwrap();

    assert_eq!(control_plane.kubectl(&["auth", "can-i", "*", "*"]).await.unwrap().trim(), "yes");
    assert_eq!(control_plane.helm(&["list", "--short"]).await.unwrap().trim(), "");
    let error = control_plane.kubectl(&["get", "node", "nobody"]).await.unwrap_err();
    assert!(error.to_string().contains("\"nobody\" not found"), "{error}");
}
