//! The programs of this project on the nodes, as processes of this host.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;

use anyhow::Context;
use e2e_tools::cluster::layout::{NetworkNamespace, Node};
use rustix::process::{Pid, Signal, kill_process};

use crate::bed::{Bed, IMAGES, NAMESPACE, RELEASE};

/// The kernel truncates names to this length.
const NAME_MAX: usize = 15;

/// Processes in the network of a node, by image. Other tests may run processes of the same name on this host.
pub(crate) fn of(node: u8) -> anyhow::Result<BTreeMap<&'static str, i32>> {
    let network = fs::metadata(NetworkNamespace::Node(Node(node)).namespace_file())
        .context("the node does not exist")?;
    let mut found = BTreeMap::new();
    for entry in fs::read_dir("/proc")?.flatten() {
        let Some(id) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        // A process that has just ended is skipped.
        let (Ok(its), Ok(name)) =
            (fs::metadata(entry.path().join("ns/net")), fs::read_to_string(entry.path().join("comm")))
        else {
            continue;
        };
        let is = |image: &&&str| image.get(..NAME_MAX).unwrap_or(image) == name.trim();
        let here = (its.dev(), its.ino()) == (network.dev(), network.ino());
        if let Some(image) = IMAGES.iter().find(is).filter(|_| here) {
            found.insert(*image, id);
        }
    }
    Ok(found)
}

pub(crate) fn id(node: u8, image: &str) -> anyhow::Result<i32> {
    of(node)?.get(image).copied().with_context(|| format!("no {image} runs on node {node}"))
}

pub(crate) fn signal(id: i32, signal: Signal) -> anyhow::Result<()> {
    let process = Pid::from_raw(id).context("invalid process ID")?;
    kill_process(process, signal).with_context(|| format!("cannot signal process {id}"))
}

/// The name of an image's Deployment.
pub(crate) fn component(image: &str) -> &str {
    if image == "adapter-sim" { "cloud-adapter" } else { image }
}

/// The values of a JSON path in all pods of the release.
pub(crate) async fn pods(bed: &Bed, path: &str) -> anyhow::Result<Vec<String>> {
    let (selector, path) =
        (format!("app.kubernetes.io/instance={RELEASE}"), format!("jsonpath={{.items[*]{path}}}"));
    let args = ["get", "pods", "--namespace", NAMESPACE, "--selector", &selector, "--output", &path];
    Ok(bed.kubectl(&args).await?.split_whitespace().map(str::to_owned).collect())
}
