//! Operations on a running cluster: kubectl, and loading of images.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Tool;
use anyhow::{Context, ensure};

use crate::cluster::layout::{Layout, NODES_MAX, NetworkNamespace, Node};
use crate::cluster::needs;
use crate::cluster::process::{enter, running};
use crate::cluster::programs::Programs;
use crate::cluster::run::run;
use crate::cluster::wait::say;

/// Fails unless a cluster runs and the caller is root.
pub fn check(layout: &Layout) -> anyhow::Result<()> {
    needs::root()?;
    let up = running(layout, "kube-apiserver").is_some();
    ensure!(up, "no cluster is running; start one: cargo xtask cluster up");
    Ok(())
}

/// Returns a command that runs kubectl as the administrator in the fabric, where the API server is reachable.
pub fn kubectl(layout: &Layout, programs: &Programs) -> anyhow::Result<Command> {
    check(layout)?;
    let mut command = enter(NetworkNamespace::Fabric, None);
    command.arg(programs.path(Tool::Kubectl)?).arg("--kubeconfig").arg(layout.kubeconfig());
    Ok(command)
}

/// Imports images from archives (of `docker save`, or OCI archives with image names) into each node.
pub fn load(layout: &Layout, programs: &Programs, archives: &[PathBuf]) -> anyhow::Result<()> {
    check(layout)?;
    let nodes: Vec<_> = Node::up_to(NODES_MAX).filter(|&node| runs(layout, node)).collect();
    ensure!(!nodes.is_empty(), "no node is running; start one: cargo xtask cluster up");
    for archive in archives {
        ensure!(archive.is_file(), "{} is not a file", archive.display());
        // The path must be absolute, because the process that enters the node's mount namespace has another working directory.
        let archive = &std::path::absolute(archive)
            .with_context(|| format!("cannot resolve the path {}", archive.display()))?;
        for &node in &nodes {
            let took = import(layout, programs.path(Tool::Ctr)?, node, archive);
            took.with_context(|| format!("{node} rejected {}", archive.display()))?;
        }
        say(&format!("  {} is on {} nodes", archive.display(), nodes.len()));
    }
    Ok(())
}

pub(crate) fn runs(layout: &Layout, node: Node) -> bool {
    running(layout, &node.server("containerd")).is_some()
}

pub(crate) fn import(layout: &Layout, ctr: &Path, node: Node, archive: &Path) -> anyhow::Result<()> {
    // Either ctr itself unpacks the image, or containerd unpacks it into its own mounts, so both must see the same mounts.
    let mounts = running(layout, &node.server("mounts"));
    let mut command = enter(NetworkNamespace::Node(node), mounts);
    command.arg(ctr).arg("--address").arg(layout.containerd_socket(node));
    run(command.args(["--namespace", "k8s.io", "images", "import"]).arg(archive)).map(drop)
}
