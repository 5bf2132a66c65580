//! The processes of the release, and their pages. The pages are read by port-forward or at URLs, all at the same time and each with a time
//! limit.

mod pages;
#[cfg(test)]
mod tests;

use std::time::Duration;

use futures::{StreamExt as _, stream};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use tokio::time::timeout;

use self::pages::{Signed, read};
use crate::{
    cluster::{API_SERVER, Cluster},
    http::{self, HttpResponse},
    kubeconfig::Unconnected,
    missing::Missing,
    options::{Common, Component, PagesUrl},
};

/// Time limit for a page that needs no calls.
const PAGE_TIMEOUT: Duration = Duration::from_secs(5);
/// Time limit for a page for which the process has to call the adapter.
const PLAN_TIMEOUT: Duration = Duration::from_secs(15);
/// Number of pages that are read at once.
const MAX_CONCURRENT: usize = 8;
/// The name of the port with the pages. Source: helm/cloud-controllers/templates/_controller.tpl.
const PORT: &str = "http";
/// The label that names a pod's component.
const COMPONENT: &str = "app.kubernetes.io/component";

/// The processes and the API server that a command reads from.
#[derive(Debug)]
pub(crate) struct Session {
    /// The API server. `None`: the program is not connected; `missing` has the cause.
    pub(crate) cluster: Option<Cluster>,
    /// The namespace of the release.
    pub(crate) namespace: String,
    /// The processes, sorted by component and name.
    pub(crate) processes: Vec<Process>,
    /// What could not be found or read so far.
    pub(crate) missing: Vec<Missing>,
    pub(crate) now: Timestamp,
}

/// A process of the release.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Process {
    pub(crate) component: Component,
    /// The name of its pod, or its address.
    pub(crate) name: String,
    reach: Reach,
}

/// The way to reach the process's pages.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Reach {
    Pod { namespace: String, port: u16 },
    Url,
}

/// A page, and the process that sent it.
#[derive(Clone, Debug)]
pub(crate) struct Page<T> {
    pub(crate) process: Process,
    pub(crate) content: T,
}

/// A flag has an invalid value.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Usage(pub(crate) String);

impl Session {
    /// Finds the processes of these components.
    pub(crate) async fn open(
        common: &Common,
        components: &[Component],
        now: Timestamp,
    ) -> Result<Self, Usage> {
        let mut missing = Vec::new();
        let cluster = match Cluster::connect(common.kubeconfig.as_deref(), common.context.as_deref()).await {
            Ok(cluster) => Some(cluster),
            Err(Unconnected::Usage(why)) => return Err(Usage(why)),
            Err(Unconnected::Missing(why)) => {
                missing.push(Missing::new(API_SERVER, why));
                None
            }
        };
        let mut processes: Vec<Process> = common.url.iter().map(Process::at).collect();
        processes.retain(|process| components.contains(&process.component));
        let has_url = |component: &&Component| common.url.iter().any(|it| it.component == **component);
        let by_pod: Vec<Component> = components.iter().filter(|it| !has_url(it)).copied().collect();
        if let (Some(cluster), false) = (&cluster, by_pod.is_empty()) {
            match pods(cluster, common.release_namespace()).await {
                Ok(pods) => {
                    let installed = installed(cluster, &pods, &by_pod, common.release_namespace()).await;
                    let (found, lacking) = of_pods(&pods, &installed, common.release_namespace());
                    processes.extend(found);
                    missing.extend(lacking);
                    if installed.is_empty() && processes.is_empty() {
                        let why = format!(
                            "none of the controllers and adapters is installed in {}",
                            common.release_namespace()
                        );
                        missing.push(Missing::new("controllers", why));
                    }
                }
                Err(why) => missing.push(why),
            }
        }
        processes.sort();
        Ok(Self { cluster, namespace: common.release_namespace().to_owned(), processes, missing, now })
    }

    /// Returns everything that could not be found or read, without repetitions.
    pub(crate) fn lacks(&self) -> Vec<Missing> {
        let mut missing = self.missing.clone();
        missing.sort();
        missing.dedup();
        missing
    }

    /// Reads the same page of all processes of these components. Records pages that cannot be read as missing.
    pub(crate) async fn pages<T: Signed>(&mut self, components: &[Component], path: &str) -> Vec<Page<T>> {
        let wanted = self.processes.iter().filter(|process| components.contains(&process.component));
        let wanted: Vec<Process> = wanted.cloned().collect();
        let reading = wanted.into_iter().map(|process| async {
            let content = self.page(&process, path).await;
            (process, content)
        });
        let read: Vec<(Process, Result<T, Missing>)> =
            stream::iter(reading).buffered(MAX_CONCURRENT).collect().await;
        let mut all = Vec::new();
        for (process, content) in read {
            match content {
                Ok(content) => all.push(Page { process, content }),
                Err(why) => self.missing.push(why),
            }
        }
        all
    }

    /// Reads a page of one process.
    pub(crate) async fn page<T: Signed>(&self, process: &Process, path: &str) -> Result<T, Missing> {
        let answer = self.get(process, path).await;
        answer.and_then(|answer| read(process.component, &answer, path)).map_err(|why| process.lacks(why))
    }

    async fn get(&self, process: &Process, path: &str) -> Result<HttpResponse, String> {
        let within = if path.starts_with("/plan") { PLAN_TIMEOUT } else { PAGE_TIMEOUT };
        let got = async {
            match (&process.reach, &self.cluster) {
                (Reach::Url, _) => http::get_from(&process.name, path).await,
                (Reach::Pod { namespace, port }, Some(cluster)) => {
                    cluster.page(namespace, &process.name, *port, path).await
                }
                (Reach::Pod { .. }, None) => Err("not connected to the API server".to_owned()),
            }
        };
        timeout(within, got)
            .await
            .unwrap_or_else(|_late| Err(format!("no answer within {}s", within.as_secs())))
    }
}

impl Process {
    /// Creates a process whose pages are at a URL.
    fn at(url: &PagesUrl) -> Self {
        Self { component: url.component, name: url.authority.clone(), reach: Reach::Url }
    }

    /// Whether the process is a pod in the namespace of the release.
    pub(crate) const fn is_pod(&self) -> bool {
        matches!(self.reach, Reach::Pod { .. })
    }

    /// Creates a process for tests.
    #[cfg(test)]
    pub(crate) fn fake(component: Component, name: &str) -> Self {
        Self { component, name: name.to_owned(), reach: Reach::Url }
    }

    /// Creates the entry for a page of this process that cannot be read.
    pub(crate) fn lacks(&self, why: impl Into<String>) -> Missing {
        let what = match &self.reach {
            Reach::Pod { .. } => "pod ",
            Reach::Url => "",
        };
        Missing::new(format!("{}, {what}{}", self.component.name(), self.name), why)
    }
}

/// Lists the pods in the namespace. If it has none, the error names the namespaces that have some.
async fn pods(cluster: &Cluster, namespace: &str) -> Result<Vec<Pod>, Missing> {
    let pods = cluster.pods(Some(namespace)).await?;
    if !pods.is_empty() {
        return Ok(pods);
    }
    let elsewhere = cluster.pods(None).await.unwrap_or_default();
    let mut names: Vec<String> = elsewhere.iter().filter_map(Pod::namespace).collect();
    names.sort();
    names.dedup();
    let why = match names.first() {
        Some(first) => {
            format!("not found in {namespace}, but in {}: use --release-namespace {first}", names.join(", "))
        }
        None => format!(
            "not found in {namespace}: use --release-namespace NAMESPACE, or --url COMPONENT=URL for processes outside of the cluster"
        ),
    };
    Err(Missing::new("pods of the Helm release", why))
}

/// Returns these components, except controllers that are disabled in the chart, which have no Deployment. Without permission to list
/// Deployments, returns all of them.
async fn installed(
    cluster: &Cluster,
    pods: &[Pod],
    components: &[Component],
    namespace: &str,
) -> Vec<Component> {
    let runs = |component: &Component| pods.iter().any(|pod| is_of(pod, *component));
    if components.iter().all(runs) {
        return components.to_vec();
    }
    let Ok(deployments) = cluster.deployments(namespace).await else { return components.to_vec() };
    let stays = |component: &&Component| {
        // An adapter may run outside of the release.
        **component == Component::CloudAdapter
            || runs(component)
            || deployments.iter().any(|it| is_of(it, **component))
    };
    components.iter().filter(stays).copied().collect()
}

fn is_of(object: &impl ResourceExt, component: Component) -> bool {
    object.labels().get(COMPONENT).is_some_and(|it| it == component.name())
}

/// Returns the processes of these components that have pages, and what is missing.
fn of_pods(pods: &[Pod], components: &[Component], namespace: &str) -> (Vec<Process>, Vec<Missing>) {
    let (mut found, mut missing) = (Vec::new(), Vec::new());
    for &component in components {
        let its: Vec<&Pod> = pods.iter().filter(|pod| is_of(*pod, component)).collect();
        if its.is_empty() {
            missing.push(Missing::new(component.name(), no_pod(component, namespace)));
        }
        for pod in its {
            let source = || format!("{}, pod {}", component.name(), pod.name_any());
            match port_of(pod) {
                Ok(port) => {
                    let reach = Reach::Pod { namespace: namespace.to_owned(), port };
                    found.push(Process { component, name: pod.name_any(), reach });
                }
                Err(why) => missing.push(Missing::new(source(), why)),
            }
        }
    }
    (found, missing)
}

fn no_pod(component: Component, namespace: &str) -> String {
    let of_it = match component {
        Component::CloudAdapter => "if the adapter runs elsewhere, use --url cloud-adapter=URL",
        Component::NodeController | Component::RouteController | Component::ServiceController => {
            "this component is not running, or is disabled in the chart"
        }
    };
    format!("no pod in {namespace}: {of_it}")
}

/// Returns the port of the pages of a running pod.
fn port_of(pod: &Pod) -> Result<u16, String> {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or("Unknown");
    if phase != "Running" {
        return Err(format!("it is {phase}: see kubectl describe pod"));
    }
    let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
    let mut ports = containers.flat_map(|container| container.ports.iter().flatten());
    let port = ports.find(|port| port.name.as_deref() == Some(PORT));
    let port = port.and_then(|port| u16::try_from(port.container_port).ok());
    port.ok_or_else(|| format!("it has no port named {PORT}"))
}
