//! Tests of the installed chart: the notes are right, `helm test` checks what it reports, and an upgrade restarts only what must be
//! restarted.

use std::collections::BTreeMap;
use std::fs;

use anyhow::{Context, ensure};
use e2e::{State, merge, service};
use k8s_openapi::api::core::v1::{Pod, Secret, Service};
use kube::api::ListParams;
use kube::{Api, ResourceExt};
use serde_json::{Value, from_value, json};

use crate::bed::{Bed, NAMESPACE, RELEASE, scenario, tell};

/// The Service that `helm test` creates.
const TESTED: &str = "cloud-controllers-self-test";

#[test]
fn helm_test_passes_or_reports_the_cause() {
    scenario(1, async |bed| {
        bed.install(&json!({ "selfTest": { "timeout": "10s" } })).await?;
        bed.until_initialised().await?;
        notes_are_right(bed).await?;

        let said = helm_test(bed).await?;
        ensure!(said.contains("The Service got address ") && said.contains("Succeeded"), "{said}");
        ensure!(said.contains("18 checks: 0 failed"), "{said}");
        bed.step("helm test passed");
        let none = |state: &State| {
            ensure!(state.load_balancers.is_empty(), "the test leaves a load balancer");
            Ok(())
        };
        bed.until_cloud("no load balancer is left", none).await?;
        let left = bed
            .kubectl(&["get", "all,role,clusterrole,serviceaccount", "--all-namespaces", "--output=name"])
            .await?;
        ensure!(
            !left.contains("self-test") && !left.lines().any(|it| it.ends_with("check")),
            "the test leaves {left}"
        );

        bed.cloud.configure(&json!({ "quotas": { "load_balancers": 0 } })).await?;
        let said = helm_test(bed).await.expect_err("the quota is 0").to_string();
        tell(&said);
        ensure!(said.contains("its Events: ") && said.to_lowercase().contains("quota"), "{said}");
        bed.step("helm test failed without quota");
        bed.cloud.configure(&json!({ "quotas": { "load_balancers": 10 } })).await?;

        let down = json!({ "match": { "operation": "*" }, "action": { "respond": { "status": 503 } } });
        bed.cloud.add_fault(&from_value(down)?).await?;
        let said = helm_test(bed).await.expect_err("the cloud is down").to_string();
        tell(&said);
        ensure!(said.contains("No address after "), "{said}");
        ensure!(said.contains("its Events: ") && said.contains("waiting for the cloud"), "{said}");
        bed.step("helm test failed while the cloud is down");
        bed.cloud.clear_faults().await?;

        let gone =
            ["get", "service", TESTED, "--namespace", NAMESPACE, "--ignore-not-found", "--output=name"];
        bed.until("the Service of the failed test is deleted", &gone, str::is_empty).await?;
        helm_test(bed).await?;
        bed.step("helm test passed again");
        let services: Api<Service> = Api::namespaced(bed.client.clone(), NAMESPACE);
        ensure!(services.get_opt(TESTED).await?.is_none(), "the Service still exists");
        Ok(())
    });
}

async fn helm_test(bed: &Bed) -> anyhow::Result<String> {
    let home = bed.layout().home.clone();
    bed.shell(&home, &format!("helm test {RELEASE} --namespace {NAMESPACE} --logs --timeout 1m")).await
}

/// Each command in the notes works as printed, except the one that deletes the adapter before an upgrade.
async fn notes_are_right(bed: &Bed) -> anyhow::Result<()> {
    let notes = bed.helm(&["get", "notes", RELEASE]).await?;
    let commands: Vec<_> =
        notes.lines().filter(|line| line.starts_with("  kubectl ") && !line.contains(" delete ")).collect();
    ensure!(commands.len() >= 5, "{notes}");
    ensure!(notes.contains(&format!("  helm test {RELEASE} --namespace {NAMESPACE} --logs\n")), "{notes}");
    let commands: Vec<_> = commands.into_iter().map(as_typed).collect();
    bed.shell(&bed.layout().home, &commands.join("\n").replace("service NAME", "service kubernetes")).await?;
    bed.step("the notes' commands work");
    Ok(())
}

/// A command as a user types it. Commands that run until Ctrl-C are ended as soon as they work.
fn as_typed(command: &str) -> String {
    if !command.contains(" port-forward ") {
        return command.to_owned();
    }
    format!(
        "{command} >forwarded & forward=$!\n\
         until grep -q '^Forwarding from' forwarded; do kill -0 $forward; sleep 0.1; done\n\
         kill $forward; wait $forward || true; rm forwarded"
    )
}

/// The UID and the restart count of each pod. Both are unchanged if the process is the same.
async fn processes(bed: &Bed) -> anyhow::Result<BTreeMap<String, (String, i32)>> {
    let pods: Api<Pod> = Api::namespaced(bed.client.clone(), NAMESPACE);
    let ours = ListParams::default().labels("app.kubernetes.io/instance=cloud-controllers");
    let mut found = BTreeMap::new();
    for pod in pods.list(&ours).await?.items {
        let component = pod.labels().get("app.kubernetes.io/component").context("no component")?.clone();
        let containers = pod.status.as_ref().and_then(|status| status.container_statuses.as_ref());
        let starts = containers.and_then(|all| all.first()).context("no container")?.restart_count;
        found.insert(component, (pod.uid().context("no UID")?, starts));
    }
    ensure!(found.len() == 4, "{found:?}");
    Ok(found)
}

async fn authority(bed: &Bed) -> anyhow::Result<Value> {
    let secrets: Api<Secret> = Api::namespaced(bed.client.clone(), NAMESPACE);
    Ok(json!(secrets.get("cloud-adapter-ca").await?.data))
}

/// The adapter's current rate of calls per second, from its metrics.
async fn granted(bed: &Bed) -> anyhow::Result<String> {
    let path = "jsonpath={.items[*].metadata.name}";
    let adapter = "app.kubernetes.io/component=cloud-adapter";
    let args = ["get", "pods", "--namespace", NAMESPACE, "--selector", adapter, "--output", path];
    let name = bed.kubectl(&args).await?;
    let page = format!("/api/v1/namespaces/{NAMESPACE}/pods/{name}:10273/proxy/metrics");
    let page = bed.kubectl(&["get", "--raw", &page]).await?;
    let rate = page.lines().find(|line| line.starts_with("cloud_adapter_bucket_rate{bucket=\"compute\"}"));
    Ok(rate.context("the page has no such metric")?.to_owned())
}

#[test]
fn an_upgrade_restarts_only_what_must_restart() {
    scenario(1, async |bed| {
        let mut values = json!({});
        bed.install(&values).await?;
        bed.until_initialised().await?;
        let (before, ca) = (processes(bed).await?, authority(bed).await?);

        bed.upgrade(&values).await?;
        ensure!(
            processes(bed).await? == before,
            "the upgrade changed nothing, but restarted some of {before:?}"
        );
        ensure!(authority(bed).await? == ca, "the CA has changed");

        let limits = json!({ "buckets": { "compute": { "rate": 3, "burst": 5 } } });
        let cache = json!({ "instances": { "maxAge": "45s" } });
        merge(&mut values, &json!({ "adapter": { "limits": limits, "cache": cache } }));
        bed.upgrade(&values).await?;
        let followed = async || {
            let rate = granted(bed).await?;
            ensure!(rate.ends_with(" 3.0"), "{rate}");
            Ok(())
        };
        e2e::eventually("the adapter uses the new limits", crate::bed::WITHIN, followed).await?;
        bed.step("the adapter uses the new limits");
        ensure!(
            processes(bed).await? == before,
            "only limits were changed, but some of {before:?} restarted"
        );

        merge(&mut values, &json!({ "serviceController": { "concurrentSyncs": 7 } }));
        bed.upgrade(&values).await?;
        let mut after = processes(bed).await?;
        ensure!(after.remove("service-controller") != before.get("service-controller").cloned());
        let others: BTreeMap<_, _> =
            before.clone().into_iter().filter(|(name, _)| name != "service-controller").collect();
        ensure!(after == others, "found {after:?}, expected {others:?}");
        ensure!(authority(bed).await? == ca, "the CA has changed");
        service("web").port(80).create(&bed.client).await?;
        bed.address("web").await.map(drop)
    });
}

/// Installs with kubectl alone, as the first lines of the manifest say.
#[test]
fn the_plain_manifests_install_the_same_as_helm() {
    scenario(1, async |bed| {
        let folder = bed.layout().home.join("manifests");
        fs::create_dir_all(&folder)?;
        let values = folder.join("values.json");
        fs::write(&values, bed.values(&json!({})).to_string())?;
        let (values, output) = (values.display().to_string(), folder.display().to_string());
        bed.xtask(&["manifests", "--values", &values, "--output", &output]).await?;
        let text = fs::read_to_string(folder.join("values.yaml"))?;
        let commands: Vec<_> = text.lines().map_while(|line| line.strip_prefix('#')).collect();
        let commands: Vec<_> = commands.iter().filter_map(|line| line.strip_prefix("      ")).collect();
        tell(&commands.join("\n"));
        ensure!(commands.last() == Some(&"kubectl apply --filename values.yaml"), "{commands:?}");
        tell(&bed.shell(&folder, &commands.join("\n")).await?);
        bed.step("the manifests are applied");
        bed.until_initialised().await?;
        service("web").port(80).create(&bed.client).await?;
        bed.address("web").await?;

        // The API server accepts the published bundles.
        bed.xtask(&["manifests", "--output", &output]).await?;
        for bundle in ["openstack.yaml", "sim.yaml"] {
            bed.shell(&folder, &format!("kubectl apply --dry-run=server --filename {bundle}")).await?;
        }
        Ok(())
    });
}

#[test]
fn the_pods_run_under_the_restricted_profile() {
    scenario(1, async |bed| {
        bed.install(&json!({})).await?;
        bed.until_initialised().await?;
        bed.helm(&["uninstall", RELEASE, "--wait"]).await?;
        bed.step("uninstalled");
        let label = json!({ "pod-security.kubernetes.io/enforce": "restricted" });
        bed.apply(&json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "clouds", "labels": label } }))
            .await?;
        let file = bed.layout().home.join("restricted.json");
        let two = json!({ "replicas": 2 });
        let change = json!({ "hostNetwork": false, "nodeController": two, "serviceController": two,
            "adapter": { "replicas": "active-standby" } });
        fs::write(&file, bed.values(&change).to_string())?;
        let (file, chart) = (file.display().to_string(), crate::bed::chart().display().to_string());
        let args = ["install", RELEASE, &chart, "--values", &file, "--wait", "--timeout", "2m"];
        bed.helm_in("clouds", &args).await?;
        bed.step("installed in a restricted namespace, with two replicas each on one node");
        service("web").port(80).create(&bed.client).await?;
        bed.address("web").await?;
        let said = bed.helm_in("clouds", &["test", RELEASE, "--logs", "--timeout", "1m"]).await?;
        ensure!(said.contains("The Service got address "), "{said}");
        bed.step("helm test passed");

        // The namespace does enforce the profile.
        let host = json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "host", "namespace": "clouds" },
            "spec": { "hostNetwork": true, "containers": [{ "name": "pause", "image": "localhost/pause:cluster" }] } });
        let refused = bed.apply(&host).await.expect_err("the pod violates the profile").to_string();
        ensure!(refused.contains("violates PodSecurity"), "{refused}");
        Ok(())
    });
}
