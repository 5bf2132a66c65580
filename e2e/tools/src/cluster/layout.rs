//! Names of namespaces, addresses and files. A host has at most one cluster, so the names are constants.

use std::fmt;
use std::path::{Path, PathBuf};

use anyhow::ensure;

/// The maximum number of nodes. Each node takes 150 MB.
pub const NODES_MAX: u8 = 3;
/// The CIDR of all pods.
pub const PODS: &str = "10.244.0.0/16";
/// The CIDR of all Services.
pub const SERVICES: &str = "10.96.0.0/16";
/// The first address of the Service CIDR, which belongs to the API server.
pub const API_SERVICE: &str = "10.96.0.1";
/// The address of the fabric on its bridge. The API server and the simulated cloud listen on this address, and it is the default gateway of
/// the nodes.
pub const FABRIC_ADDRESS: &str = "10.90.0.1";
/// The bridge in the fabric.
pub const BRIDGE: &str = "fabric0";
/// The API server's port.
pub const API_PORT: u16 = 6443;
/// The simulated cloud's port.
pub const CLOUD_PORT: u16 = 9797;
/// The address of a registry without TLS in the fabric. The nodes pull from it if a test starts one.
pub const REGISTRY: &str = "10.90.0.1:5000";
/// The image of the process that keeps a pod's namespaces.
pub const PAUSE_IMAGE: &str = "localhost/pause:cluster";

/// The file that names the folder of the running cluster. The file is the same for all users, because the namespaces belong to the host.
pub(crate) const HOME_FILE: &str = "/run/cloud-controllers-cluster";

/// The kernel's limit for the path of a socket.
const SOCKET_MAX: usize = 108;

/// Directories of the host that each node replaces by its own directories. Otherwise the programs of one node would find the files of
/// another node and leave files on the host.
pub const PRIVATE_DIRS: [&str; 4] = ["/var/lib/kubelet", "/var/lib/cni", "/var/log", "/run/containerd"];

/// The folder in which `ip netns` stores namespaces.
pub(crate) const NAMESPACES: &str = "/run/netns";

/// A network namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum NetworkNamespace {
    /// The control plane and the network between nodes.
    Fabric,
    /// A node.
    Node(Node),
}

/// A node, by its number, which begins at 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Node(pub u8);

impl NetworkNamespace {
    /// Returns the fabric and all possible nodes.
    pub fn all() -> impl Iterator<Item = Self> {
        std::iter::once(Self::Fabric).chain(Node::up_to(NODES_MAX).map(Self::Node))
    }

    /// The name of the namespace in `ip netns`.
    pub fn namespace(self) -> String {
        match self {
            Self::Fabric => "cloud-controllers-fabric".to_owned(),
            Self::Node(node) => format!("cloud-controllers-{node}"),
        }
    }

    /// The file that represents the namespace.
    pub fn namespace_file(self) -> PathBuf {
        Path::new(NAMESPACES).join(self.namespace())
    }

    /// The namespace's address on the fabric's bridge.
    pub fn address(self) -> String {
        match self {
            Self::Fabric => FABRIC_ADDRESS.to_owned(),
            Self::Node(node) => node.address(),
        }
    }
}

impl Node {
    /// The first `count` nodes.
    pub fn up_to(count: u8) -> impl Iterator<Item = Self> {
        (1..=count).map(Self)
    }

    /// The node's `InternalIP`.
    pub fn address(self) -> String {
        format!("10.90.0.{}", 10 + self.0)
    }

    /// The name of one of the node's servers, such as `node-1-kubelet`.
    pub fn server(self, name: &str) -> String {
        format!("{self}-{name}")
    }
}

impl fmt::Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "node-{}", self.0)
    }
}

/// The files of the cluster, all below one folder.
#[derive(Clone, Debug)]
pub struct Layout {
    /// The folder of the cluster.
    pub home: PathBuf,
}

impl Layout {
    /// The layout below the cache folder of this project.
    pub fn below(cache: &Path) -> Self {
        Self { home: cache.join("cluster") }
    }

    /// Returns the layout of the cluster that is running or that a crash left. If there is no cluster, returns this layout.
    pub(crate) fn of_what_runs(&self) -> Self {
        let home = std::fs::read_to_string(HOME_FILE).ok().map(|home| PathBuf::from(home.trim()));
        // `down` removes this folder, so it must be one that this project created.
        let ours = home.filter(|home| {
            home.is_absolute() && home.ends_with("cloud-controllers/cluster") && home.is_dir()
        });
        ours.map_or_else(|| self.clone(), |home| Self { home })
    }

    /// Returns an error if the folder's name cannot be used in all files and lists that contain it.
    pub(crate) fn check(&self) -> anyhow::Result<()> {
        let home = self.home.to_string_lossy();
        let strange = |c: char| c.is_whitespace() || matches!(c, '"' | '\\' | '\'');
        ensure!(
            !home.contains(strange),
            "invalid folder {home:?}: it must not contain blanks, quotes or backslashes; set \
             XDG_CACHE_HOME to another folder"
        );
        let socket = self.containerd_socket(Node(NODES_MAX));
        let length = socket.as_os_str().len();
        ensure!(
            length < SOCKET_MAX,
            "invalid socket path {}: too long; set XDG_CACHE_HOME to another folder",
            socket.display()
        );
        Ok(())
    }

    /// The kubeconfig for users (`KUBECONFIG`).
    pub fn kubeconfig(&self) -> PathBuf {
        self.kubeconfig_of("admin")
    }

    pub(crate) fn kubeconfig_of(&self, who: &str) -> PathBuf {
        self.home.join(format!("{who}.kubeconfig"))
    }

    pub(crate) fn pki(&self, file: &str) -> PathBuf {
        self.home.join("pki").join(file)
    }

    /// Logs of all servers.
    pub fn logs(&self) -> PathBuf {
        self.home.join("log")
    }

    pub(crate) fn log(&self, server: &str) -> PathBuf {
        self.logs().join(format!("{server}.log"))
    }

    pub(crate) fn pids(&self) -> PathBuf {
        self.home.join("run")
    }

    pub(crate) fn pid(&self, server: &str) -> PathBuf {
        self.pids().join(format!("{server}.pid"))
    }

    pub(crate) fn etcd(&self) -> PathBuf {
        self.home.join("etcd")
    }

    pub(crate) fn node(&self, node: Node) -> PathBuf {
        self.home.join(node.to_string())
    }

    pub(crate) fn containerd_socket(&self, node: Node) -> PathBuf {
        self.node(node).join("containerd.sock")
    }

    /// The folder in which containerd has a folder for each container, named after the container.
    pub fn containers(&self, node: Node) -> PathBuf {
        self.node(node).join("containerd/state/io.containerd.runtime.v2.task/k8s.io")
    }

    /// The node's folder that replaces one of [`PRIVATE_DIRS`].
    pub(crate) fn private_dir(&self, node: Node, dir: &str) -> PathBuf {
        self.node(node).join("private").join(dir.trim_start_matches('/').replace('/', "-"))
    }

    /// A file that exists as soon as the node's mount namespace is ready.
    pub(crate) fn mounted(&self, node: Node) -> PathBuf {
        self.node(node).join("mounted")
    }

    pub(crate) fn cni(&self, node: Node) -> PathBuf {
        self.node(node).join("cni")
    }

    /// The file with the previous values of the kernel settings.
    pub(crate) fn sysctls(&self) -> PathBuf {
        self.home.join("sysctls")
    }

    /// The file with the directories of the host that `up` created and `down` removes, one per line.
    pub(crate) fn made_dirs(&self) -> PathBuf {
        self.home.join("made-directories")
    }
}

/// The URL of the API server.
pub fn api_url() -> String {
    format!("https://{FABRIC_ADDRESS}:{API_PORT}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn namespaces_have_unique_names_and_addresses() {
        let places: Vec<_> =
            NetworkNamespace::all().map(|place| (place.namespace(), place.address())).collect();
        assert_eq!(
            places.iter().map(|(name, at)| format!("{name} {at}")).collect::<Vec<_>>(),
            [
                "cloud-controllers-fabric 10.90.0.1",
                "cloud-controllers-node-1 10.90.0.11",
                "cloud-controllers-node-2 10.90.0.12",
                "cloud-controllers-node-3 10.90.0.13",
            ]
        );
    }

    #[test]
    fn invalid_folders_are_refused() {
        let check = |home: &str| Layout::below(Path::new(home)).check();
        check("/home/somebody-with-a-long-name/.cache/cloud-controllers").unwrap();
        for (home, why) in [
            ("/home/some body", "invalid folder"),
            ("/\"", "invalid folder"),
            ("/long".repeat(20).as_str(), "too long"),
        ] {
            let error = check(home).unwrap_err().to_string();
            assert!(error.contains(why), "{home}: {error}");
        }
    }
}
