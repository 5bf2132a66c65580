//! What one does with a cluster that is up: talk to it, and give it images.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, ensure};
use e2e_tools::Tool;

use crate::layout::{Layout, NODES_MAX, Node, Place};
use crate::needs;
use crate::process::{enter, running};
use crate::run::run;
use crate::up::Programs;
use crate::wait::say;

/// Fails unless there is a cluster, and the right to use it.
///
/// # Errors
/// With what to do.
pub fn check(layout: &Layout) -> anyhow::Result<()> {
    needs::root()?;
    let up = running(layout, "kube-apiserver").is_some();
    ensure!(up, "no cluster runs; start one: cargo xtask cluster up");
    Ok(())
}

/// A command that becomes kubectl, as the administrator, where the API server can be reached.
///
/// # Errors
/// When this is not root, or nothing runs.
pub fn kubectl(layout: &Layout, programs: &Programs) -> anyhow::Result<Command> {
    check(layout)?;
    let mut command = enter(Place::Fabric, None);
    command.arg(programs.path(Tool::Kubectl)?).arg("--kubeconfig").arg(layout.kubeconfig());
    Ok(command)
}

/// Gives images out of archives (of `docker save`, or OCI with names in them) to each node.
///
/// # Errors
/// When no node runs, or one does not take an archive.
pub fn load(layout: &Layout, programs: &Programs, archives: &[PathBuf]) -> anyhow::Result<()> {
    check(layout)?;
    let nodes: Vec<_> = Node::up_to(NODES_MAX).filter(|&node| runs(layout, node)).collect();
    ensure!(!nodes.is_empty(), "no node runs; start one: cargo xtask cluster up");
    for archive in archives {
        ensure!(archive.is_file(), "there is no {}", archive.display());
        // Whoever enters other mounts is in another folder.
        let archive =
            &std::path::absolute(archive).with_context(|| format!("where is {}", archive.display()))?;
        for &node in &nodes {
            let took = import(layout, programs.path(Tool::Ctr)?, node, archive);
            took.with_context(|| format!("{node} does not take {}", archive.display()))?;
        }
        say(&format!("  {} is on {} nodes", archive.display(), nodes.len()));
    }
    Ok(())
}

pub(crate) fn runs(layout: &Layout, node: Node) -> bool {
    running(layout, &node.server("containerd")).is_some()
}

pub(crate) fn import(layout: &Layout, ctr: &Path, node: Node, archive: &Path) -> anyhow::Result<()> {
    // Unpacking is done by ctr itself, or by containerd with mounts of its own: both must see the same ones.
    let mounts = running(layout, &node.server("mounts"));
    let mut command = enter(Place::Node(node), mounts);
    command.arg(ctr).arg("--address").arg(layout.containerd_socket(node));
    run(command.args(["--namespace", "k8s.io", "images", "import"]).arg(archive)).map(drop)
}
