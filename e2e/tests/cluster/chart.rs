//! What the chart promises to who installs it: what he is told is so, what he proves holds, and what he upgrades stays.

use std::collections::BTreeMap;
use std::fs;

use anyhow::{Context, ensure};
use e2e::{State, merge, service};
use k8s_openapi::api::core::v1::{Pod, Secret, Service};
use kube::api::ListParams;
use kube::{Api, ResourceExt};
use serde_json::{Value, from_value, json};

use crate::bed::{Bed, NAMESPACE, RELEASE, scenario, tell};

/// The Service of `helm test`.
const TESTED: &str = "cloud-controllers-self-test";

#[test]
fn helm_test_passes_and_else_says_what_is_wrong() {
    scenario(1, async |bed| {
        bed.install(&json!({ "selfTest": { "timeout": "10s" } })).await?;
        bed.until_initialised().await?;
        notes_are_right(bed).await?;

        let said = helm_test(bed).await?;
        ensure!(said.contains("It got the address ") && said.contains("Succeeded"), "{said}");
        bed.step("helm test passed");
        let none = |state: &State| {
            ensure!(state.load_balancers.is_empty(), "it leaves its load balancer");
            Ok(())
        };
        bed.until_cloud("no load balancer is left", none).await?;
        let left =
            bed.kubectl(&["get", "all,role,serviceaccount", "--all-namespaces", "--output=name"]).await?;
        ensure!(!left.contains("self-test"), "it leaves {left}");

        bed.cloud.configure(&json!({ "quotas": { "load_balancers": 0 } })).await?;
        let said = helm_test(bed).await.expect_err("there is no quota").to_string();
        tell(&said);
        ensure!(said.contains("said of it: ") && said.to_lowercase().contains("quota"), "{said}");
        bed.step("helm test failed without quota");
        bed.cloud.configure(&json!({ "quotas": { "load_balancers": 10 } })).await?;

        let down = json!({ "match": { "operation": "*" }, "action": { "respond": { "status": 503 } } });
        bed.cloud.add_fault(&from_value(down)?).await?;
        let said = helm_test(bed).await.expect_err("the cloud is down").to_string();
        tell(&said);
        ensure!(said.contains("It got none after "), "{said}");
        ensure!(said.contains("said of it: ") && said.contains("waits for the cloud"), "{said}");
        bed.step("helm test failed while the cloud is down");
        bed.cloud.clear_faults().await?;

        let gone =
            ["get", "service", TESTED, "--namespace", NAMESPACE, "--ignore-not-found", "--output=name"];
        bed.until("the Service of the failed one is gone", &gone, str::is_empty).await?;
        helm_test(bed).await?;
        bed.step("helm test passed again");
        let services: Api<Service> = Api::namespaced(bed.client.clone(), NAMESPACE);
        ensure!(services.get_opt(TESTED).await?.is_none(), "the Service is left");
        Ok(())
    });
}

async fn helm_test(bed: &Bed) -> anyhow::Result<String> {
    let home = bed.layout().home.clone();
    bed.shell(&home, &format!("helm test {RELEASE} --namespace {NAMESPACE} --logs --timeout 1m")).await
}

/// Each command that the notes tell works as it stands there.
async fn notes_are_right(bed: &Bed) -> anyhow::Result<()> {
    let notes = bed.helm(&["get", "notes", RELEASE]).await?;
    let commands: Vec<_> = notes.lines().filter(|line| line.starts_with("  kubectl ")).collect();
    ensure!(commands.len() >= 5, "{notes}");
    ensure!(notes.contains(&format!("  helm test {RELEASE} --namespace {NAMESPACE} --logs\n")), "{notes}");
    let commands: Vec<_> = commands.into_iter().map(as_typed).collect();
    bed.shell(&bed.layout().home, &commands.join("\n").replace("service NAME", "service kubernetes")).await?;
    bed.step("the notes' commands work");
    Ok(())
}

/// A command as a person types it: what would go on until Ctrl-C gets that as soon as it works.
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

/// What of each pod says that it is the same process as before: its UID, and how often its container started.
async fn processes(bed: &Bed) -> anyhow::Result<BTreeMap<String, (String, i32)>> {
    let pods: Api<Pod> = Api::namespaced(bed.client.clone(), NAMESPACE);
    let ours = ListParams::default().labels("app.kubernetes.io/instance=cloud-controllers");
    let mut found = BTreeMap::new();
    for pod in pods.list(&ours).await?.items {
        let component = pod.labels().get("app.kubernetes.io/component").context("no component")?.clone();
        let containers = pod.status.as_ref().and_then(|status| status.container_statuses.as_ref());
        let starts = containers.and_then(|all| all.first()).context("it has no container")?.restart_count;
        found.insert(component, (pod.uid().context("no UID")?, starts));
    }
    ensure!(found.len() == 4, "{found:?}");
    Ok(found)
}

async fn authority(bed: &Bed) -> anyhow::Result<Value> {
    let secrets: Api<Secret> = Api::namespaced(bed.client.clone(), NAMESPACE);
    Ok(json!(secrets.get("cloud-adapter-ca").await?.data))
}

/// The calls a second that the adapter lets through, as its page says.
async fn granted(bed: &Bed) -> anyhow::Result<String> {
    let path = "jsonpath={.items[*].metadata.name}";
    let adapter = "app.kubernetes.io/component=cloud-adapter";
    let args = ["get", "pods", "--namespace", NAMESPACE, "--selector", adapter, "--output", path];
    let name = bed.kubectl(&args).await?;
    let page = format!("/api/v1/namespaces/{NAMESPACE}/pods/{name}:10273/proxy/metrics");
    let page = bed.kubectl(&["get", "--raw", &page]).await?;
    let rate = page.lines().find(|line| line.starts_with("cloud_adapter_bucket_rate{bucket=\"compute\"}"));
    Ok(rate.context("the page does not say it")?.to_owned())
}

#[test]
fn an_upgrade_starts_anew_only_what_cannot_follow() {
    scenario(1, async |bed| {
        let mut values = json!({});
        bed.install(&values).await?;
        bed.until_initialised().await?;
        let (before, ca) = (processes(bed).await?, authority(bed).await?);

        bed.upgrade(&values).await?;
        ensure!(processes(bed).await? == before, "nothing was changed, and {before:?} are others");
        ensure!(authority(bed).await? == ca, "there is another authority");

        let limits = json!({ "buckets": { "compute": { "rate": 3, "burst": 5 } } });
        let cache = json!({ "instances": { "maxAge": "45s" } });
        merge(&mut values, &json!({ "adapter": { "limits": limits, "cache": cache } }));
        bed.upgrade(&values).await?;
        let followed = async || {
            let rate = granted(bed).await?;
            ensure!(rate.ends_with(" 3.0"), "{rate}");
            Ok(())
        };
        e2e::eventually("the adapter has the new limits", crate::bed::WITHIN, followed).await?;
        bed.step("the adapter has the new limits");
        ensure!(processes(bed).await? == before, "limits were changed, and {before:?} are others");

        merge(&mut values, &json!({ "serviceController": { "concurrentSyncs": 7 } }));
        bed.upgrade(&values).await?;
        let mut after = processes(bed).await?;
        ensure!(after.remove("service-controller") != before.get("service-controller").cloned());
        let others: BTreeMap<_, _> =
            before.clone().into_iter().filter(|(name, _)| name != "service-controller").collect();
        ensure!(after == others, "{after:?} instead of {others:?}");
        ensure!(authority(bed).await? == ca, "there is another authority");
        service("web").port(80).create(&bed.client).await?;
        bed.address("web").await.map(drop)
    });
}

/// As its first lines say, by a person with kubectl alone.
#[test]
fn the_plain_manifests_install_what_helm_does() {
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

        // The bundles that are published are ones that an API server takes.
        bed.xtask(&["manifests", "--output", &output]).await?;
        for bundle in ["openstack.yaml", "sim.yaml"] {
            bed.shell(&folder, &format!("kubectl apply --dry-run=server --filename {bundle}")).await?;
        }
        Ok(())
    });
}

#[test]
fn the_pods_run_where_only_restricted_ones_may() {
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
        bed.step("installed in a restricted namespace, two of each on one node");
        service("web").port(80).create(&bed.client).await?;
        bed.address("web").await?;
        let said = bed.helm_in("clouds", &["test", RELEASE, "--logs", "--timeout", "1m"]).await?;
        ensure!(said.contains("It got the address "), "{said}");
        bed.step("helm test passed");

        // Not because nobody asks.
        let host = json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "host", "namespace": "clouds" },
            "spec": { "hostNetwork": true, "containers": [{ "name": "pause", "image": "localhost/pause:cluster" }] } });
        let refused = bed.apply(&host).await.expect_err("it is not restricted").to_string();
        ensure!(refused.contains("violates PodSecurity"), "{refused}");
        Ok(())
    });
}
