//! The chart as GitOps tools and kubectl use it: rendered without a cluster, and applied again and again, on a real API server.

#![expect(clippy::indexing_slicing, reason = "clippy recognises tests, but not their helpers")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use e2e::{ControlPlane, Values, merge};
use k8s_openapi::ByteString;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};

use super::chart_install::control_plane;
use super::chart_names::{all, chart, documents, helm, one, root, sim};

/// The Application and the HelmRelease of docs/gitops.md: each renders the same twice, without a cluster, and is accepted by an API server.
#[tokio::test]
async fn page_renders_the_same_each_time() {
    let page = std::fs::read_to_string(root().join("docs/gitops.md")).unwrap();
    let blocks = page.split("```yaml\n").skip(1).map(|it| it.split("\n```").next().unwrap());
    let objects: Vec<Value> = blocks.flat_map(documents).collect();
    let application = &one(&objects, "Application", "cloud-controllers")["spec"];
    let release = &one(&objects, "HelmRelease", "cloud-controllers")["spec"];
    assert_eq!(application["source"]["chart"], "cloud-controllers");
    assert_eq!(one(&objects, "OCIRepository", "cloud-controllers")["spec"]["ref"]["tag"], version().as_str());
    assert_eq!(application["source"]["targetRevision"], version().as_str());
    for (namespace, name, values) in [
        (
            &application["destination"]["namespace"],
            &application["source"]["helm"]["releaseName"],
            &application["source"]["helm"]["valuesObject"],
        ),
        (&release["targetNamespace"], &release["releaseName"], &release["values"]),
    ] {
        assert_eq!((namespace, name), (&json!("kube-system"), &json!("cloud-controllers")));
        let text = helm("cloud-controllers", values).unwrap();
        assert_eq!(text, helm("cloud-controllers", values).unwrap());
        let control_plane = control_plane().await;
        applied(&control_plane, &["--server-side"], &text).await;
        assert_eq!(generations(&control_plane).await.len(), 3, "no route-controller without a pod network");
    }
}

/// Nothing in the rendered chart depends on chance or on the cluster, whatever is switched on.
#[test]
fn rendering_is_repeatable() {
    let mut values = all();
    merge(&mut values, &json!({ "hostNetwork": true, "serviceController": { "orphans": "delete" } }));
    for values in [all(), values, json!({ "adapter": sim() })] {
        let text = helm("a", &values).unwrap();
        assert_eq!(text, helm("a", &values).unwrap());
        for object in documents(&text).iter().filter(|it| it["kind"] == "Secret") {
            assert!(object["data"].is_null() && object["stringData"].is_null(), "{object}");
        }
    }
}

/// A second application changes nothing: neither the data that the adapter has written into its Secret, nor a pod. An upgrade by Helm
/// changes nothing either.
#[tokio::test]
async fn manifests_are_applied_twice_without_a_change() {
    for mode in [&["--server-side"][..], &[]] {
        let control_plane = control_plane().await;
        let mut values = Values::new().unwrap().render();
        merge(&mut values, &json!({ "adapter": { "replicas": "active-standby" } }));
        let text = without_hooks(&helm("cloud-controllers", &values).unwrap());
        applied(&control_plane, mode, &text).await;
        let secret = filled(&control_plane).await;
        assert_eq!(generations(&control_plane).await.len(), 4);
        let before = versions(&control_plane).await;
        applied(&control_plane, mode, &text).await;
        assert_eq!(versions(&control_plane).await, before, "{mode:?}");
        assert_eq!(ca(&control_plane).await, secret);
    }
}

/// At upgrades and rollbacks, Helm keeps the data that the adapter has written into its Secret.
#[tokio::test]
async fn helm_keeps_the_data_of_the_secret() {
    let control_plane = control_plane().await;
    let chart = chart().display().to_string();
    let confirmed = "adapter.kind=sim,adapter.sim.notForProduction=true";
    let install = ["install", "a", &chart, "--namespace", "kube-system", "--set", confirmed];
    control_plane.helm(&install).await.unwrap();
    let secret = filled(&control_plane).await;
    let upgrade = [&["upgrade"][..], &install[1..], &["--set", "commonLabels.team=x"]].concat();
    control_plane.helm(&upgrade).await.unwrap();
    assert_eq!(ca(&control_plane).await, secret);
    control_plane.helm(&["rollback", "a", "1", "--namespace", "kube-system"]).await.unwrap();
    assert_eq!(ca(&control_plane).await, secret);
}

/// Argo CD would run hooks at another time than Helm, and kubectl would run them at once. So a chart that is rendered without a cluster has
/// only the hook of `helm test`, which Argo CD does not run. The chart refuses values that need another hook.
#[tokio::test]
async fn hooks_exist_only_where_helm_runs_them() {
    let mut values = all();
    merge(&mut values, &json!({ "monitoring": { "serviceMonitor": false, "alerts": false } }));
    let text = helm("a", &values).unwrap();
    assert_eq!(hooks(&documents(&text)), BTreeSet::from(["test".to_owned()]));
    assert_eq!(
        hooks(&on_server(&control_plane().await, &values).await),
        ["post-delete", "test"].map(str::to_owned).into()
    );

    merge(&mut values, &json!({ "serviceController": { "onUninstall": "delete" } }));
    let said = helm("a", &values).expect_err("no hook deletes the load balancers");
    assert!(said.contains("serviceController.onUninstall: delete needs Helm or Flux"), "{said}");
}

/// The controller deletes load balancers before the uninstall, in its own pod, and only on request.
#[tokio::test]
async fn the_controller_deletes_load_balancers_at_the_uninstall() {
    let control_plane = control_plane().await;
    let mut values = json!({ "adapter": sim() });
    merge(&mut values, &json!({ "serviceController": { "onUninstall": "delete", "shards": 3 } }));
    let objects = on_server(&control_plane, &values).await;
    let hook = |it: &Value| it.pointer("/metadata/annotations/helm.sh~1hook") == Some(&json!("pre-delete"));
    let (hooks, release): (Vec<_>, Vec<_>) = objects.into_iter().partition(hook);
    let (stopped, job) =
        (one(&hooks, "Deployment", "service-controller"), one(&hooks, "Job", "service-controller-removal"));
    assert_eq!(hooks.len(), 2);
    assert_eq!(stopped["spec"]["replicas"], 0);
    let note = |object: &Value, key: &str| object["metadata"]["annotations"][key].clone();
    let policy = note(job, "helm.sh/hook-delete-policy");
    assert!(policy.as_str().unwrap().contains("hook-failed"), "a failed hook must not stay: {policy}");
    let weights = [stopped, job].map(|it| note(it, "helm.sh/hook-weight"));
    assert_eq!(weights, ["0", "1"], "the controller stops before the Job starts");
    let pod = |object: &Value| object["spec"]["template"]["spec"].clone();
    let mut job = pod(job);
    let args = job["containers"][0]["args"].as_array_mut().unwrap();
    let n_args = args.len();
    args.retain(|arg| arg != "--remove-all");
    assert_eq!(args.len(), n_args - 1);
    assert_eq!(job.as_object_mut().unwrap().remove("restartPolicy"), Some(json!("Never")));
    assert_eq!(job, pod(one(&release, "Deployment", "service-controller")));
}

/// The objects as Helm renders them with access to a cluster.
async fn on_server(control_plane: &ControlPlane, values: &Value) -> Vec<Value> {
    let (chart, file) = (chart().display().to_string(), control_plane.dir().join("values.json"));
    std::fs::write(&file, values.to_string()).unwrap();
    let file = file.display().to_string();
    let args = ["template", "a", &chart, "--namespace", "kube-system", "--dry-run=server", "--values", &file];
    documents(&control_plane.helm(&args).await.unwrap())
}

fn hooks(objects: &[Value]) -> BTreeSet<String> {
    let types = objects.iter().filter_map(|it| it["metadata"]["annotations"]["helm.sh/hook"].as_str());
    types.map(str::to_owned).collect()
}

/// The manifests without hooks, as `helm template --no-hooks` prints them.
fn without_hooks(text: &str) -> String {
    let documents = text.split("\n---\n").filter(|it| !it.contains("helm.sh/hook:"));
    documents.collect::<Vec<_>>().join("\n---\n")
}

fn manifests(control_plane: &ControlPlane) -> String {
    control_plane.dir().join("manifests.yaml").display().to_string()
}

async fn applied(control_plane: &ControlPlane, mode: &[&str], text: &str) {
    let file = manifests(control_plane);
    std::fs::write(Path::new(&file), without_hooks(text)).unwrap();
    control_plane.kubectl(&[&["apply"], mode, &["--filename", &file]].concat()).await.unwrap();
}

async fn versions(control_plane: &ControlPlane) -> String {
    let path = r#"jsonpath={range .items[*]}{.kind} {.metadata.name} {.metadata.resourceVersion}{"\n"}{end}"#;
    control_plane.kubectl(&["get", "--filename", &manifests(control_plane), "--output", path]).await.unwrap()
}

/// Fills the Secret as the adapter does, and returns its data.
async fn filled(control_plane: &ControlPlane) -> BTreeMap<String, ByteString> {
    assert_eq!(ca(control_plane).await, BTreeMap::new());
    let secrets: Api<Secret> = Api::namespaced(control_plane.client(), "kube-system");
    let data = json!({ "data": { "ca.crt": ByteString(b"certificate".into()), "ca.key": ByteString(b"key".into()) } });
    secrets.patch("cloud-adapter-ca", &PatchParams::default(), &Patch::Merge(data)).await.unwrap();
    ca(control_plane).await
}

async fn ca(control_plane: &ControlPlane) -> BTreeMap<String, ByteString> {
    let secrets: Api<Secret> = Api::namespaced(control_plane.client(), "kube-system");
    secrets.get("cloud-adapter-ca").await.unwrap().data.unwrap_or_default()
}

async fn generations(control_plane: &ControlPlane) -> BTreeMap<String, i64> {
    let deployments: Api<Deployment> = Api::namespaced(control_plane.client(), "kube-system");
    let listed = deployments.list(&ListParams::default()).await.unwrap().items;
    listed.into_iter().map(|it| (it.name_any(), it.metadata.generation.unwrap())).collect()
}

fn version() -> String {
    let text = std::fs::read_to_string(chart().join("Chart.yaml")).unwrap();
    let about: Value = serde_saphyr::from_str(&text).unwrap();
    about["version"].as_str().unwrap().to_owned()
}
