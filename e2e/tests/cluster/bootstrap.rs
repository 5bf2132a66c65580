//! Tests of a new cluster. No node is initialised, and the controllers that initialise nodes must run on one of these nodes.

use std::fs;
use std::os::unix::fs::MetadataExt;

use anyhow::{Context, ensure};
use e2e::{eventually, service};
use e2e_tools::cluster::layout::{NetworkNamespace, Node};
use k8s_openapi::api::core::v1::{Event, Pod};
use kube::Api;
use kube::api::ListParams;
use serde_json::json;
use tokio::time::Instant;

use crate::bed::{Bed, IMAGES, NAMESPACE, WITHIN, Wanted, play_on, scenario, tell};

/// A pod without tolerations.
async fn ordinary_pod(bed: &Bed, name: &str) -> anyhow::Result<()> {
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name },
        "spec": { "containers": [{ "name": "pause", "image": "localhost/pause:cluster", "imagePullPolicy": "Never" }] },
    });
    bed.apply(&pod).await
}

async fn runs(bed: &Bed, name: &str) -> anyhow::Result<()> {
    let args = ["get", "pod", name, "--output", "jsonpath={.status.phase}"];
    bed.until(&format!("pod {name} runs"), &args, |phase| phase == "Running").await.map(drop)
}

/// Checks that a pod cannot be scheduled yet. Otherwise the controllers would have nothing to initialise.
async fn waits_for_the_cloud(bed: &Bed, pod: &str) -> anyhow::Result<()> {
    let taints =
        bed.kubectl(&["get", "nodes", "--output", "jsonpath={.items[*].spec.taints[*].key}"]).await?;
    ensure!(taints.contains("node.cloudprovider.kubernetes.io/uninitialized"), "{taints}");
    let message = "jsonpath={.status.conditions[?(@.type==\"PodScheduled\")].message}";
    let args = ["get", "pod", pod, "--output", message];
    bed.until(&format!("pod {pod} finds no node"), &args, |why| why.contains("taint")).await.map(drop)
}

#[test]
fn a_tainted_node_is_initialised_by_pods_that_run_on_it() {
    scenario(1, async |bed| {
        ordinary_pod(bed, "ordinary").await?;
        service("web").port(80).create(&bed.client).await?;
        waits_for_the_cloud(bed, "ordinary").await?;
        bed.step("helm install begins");
        let begin = Instant::now();
        let after = |what: &str| {
            tell(&format!("  {what} {:.1} s after helm install began", begin.elapsed().as_secs_f64()));
        };
        let nothing = json!({});
        let (installed, initialised, served) = tokio::join!(
            bed.install(&nothing),
            async { bed.until_initialised().await.inspect(|()| after("the node is initialised")) },
            async { bed.address("web").await.inspect(|_| after("the first Service has its address")) },
        );
        installed?;
        initialised?;
        served?;
        runs(bed, "ordinary").await?;
        tell(&bed.kubectl(&["get", "nodes,services", "--all-namespaces", "--output", "wide"]).await?);
        tell(&bed.kubectl(&["get", "pods", "--all-namespaces", "--output", "wide"]).await?);
        tell(&memory()?);
        Ok(())
    });
}

/// VmRSS of each process of this project on the node, as reported by the kernel.
fn memory() -> anyhow::Result<String> {
    let mut lines = Vec::new();
    let network = fs::metadata(NetworkNamespace::Node(Node(1)).namespace_file())?.ino();
    let there = |process: &fs::DirEntry| {
        fs::metadata(process.path().join("ns/net")).is_ok_and(|its| its.ino() == network)
    };
    for entry in fs::read_dir("/proc")?.flatten().filter(there) {
        let name = fs::read_to_string(entry.path().join("comm")).unwrap_or_default();
        // The kernel truncates names to 15 characters.
        let Some(image) = IMAGES.iter().find(|image| image.starts_with(name.trim()) && name.len() > 8) else {
            continue;
        };
        let status = fs::read_to_string(entry.path().join("status")).unwrap_or_default();
        let rss = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
        lines.push(format!("  {image}: RSS {}", rss.trim()));
    }
    ensure!(lines.len() == IMAGES.len(), "not all of our processes run: {lines:?}");
    lines.sort();
    Ok(lines.join("\n"))
}

#[test]
fn the_node_is_initialised_when_the_adapter_image_is_late() {
    play_on(Wanted { nodes: 1, complete: false }, async |bed| {
        for image in IMAGES.iter().filter(|image| **image != "adapter-sim") {
            bed.load(image)?;
        }
        let waits = async {
            let reasons = "jsonpath={.items[*].status.containerStatuses[*].state.waiting.reason}";
            let args = ["get", "pods", "--namespace", NAMESPACE, "--output", reasons];
            bed.until("the adapter waits for its image", &args, |all| all.contains("ImagePullBackOff"))
                .await?;
            let ready =
                ["get", "pods", "--namespace", NAMESPACE, "--output", "jsonpath={.items[*].status.phase}"];
            bed.until("the controllers run without the adapter", &ready, |all| {
                all.matches("Running").count() == 3
            })
            .await?;
            lacks_its_image_for_a_minute(bed).await?;
            bed.load("adapter-sim")
        };
        // The images are missing on the node, as with a registry that is not reachable.
        let asked_for = json!({ "image": { "pullPolicy": "IfNotPresent" } });
        let (installed, late) = tokio::join!(bed.install(&asked_for), waits);
        late?;
        installed?;
        bed.until_initialised().await?;
        // The CNI is installed only now, like the plugins that do not tolerate uninitialised nodes.
        bed.give_pods_a_network(1).await?;
        ordinary_pod(bed, "ordinary").await?;
        runs(bed, "ordinary").await
    });
}

/// Waits until the kubelet has reported the missing image for a minute, at growing intervals.
async fn lacks_its_image_for_a_minute(bed: &Bed) -> anyhow::Result<()> {
    let pods: Api<Pod> = Api::namespaced(bed.client.clone(), NAMESPACE);
    let events: Api<Event> = Api::namespaced(bed.client.clone(), NAMESPACE);
    let of_adapter = ListParams::default().labels("app.kubernetes.io/component=cloud-adapter");
    let (pods, events, of_adapter) = (&pods, &events, &of_adapter);
    let reported_for = eventually("the image has been missing for a minute", WITHIN, || async move {
        let pod = pods.list(of_adapter).await?.items.into_iter().next().context("no pod")?;
        let began =
            pod.status.and_then(|status| status.start_time).context("no kubelet has started the pod")?;
        let about = format!("involvedObject.uid={}", pod.metadata.uid.context("no UID")?);
        let all = events.list(&ListParams::default().fields(&about)).await?.items;
        let fails =
            |event: &&Event| ["Failed", "BackOff"].iter().any(|it| event.reason.as_deref() == Some(*it));
        let last = all.iter().filter(fails).filter_map(|event| Some(event.last_timestamp.as_ref()?.0)).max();
        let reported_for = last.context("no Event about the image")?.duration_since(began.0);
        ensure!(reported_for.as_secs() >= 60, "reported for {reported_for}");
        let count = |event: &Event| event.count.unwrap_or(1);
        Ok(format!("{reported_for}, {} times", all.iter().filter(fails).map(count).sum::<i32>()))
    })
    .await?;
    bed.step(&format!("the kubelet has reported the missing image for {reported_for}"));
    Ok(())
}
