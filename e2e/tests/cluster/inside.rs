//! Access to running containers: their files and network, as the kernel shows them.

use std::fs::{self, File};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::panic::resume_unwind;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use anyhow::{Context, ensure};
use e2e::{eventually, seconds};
use e2e_tools::cluster::layout;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::ListParams;
use rustix::fd::AsFd;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::bed::{Bed, NAMESPACE, WITHIN};

const PORT: u16 = 8080;
/// A packet that is not answered within this time is lost.
const LOST_AFTER: Duration = seconds(2);

#[derive(Clone, Debug)]
pub(crate) struct Container {
    /// Its pod.
    pub(crate) pod: Pod,
    /// The name of the container. In the chart, it is the name of the component.
    pub(crate) name: String,
    /// PID of its first process on the host.
    pub(crate) process: i32,
}

impl Container {
    /// All containers of the release, running, sorted by name.
    pub(crate) async fn of_release(bed: &Bed) -> anyhow::Result<Vec<Self>> {
        let pods: Api<Pod> = Api::namespaced(bed.client.clone(), NAMESPACE);
        let ours = ListParams::default().labels("app.kubernetes.io/name=cloud-controllers");
        let pods = pods.list(&ours).await.context("cannot list pods")?.items;
        let mut found = pods.into_iter().map(|pod| Self::of(bed, pod)).collect::<anyhow::Result<Vec<_>>>()?;
        found.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(found)
    }

    /// The container of a pod that does nothing, on the given node.
    pub(crate) async fn idle(bed: &Bed, name: &str, node: &str) -> anyhow::Result<Self> {
        let pod = serde_json::json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name },
            "spec": {
                "nodeName": node,
                "containers": [{ "name": "pause", "image": layout::PAUSE_IMAGE, "imagePullPolicy": "Never" }],
            },
        });
        bed.apply(&pod).await?;
        let pods: Api<Pod> = Api::default_namespaced(bed.client.clone());
        let (pods, what) = (&pods, format!("pod {name} runs"));
        let runs = eventually(&what, WITHIN, || async move { Self::of(bed, pods.get(name).await?) }).await?;
        bed.step(&format!("pod {name} runs on {node}"));
        Ok(runs)
    }

    fn of(bed: &Bed, pod: Pod) -> anyhow::Result<Self> {
        let status = pod.status.as_ref().context("no status")?;
        let container = status.container_statuses.iter().flatten().next().context("no container")?;
        let running = container.state.as_ref().is_some_and(|state| state.running.is_some());
        ensure!(running, "{}: {:?}", container.name, container.state);
        let id = container.container_id.as_deref().and_then(|id| id.strip_prefix("containerd://"));
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()).context("no node")?;
        let number = node.strip_prefix("node-").and_then(|number| number.parse().ok());
        let node = layout::Node(number.with_context(|| format!("{node} is not a node of this cluster"))?);
        let file = bed.layout().containers(node).join(id.context("no container ID")?).join("init.pid");
        let process = fs::read_to_string(&file).with_context(|| format!("no {}", file.display()))?;
        let (name, process) = (container.name.clone(), process.trim().parse()?);
        Ok(Self { pod, name, process })
    }

    /// A file in the container's file system.
    pub(crate) fn file(&self, path: &str) -> PathBuf {
        PathBuf::from(format!("/proc/{}/root{path}", self.process))
    }

    /// A file of the process in `/proc`, such as `status`.
    pub(crate) fn kernel_says(&self, of: &str) -> anyhow::Result<String> {
        let file = format!("/proc/{}/{of}", self.process);
        fs::read_to_string(&file).with_context(|| format!("cannot read {file}"))
    }

    pub(crate) fn pod_name(&self) -> &str {
        self.pod.metadata.name.as_deref().unwrap_or_default()
    }

    pub(crate) fn node(&self) -> &str {
        self.pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()).unwrap_or_default()
    }

    pub(crate) fn address(&self) -> anyhow::Result<IpAddr> {
        let address = self.pod.status.as_ref().and_then(|status| status.pod_ip.as_deref());
        address.context("no address")?.parse().context("no address")
    }

    pub(crate) fn port(&self, name: &str) -> anyhow::Result<u16> {
        let containers = self.pod.spec.iter().flat_map(|spec| &spec.containers);
        let mut ports = containers.flat_map(|container| container.ports.iter().flatten());
        let port = ports.find(|port| port.name.as_deref() == Some(name));
        let port = port.with_context(|| format!("{} has no port {name}", self.name))?;
        Ok(port.container_port.try_into()?)
    }

    pub(crate) fn at(&self, port: &str) -> anyhow::Result<SocketAddr> {
        Ok((self.address()?, self.port(port)?).into())
    }

    /// Connects from inside the pod.
    pub(crate) async fn connect(&self, to: SocketAddr) -> anyhow::Result<TcpStream> {
        connect(self.in_network(TcpSocket::new_v4)?, to).await
    }

    /// Sends `GET path` from inside the pod, and returns the answer.
    pub(crate) async fn get(&self, from: SocketAddr, path: &str) -> anyhow::Result<String> {
        get_over(self.connect(from).await?, path).await
    }

    /// Opens a port in the pod that answers each client with the client's address.
    pub(crate) fn answer(&self) -> anyhow::Result<Answering> {
        let listener = self.in_network(|| std::net::TcpListener::bind(("0.0.0.0", PORT)))?;
        listener.set_nonblocking(true)?;
        let listener = TcpListener::from_std(listener)?;
        let at = (self.address()?, PORT).into();
        let mut serve = JoinSet::new();
        serve.spawn(async move {
            while let Ok((mut stream, peer)) = listener.accept().await {
                let mut asked = [0; 256];
                let answer = format!("HTTP/1.0 200 OK\r\n\r\n{}", peer.ip());
                if stream.read(&mut asked).await.is_ok() {
                    stream.write_all(answer.as_bytes()).await.ok();
                }
            }
        });
        Ok(Answering { at, _serve: serve })
    }

    /// Creates a socket in the pod's network. A socket stays in the network in which it was created.
    fn in_network<T: Send>(&self, make: impl FnOnce() -> io::Result<T> + Send) -> anyhow::Result<T> {
        let network =
            File::open(format!("/proc/{}/ns/net", self.process)).context("the process has ended")?;
        // A separate thread enters the namespace, and leaves the namespace by ending.
        let made = thread::scope(|scope| {
            let there = scope.spawn(|| {
                move_into_link_name_space(network.as_fd(), Some(LinkNameSpaceType::Network))?;
                make()
            });
            there.join()
        });
        made.unwrap_or_else(|panic| resume_unwind(panic))
            .with_context(|| format!("cannot enter the network of {}", self.pod_name()))
    }
}

/// A port that is open until this value is dropped.
#[derive(Debug)]
pub(crate) struct Answering {
    pub(crate) at: SocketAddr,
    _serve: JoinSet<()>,
}

/// Sends `GET path` from the cluster's network, in which the test runs, and returns the answer.
pub(crate) async fn get(from: SocketAddr, path: &str) -> anyhow::Result<String> {
    get_over(connect(TcpSocket::new_v4()?, from).await?, path).await
}

async fn connect(socket: TcpSocket, to: SocketAddr) -> anyhow::Result<TcpStream> {
    let stream =
        timeout(LOST_AFTER, socket.connect(to)).await.with_context(|| format!("no answer from {to}"))?;
    stream.with_context(|| format!("cannot reach {to}"))
}

async fn get_over(mut stream: TcpStream, path: &str) -> anyhow::Result<String> {
    let from = stream.peer_addr()?;
    stream.write_all(format!("GET {path} HTTP/1.0\r\nhost: {from}\r\n\r\n").as_bytes()).await?;
    let mut answer = String::new();
    let read = timeout(LOST_AFTER, stream.read_to_string(&mut answer)).await;
    read.with_context(|| format!("no end of the answer from {from}"))??;
    let (head, body) = answer.split_once("\r\n\r\n").with_context(|| format!("{from}: {answer}"))?;
    ensure!(head.split(' ').nth(1) == Some("200"), "{from}{path}: {head}");
    Ok(body.to_owned())
}
