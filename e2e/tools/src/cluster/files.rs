//! Builds the configuration files as values: kubeconfig, containerd, kubelet and CNI. All files are JSON, which is also valid YAML.

use std::path::Path;

use serde_json::{Value, json};

use crate::cluster::layout::{Layout, Node, PAUSE_IMAGE, REGISTRY, api_url};

pub(crate) fn kubeconfig(ca: &Path, token: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{ "name": "cluster", "cluster": { "server": api_url(), "certificate-authority": ca } }],
        "users": [{ "name": "user", "user": { "token": token } }],
        "contexts": [{ "name": "cluster", "context": { "cluster": "cluster", "user": "user" } }],
        "current-context": "cluster",
    })
}

pub(crate) fn kubelet(layout: &Layout, node: Node) -> Value {
    json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "authentication": {
            "anonymous": { "enabled": false },
            "webhook": { "enabled": true },
            "x509": { "clientCAFile": layout.pki("ca.crt") },
        },
        "authorization": { "mode": "Webhook" },
        "containerRuntimeEndpoint": format!("unix://{}", layout.containerd_socket(node).display()),
        // These settings work with both versions of cgroups, without systemd, and without access to the host's own cgroups.
        "cgroupDriver": "cgroupfs",
        "cgroupsPerQOS": false,
        "enforceNodeAllocatable": [],
        "failCgroupV1": false,
        "failSwapOn": false,
        // By default, the kubelet would create this directory on the host.
        "volumePluginDir": layout.node(node).join("volume-plugins"),
        "registerNode": true,
        "resolvConf": "/etc/resolv.conf",
        // The kubelet must not evict pods or remove images because the host's disk is full.
        "evictionHard": {},
        "imageGCHighThresholdPercent": 100,
        // The periods are short, because this cluster has few objects and the user waits for the changes.
        "nodeStatusUpdateFrequency": "2s",
        "syncFrequency": "5s",
    })
}

pub(crate) fn containerd(layout: &Layout, node: Node, plugins: &Path) -> String {
    let (home, socket) = (layout.node(node), layout.containerd_socket(node));
    let (home, socket, cni) = (home.display(), socket.display(), layout.cni(node));
    let (cni, plugins) = (cni.display(), plugins.display());
    format!(
        r#"version = 3
root = "{home}/containerd/root"
state = "{home}/containerd/state"

[grpc]
address = "{socket}"

[plugins.'io.containerd.internal.v1.opt']
path = "{home}/containerd/opt"

# The default socket and plugins belong to the host.
[plugins.'io.containerd.nri.v1.nri']
disable = true

[plugins.'io.containerd.cri.v1.images'.pinned_images]
sandbox = "{PAUSE_IMAGE}"

[plugins.'io.containerd.cri.v1.images'.registry]
config_path = "{home}/registries"

[plugins.'io.containerd.cri.v1.runtime']
# Without CAP_SYS_RESOURCE runc could not lower the score, and would not start.
restrict_oom_score_adj = true
netns_mounts_under_state_dir = true

[plugins.'io.containerd.cri.v1.runtime'.cni]
bin_dirs = ["{plugins}"]
conf_dir = "{cni}"

[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
"#
    )
}

/// Lets containerd pull from [`REGISTRY`] without TLS. Returns the path below the folder `registries`, and the content.
pub(crate) fn registry() -> (String, String) {
    (format!("{REGISTRY}/hosts.toml"), format!("server = \"http://{REGISTRY}\"\n"))
}

/// Returns the pod network of a node. With `ptp`, every packet of a pod passes the routing of the node. Services therefore also work
/// between pods of the same node, and pods reach each other only by routes.
pub(crate) fn cni(pod_cidr: &str) -> Value {
    json!({
        "cniVersion": "1.0.0",
        "name": "pods",
        "plugins": [
            {
                "type": "ptp",
                "ipMasq": false,
                "ipam": {
                    "type": "host-local",
                    "ranges": [[{ "subnet": pod_cidr }]],
                    "routes": [{ "dst": "0.0.0.0/0" }],
                },
            },
            { "type": "portmap", "capabilities": { "portMappings": true } },
        ],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pods_get_addresses_of_their_nodes_cidr() {
        let cni = cni("10.244.2.0/24");
        assert_eq!(cni.pointer("/plugins/0/ipam/ranges/0/0/subnet").unwrap(), "10.244.2.0/24");
        assert_eq!(cni.pointer("/plugins/0/ipMasq").unwrap(), false);
    }

    #[test]
    fn nodes_share_no_files() {
        let layout = Layout { home: "/c".into() };
        let [one, two] = [1, 2].map(|number| containerd(&layout, Node(number), Path::new("/usr/lib/cni")));
        assert!(one.contains("/c/node-1/containerd.sock") && !one.contains("node-2"), "{one}");
        assert!(two.contains("/c/node-2/containerd.sock") && !two.contains("node-1"), "{two}");
        let sockets = [1, 2].map(|number| kubelet(&layout, Node(number))["containerRuntimeEndpoint"].clone());
        assert_eq!(sockets, ["unix:///c/node-1/containerd.sock", "unix:///c/node-2/containerd.sock"]);
    }
}
