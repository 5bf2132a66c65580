//! The effects of the chart's options, on a real API server.

use std::collections::BTreeMap;

use e2e::{ADAPTER, Bed, CONTROLLERS, ControlPlane, Release, Values, WITHIN, eventually, merge, run_pod};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Namespace, Pod, Service, ServiceAccount};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::rbac::v1::ClusterRole;
use kube::api::{ListParams, ObjectMeta, PostParams};
use kube::{Api, ResourceExt};
use serde_json::{from_value, json};

const TEST: &str = "cloud-controllers-self-test";
const CHECK: &str = "cloud-controllers-check";

/// `helm test` checks what users wait for, with the rights of its pods, and leaves nothing behind. Without an adapter it fails, and says
/// what is missing.
// Behaviour: P17
#[tokio::test]
async fn helm_test_checks_that_a_service_gets_an_address() {
    let mut bed = Bed::start().await.unwrap();
    bed.report_deployments().await.unwrap();
    let helm = ["test", "cloud-controllers", "--namespace", "kube-system", "--timeout", "2m"];
    let control_plane = &bed.cluster.control_plane;
    // A port-forward does not reach the pods of a test bed, so the check gets their URLs.
    let pods_at = |name: &str| (name.to_owned(), bed.cluster.pods.look_at(name).unwrap().url("").unwrap());
    let urls = [&CONTROLLERS[..], &[ADAPTER]].concat().into_iter().map(pods_at);
    let urls: Vec<_> =
        urls.map(|(name, url)| format!("--url={name}={}", url.trim_end_matches('/'))).collect();
    let ran = async { (kubelet(control_plane, TEST, &[]).await, kubelet(control_plane, CHECK, &urls).await) };
    let (tested, (test, check)) = tokio::join!(control_plane.helm(&helm), ran);
    assert!(test.contains("The Service got address "), "{test}");
    let unread = |line: &&str| line.starts_with("unknown ") || line.starts_with("skipped ");
    let unread: Vec<_> = check.lines().filter(unread).collect();
    assert!(check.contains("18 checks: 0 failed, "), "{check}");
    assert!(
        matches!(unread[..], [secret] if secret.starts_with("skipped the Secret of the certificate authority is filled: not \
            checked, because this user may not list Secrets; an administrator's `cloudctl check` checks it (https://") &&
            secret.ends_with("/docs/security.md#certificates)")),
        "{check}"
    );
    tested.unwrap();
    let services: Api<Service> = Api::namespaced(bed.client(), "kube-system");
    assert!(services.get_opt(TEST).await.unwrap().is_none());
    assert!(bed.cluster.cloud.state().await.unwrap().load_balancers.is_empty());
    let accounts: Api<ServiceAccount> = Api::namespaced(bed.client(), "kube-system");
    assert!(accounts.get_opt("cloud-self-test").await.unwrap().is_none(), "Helm removes a successful test");
    let roles: Api<ClusterRole> = Api::all(bed.client());
    assert!(roles.get_opt("cloud-controllers:kube-system:check").await.unwrap().is_none());
    for name in [TEST, CHECK] {
        assert!(pods(control_plane).get_opt(name).await.unwrap().is_none());
    }

    bed.cluster.pods.get("service-controller").unwrap().terminate().await.unwrap();
    let program = e2e::binaries().unwrap().join("service-controller");
    let mut alone = tokio::process::Command::new(program);
    alone.args(["self-test", "--namespace=kube-system", "--timeout=1s", "--kubeconfig"]);
    let failed = alone.arg(bed.cluster.control_plane.kubeconfig()).output().await.unwrap();
    let said = String::from_utf8([failed.stdout, failed.stderr].concat()).unwrap();
    assert_eq!(failed.status.code(), Some(1), "{said}");
    assert!(said.contains("service-controller is running") && said.contains("has no address"), "{said}");
    assert!(services.get_opt(TEST).await.unwrap().is_none(), "a failed test is removed, too");
}

/// Runs a pod of `helm test` as soon as it exists, and returns its output.
async fn kubelet(control_plane: &ControlPlane, name: &str, more: &[String]) -> String {
    let there = async || Ok(pods(control_plane).get(name).await?);
    eventually("Helm creates the test pod", WITHIN, there).await.unwrap();
    let ended = run_pod(control_plane, "kube-system", name, more).await.unwrap();
    let said = String::from_utf8(ended.stdout).unwrap();
    assert!(ended.status.success(), "{said}{}", String::from_utf8_lossy(&ended.stderr));
    said
}

fn pods(control_plane: &ControlPlane) -> Api<Pod> {
    Api::namespaced(control_plane.client(), "kube-system")
}

/// With a pod network, a namespace with the restricted profile admits all pods. On the host network it admits none: host namespaces are
/// forbidden, and that is the only violation.
// Behaviour: P15
#[tokio::test]
async fn pods_on_the_pod_network_meet_the_restricted_profile() {
    let control_plane = ControlPlane::shared(&e2e::tools().unwrap()).await.unwrap();
    restricted_namespace(&control_plane).await;
    let mut values = Values::new().unwrap().render();
    let two = json!({ "replicas": 2 });
    let more = json!({ "nodeController": two, "serviceController": two, "routeController": two,
        "adapter": { "replicas": "active-standby" } });
    merge(&mut values, &more);
    let release = Release::install(&control_plane, &values).await.unwrap();
    for (name, admitted) in admissions(&control_plane).await {
        let error = admitted.expect_err(&name);
        assert!(error.contains("host namespaces (hostNetwork=true)"), "{name}: {error}");
        for other in ["seccompProfile", "runAsNonRoot", "capabilities", "allowPrivilegeEscalation"] {
            assert!(!error.contains(other), "{name}: {error}");
        }
    }
    merge(&mut values, &json!({ "hostNetwork": false }));
    release.upgrade(&control_plane, &values).await.unwrap();
    let admitted = admissions(&control_plane).await;
    assert_eq!(admitted.len(), 4);
    for (name, admitted) in admitted {
        admitted.unwrap_or_else(|error| panic!("{name}: {error}"));
    }
    let budgets: Api<PodDisruptionBudget> = Api::namespaced(control_plane.client(), "kube-system");
    let budgets = budgets.list(&ListParams::default()).await.unwrap().items;
    let names: Vec<_> = budgets.iter().map(ResourceExt::name_any).collect();
    assert_eq!(names, ["cloud-adapter", "node-controller", "route-controller", "service-controller"]);
    for budget in budgets {
        assert_eq!(budget.spec.unwrap().unhealthy_pod_eviction_policy.as_deref(), Some("AlwaysAllow"));
    }
}

async fn restricted_namespace(control_plane: &ControlPlane) {
    let label = ("pod-security.kubernetes.io/enforce".to_owned(), "restricted".to_owned());
    let metadata = ObjectMeta {
        name: Some("restricted".to_owned()),
        labels: Some(BTreeMap::from([label])),
        ..ObjectMeta::default()
    };
    let namespaces: Api<Namespace> = Api::all(control_plane.client());
    let namespace = Namespace { metadata, ..Namespace::default() };
    namespaces.create(&PostParams::default(), &namespace).await.unwrap();
    let accounts: Api<ServiceAccount> = Api::namespaced(control_plane.client(), "restricted");
    for name in ["adapter", "node-controller", "route-controller", "service-controller"] {
        let name = format!("cloud-{name}");
        let account = from_value(json!({ "metadata": { "name": name } })).unwrap();
        accounts.create(&PostParams::default(), &account).await.unwrap();
    }
}

/// Whether the API server admits a pod of each Deployment into the namespace `restricted`, and if not, its error.
async fn admissions(control_plane: &ControlPlane) -> Vec<(String, Result<(), String>)> {
    let deployments: Api<Deployment> = Api::namespaced(control_plane.client(), "kube-system");
    let restricted: Api<Pod> = Api::namespaced(control_plane.client(), "restricted");
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    let mut said = Vec::new();
    for deployment in deployments.list(&ListParams::default()).await.unwrap().items {
        let name = deployment.name_any();
        let mut spec = deployment.spec.unwrap().template.spec.unwrap();
        // If a quota is set, the priority classes of the chart are limited to kube-system. No quota is set here; the restricted profile
        // ignores priority classes.
        spec.priority_class_name = None;
        let metadata = ObjectMeta { name: Some(name.clone()), ..ObjectMeta::default() };
        let pod = Pod { metadata, spec: Some(spec), status: None };
        let answer = restricted.create(&dry, &pod).await;
        said.push((name, answer.map(drop).map_err(|error| error.to_string())));
    }
    said
}

/// A change of the limits changes no Deployment, so no pod restarts. A change of a flag changes only the Deployment with that flag. The
/// generation of each Deployment shows this.
// Behaviour: P16
#[tokio::test]
async fn only_changed_flags_restart_pods() {
    let control_plane = ControlPlane::shared(&e2e::tools().unwrap()).await.unwrap();
    let mut values = Values::new().unwrap().render();
    let release = Release::install(&control_plane, &values).await.unwrap();
    let before = generations(&control_plane).await;
    let limits = json!({ "limits": { "buckets": { "compute": { "rate": 3, "burst": 5 } } } });
    merge(&mut values, &json!({ "adapter": limits }));
    release.upgrade(&control_plane, &values).await.unwrap();
    assert_eq!(generations(&control_plane).await, before);
    merge(&mut values, &json!({ "serviceController": { "concurrentSyncs": 7 } }));
    release.upgrade(&control_plane, &values).await.unwrap();
    let mut after = before;
    *after.get_mut("service-controller").unwrap() += 1;
    assert_eq!(generations(&control_plane).await, after);
}

async fn generations(control_plane: &ControlPlane) -> BTreeMap<String, i64> {
    let deployments: Api<Deployment> = Api::namespaced(control_plane.client(), "kube-system");
    let listed = deployments.list(&ListParams::default()).await.unwrap().items;
    listed.into_iter().map(|it| (it.name_any(), it.metadata.generation.unwrap())).collect()
}

#[tokio::test]
async fn plain_manifests_are_accepted_by_the_api_server() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let chart = root.join("helm/cloud-controllers").display().to_string();
    for (bundle, deployments) in [("sim", 4), ("openstack", 3)] {
        let control_plane = ControlPlane::shared(&e2e::tools().unwrap()).await.unwrap();
        let values = root.join(format!("helm/manifests/{bundle}.yaml")).display().to_string();
        let options = ["--namespace", "kube-system", "--no-hooks", "--skip-tests"];
        let args = [&["template", "cloud-controllers", &chart, "--values", &values][..], &options].concat();
        let manifests = control_plane.helm(&args).await.unwrap();
        let file = control_plane.dir().join("manifests.yaml").display().to_string();
        std::fs::write(&file, manifests).unwrap();
        let apply = ["apply", "--filename", &file];
        // The manifests are applied twice: changes by other writers in between must not cause a conflict.
        for _ in 0..2 {
            control_plane.kubectl(&apply).await.unwrap();
        }
        assert_eq!(generations(&control_plane).await.len(), deployments, "{bundle}");
    }
}
