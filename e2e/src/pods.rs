//! Does the work of a kubelet and of the endpoint slice controller for the pods of the release. Each container's program runs here as a
//! process, with the arguments, environment and identity from its Deployment.
//!
//! Deliberately not implemented: images, security contexts and restarts. A process that ends is not restarted, so that tests notice it; the
//! demo restarts processes itself.

mod container;
mod endpoints;
mod expand;
mod identity;
mod once;
mod volumes;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use http::Method;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{PodSpec, Service};
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt};

use crate::control_plane::ControlPlane;
use crate::eventually::eventually;
use crate::helm::Release;
use crate::http::Http;
use crate::metrics::by_label;
use crate::pki;
use crate::pod_ip::pod_ip;
use crate::process::{Launch, Process, tail};

use container::{Container, Ports, Surroundings};
use endpoints::Replica;
use volumes::Materialised;

pub(crate) use identity::token;
pub use once::run_pod;

/// The pods of a release, by the names of their Deployments.
#[derive(Debug)]
pub struct Pods {
    pods: BTreeMap<String, Pod>,
}

/// One container of a Deployment, running or not.
#[derive(Debug)]
pub struct Pod {
    container: Container,
    launch: Launch,
    source: Source,
    /// The key that a volume lacked when the volumes were last written. The pod cannot start without this key.
    missing: Option<String>,
    user: String,
    process: Option<Process>,
    http: Http,
}

/// The sources and directories of a pod's volumes.
#[derive(Debug)]
struct Source {
    namespace: String,
    spec: PodSpec,
    dir: PathBuf,
}

impl Source {
    async fn materialise(&self, client: &Client) -> anyhow::Result<Materialised> {
        volumes::materialise(client, &self.namespace, &self.spec, &self.dir).await
    }
}

impl Pods {
    /// Reads the release's Deployments from the API server and prepares volumes and identities for their containers. Does not start them.
    ///
    /// The CA of the adapter exists already, as if an adapter had run before, so that tests can start the pods in any order.
    pub async fn from_release(control_plane: &ControlPlane, release: &Release) -> anyhow::Result<Self> {
        pki::fill_ca(&control_plane.client(), &release.namespace).await?;
        Self::from_new_release(control_plane, release).await
    }

    /// Same as [`Pods::from_release`], without the CA. The controllers start when the adapter has created the CA; see
    /// [`Pods::start_waiting`].
    pub async fn from_new_release(control_plane: &ControlPlane, release: &Release) -> anyhow::Result<Self> {
        let client = control_plane.client();
        let list = ListParams::default();
        let deployments: Api<Deployment> = Api::namespaced(client.clone(), &release.namespace);
        let deployments = deployments.list(&list).await.context("cannot list Deployments")?.items;
        let deployments: Vec<_> = deployments.into_iter().filter(|it| release.owns(it)).collect();
        let services: Api<Service> = Api::namespaced(client.clone(), &release.namespace);
        let services = services.list(&list).await.context("cannot list Services")?.items;

        let (mut pods, mut replicas) = (BTreeMap::new(), Vec::new());
        for deployment in &deployments {
            for number in 0..deployment.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1) {
                let replica = replica(deployment, number)?;
                let pod = Pod::prepare(control_plane, &replica).await;
                let pod = pod.with_context(|| format!("Deployment {}", deployment.name_any()))?;
                pods.insert(pod.name().to_owned(), pod);
                replicas.push(replica);
            }
        }
        endpoints::publish(&client, &services, &replicas, pod_ip()?).await?;
        Ok(Self { pods })
    }

    /// Updates the volumes of all pods with changes of ConfigMaps and Secrets, and new tokens, as a kubelet does.
    pub async fn refresh_volumes(&self, control_plane: &ControlPlane) -> anyhow::Result<()> {
        for pod in self.pods.values() {
            pod.source.materialise(&control_plane.client()).await?;
        }
        Ok(())
    }

    /// Starts all pods that do not run and whose volumes are complete.
    pub fn start(&mut self) -> anyhow::Result<()> {
        let mut pods = self.pods.values_mut().filter(|pod| pod.process.is_none() && pod.missing.is_none());
        pods.try_for_each(Pod::start)
    }

    /// Starts the pods whose volumes become complete while others run, as a kubelet does.
    pub async fn start_waiting(&mut self, client: &Client, deadline: Duration) -> anyhow::Result<()> {
        for pod in self.pods.values_mut().filter(|pod| pod.missing.is_some()) {
            let source = &pod.source;
            let complete = || async {
                let missing = source.materialise(client).await?.missing;
                ensure!(missing.is_none(), "the volumes have no key {missing:?}");
                Ok(())
            };
            eventually("all keys of the volumes exist", deadline, complete).await?;
            pod.missing = None;
            pod.start()?;
        }
        Ok(())
    }

    /// Waits until all pods are ready.
    pub async fn wait_ready(&mut self, deadline: Duration) -> anyhow::Result<()> {
        for pod in self.pods.values_mut() {
            pod.wait_ready(deadline).await?;
        }
        Ok(())
    }

    /// The pod of a Deployment, for changes.
    pub fn get(&mut self, deployment: &str) -> anyhow::Result<&mut Pod> {
        let names = self.names();
        self.pods.get_mut(deployment).with_context(|| format!("no Deployment {deployment} among {names:?}"))
    }

    /// The pod of a Deployment, read-only.
    pub fn look_at(&self, deployment: &str) -> anyhow::Result<&Pod> {
        let pod = self.pods.get(deployment);
        pod.with_context(|| format!("no Deployment {deployment} among {:?}", self.names()))
    }

    /// The names of the Deployments.
    pub fn names(&self) -> Vec<String> {
        self.pods.keys().cloned().collect()
    }
}

impl Pod {
    async fn prepare(control_plane: &ControlPlane, replica: &Replica<'_>) -> anyhow::Result<Self> {
        let template = container::template(replica.deployment)?;
        let name = replica.pod.clone();
        let namespace = replica.deployment.namespace().unwrap_or_default();
        let dir = control_plane.dir().join("pods").join(&name);
        std::fs::create_dir_all(&dir).with_context(|| format!("cannot create {}", dir.display()))?;

        let source = Source { namespace: namespace.clone(), spec: template.clone(), dir };
        let Materialised { volumes, missing } = source.materialise(&control_plane.client()).await?;
        let identity = identity::of(control_plane, &namespace, template, &source.dir).await?;
        let surroundings = Surroundings {
            pod: name.clone(),
            namespace,
            volumes,
            ip: pod_ip()?,
            ports: replica.ports.clone(),
        };
        let container = container::resolve(template, &surroundings)?;
        let mut env = container.env.clone();
        env.extend(identity.env);
        let launch = Launch {
            name,
            program: binaries()?.join(&container.program),
            args: container.args.clone(),
            env,
            log_dir: control_plane.log_dir(),
        };
        let http = Http::new()?;
        Ok(Self { container, launch, source, missing, user: identity.user, process: None, http })
    }

    /// The name of the Deployment, followed by a number for all replicas but the first.
    pub fn name(&self) -> &str {
        &self.launch.name
    }

    /// The user of the pod, such as `system:serviceaccount:kube-system:cloud-node-controller`.
    pub fn user(&self) -> &str {
        &self.user
    }

    /// The program's arguments.
    pub fn args(&self) -> &[String] {
        &self.launch.args
    }

    /// The value of one of the program's flags.
    pub fn flag(&self, name: &str) -> anyhow::Result<&str> {
        let mut values = self.args().iter().filter_map(|arg| arg.strip_prefix(name)?.strip_prefix('='));
        values.next().with_context(|| format!("{} is started without {name}", self.name()))
    }

    /// Changes the value of a flag for all later starts, as after a change of the Deployment.
    pub fn set_flag(&mut self, name: &str, value: &str) -> anyhow::Result<()> {
        let is_it = |arg: &&mut String| arg.strip_prefix(name).is_some_and(|rest| rest.starts_with('='));
        let arg = self.launch.args.iter_mut().find(is_it);
        *arg.with_context(|| format!("{name} is not set"))? = format!("{name}={value}");
        Ok(())
    }

    /// The program's whole environment.
    pub fn env(&self) -> &BTreeMap<String, String> {
        &self.launch.env
    }

    /// Starts the program.
    pub fn start(&mut self) -> anyhow::Result<()> {
        ensure!(!self.is_running(), "{} already runs", self.name());
        if let Some(key) = &self.missing {
            bail!(
                "{} waits for the key {key} of a volume: start what writes it, and call start_waiting",
                self.name()
            );
        }
        let hint = "build the programs first: `cargo xtask test e2e` does this";
        self.process = Some(self.launch.start().context(hint)?);
        Ok(())
    }

    /// Sends SIGKILL, so the process ends between any two instructions.
    pub async fn kill(&mut self) -> anyhow::Result<()> {
        self.take()?.kill().await.map(drop)
    }

    /// Sends SIGTERM, and waits for a graceful shutdown within the pod's grace period.
    pub async fn terminate(&mut self) -> anyhow::Result<()> {
        let status = self.stop().await?;
        ensure!(status.success(), "{} ended on SIGTERM with {status}; {}", self.name(), self.tail());
        Ok(())
    }

    /// Sends SIGTERM, and waits within the pod's grace period until the process ends, even if its shutdown is not graceful.
    pub async fn stop(&mut self) -> anyhow::Result<ExitStatus> {
        let grace = self.container.grace;
        self.take()?.terminate(grace).await
    }

    /// Kills the process and starts it again.
    pub async fn restart(&mut self) -> anyhow::Result<()> {
        self.kill().await?;
        self.start()
    }

    /// Whether the process was started and has not ended.
    pub fn is_running(&mut self) -> bool {
        self.process.as_mut().is_some_and(Process::is_running)
    }

    /// The exit status, if the process was started and ended by itself.
    pub fn exit_status(&mut self) -> anyhow::Result<Option<ExitStatus>> {
        self.process.as_mut().map_or(Ok(None), Process::exit_status)
    }

    /// The process ID, if the process was started.
    pub fn id(&self) -> Option<u32> {
        self.process.as_ref().map(Process::id)
    }

    /// The log file of all starts.
    pub fn log(&self) -> PathBuf {
        self.launch.log()
    }

    /// The name of the pod's log file, and the last lines of this file.
    pub fn tail(&self) -> String {
        tail(&self.log())
    }

    /// Checks once whether the pod is ready.
    pub async fn look_ready(&self) -> anyhow::Result<()> {
        self.http.get_text(self.container.readiness()?).await.map(drop)
    }

    /// Waits until the pod's readiness probe succeeds.
    pub async fn wait_ready(&mut self, deadline: Duration) -> anyhow::Result<()> {
        let (http, url) = (self.http.clone(), self.container.readiness()?.to_owned());
        let what = format!("{} is ready", self.launch.name);
        let process =
            self.process.as_mut().with_context(|| format!("{} was not started", self.launch.name))?;
        let mut ended = None;
        let ready = eventually(&what, deadline, || {
            ended = process.ensure_running().err();
            let (gone, http, url) = (ended.is_some(), http.clone(), url.clone());
            async move { if gone { Ok(()) } else { http.get_text(&url).await.map(drop) } }
        });
        let ready = ready.await;
        ready.with_context(|| self.tail())?;
        ended.map_or(Ok(()), Err)
    }

    /// The metrics of the pod, as text.
    pub async fn metrics(&self) -> anyhow::Result<String> {
        self.page("/metrics").await
    }

    /// The URL of the pod's metrics.
    pub fn metrics_url(&self) -> anyhow::Result<String> {
        self.container.beside_readiness("/metrics")
    }

    /// Reads another page of the probes' server, such as `/healthz?verbose`, through a port-forward.
    pub async fn page(&self, path: &str) -> anyhow::Result<String> {
        self.http.get_text(&self.container.by_port_forward(path)?).await
    }

    /// The URL of another page of the probes' server, through a port-forward.
    pub fn url(&self, path: &str) -> anyhow::Result<String> {
        self.container.by_port_forward(path)
    }

    /// The status of a page of the probes' server, read through a port-forward.
    pub async fn http_status(&self, method: Method, path: &str) -> anyhow::Result<u16> {
        self.http.status(method, &self.container.by_port_forward(path)?).await
    }

    /// The status of a page, read from the pod's own address.
    pub async fn status_at_its_address(&self, path: &str) -> anyhow::Result<u16> {
        self.http.status(Method::GET, &self.container.beside_readiness(path)?).await
    }

    /// The values of a metric, summed by the value of one label.
    pub async fn counted(&self, metric: &str, label: &str) -> anyhow::Result<BTreeMap<String, f64>> {
        Ok(by_label(&self.metrics().await?, metric, label))
    }

    fn take(&mut self) -> anyhow::Result<Process> {
        let name = &self.launch.name;
        self.process.take().with_context(|| format!("{name} was not started"))
    }
}

/// The directory of the programs that cargo built, derived from the path of the running program. Tests are in `deps/` below it.
pub fn binaries() -> anyhow::Result<PathBuf> {
    let exe = std::env::current_exe().context("cannot find the path of this program")?;
    let dir = exe.parent().context("the path of this program has no directory")?;
    let dir = if dir.ends_with("deps") { dir.parent().unwrap_or(dir) } else { dir };
    Ok(dir.to_path_buf())
}

/// Describes a replica of a Deployment. The first replica has the Deployment's name and ports. Each further replica has a number in its
/// name, and separate ports.
fn replica<'a>(deployment: &'a Deployment, number: i32) -> anyhow::Result<Replica<'a>> {
    let name = deployment.name_any();
    if number == 0 {
        return Ok(Replica { deployment, pod: name, ports: Ports::default() });
    }
    let containers = &container::template(deployment)?.containers;
    let ports = containers.iter().flat_map(|container| container.ports.iter().flatten());
    let ports = ports.map(|port| Ok((port.container_port, test_support::ports::take()?)));
    let ports = ports.collect::<anyhow::Result<Ports>>()?;
    Ok(Replica { deployment, pod: format!("{name}-{number}"), ports })
}
