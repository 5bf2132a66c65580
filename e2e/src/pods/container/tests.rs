//! Tests with pods as inputs and processes as results.

use serde_json::{Value, from_value, json};

use super::{Container, PodSpec, Ports, Surroundings, Volumes, resolve};

fn pod(container: &Value) -> PodSpec {
    let mut pod = json!({ "serviceAccountName": "app", "containers": [{ "name": "app" }] });
    for (key, value) in container.as_object().unwrap() {
        pod["containers"][0][key] = value.clone();
    }
    from_value(pod).unwrap()
}

fn resolved(container: &Value) -> anyhow::Result<Container> {
    let surroundings = Surroundings {
        pod: "app-0".to_owned(),
        namespace: "kube-system".to_owned(),
        volumes: Volumes::from([("config".to_owned(), "/t/config".into())]),
        ip: "192.0.2.7".parse().unwrap(),
        ports: Ports::from([(8443, 20001)]),
    };
    resolve(&pod(container), &surroundings)
}

#[test]
fn arguments_use_variables_fields_and_volumes() {
    let container = resolved(&json!({
        "command": ["/bin/app", "serve"],
        "args": ["--name=$(NAME)", "--config=/etc/app/config.yaml", "--listen=0.0.0.0:8443", "--other=a:b"],
        "env": [
            { "name": "NAMESPACE", "valueFrom": { "fieldRef": { "fieldPath": "metadata.namespace" } } },
            { "name": "NAME", "value": "$(NAMESPACE)/$(HOSTNAME)" },
        ],
        "volumeMounts": [{ "name": "config", "mountPath": "/etc/app/" }],
    }));
    let container = container.unwrap();

    assert_eq!(container.program, "app");
    let wanted = [
        "serve",
        "--name=kube-system/app-0",
        "--config=/t/config/config.yaml",
        "--listen=0.0.0.0:20001",
        "--other=a:b",
    ];
    assert_eq!(container.args, wanted);
    assert_eq!(container.env["NAME"], "kube-system/app-0");
}

#[test]
fn image_names_the_program_without_a_command() {
    for image in
        ["app", "app:1.2", "registry.example:5000/team/app:1.2@sha256:00", "registry.example:5000/app"]
    {
        assert_eq!(resolved(&json!({ "image": image })).unwrap().program, "app", "{image}");
    }
}

#[test]
fn probe_finds_its_port_by_name() {
    let container = resolved(&json!({
        "command": ["app"],
        "ports": [{ "name": "http", "containerPort": 10270 }],
        "readinessProbe": { "httpGet": { "path": "/readyz", "port": "http" } },
    }));
    let container = container.unwrap();

    assert_eq!(container.readiness().unwrap(), "http://192.0.2.7:10270/readyz");
    assert_eq!(container.beside_readiness("/metrics").unwrap(), "http://192.0.2.7:10270/metrics");
    assert_eq!(container.by_port_forward("/status").unwrap(), "http://127.0.0.1:10270/status");
}

#[test]
fn unsupported_fields_are_named() {
    let cases = [
        (
            json!({ "env": [{ "name": "A", "valueFrom": { "secretKeyRef": { "name": "s", "key": "k" } } }] }),
            "env A",
        ),
        (
            json!({ "env": [{ "name": "A", "valueFrom": { "fieldRef": { "fieldPath": "spec.x" } } }] }),
            "fieldRef spec.x",
        ),
        (json!({ "envFrom": [{ "configMapRef": { "name": "a" } }] }), "envFrom"),
        (json!({ "volumeMounts": [{ "name": "missing", "mountPath": "/a" }] }), "unknown volume missing"),
        (json!({ "volumeMounts": [{ "name": "config", "mountPath": "/a", "subPath": "b" }] }), "subPath"),
        (json!({ "image": "app", "readinessProbe": { "httpGet": { "port": "http" } } }), "unknown port http"),
    ];
    for (container, wanted) in cases {
        let error = format!("{:#}", resolved(&container).unwrap_err());
        assert!(error.contains(wanted), "{error} does not contain {wanted}");
    }
}
