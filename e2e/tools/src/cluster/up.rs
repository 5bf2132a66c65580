//! Starts the parts that are not running, in order, and waits until each is ready.

use std::fs;
use std::path::{Path, PathBuf};

use crate::Tool;
use anyhow::{Context, ensure};
use tokio::time::Instant;

use crate::cluster::client::{import, runs};
use crate::cluster::layout::{
    HOME_FILE, Layout, NAMESPACES, NODES_MAX, NetworkNamespace, Node, PAUSE_IMAGE, PRIVATE_DIRS,
};
use crate::cluster::process::{Server, Started, enter, known};
use crate::cluster::programs::Programs;
use crate::cluster::run::run;
use crate::cluster::wait::{Seen, say, wait};
use crate::cluster::{files, images, needs, network, pki, servers, sysctls};

/// The desired cluster.
#[derive(Clone, Debug)]
pub struct Order {
    /// The number of nodes.
    pub nodes: u8,
    /// A simulated cloud, whose routes are applied to the namespaces.
    pub cloud: Option<Cloud>,
    /// Whether pods get a network. Without a network, nodes stay `NotReady`, as with a CNI plugin that waits for an initialised node.
    pub pod_network: bool,
    /// The paths of all executables.
    pub programs: Programs,
}

/// The simulated cloud to start.
#[derive(Clone, Debug)]
pub struct Cloud {
    /// The executable of `simcloud`.
    pub simcloud: PathBuf,
    /// The program for the commands `register` and `data_plane`. Both commands run in the fabric.
    pub ourselves: PathBuf,
    /// Arguments that register the nodes as instances.
    pub register: Vec<String>,
    /// Arguments that run the data plane.
    pub data_plane: Vec<String>,
}

/// Starts a cluster, or the missing parts of one.
pub async fn up(layout: &Layout, order: &Order) -> anyhow::Result<()> {
    needs::root()?;
    layout.check()?;
    refuse_another_cluster(layout)?;
    write(Path::new(HOME_FILE), &format!("{}\n", layout.home.display()))?;
    let begin = Instant::now();
    let plugins = needs::programs()?;
    prepare(layout)?;
    sysctls::keep(layout)?;
    pki::make(layout)?;
    network::fabric()?;
    let work = Work { layout, order, plugins: &plugins };
    work.control_plane().await?;
    for node in Node::up_to(order.nodes) {
        work.node(node).await?;
    }
    if let Some(cloud) = &order.cloud {
        work.cloud(cloud).await?;
    }
    for node in Node::up_to(order.nodes).filter(|_| order.pod_network) {
        work.pods(node).await?;
    }
    for node in Node::up_to(NODES_MAX).skip(order.nodes.into()).filter(|&node| runs(layout, node)) {
        say(&format!("{node} is still running from an earlier start"));
    }
    say(&format!("The cluster is ready after {:.1} s", begin.elapsed().as_secs_f64()));
    Ok(())
}

struct Work<'a> {
    layout: &'a Layout,
    order: &'a Order,
    plugins: &'a Path,
}

impl Work<'_> {
    async fn control_plane(&self) -> anyhow::Result<()> {
        let layout = self.layout;
        self.fabric_server(Tool::Etcd, servers::etcd(layout))?;
        let apiserver = self.fabric_server(Tool::KubeApiserver, servers::apiserver(layout))?;
        self.until("the API server is ready", &apiserver, &["get", "--raw", "/readyz"], |_| true).await?;
        self.fabric_server(Tool::KubeControllerManager, servers::controller_manager(layout))?;
        self.fabric_server(Tool::KubeScheduler, servers::scheduler(layout))?;
        Ok(())
    }

    async fn node(&self, node: Node) -> anyhow::Result<()> {
        let layout = self.layout;
        network::node(node)?;
        let mounts = self.mounts(node).await?;
        let home = layout.node(node);
        write(&home.join("containerd.toml"), &files::containerd(layout, node, self.plugins))?;
        let (registry, content) = files::registry();
        let registry = home.join("registries").join(registry);
        let folder = registry.parent().map_or(Ok(()), fs::create_dir_all);
        folder.with_context(|| format!("cannot create {}", registry.display()))?;
        write(&registry, &content)?;
        write(&home.join("kubelet.json"), &files::kubelet(layout, node).to_string())?;

        let config = format!("--config={}", home.join("containerd.toml").display());
        let mut containerd = self.server(node, Tool::Containerd, vec![config], Some(mounts.id))?;
        containerd.env.insert("PATH".to_owned(), self.path_with_shim()?);
        let containerd = containerd.start(layout)?;
        let ctr = self.order.programs.path(Tool::Ctr)?;
        let answers = || {
            let mut command = enter(NetworkNamespace::Node(node), None);
            command.arg(ctr).arg("--address").arg(layout.containerd_socket(node)).arg("version");
            let seen =
                run(&mut command).map_or_else(|error| Seen::NotYet(error.to_string()), |_| Seen::Yes(()));
            containerd.unless_ended(layout, seen)
        };
        wait(&format!("containerd of {node} answers"), answers).await?;
        import(layout, ctr, node, &images::pause(layout)?)
            .with_context(|| format!("cannot import {PAUSE_IMAGE} into {node}"))?;

        let kubelet = self.server(node, Tool::Kubelet, servers::kubelet(layout, node), Some(mounts.id))?;
        let kubelet = kubelet.start(layout)?;
        self.until(&format!("{node} is registered"), &kubelet, &["get", "node", &node.to_string()], |_| true)
            .await?;
        self.server(node, Tool::KubeProxy, servers::proxy(layout, node), None)?.start(layout).map(drop)
    }

    /// Starts a process that only sleeps and thereby keeps the node's mount namespace.
    async fn mounts(&self, node: Node) -> anyhow::Result<Started> {
        let (layout, name) = (self.layout, node.server("mounts"));
        for dir in PRIVATE_DIRS {
            let private = layout.private_dir(node, dir);
            fs::create_dir_all(&private).with_context(|| format!("cannot create {}", private.display()))?;
        }
        for dir in [layout.cni(node), layout.node(node).join("pki")] {
            fs::create_dir_all(&dir).with_context(|| format!("cannot create {}", dir.display()))?;
        }
        if crate::cluster::process::running(layout, &name).is_none() {
            fs::remove_file(layout.mounted(node)).ok();
        }
        let args = ["--mount", "--propagation", "slave", "--", "sh", "-c"].map(str::to_owned);
        let args = args.into_iter().chain([servers::mounts(layout, node)]).collect();
        let server =
            Server::new(name, NetworkNamespace::Node(node), Path::new("unshare"), args).start(layout)?;
        wait(&format!("{node} has its own directories"), || {
            let seen =
                if layout.mounted(node).exists() { Seen::Yes(()) } else { Seen::NotYet("no".to_owned()) };
            server.unless_ended(layout, seen)
        })
        .await?;
        Ok(server)
    }

    /// Pods of a node can get addresses as soon as the node has a pod CIDR.
    async fn pods(&self, node: Node) -> anyhow::Result<()> {
        let (layout, name) = (self.layout, node.to_string());
        let manager = self.fabric_server(Tool::KubeControllerManager, Vec::new())?;
        let range = ["get", "node", &name, "--output", "jsonpath={.spec.podCIDR}"];
        let what = format!("{node} has a pod CIDR");
        let cidr = self.until(&what, &manager, &range, |cidr| !cidr.is_empty()).await?;
        write(&layout.cni(node).join("10-pods.conflist"), &files::cni(&cidr).to_string())?;
        let ready =
            ["get", "node", &name, "--output", "jsonpath={.status.conditions[?(@.type==\"Ready\")].status}"];
        self.until(&format!("{node} is ready"), &manager, &ready, |ready| ready == "True").await.map(drop)
    }

    async fn cloud(&self, cloud: &Cloud) -> anyhow::Result<()> {
        let layout = self.layout;
        let simcloud = Server::new("simcloud", NetworkNamespace::Fabric, &cloud.simcloud, servers::cloud())
            .start(layout)?;
        let register = || {
            let mut command = enter(NetworkNamespace::Fabric, None);
            command.arg(&cloud.ourselves).args(&cloud.register);
            let seen =
                run(&mut command).map_or_else(|error| Seen::NotYet(error.to_string()), |_| Seen::Yes(()));
            simcloud.unless_ended(layout, seen)
        };
        wait("the simulated cloud has an instance for each node", register).await?;
        let data_plane =
            Server::new("data-plane", NetworkNamespace::Fabric, &cloud.ourselves, cloud.data_plane.clone());
        data_plane.start(layout).map(drop)
    }

    fn fabric_server(&self, tool: Tool, args: Vec<String>) -> anyhow::Result<Started> {
        Server::new(tool.name(), NetworkNamespace::Fabric, self.order.programs.path(tool)?, args)
            .start(self.layout)
    }

    fn server(
        &self,
        node: Node,
        tool: Tool,
        args: Vec<String>,
        mounts_of: Option<i32>,
    ) -> anyhow::Result<Server> {
        let program = self.order.programs.path(tool)?;
        let server = Server::new(node.server(tool.name()), NetworkNamespace::Node(node), program, args);
        Ok(Server { mounts_of, ..server })
    }

    async fn until(
        &self,
        what: &str,
        by: &Started,
        args: &[&str],
        good: impl Fn(&str) -> bool,
    ) -> anyhow::Result<String> {
        let kubectl = self.order.programs.path(Tool::Kubectl)?;
        wait(what, || {
            let mut command = enter(NetworkNamespace::Fabric, None);
            command.arg(kubectl).arg("--kubeconfig").arg(self.layout.kubeconfig()).args(args);
            let seen = match run(&mut command) {
                Ok(answer) if good(&answer) => Seen::Yes(answer),
                Ok(answer) => Seen::NotYet(format!("{answer:?}")),
                Err(error) => Seen::NotYet(error.to_string()),
            };
            by.unless_ended(self.layout, seen)
        })
        .await
    }

    /// Adds the folder of containerd's shim to PATH, because containerd searches the shim in PATH.
    fn path_with_shim(&self) -> anyhow::Result<String> {
        let shim = self.order.programs.path(Tool::ContainerdShim)?;
        let dirs = shim.parent().map(Path::to_path_buf).into_iter();
        let path = std::env::var_os("PATH").unwrap_or_default();
        let all = std::env::join_paths(dirs.chain(std::env::split_paths(&path)));
        Ok(all.context("cannot add the folder of the shim to PATH")?.to_string_lossy().into_owned())
    }
}

/// Refuses to start if another user's cluster exists. That cluster is in another folder, but its namespaces have the same names.
fn refuse_another_cluster(layout: &Layout) -> anyhow::Result<()> {
    let there = layout.of_what_runs().home;
    ensure!(
        there == layout.home,
        "the cluster in {} is running, or a crash left it; stop it first: `cargo xtask cluster down`",
        there.display()
    );
    if !known(layout).is_empty() {
        return Ok(());
    }
    for place in NetworkNamespace::all() {
        let ids = network::processes(place);
        ensure!(
            ids.is_empty(),
            "processes {ids:?} run in namespace {}, but {} has no record of them; they may belong to \
            another user's cluster; end them: `cargo xtask cluster down`",
            place.namespace(),
            layout.home.display()
        );
    }
    Ok(())
}

/// Creates the cluster's folders, and the host's directories over which nodes mount their own directories.
fn prepare(layout: &Layout) -> anyhow::Result<()> {
    for dir in [layout.logs(), layout.pids()] {
        fs::create_dir_all(&dir).with_context(|| format!("cannot create {}", dir.display()))?;
    }
    let dirs = PRIVATE_DIRS.into_iter().chain([NAMESPACES]).map(Path::new);
    for dir in dirs.filter(|dir| !dir.exists()) {
        // The directory is recorded before it is created, so that `down` removes it after an interruption, too.
        let noted = fs::read_to_string(layout.made_dirs()).unwrap_or_default();
        write(&layout.made_dirs(), &format!("{noted}{}\n", dir.display()))?;
        fs::create_dir_all(dir).with_context(|| format!("cannot create {}", dir.display()))?;
    }
    Ok(())
}

fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}
