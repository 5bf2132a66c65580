//! Tests the admission policy for annotations of Services on a real API server. No controller runs here.

use anyhow::{Context as _, ensure};
use e2e::{ControlPlane, Release, Values, WITHIN, eventually, merge};
use k8s_openapi::api::core::v1::Service;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, from_value, json};

const EXAMPLES: &str = include_str!("../../../service-controller/src/plan/annotations/examples.txt");
const PREFIX: &str = "lb.cloudadapter.dev/";

// Behaviour: SF11
#[tokio::test]
async fn invalid_annotations_are_refused_at_admission() {
    let control_plane = ControlPlane::shared(&e2e::tools().unwrap()).await.unwrap();
    let services: Api<Service> = Api::namespaced(control_plane.client(), "default");
    let mut values = Values::new().unwrap().render();
    let release = Release::install(&control_plane, &values).await.unwrap();
    let old = service("old", &json!({ "intrenal": "true", "size": "large" }));
    services.create(&PostParams::default(), &old).await.expect("there is no policy by default");

    merge(&mut values, &json!({ "admissionPolicy": { "enabled": true } }));
    release.upgrade(&control_plane, &values).await.unwrap();
    let judges = async || {
        let error =
            tried(&services, "intrenal", "true").await.err().context("the policy is not in effect yet")?;
        ensure!(error.contains("lb.cloudadapter.dev/intrenal: unknown key"), "{error}");
        Ok(())
    };
    eventually("the policy is in effect", WITHIN, judges).await.unwrap();

    let mut n_judged = 0;
    for line in EXAMPLES.lines().filter(|line| !line.starts_with('#')) {
        let parts: Vec<&str> = line.split('|').map(str::trim).collect();
        let [judged, key, value, ref words @ ..] = parts[..] else { panic!("{line}") };
        let value = value.replace("\\n", "\n").replace("\\t", "\t");
        match (tried(&services, key, &value).await, judged) {
            (Ok(()), "taken" | "late") => {}
            (Err(error), "refused") => {
                let words = format!("annotation {PREFIX}{key}: {}", words.join(""));
                assert!(error.contains(&words), "{line}: {error}");
            }
            (result, _) => panic!("{line}: {result:?}"),
        }
        n_judged += 1;
    }
    assert!(n_judged > 50, "{n_judged} examples");

    a_key_without_lb_is_refused(&services).await;
    node_ports_are_those_of_the_service(&services).await;
    what_is_there_is_left_alone(&services).await;
    merge(&mut values, &json!({ "admissionPolicy": { "enabled": false } }));
    release.upgrade(&control_plane, &values).await.unwrap();
    let passes = async || tried(&services, "intrenal", "true").await.map_err(anyhow::Error::msg);
    eventually("the policy is not in effect any more", WITHIN, passes).await.unwrap();
}

async fn a_key_without_lb_is_refused(services: &Api<Service>) {
    let mut new = service("new", &json!({}));
    new.metadata.annotations = Some([("cloudadapter.dev/internal".to_owned(), "true".to_owned())].into());
    let made = services.create(&PostParams { dry_run: true, ..PostParams::default() }, &new).await;
    let error = made.unwrap_err().to_string();
    assert!(error.contains("unknown key, every key begins with lb.cloudadapter.dev/"), "{error}");
}

/// The policy allows the node ports in the Service, the node ports that the API server allocates, and the node port for health checks. The
/// policy ignores Services of other types.
async fn node_ports_are_those_of_the_service(services: &Api<Service>) {
    let probes = |port: i32| json!({ format!("{PREFIX}health-check.port"): port.to_string() });
    let ports = json!([{ "port": 80, "nodePort": 30080 }]);
    let cluster = json!({ "ports": ports });
    let local = json!({ "ports": ports, "externalTrafficPolicy": "Local", "healthCheckNodePort": 30082 });
    let internal = json!({ "ports": [{ "port": 80 }], "type": "ClusterIP" });
    let rows =
        [(&cluster, 30080, true), (&cluster, 30082, false), (&local, 30082, true), (&internal, 30082, true)];
    for (spec, port, passes) in rows {
        let mut tried = json!(service("new", &json!({})));
        merge(&mut tried, &json!({ "metadata": { "annotations": probes(port) }, "spec": spec }));
        let tried = from_value(tried).unwrap();
        let made = services.create(&PostParams { dry_run: true, ..PostParams::default() }, &tried).await;
        assert_eq!(made.is_ok(), passes, "{spec} {port}: {made:?}");
    }

    let old = services.get("old").await.unwrap();
    let own = old.spec.unwrap().ports.unwrap().first().unwrap().node_port.unwrap();
    let params = PatchParams { dry_run: true, ..PatchParams::default() };
    for (port, passes) in [(own, true), (30_082, false)] {
        let patch = Patch::Merge(json!({ "metadata": { "annotations": probes(port) } }));
        let patched = services.patch("old", &params, &patch).await;
        assert_eq!(patched.is_ok(), passes, "port {port}, the Service has {own}: {patched:?}");
    }
}

/// A Service that is older than the policy can be changed and deleted, with its finalizer; only the changed annotation is checked.
async fn what_is_there_is_left_alone(services: &Api<Service>) {
    let change = async |patch: Value| {
        services
            .patch("old", &PatchParams::default(), &Patch::Merge(patch))
            .await
            .map_err(|error| error.to_string())
    };
    let label = json!({ "metadata": { "labels": { "a": "b" }, "finalizers": ["example.com/last"] } });
    // The policy does not check labels.
    change(label).await.unwrap();
    let size = |value: &str| json!({ "metadata": { "annotations": { format!("{PREFIX}size"): value } } });
    // The other annotation stays invalid, and is not checked again.
    change(size("larger")).await.unwrap();
    let error = change(size("")).await.unwrap_err();
    assert!(error.contains("write a text without blanks around it"), "{error}");
    services.delete("old", &DeleteParams::default()).await.unwrap();
    change(json!({ "metadata": { "finalizers": null } })).await.unwrap();
}

/// The answer of the API server to a new Service with this annotation. It is a dry run.
async fn tried(services: &Api<Service>, key: &str, value: &str) -> Result<(), String> {
    let params = PostParams { dry_run: true, ..PostParams::default() };
    let mut new = service("new", &json!({ key: value }));
    // The request is a dry run, so the node port stays free for other Services.
    new.spec.as_mut().unwrap().ports.as_mut().unwrap().first_mut().unwrap().node_port = Some(30_080);
    let made = services.create(&params, &new).await;
    made.map(drop).map_err(|error| error.to_string())
}

/// A Service with these annotations, given without the prefix.
fn service(name: &str, annotations: &Value) -> Service {
    let full: serde_json::Map<String, Value> = annotations
        .as_object()
        .into_iter()
        .flatten()
        .map(|(key, value)| (format!("{PREFIX}{key}"), value.clone()))
        .collect();
    let spec = json!({ "type": "LoadBalancer", "ports": [{ "port": 80, "name": "http" }, { "port": 81, "name": "b" }] });
    from_value(json!({ "metadata": { "name": name, "annotations": full }, "spec": spec })).unwrap()
}
