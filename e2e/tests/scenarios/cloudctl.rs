//! `cloudctl` with a real API server and the pages of real processes. Everything is healthy, some objects wait, half of the processes are
//! down, or the user lacks rights.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};

use anyhow::{Context, ensure};
use cloud_api_proto::DOMAIN;
use cloudctl::{AdoptReport, ClustersReport, ExplainReport, OrphansReport, PlanReport, StatusReport};
use e2e::docs::shows;
use e2e::{
    ADAPTER, Bed, CONTROLLERS, Pods, Values, WITHIN, binaries, eventually, kubeconfig_with_token, merge,
    seconds, service, tools,
};
use k8s_openapi::api::core::v1::{ConfigMap, ServiceAccount};
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use reqwest::Method;
use rustix::process::{Pid, Signal, kill_process};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use telemetry::report::State;
use tokio::process::Command;

const PAGE: &str = "docs/cloudctl.md";
/// The cache may show a deleted Service for up to a minute. Only then its load balancer is reported as an orphan.
const ORPHANED_WITHIN: std::time::Duration = seconds(150);

#[derive(Debug)]
pub(super) struct Said {
    pub(super) code: i32,
    pub(super) out: String,
    pub(super) err: String,
}

/// The command that runs `cloudctl` with this kubeconfig. The pods of a test bed are processes, which a port-forward does not reach, so the
/// command contains their URLs.
fn command(bed: &Bed, kubeconfig: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(binaries().unwrap().join("cloudctl"));
    command.arg("--kubeconfig").arg(kubeconfig).env_clear().kill_on_drop(true);
    for name in [&CONTROLLERS[..], &[ADAPTER]].concat() {
        let url = bed.cluster.pods.look_at(name).unwrap().url("").unwrap();
        command.arg(format!("--url={name}={}", url.trim_end_matches('/')));
    }
    command.args(args);
    command
}

pub(super) fn said(output: Output) -> Said {
    let text = |bytes| String::from_utf8(bytes).unwrap();
    let (out, err) = (text(output.stdout), text(output.stderr));
    assert!(!err.contains("panicked"), "{err}");
    Said { code: output.status.code().unwrap(), out, err }
}

pub(super) async fn cloudctl_as(bed: &Bed, kubeconfig: &Path, args: &[&str]) -> Said {
    said(command(bed, kubeconfig, args).output().await.unwrap())
}

pub(super) async fn cloudctl(bed: &Bed, args: &[&str]) -> Said {
    cloudctl_as(bed, bed.cluster.control_plane.kubeconfig(), args).await
}

/// Checks that `cloudctl` prints what the page shows below a command. If the page contains the command several times, `nth` selects the
/// occurrence.
pub(super) async fn as_on_the_page(bed: &Bed, command: &str, nth: usize) {
    let args: Vec<_> = command.split(' ').skip(1).collect();
    eventually(&format!("{command} prints what its page shows"), WITHIN, || async {
        shows(PAGE, command, nth, &cloudctl(bed, &args).await.out)
    })
    .await
    .unwrap();
}

async fn until<T: DeserializeOwned>(
    bed: &Bed,
    args: &[&str],
    look: impl Fn(&T) -> anyhow::Result<()>,
) -> (Said, T) {
    let args = [args, &["-o", "json"]].concat();
    eventually(&format!("cloudctl {args:?} prints the expected report"), ORPHANED_WITHIN, || async {
        let said = cloudctl(bed, &args).await;
        let report = serde_json::from_str(&said.out).with_context(|| format!("{said:#?}"))?;
        look(&report).with_context(|| format!("{said:#?}"))?;
        Ok((said, report))
    })
    .await
    .unwrap()
}

#[tokio::test]
async fn cloudctl_reports_ready_waiting_and_missing_objects() {
    let mut bed = Bed::start().await.unwrap();
    bed.join("a", Some("10.244.1.0/24")).await.unwrap();
    bed.expose("web", 80).await.unwrap();
    all_is_well(&bed).await;
    a_service_that_waits(&bed).await;
    plans(&bed).await;
    objects_in_the_cloud(&bed).await;
    unknown_names(&bed).await;
    without_rights(&bed).await;
    half_of_the_processes(&mut bed).await;
}

async fn all_is_well(bed: &Bed) {
    let (said, report) = until::<StatusReport>(bed, &["status"], |it| {
        ensure!(it.missing.is_empty() && it.troubles.is_empty() && it.controllers.len() == 3, "not yet");
        ensure!(it.controllers.iter().all(|it| it.page.unsettled == 0), "not yet");
        Ok(())
    })
    .await;
    assert_eq!(said.code, 0, "{said:#?}");
    assert!(report.adapters.iter().any(|it| it.page.leader), "{report:#?}");
    let held: Vec<_> = report.shards.iter().map(|it| (it.controller.as_str(), it.holder.is_some())).collect();
    assert_eq!(held, CONTROLLERS.map(|name| (name, true)));

    let table = cloudctl(bed, &["status"]).await;
    assert_eq!(table.code, 0, "{table:#?}");
    for expected in ["Budgets", "loadbalancer", "Breakers", "Listings", "load-balancers", "Shards"] {
        assert!(table.out.contains(expected), "{expected}: {}", table.out);
    }
    let node = until::<ExplainReport>(bed, &["explain", "node", "a"], |it| {
        ensure!(it.explanations.iter().all(|it| it.page.state == State::Settled), "not yet");
        Ok(())
    });
    let (said, node) = node.await;
    let controllers: Vec<_> = node.explanations.iter().map(|it| it.page.controller.as_str()).collect();
    assert_eq!((said.code, controllers), (0, vec!["node-controller", "route-controller"]));
    as_on_the_page(bed, "cloudctl status", 0).await;
    as_on_the_page(bed, "cloudctl explain node a", 0).await;
}

/// `cloudctl explain` prints the Event, and the cause on the controller's page, which has the same text.
async fn a_service_that_waits(bed: &Bed) {
    let key = format!("lb.{DOMAIN}/internal");
    service("wrong").port(80).annotation(&key, "perhaps").create(&bed.client()).await.unwrap();
    let message = bed.wait_for_event("Service", "wrong", "SyncLoadBalancerFailed").await.unwrap();
    let (said, report) = until::<ExplainReport>(bed, &["explain", "service", "wrong"], |it| {
        ensure!(!it.events.is_empty() && it.explanations.iter().all(|it| it.page.state == State::Waiting));
        Ok(())
    })
    .await;
    assert_eq!((said.code, report.key.as_str()), (1, "default/wrong"));
    let words: Vec<_> = report.explanations.iter().map(|it| it.page.waits_for.as_deref()).collect();
    assert_eq!(words, [Some(message.as_str())]);
    assert!(report.events.iter().any(|it| it.message == message), "{report:#?}");
    let table = cloudctl(bed, &["explain", "service", "default/wrong"]).await;
    assert_eq!(table.out.matches(&format!("  {message}\n")).count(), 2, "page and Event: {}", table.out);
    as_on_the_page(bed, "cloudctl explain service wrong", 0).await;
}

/// The plan shows the adapter's calls and their cost, and what prevents them.
async fn plans(bed: &Bed) {
    bed.cluster.cloud.configure(&json!({ "quotas": { "load_balancers": 1 } })).await.unwrap();
    service("full").port(80).create(&bed.client()).await.unwrap();
    bed.wait_for_event("Service", "full", "SyncLoadBalancerFailed").await.unwrap();
    let (said, report) = until::<PlanReport>(bed, &["plan"], |it| {
        ensure!(it.missing.is_empty() && it.planners.iter().all(|it| it.looked_at >= it.of), "not yet");
        ensure!(it.objects.len() == 2 && !it.price.is_empty(), "not yet");
        Ok(())
    })
    .await;
    let waiting: Vec<_> = report.objects.iter().map(|it| it.what.key.as_str()).collect();
    assert_eq!((said.code, waiting), (1, vec!["default/full", "default/wrong"]), "{report:#?}");
    let steps = report.objects.iter().flat_map(|it| &it.what.vendor);
    assert!(steps.clone().any(|step| step.operation == "CreateLoadBalancer"), "{report:#?}");
    let calls = u64::try_from(steps.count()).unwrap();
    assert_eq!(report.price.iter().map(|it| it.calls).sum::<u64>(), calls);
    assert!(report.at_least_seconds.is_some(), "the adapter's page has rates: {report:#?}");
    as_on_the_page(bed, "cloudctl plan", 0).await;
}

async fn objects_in_the_cloud(bed: &Bed) {
    let (said, report) = until::<ClustersReport>(bed, &["clusters"], |it| {
        let own = it.clusters.iter().find(|it| it.own).context("this cluster is missing")?;
        ensure!((own.load_balancers, own.routes) == (1, 1), "{own:?}");
        Ok(())
    })
    .await;
    assert_eq!((said.code, report.missing), (0, Vec::new()));
    as_on_the_page(bed, "cloudctl clusters", 0).await;
}

async fn unknown_names(bed: &Bed) {
    for (what, name, expected) in [
        ("service", "wrong1", "similar names: wrong"),
        ("service", "default/kubernetes", "type is ClusterIP"),
        ("node", "missing", "no object has this name"),
    ] {
        let said = cloudctl(bed, &["explain", what, name]).await;
        assert!(said.code == 1 && said.out.contains(expected), "{said:#?}");
    }
}

/// Pages are read without the API server. What needs the API server is reported as missing, with the reason.
async fn without_rights(bed: &Bed) {
    let accounts: Api<ServiceAccount> = Api::namespaced(bed.client(), &bed.cluster.release.namespace);
    let account = json!({ "metadata": { "name": "unprivileged" } });
    accounts.create(&PostParams::default(), &serde_json::from_value(account).unwrap()).await.unwrap();
    let unprivileged = kubeconfig_of(bed, "unprivileged").await;
    let said = cloudctl_as(bed, &unprivileged, &["status", "-o", "json"]).await;
    let report: StatusReport = serde_json::from_str(&said.out).unwrap();
    assert_eq!((said.code, report.adapters.len(), report.controllers.len()), (1, 1, 3), "{said:#?}");
    let missing: Vec<_> = report.missing.iter().map(|it| format!("{}: {}", it.source, it.why)).collect();
    assert!(
        matches!(missing.as_slice(), [one] if one.starts_with("leases: ") && one.contains("forbidden")),
        "{missing:?}"
    );
    assert!(
        report.shards.iter().all(|it| it.holder.is_some()),
        "the replicas report the holders: {report:#?}"
    );
    let said = cloudctl_as(bed, &unprivileged, &["explain", "service", "wrong"]).await;
    assert!(said.code == 1 && said.out.contains("waits for"), "{said:#?}");
    assert!(said.out.contains("events: events is forbidden"), "{said:#?}");
}

pub(super) async fn kubeconfig_of(bed: &Bed, account: &str) -> PathBuf {
    let token = fs::read_to_string(bed.token(account, &[]).await.unwrap()).unwrap();
    let control_plane = &bed.cluster.control_plane;
    let file = control_plane.dir().join(format!("{account}.kubeconfig"));
    kubeconfig_with_token(control_plane.kubeconfig(), &token, &file).unwrap();
    file
}

async fn half_of_the_processes(bed: &mut Bed) {
    bed.cluster.pods.get("route-controller").unwrap().terminate().await.unwrap();
    bed.cluster.pods.get(ADAPTER).unwrap().terminate().await.unwrap();
    let (said, report) = until::<StatusReport>(bed, &["status"], |it| {
        ensure!(it.troubles.iter().any(|it| it.starts_with("service-controller ")), "not yet");
        ensure!(it.missing.len() == 2, "not yet");
        Ok(())
    })
    .await;
    assert_eq!((said.code, report.controllers.len()), (1, 2));
    let unheld = "shard 0 of route-controller: no replica holds it, so its objects are not reconciled";
    assert!(report.troubles.iter().any(|it| it == unheld), "{report:#?}");
    let missing: Vec<_> = report.missing.iter().map(|it| it.source.split(',').next()).collect();
    assert_eq!(missing, [Some("cloud-adapter"), Some("route-controller")]);
    let said = cloudctl(bed, &["explain", "node", "a"]).await;
    assert!(said.code == 1 && said.out.contains("node-controller, replica"), "{said:#?}");
    as_on_the_page(bed, "cloudctl status", 1).await;
}

/// Uses the script on the page.
#[test]
fn kubectl_completes_the_arguments_of_its_plugin() {
    let page = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/cloudctl.md")).unwrap();
    let script = page.split("<<'END'\n").nth(1).unwrap().split("END\n").next().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let helper = folder.path().join("kubectl_complete-cloud");
    fs::write(&helper, script).unwrap();
    fs::set_permissions(&helper, fs::Permissions::from_mode(0o755)).unwrap();
    symlink(binaries().unwrap().join("cloudctl"), folder.path().join("kubectl-cloud")).unwrap();
    let path = format!("{}:/usr/bin:/bin", folder.path().display());
    for (words, expected) in [
        (&["cloud", "ado"][..], "adopt"),
        (&["cloud", "status", "--output", "j"], "json"),
        (&["cloud", "orphans", "--a"], "--all"),
    ] {
        let mut kubectl = std::process::Command::new(tools().unwrap().kubectl.path);
        kubectl.arg("__complete").args(words).env_clear().env("PATH", &path).env("HOME", folder.path());
        let output = kubectl.output().unwrap();
        let out = String::from_utf8_lossy(&output.stdout).into_owned();
        let first = out.lines().next().unwrap_or_default();
        assert!(first == expected || first.starts_with(&format!("{expected}\t")), "{words:?}: {output:?}");
    }
}

/// The state before a takeover: another controller's load balancer has the Service's name and no owner.
#[tokio::test]
async fn adoption_is_safe_while_only_tags_are_planned() {
    let values = json!({ "serviceController": { "compat": "openstack" } });
    let mut bed = Bed::start_with(&values).await.unwrap();
    bed.join("a", Some("10.244.1.0/24")).await.unwrap();
    bed.targets(1).await.unwrap();
    bed.expose("web", 80).await.unwrap();
    bed.all_quiet().await.unwrap();
    for name in CONTROLLERS {
        bed.cluster.pods.get(name).unwrap().terminate().await.unwrap();
    }
    let id = bed.cluster.cloud.state().await.unwrap().balancer("web").unwrap().id.clone();
    let path = format!("/v1/load-balancers/{id}");
    bed.cluster.cloud.by_hand(Method::PATCH, &path, Some(&json!({ "tags": {} }))).await.unwrap();
    start_again(&mut bed, &[values, json!({ "dryRun": true })]).await;
    bed.cluster.cloud.reset_counts().await.unwrap();
    let safe = until::<AdoptReport>(&bed, &["adopt"], |it| {
        ensure!(it.safe && it.marks > 0, "not yet");
        Ok(())
    });
    let (said, report) = safe.await;
    assert_eq!((said.code, report.former.services), (0, vec!["default/web".to_owned()]));
    as_on_the_page(&bed, "cloudctl adopt", 0).await;

    service("new").port(80).create(&bed.client()).await.unwrap();
    let unsafe_ = until::<AdoptReport>(&bed, &["adopt"], |it| {
        ensure!(!it.safe && it.changes.iter().all(|it| it.key == "default/new"), "not yet");
        ensure!(it.changes.iter().any(|it| it.operation.as_deref() == Some("CreateLoadBalancer")), "not yet");
        Ok(())
    });
    let (said, _) = unsafe_.await;
    assert_eq!(said.code, 1, "{said:#?}");
    assert_eq!(bed.cluster.cloud.counts().await.unwrap().writes, 0, "`cloudctl adopt` writes nothing");
}

async fn start_again(bed: &mut Bed, changes: &[Value]) {
    let cluster = &mut bed.cluster;
    let mut values = Values::new().unwrap().simcloud(cluster.cloud.url()).render();
    changes.iter().for_each(|change| merge(&mut values, change));
    cluster.release.upgrade(&cluster.control_plane, &values).await.unwrap();
    cluster.pods = Pods::from_release(&cluster.control_plane, &cluster.release).await.unwrap();
    cluster.pods.start().unwrap();
    bed.ready().await.unwrap();
}

/// The finalizer was removed while the controller was down.
#[tokio::test]
async fn orphans_are_shown_and_deleted_on_request() {
    let mut bed = Bed::start().await.unwrap();
    for name in ["kept", "left"] {
        bed.expose(name, 80).await.unwrap();
    }
    bed.cluster.pods.get("service-controller").unwrap().terminate().await.unwrap();
    for name in ["kept", "left"] {
        let none = json!({ "metadata": { "finalizers": null } });
        bed.services().patch(name, &PatchParams::default(), &Patch::Merge(none)).await.unwrap();
        bed.services().delete(name, &DeleteParams::default()).await.unwrap();
    }
    bed.cluster.pods.get("service-controller").unwrap().start().unwrap();
    let (said, report) = until::<OrphansReport>(&bed, &["orphans"], |it| {
        ensure!(it.orphans.len() == 2 && it.orphans.iter().all(|it| it.since.is_some()), "not yet");
        Ok(())
    })
    .await;
    assert_eq!(said.code, 1, "{said:#?}");
    as_on_the_page(&bed, "cloudctl orphans", 0).await;
    let left = report.orphans.iter().find(|it| it.key == "default/left").unwrap();

    let said = cloudctl(&bed, &["orphans", "--delete", "unknown-uid", "--yes"]).await;
    assert!(said.code == 1 && said.out.contains("UID unknown-uid"), "{said:#?}");
    let said = cloudctl(&bed, &["orphans", "--delete", &left.uid]).await;
    assert!(said.code == 2 && said.err.contains("--yes"), "{said:#?}");
    let said = cloudctl(&bed, &["orphans", "--delete", &left.uid, "--yes", "--timeout", "60s"]).await;
    assert_eq!(said.code, 0, "{said:#?}");
    assert!(said.out.contains(&format!("{}: deleted", left.uid)), "{said:#?}");
    eventually("one load balancer is left", WITHIN, || async {
        let state = bed.cluster.cloud.state().await?;
        state.balancer("kept")?;
        ensure!(state.load_balancers.len() == 1, "{:?}", state.load_balancers);
        Ok(())
    })
    .await
    .unwrap();
    assert_eq!(released(&bed).await, [""; 0], "the key of a deleted orphan is removed");
    let kept = report.orphans.iter().find(|it| it.key == "default/kept").unwrap();
    in_a_hurry(&bed, &kept.uid).await;
}

/// The keys of the ConfigMap in which an operator releases orphans.
async fn released(bed: &Bed) -> Vec<String> {
    let maps: Api<ConfigMap> = Api::namespaced(bed.client(), &bed.cluster.release.namespace);
    let map = maps.get("cloud-controllers-orphans").await.unwrap();
    map.data.unwrap_or_default().into_keys().collect()
}

/// An interrupted run reports that the deletion goes on; a later run reports the key of the deleted orphan as stale.
async fn in_a_hurry(bed: &Bed, uid: &str) {
    let refuses =
        json!({ "match": { "operation": "DeleteLoadBalancer" }, "action": { "respond": { "status": 409 } } });
    let refuses = bed.cluster.cloud.add_fault(&serde_json::from_value(refuses).unwrap()).await.unwrap();
    let args = ["orphans", "--delete", uid, "--yes"];
    let mut waiting = command(bed, bed.cluster.control_plane.kubeconfig(), &args);
    let waiting = waiting.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    eventually("the key is in the ConfigMap", WITHIN, || async {
        ensure!(released(bed).await == [uid], "not yet");
        Ok(())
    })
    .await
    .unwrap();
    let pid = i32::try_from(waiting.id().unwrap()).unwrap();
    kill_process(Pid::from_raw(pid).unwrap(), Signal::INT).unwrap();
    let said = said(waiting.wait_with_output().await.unwrap());
    assert_eq!(said.code, 130, "{said:#?}");
    assert!(
        said.err.contains("still permits deletions (1): service-controller will delete these load balancers as soon as possible"),
        "{said:#?}"
    );
    assert!(said.out.contains(&format!("{uid}, default/kept: still exists")), "{said:#?}");
    assert_eq!(released(bed).await, [uid]);

    bed.cluster.cloud.remove_fault(&refuses).await.unwrap();
    let (said, _) = until::<OrphansReport>(bed, &["orphans"], |it| {
        ensure!(it.orphans.is_empty() && it.stale.contains_key(uid), "not yet");
        Ok(())
    })
    .await;
    assert_eq!(said.code, 1, "{said:#?}");
    as_on_the_page(bed, "cloudctl orphans", 1).await;
    let said = cloudctl(bed, &["orphans", "--delete", "--all", "--yes"]).await;
    assert_eq!((said.code, released(bed).await), (0, Vec::new()), "{said:#?}");
    assert_eq!(cloudctl(bed, &["orphans"]).await.code, 0);
}
