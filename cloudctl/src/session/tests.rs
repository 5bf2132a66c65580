//! Tests which processes are found, and how their answers are interpreted.

use ::http::StatusCode;
use serde_json::json;
use telemetry::report::{AdapterStatus, ControllerStatus, Explanation};

use super::*;
use crate::labels::COMPONENT;

fn pod(component: &str, name: &str, phase: &str, port: &str) -> Pod {
    serde_json::from_value(json!({
        "metadata": { "name": name, "namespace": "ccm", "labels": { COMPONENT: component } },
        "spec": { "containers": [{ "name": "it", "ports": [
            { "name": "grpc", "containerPort": 1 }, { "name": port, "containerPort": 10_271 },
        ] }] },
        "status": { "phase": phase },
    }))
    .expect("a pod")
}

#[test]
fn each_pod_of_a_component_is_a_process_or_is_missing() {
    let pods = [
        pod("service-controller", "sc-1", "Running", "http"),
        pod("service-controller", "sc-2", "Pending", "http"),
        pod("cloud-adapter", "ca", "Running", "metrics"),
        pod("self-test", "test", "Running", "http"),
    ];
    let components = [Component::CloudAdapter, Component::NodeController, Component::ServiceController];
    let (found, missing) = of_pods(&pods, &components, "ccm");
    let found: Vec<&str> = found.iter().map(|it| it.name.as_str()).collect();
    assert_eq!(found, ["sc-1"]);
    let missing: Vec<String> = missing.iter().map(|it| format!("{}: {}", it.source, it.why)).collect();
    assert_eq!(
        missing,
        [
            "cloud-adapter, pod ca: it has no port named http",
            "node-controller: no pod in ccm: this component is not running, or is disabled in the chart",
            "service-controller, pod sc-2: it is Pending: see kubectl describe pod",
        ]
    );
    let mut unscheduled = pod("service-controller", "sc-3", "Pending", "http");
    let condition = json!({ "type": "PodScheduled", "status": "False", "reason": "Unschedulable" });
    unscheduled.status = Some(
        serde_json::from_value(json!({ "phase": "Pending", "conditions": [condition] })).expect("a status"),
    );
    assert_eq!(port_of(&unscheduled), Err("it is Pending: Unschedulable".to_owned()));
}

#[test]
fn a_controller_without_a_deployment_is_disabled() {
    let pods = vec![pod("service-controller", "sc-1", "Running", "http")];
    let components =
        [Component::CloudAdapter, Component::NodeController, Component::RouteController, SERVICES];
    let deployed = ["service-controller", "node-controller"].map(|name| {
        let metadata = json!({ "name": name, "labels": { COMPONENT: name } });
        serde_json::from_value(json!({ "apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata }))
            .expect("a Deployment")
    });
    let found = Found { release: Release::within("ccm"), pods, deployments: Some(deployed.into()) };
    assert_eq!(
        installed(&found, &components),
        [Component::CloudAdapter, Component::NodeController, SERVICES]
    );
    let forbidden = Found { deployments: None, ..found };
    assert_eq!(installed(&forbidden, &components), components, "Deployments cannot be listed");
}

fn answer(status: StatusCode, body: &str) -> HttpResponse {
    HttpResponse { status, body: body.to_owned().into() }
}

const SERVICES: Component = Component::ServiceController;

#[test]
fn a_page_about_an_unknown_object_is_read() {
    let body = r#"{"known":false,"key":"a","controller":"service-controller"}"#;
    let known = read::<Explanation>(SERVICES, &answer(StatusCode::NOT_FOUND, body), "/explain?key=a");
    assert_eq!(known.map(|it| (it.known, it.key)), Ok((false, "a".to_owned())));
}

#[test]
fn an_invalid_page_is_reported_with_its_cause() {
    for (status, body, wanted) in [
        (StatusCode::NOT_FOUND, "", "has no page /status: the process is older than this cloudctl"),
        (
            StatusCode::SERVICE_UNAVAILABLE,
            "it has not started yet\n",
            "/status answered 503: it has not started yet",
        ),
        (StatusCode::OK, "<html>", "cannot parse /status"),
        (StatusCode::OK, "{}", "/status is not a page of a controller or adapter"),
        (StatusCode::OK, r#"{"controller":"node-controller"}"#, "this page belongs to node-controller"),
        (StatusCode::NOT_FOUND, r#"{"error":"not found"}"#, "has no page /status"),
    ] {
        let refused = read::<ControllerStatus>(SERVICES, &answer(status, body), "/status").expect_err(body);
        assert!(refused.starts_with(wanted), "{refused}");
    }
}

#[test]
fn an_adapter_page_is_recognised() {
    let of = |body| {
        read::<AdapterStatus>(Component::CloudAdapter, &answer(StatusCode::OK, body), "/status.json").is_ok()
    };
    assert!(of(r#"{"adapter":"adapter-sim","instanceId":"a"}"#));
    for other in ["{}", r#"{"adapter":"adapter-sim"}"#, r#"{"instanceId":"a"}"#] {
        assert!(!of(other), "{other}");
    }
}
