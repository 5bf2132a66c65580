//! Tests of the test harness, on a real control plane.

use adapter_sim::simcloud::Operation;
use adapter_sim::simcloud::model::InstanceStatus;
use anyhow::ensure;
use e2e::{ControlPlane, Ready, Simcloud, UNINITIALIZED, WITHIN, eventually, node, service};
use k8s_openapi::api::core::v1::{ConfigMap, Node, NodeCondition};
use kube::Api;
use kube::api::PostParams;
use serde_json::{from_value, json};
use tokio::task::JoinSet;

/// Data, port and audit log survive the end of the API server's process.
#[tokio::test]
async fn a_killed_api_server_restarts_with_its_data() {
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

/// Objects that a scenario creates, changes or deletes do not reach the next scenario, whatever their kind.
#[tokio::test]
async fn a_lent_control_plane_is_restored() {
    let (dir, tools) = (tempfile::tempdir().unwrap(), e2e::tools().unwrap());
    let socket = dir.path().join("pool");
    let mut pool = JoinSet::new();
    let (at, of_pool) = (socket.clone(), tools.clone());
    pool.spawn(async move { e2e::pool::serve(&at, &of_pool).await });
    let listens = eventually("the pool listens", WITHIN, || async {
        ensure!(socket.exists(), "the socket does not exist");
        Ok(())
    });
    listens.await.unwrap();

    let mut control_plane = ControlPlane::lent_by(&socket, &tools).await.unwrap();
    let (first, before) =
        (control_plane.kubeconfig().to_path_buf(), everything(&control_plane).await.unwrap());
    node("a").register(&control_plane.client()).await.unwrap();
    service("web").port(80).create(&control_plane.client()).await.unwrap();
    for change in [
        ["create", "namespace", "more"],
        ["delete", "clusterrole", "edit"],
        ["label", "namespace/default", "changed=yes"],
    ] {
        control_plane.kubectl(&change).await.unwrap();
    }
    assert_ne!(everything(&control_plane).await.unwrap(), before);
    control_plane.stop_apiserver().await.expect_err("a lent API server must not be stopped");
    drop(control_plane);

    let again = ControlPlane::lent_by(&socket, &tools).await.unwrap();
    assert_eq!(again.kubeconfig(), first, "the same control plane is lent again");
    assert_eq!(everything(&again).await.unwrap(), before);
    assert!(again.audit_writes("").unwrap().iter().all(|write| write.user != "admin"));
}

async fn everything(control_plane: &ControlPlane) -> anyhow::Result<String> {
    const KINDS: &str =
        "namespaces,nodes,services,ipaddresses,events,configmaps,clusterroles,clusterrolebindings,roles";
    const COLUMNS: &str =
        "custom-columns=KIND:.kind,NAME:.metadata.name,UID:.metadata.uid,LABELS:.metadata.labels";
    control_plane.kubectl(&["get", KINDS, "--all-namespaces", "--output", COLUMNS]).await
}

/// kubectl and helm use this cluster, whatever the user's own settings are.
#[tokio::test]
async fn kubectl_and_helm_use_the_control_plane() {
    let control_plane = ControlPlane::shared(&e2e::tools().unwrap()).await.unwrap();

    assert_eq!(control_plane.kubectl(&["auth", "can-i", "*", "*"]).await.unwrap().trim(), "yes");
    assert_eq!(control_plane.helm(&["list", "--short"]).await.unwrap().trim(), "");
    let error = control_plane.kubectl(&["get", "node", "missing"]).await.unwrap_err();
    assert!(error.to_string().contains("\"missing\" not found"), "{error}");
}

#[tokio::test]
async fn stand_ins_create_valid_nodes_and_services() {
    let control_plane = ControlPlane::shared(&e2e::tools().unwrap()).await.unwrap();
    let client = control_plane.client();

    let made =
        node("a").pods("10.244.1.0/24").not_ready().node_ip("10.0.0.1").register(&client).await.unwrap();
    let (spec, status) = (made.spec.unwrap(), made.status.unwrap());
    assert_eq!((spec.pod_cidrs.unwrap(), spec.provider_id), (vec!["10.244.1.0/24".to_owned()], None));
    assert_eq!(spec.taints.unwrap()[0].key, UNINITIALIZED);
    assert_eq!(status.addresses.unwrap()[0].type_, "Hostname");
    let ready = |conditions: Vec<NodeCondition>| conditions[0].status.clone();
    assert_eq!(ready(status.conditions.unwrap()), "False");
    e2e::set_ready(&client, "a", Ready::True).await.unwrap();
    let nodes: Api<Node> = Api::all(client.clone());
    let now = nodes.get("a").await.unwrap().status.unwrap();
    assert_eq!((now.addresses.unwrap().len(), ready(now.conditions.unwrap())), (1, "True".to_owned()));
    e2e::delete_node(&client, "a").await.unwrap();
    assert!(nodes.get_opt("a").await.unwrap().is_none());

    let made = service("web").port(80).port_of("UDP", 53).annotation("a", "1").create(&client).await.unwrap();
    let ports = made.spec.unwrap().ports.unwrap();
    assert!(ports.len() == 2 && ports.iter().all(|port| port.node_port.is_some()), "{ports:?}");
    assert!(e2e::events_on(&client, "Service", "web").await.unwrap().is_empty());
}

#[tokio::test]
async fn the_simulated_cloud_follows_orders() {
    let control_plane = ControlPlane::shared(&e2e::tools().unwrap()).await.unwrap();
    let cloud = Simcloud::start(&control_plane).await.unwrap();

    let made = cloud.create_numbered("node-{n}", 3).await.unwrap();
    assert_eq!(made.len(), 3);
    cloud.set_instance_status(&made[0].id, InstanceStatus::Stopped).await.unwrap();
    cloud.delete_instance(&made[1].id).await.unwrap();
    let late = cloud.create_instance("node-4").await.unwrap();
    assert_eq!(late.name, "node-4");
    let rule =
        from_value(json!({ "match": { "operation": "*" }, "action": { "respond": { "status": 503 } } }));
    let fault = cloud.add_fault(&rule.unwrap()).await.unwrap();
    cloud.remove_fault(&fault).await.unwrap();
    cloud.clear_faults().await.unwrap();
    cloud.configure(&json!({ "latency": { "default_ms": 1 } })).await.unwrap();
    let error = cloud.configure(&json!({ "latncy": {} })).await.unwrap_err();
    assert!(error.to_string().contains("latncy"), "{error}");

    let state = cloud.state().await.unwrap();
    let running = state.instances.iter().filter(|it| it.status == InstanceStatus::Running).count();
    assert_eq!((running, state.load_balancers.len(), state.routes.len()), (2, 0, 0));
    // Calls of the cloud's admin API are not counted, only calls of its API for customers.
    assert_eq!(cloud.reset_counts().await.unwrap().of(Operation::ListInstances), 0);
    assert!(cloud.requests().await.unwrap().is_empty());
}
