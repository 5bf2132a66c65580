//! `cloudctl check` as a user runs it: before an installation, after it, and with faults. Each fault has a line with a hint and a page.
//! Another test is about a Service without endpoints, in `cloudctl check` and `cloudctl explain`.

use std::fs;
use std::path::Path;

use ::cloudctl::CheckReport;
use anyhow::ensure;
use e2e::{ADAPTER, Bed, ControlPlane, WITHIN, binaries, eventually, node, publish_endpoint, tools};
use k8s_openapi::api::core::v1::{Node, Secret};
use kube::Api;
use kube::api::{DeleteParams, PostParams};
use serde_json::json;
use tokio::process::Command;

use super::cloudctl::{Said, as_on_the_page, cloudctl, cloudctl_as, kubeconfig_of, said};

#[tokio::test]
async fn the_cluster_is_checked_before_and_after_an_installation() {
    let control_plane = ControlPlane::shared(&tools().unwrap()).await.unwrap();
    before_an_installation(&control_plane).await;
    let often = json!({ "maxAge": "2s" });
    let cache = json!({ "instances": often, "loadBalancers": often, "routes": often });
    let mut bed = Bed::install_on(control_plane, &json!({ "adapter": { "cache": cache } })).await.unwrap();
    let said = cloudctl(&bed, &["check"]).await;
    assert_eq!(said.code, 1, "nothing runs yet: {said:#?}");
    bed.start_pods().await.unwrap();
    bed.report_deployments().await.unwrap();
    bed.join("a", Some("10.244.1.0/24")).await.unwrap();
    bed.expose("web", 80).await.unwrap();
    without_endpoints(&bed).await;
    all_is_well(&bed).await;
    with_the_documented_roles(&bed).await;
    refused_credentials(&mut bed).await;
    without_its_secret(&bed).await;
    without_the_adapter(&mut bed).await;
}

/// The last check fails for a node whose kubelet lacks `--cloud-provider=external`.
async fn before_an_installation(control_plane: &ControlPlane) {
    let check = async || {
        let mut command = Command::new(binaries().unwrap().join("cloudctl"));
        command.arg("check").arg("--kubeconfig").arg(control_plane.kubeconfig()).env_clear();
        said(command.output().await.unwrap())
    };
    let said = check().await;
    assert_eq!((said.code, said.err.as_str()), (0, ""), "{said:#?}");
    for line in [
        "The chart is not installed: checks before an installation in kube-system",
        "ok      you may install the chart",
        "ok      no two releases of the chart have the same tasks",
        "ok      no other cloud controller manager runs",
        "warning the kubelets run with --cloud-provider=external: the cluster has no nodes yet; set the flag, delete \
         the Node objects and restart these kubelets (docs/install.md#1-kubelets)",
        "6 checks: 0 failed, 1 warning",
    ] {
        has(&said, line);
    }
    let nodes: Api<Node> = Api::all(control_plane.client());
    let mut bare = node("bare").build().unwrap();
    bare.spec.as_mut().unwrap().taints = None;
    nodes.create(&PostParams::default(), &bare).await.unwrap();
    let said = check().await;
    assert_eq!(said.code, 1, "{said:#?}");
    has(
        &said,
        "FAILED  the kubelets run with --cloud-provider=external: of 1 nodes, these have neither the taint nor a \
         provider ID: 1: bare; set the flag, delete the Node objects and restart these kubelets (docs/install.md#1-kubelets)",
    );
    nodes.delete("bare", &DeleteParams::default()).await.unwrap();
}

#[track_caller]
fn has(said: &Said, line: &str) {
    assert!(lines(said).iter().any(|it| it == line), "{line}\n{}", said.out);
}

/// The lines, with the paths of pages instead of their URLs.
fn lines(said: &Said) -> Vec<String> {
    let of_this_version = format!("/blob/v{}/", env!("CARGO_PKG_VERSION"));
    let line = |line: &str| match line.rsplit_once(&of_this_version).zip(line.rsplit_once(" (https://")) {
        Some(((_, path), (before, _))) => format!("{before} ({path}"),
        None => line.to_owned(),
    };
    said.out.lines().map(line).collect()
}

/// Repeats a check until its output contains lines with these beginnings and ends.
async fn until(bed: &Bed, code: i32, wanted: &[(&str, &str)]) {
    eventually(&format!("cloudctl check prints {wanted:?}"), 2 * WITHIN, || async {
        let said = cloudctl(bed, &["check"]).await;
        let lines = lines(&said);
        for (begin, end) in wanted {
            let is = |line: &String| line.starts_with(begin) && line.ends_with(end);
            ensure!(lines.iter().any(is), "{begin}: {}", said.out);
        }
        ensure!(said.code == code, "{said:#?}");
        Ok(())
    })
    .await
    .unwrap();
}

async fn without_endpoints(bed: &Bed) {
    let explained = async |says: &str, code: i32| {
        eventually(&format!("cloudctl explain says {says}"), WITHIN, || async {
            let said = cloudctl(bed, &["explain", "svc/web"]).await;
            ensure!(said.code == code && said.out.contains(says), "{said:#?}");
            Ok(said)
        })
        .await
        .unwrap()
    };
    let nothing = "because    no endpoint of Service default/web is ready\n";
    let said = explained(nothing, 1).await;
    assert!(said.out.starts_with("Service default/web: serves nothing\n"), "{said:#?}");
    publish_endpoint(&bed.client(), "web", false).await.unwrap();
    explained(nothing, 1).await;
    let warning = "warning the Services with a load balancer have a ready endpoint: of 1 Services with an address, \
                   these have none: 1: default/web; ";
    until(bed, 0, &[(warning, " (docs/cloudctl.md#explain)")]).await;

    publish_endpoint(&bed.client(), "web", true).await.unwrap();
    explained("Service default/web: in sync\n", 0).await;
    let unprivileged = kubeconfig_of(bed, "cloud-service-controller").await;
    let said = cloudctl_as(bed, &unprivileged, &["explain", "svc/web"]).await;
    assert!(
        said.code == 1 && said.out.contains("  endpointslices: endpointslices.discovery.k8s.io is forbidden")
    );
}

async fn all_is_well(bed: &Bed) {
    let said = cloudctl(bed, &["check", "--wait", "2m"]).await;
    assert_eq!(said.code, 0, "{said:#?}");
    has(&said, "Checks of release cloud-controllers in kube-system");
    has(&said, "ok      the Services with a load balancer have a ready endpoint: 1 Services");
    let events = "the controllers have emitted no recent Events of type Warning";
    let all = said.out.lines().skip(1).take_while(|line| !line.is_empty());
    let (of_events, others): (Vec<_>, Vec<_>) = all.partition(|line| line.contains(events));
    assert!(others.iter().all(|line| line.starts_with("ok ")), "{}", said.out);
    assert_eq!((others.len(), of_events.len()), (17, 1), "{}", said.out);
}

/// With all roles of the page, no check is unknown. With only the roles for the other commands, two checks are unknown, the one that reads
/// Secrets is skipped, and none fails.
async fn with_the_documented_roles(bed: &Bed) {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/cloudctl.md");
    let page = fs::read_to_string(page).unwrap();
    let dir = bed.cluster.control_plane.dir();
    let namespace = bed.cluster.release.namespace.as_str();
    let account = "checker";
    let kubectl = async |args: &[&str]| bed.cluster.control_plane.kubectl(args).await.unwrap();
    kubectl(&["create", "serviceaccount", account, "--namespace", namespace]).await;
    let user = format!("--serviceaccount={namespace}:{account}");
    for (n, name, unknown, skipped) in [(1, "cloudctl", 2, 1), (2, "cloudctl-check", 0, 0)] {
        let manifest = page.split("```yaml\n").nth(n).unwrap().split("```").next().unwrap();
        let file = dir.join(format!("{name}.yaml"));
        fs::write(&file, manifest).unwrap();
        kubectl(&["apply", "--filename", &file.display().to_string()]).await;
        let (everywhere, here) = (format!("--clusterrole={name}"), format!("--role={name}"));
        kubectl(&["create", "clusterrolebinding", name, &everywhere, &user]).await;
        kubectl(&["create", "rolebinding", name, &here, &user, "--namespace", namespace]).await;
        let kubeconfig = kubeconfig_of(bed, account).await;
        eventually("the roles are in force", WITHIN, || async {
            let said = cloudctl_as(bed, &kubeconfig, &["check"]).await;
            let count = |word: &str| said.out.lines().filter(|line| line.starts_with(word)).count();
            ensure!((said.code, count("unknown "), count("skipped ")) == (0, unknown, skipped), "{said:#?}");
            Ok(())
        })
        .await
        .unwrap();
    }
}

async fn refused_credentials(bed: &mut Bed) {
    bed.cluster.cloud.set_tokens(&json!([{ "token": "another" }])).await.unwrap();
    let hint = "; check the credentials (docs/troubleshoot.md#reasons-of-the-adapter)";
    until(bed, 1, &[("FAILED  the cloud accepts the adapter's credentials: ", hint)]).await;
    bed.cluster.cloud.set_tokens(&json!([])).await.unwrap();
    until(bed, 0, &[("ok      the cloud accepts the adapter's credentials: account ", "")]).await;
}

async fn without_its_secret(bed: &Bed) {
    let secrets: Api<Secret> = Api::namespaced(bed.client(), &bed.cluster.release.namespace);
    secrets.delete("cloud-adapter-ca", &DeleteParams::default()).await.unwrap();
    let line = "FAILED  the Secret of the certificate authority is filled: cloud-adapter-ca does not exist; helm upgrade \
                creates it (docs/security.md#certificates)";
    until(bed, 1, &[(line, "")]).await;
    as_on_the_page(bed, "cloudctl check", 0).await;
}

async fn without_the_adapter(bed: &mut Bed) {
    bed.cluster.pods.get(ADAPTER).unwrap().terminate().await.unwrap();
    bed.report_deployments().await.unwrap();
    let lines = [
        (
            "FAILED  the Deployments are available: cloud-adapter: 0 of 1 replicas available; ",
            "see kubectl describe pod (docs/troubleshoot.md#pods-that-do-not-start)",
        ),
        (
            "waits   the controllers reach the adapter: ",
            "; first fix: the Deployments are available (docs/troubleshoot.md)",
        ),
        (
            "waits   the adapter reaches the cloud: no replica of the adapter that was read is the leader; ",
            "first fix: the Deployments are available (docs/troubleshoot.md#reasons-of-the-adapter)",
        ),
        ("waits   `cloudctl status` reports nothing as not well: ", " (docs/cloudctl.md#status)"),
        ("2 causes:", ""),
        (
            "  FAILED  the Deployments are available: cloud-adapter: 0 of 1 replicas available",
            " (3 other checks fail because of it)",
        ),
        ("  FAILED  the Secret of the certificate authority is filled: cloud-adapter-ca does not exist", ""),
        (
            "unknown the cloud accepts the adapter's credentials: not known: the cloud cannot be reached; ",
            " (docs/troubleshoot.md#reasons-of-the-adapter)",
        ),
    ];
    until(bed, 1, &lines).await;
    let said = cloudctl(bed, &["check", "-o", "json"]).await;
    let report: CheckReport = serde_json::from_str(&said.out).unwrap();
    assert!(report.missing.iter().any(|it| it.source.starts_with(ADAPTER)), "{said:#?}");
    let waiting = report.checks.iter().filter(|it| it.because == ["the Deployments are available"]);
    assert_eq!(waiting.count(), 3, "{said:#?}");
}
