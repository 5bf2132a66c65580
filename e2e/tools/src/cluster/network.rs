//! Namespaces, the bridge, and the veth pairs between them.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::cluster::layout::{BRIDGE, FABRIC_ADDRESS, NetworkNamespace, Node, PODS};
use crate::cluster::process::enter;
use crate::cluster::run::{run, run_words};

/// Creates the fabric: a bridge with an address, without an uplink.
pub(crate) fn fabric() -> anyhow::Result<()> {
    let namespace = namespace(NetworkNamespace::Fabric)?;
    if !has_link(NetworkNamespace::Fabric, BRIDGE) {
        run_words(&format!("ip -n {namespace} link add {BRIDGE} type bridge"))?;
    }
    run_words(&format!("ip -n {namespace} addr replace {FABRIC_ADDRESS}/24 dev {BRIDGE}"))?;
    run_words(&format!("ip -n {namespace} link set {BRIDGE} up"))?;
    forwards(NetworkNamespace::Fabric)
}

/// Creates a node: a veth pair to the fabric's bridge, and the fabric as default gateway.
pub(crate) fn node(node: Node) -> anyhow::Result<()> {
    let (place, fabric) = (NetworkNamespace::Node(node), NetworkNamespace::Fabric.namespace());
    let namespace = namespace(place)?;
    if !has_link(place, "eth0") {
        run_words(&format!("ip -n {fabric} link add {node} type veth peer name eth0 netns {namespace}"))?;
    }
    run_words(&format!("ip -n {fabric} link set {node} master {BRIDGE} up"))?;
    run_words(&format!("ip -n {namespace} addr replace {}/24 dev eth0", node.address()))?;
    run_words(&format!("ip -n {namespace} link set eth0 up"))?;
    run_words(&format!("ip -n {namespace} route replace default via {FABRIC_ADDRESS}"))?;
    forwards(place)?;
    // Packets from pods to destinations that are not pods get the node's address as their source, as in most clouds, where other hosts know
    // only the nodes.
    run(enter(place, None).args(["nft", &masquerade()])).map(drop)
}

/// Returns the rules. One transaction declares, empties and fills the table, so `nft` can run repeatedly.
fn masquerade() -> String {
    format!(
        "table ip pods {{}}; flush table ip pods; table ip pods {{ chain out {{ \
         type nat hook postrouting priority srcnat + 10; \
         ip saddr {PODS} ip daddr != {PODS} masquerade; }}; }}"
    )
}

/// Removes a namespace with all links in it, if it exists.
pub(crate) fn remove(place: NetworkNamespace) -> anyhow::Result<()> {
    if place.namespace_file().exists() {
        run_words(&format!("ip netns del {}", place.namespace()))?;
    }
    Ok(())
}

pub(crate) fn processes(place: NetworkNamespace) -> Vec<i32> {
    if !place.namespace_file().exists() {
        return Vec::new();
    }
    let listed = run_words(&format!("ip netns pids {}", place.namespace())).unwrap_or_default();
    listed.lines().filter_map(|line| line.trim().parse().ok()).collect()
}

fn namespace(place: NetworkNamespace) -> anyhow::Result<String> {
    let (name, file) = (place.namespace(), place.namespace_file());
    // If an earlier creation was interrupted, only the file exists.
    if file.exists() && !is_namespace(&file) {
        fs::remove_file(&file)?;
    }
    if !file.exists() {
        run_words(&format!("ip netns add {name}"))?;
    }
    run_words(&format!("ip -n {name} link set lo up"))?;
    Ok(name)
}

fn is_namespace(file: &Path) -> bool {
    Command::new("nsenter")
        .arg(format!("--net={}", file.display()))
        .arg("true")
        .output()
        .is_ok_and(|done| done.status.success())
}

fn has_link(place: NetworkNamespace, link: &str) -> bool {
    run_words(&format!("ip -n {} link show {link}", place.namespace())).is_ok()
}

fn forwards(place: NetworkNamespace) -> anyhow::Result<()> {
    let script = "echo 1 >/proc/sys/net/ipv4/ip_forward";
    run(enter(place, None).args(["sh", "-c", script])).map(drop)
}

#[cfg(test)]
mod tests {
    use super::masquerade;

    #[test]
    fn traffic_between_pods_is_not_masqueraded() {
        assert!(masquerade().contains("ip saddr 10.244.0.0/16 ip daddr != 10.244.0.0/16 masquerade"));
    }
}
