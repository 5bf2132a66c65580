//! Where everything is: namespaces, addresses, files. There is one cluster on a machine, so the names are constants.

use std::fmt;
use std::path::{Path, PathBuf};

use anyhow::ensure;

/// More have never been needed, and each takes 150 MB.
pub const NODES_MAX: u8 = 3;
/// All pods.
pub const PODS: &str = "10.244.0.0/16";
/// All Services.
pub const SERVICES: &str = "10.96.0.0/16";
/// The first of them, which is the API server.
pub const API_SERVICE: &str = "10.96.0.1";
/// The fabric's own address on its bridge: the API server, the simulated cloud, and the nodes' way to everywhere.
pub const FABRIC_ADDRESS: &str = "10.90.0.1";
/// The bridge in the fabric.
pub const BRIDGE: &str = "fabric0";
/// The API server's port.
pub const API_PORT: u16 = 6443;
/// The simulated cloud's port.
pub const CLOUD_PORT: u16 = 9797;
/// The image of the process that keeps a pod's namespaces.
pub const PAUSE_IMAGE: &str = "localhost/pause:cluster";

/// Names the folder of the cluster that runs, whoever started it: the namespaces are the machine's.
pub(crate) const HOME_FILE: &str = "/run/cloud-controllers-cluster";

/// The kernel's bound.
const SOCKET_MAX: usize = 108;

/// Directories of the machine in whose place each node sees one of its own. Programs of one node would else find the files of
/// another's, and leave theirs behind.
pub const PRIVATE_DIRS: [&str; 4] = ["/var/lib/kubelet", "/var/lib/cni", "/var/log", "/run/containerd"];

/// Where `ip netns` keeps namespaces.
pub(crate) const NAMESPACES: &str = "/run/netns";

/// A network namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// The control plane and the network between nodes.
    Fabric,
    /// A node.
    Node(Node),
}

/// A node, by its number from 1 on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Node(pub u8);

impl Place {
    /// The fabric and all nodes that there can be.
    pub fn all() -> impl Iterator<Item = Self> {
        std::iter::once(Self::Fabric).chain(Node::up_to(NODES_MAX).map(Self::Node))
    }

    /// The name of the namespace, as `ip netns` knows it.
    pub fn namespace(self) -> String {
        match self {
            Self::Fabric => "cloud-controllers-fabric".to_owned(),
            Self::Node(node) => format!("cloud-controllers-{node}"),
        }
    }

    /// The file that stands for the namespace.
    pub fn namespace_file(self) -> PathBuf {
        Path::new(NAMESPACES).join(self.namespace())
    }

    /// Its address on the fabric's bridge.
    pub fn address(self) -> String {
        match self {
            Self::Fabric => FABRIC_ADDRESS.to_owned(),
            Self::Node(node) => node.address(),
        }
    }
}

impl Node {
    /// The nodes of a cluster of so many.
    pub fn up_to(count: u8) -> impl Iterator<Item = Self> {
        (1..=count).map(Self)
    }

    /// Its `InternalIP`.
    pub fn address(self) -> String {
        format!("10.90.0.{}", 10 + self.0)
    }

    /// The name of one of its servers, as in `node-1-kubelet`.
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
    /// The folder.
    pub home: PathBuf,
}

impl Layout {
    /// Below the folder that holds all that this project builds or runs.
    pub fn below(cache: &Path) -> Self {
        Self { home: cache.join("cluster") }
    }

    /// That of the cluster which runs, or ran when somebody crashed; else this one.
    pub(crate) fn of_what_runs(&self) -> Self {
        let home = std::fs::read_to_string(HOME_FILE).ok().map(|home| PathBuf::from(home.trim()));
        // What `down` would remove: nothing but a folder of ours.
        let ours = home.filter(|home| {
            home.is_absolute() && home.ends_with("cloud-controllers/cluster") && home.is_dir()
        });
        ours.map_or_else(|| self.clone(), |home| Self { home })
    }

    /// Fails where names cannot stand in all the files and lists that they must.
    pub(crate) fn check(&self) -> anyhow::Result<()> {
        let home = self.home.to_string_lossy();
        let strange = |c: char| c.is_whitespace() || matches!(c, '"' | '\\' | '\'');
        ensure!(
            !home.contains(strange),
            "{home:?} has characters that make trouble; set XDG_CACHE_HOME to another folder"
        );
        let socket = self.containerd_socket(Node(NODES_MAX));
        let length = socket.as_os_str().len();
        ensure!(
            length < SOCKET_MAX,
            "{} is too long a name for a socket; set XDG_CACHE_HOME to another folder",
            socket.display()
        );
        Ok(())
    }

    /// What a person uses: `KUBECONFIG`.
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

    /// containerd has a folder for each container there, named as the container.
    pub fn containers(&self, node: Node) -> PathBuf {
        self.node(node).join("containerd/state/io.containerd.runtime.v2.task/k8s.io")
    }

    /// Where the node keeps what it sees as one of [`PRIVATE_DIRS`].
    pub(crate) fn private_dir(&self, node: Node, dir: &str) -> PathBuf {
        self.node(node).join("private").join(dir.trim_start_matches('/').replace('/', "-"))
    }

    /// There as soon as the node's mount namespace is ready.
    pub(crate) fn mounted(&self, node: Node) -> PathBuf {
        self.node(node).join("mounted")
    }

    pub(crate) fn cni(&self, node: Node) -> PathBuf {
        self.node(node).join("cni")
    }

    /// Settings of the kernel as they were.
    pub(crate) fn sysctls(&self) -> PathBuf {
        self.home.join("sysctls")
    }

    /// Directories of the machine that `up` made and `down` removes, a line each.
    pub(crate) fn made_dirs(&self) -> PathBuf {
        self.home.join("made-directories")
    }
}

/// Where the API server answers.
pub fn api_url() -> String {
    format!("https://{FABRIC_ADDRESS}:{API_PORT}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_place_has_a_name_and_an_address_of_its_own() {
        let places: Vec<_> = Place::all().map(|place| (place.namespace(), place.address())).collect();
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
    fn folders_that_would_fail_later_are_refused_first() {
        let check = |home: &str| Layout::below(Path::new(home)).check();
        check("/home/somebody-with-a-long-name/.cache/cloud-controllers").unwrap();
        for (home, why) in [
            ("/home/some body", "make trouble"),
            ("/\"", "make trouble"),
            ("/long".repeat(20).as_str(), "too long"),
        ] {
            let error = check(home).unwrap_err().to_string();
            assert!(error.contains(why), "{home}: {error}");
        }
    }
}
