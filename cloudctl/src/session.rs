//! The processes of the release, and their pages. The pages are read by port-forward or at URLs, all at the same time and each with a time
//! limit.

mod response;
#[cfg(test)]
mod tests;

use std::time::Duration;

use futures::{StreamExt as _, stream};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use tokio::time::timeout;

use self::response::{Signed, read};
pub(crate) use crate::missing::Usage;
use crate::{
    cluster::{API_SERVER, Cluster},
    http::{self, HttpResponse},
    kubeconfig::Unconnected,
    labels::component_of,
    missing::Missing,
    options::{Common, Component, PagesUrl},
    pods::stopped,
    release::{self, Found, NotFound, Release},
};

/// Time limit for a page that needs no calls.
const PAGE_TIMEOUT: Duration = Duration::from_secs(5);
/// Time limit for a page for which the process has to call the adapter.
const PLAN_TIMEOUT: Duration = Duration::from_secs(15);
/// Number of pages that are read at once.
const MAX_CONCURRENT: usize = 8;
/// The name of the port with the pages. Source: helm/cloud-controllers/templates/_controller.tpl.
const PORT: &str = "http";

/// The processes and the API server that a command reads from.
#[derive(Debug)]
pub(crate) struct Session {
    /// The API server. `None` if the program is not connected; `missing` then contains the cause.
    pub(crate) cluster: Option<Cluster>,
    pub(crate) release: Release,
    /// The processes, sorted by component and name.
    pub(crate) processes: Vec<Process>,
    pub(crate) missing: Vec<Missing>,
    pub(crate) now: Timestamp,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Process {
    pub(crate) component: Component,
    /// The name of the process's pod, or the address of its pages.
    pub(crate) name: String,
    reach: Reach,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Reach {
    Pod { namespace: String, port: u16 },
    Url,
}

#[derive(Clone, Debug)]
pub(crate) struct Page<T> {
    pub(crate) process: Process,
    pub(crate) content: T,
}

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
        let mut release = Release::within(common.release_namespace());
        if let (Some(cluster), false) = (&cluster, by_pod.is_empty()) {
            match release::find(cluster, common).await {
                Ok(found) => {
                    let installed = installed(&found, &by_pod);
                    let (of_release, lacking) = of_pods(&found.pods, &installed, &found.release.namespace);
                    processes.extend(of_release);
                    missing.extend(lacking);
                    release = found.release;
                }
                Err(NotFound::Missing(why)) => missing.push(why),
                Err(NotFound::Usage(why)) => return Err(why),
            }
        }
        processes.sort();
        Ok(Self { cluster, release, processes, missing, now })
    }

    /// Finds the release also if all processes are read at URLs.
    pub(crate) async fn locate(&mut self, common: &Common) -> Result<(), Usage> {
        if let (Some(cluster), None) = (&self.cluster, &self.release.name) {
            self.release = release::locate(cluster, common).await?;
        }
        Ok(())
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
    fn at(url: &PagesUrl) -> Self {
        Self { component: url.component, name: url.authority.clone(), reach: Reach::Url }
    }

    /// Whether the process is a pod in the namespace of the release.
    pub(crate) const fn is_pod(&self) -> bool {
        matches!(self.reach, Reach::Pod { .. })
    }

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

/// Returns these components without the controllers that the chart disables, which have no Deployment. If Deployments may not be listed,
/// returns all components.
fn installed(found: &Found, components: &[Component]) -> Vec<Component> {
    let Some(deployments) = &found.deployments else { return components.to_vec() };
    let stays = |component: &&Component| {
        // An adapter may run outside of the release.
        **component == Component::CloudAdapter
            || found.pods.iter().any(|it| component_of(it) == Some(**component))
            || deployments.iter().any(|it| component_of(it) == Some(**component))
    };
    components.iter().filter(stays).copied().collect()
}

/// Returns the processes of these components that have pages. Also returns the components and pods whose pages cannot be read.
fn of_pods(pods: &[Pod], components: &[Component], namespace: &str) -> (Vec<Process>, Vec<Missing>) {
    let (mut found, mut missing) = (Vec::new(), Vec::new());
    for &component in components {
        let its: Vec<&Pod> = pods.iter().filter(|pod| component_of(*pod) == Some(component)).collect();
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

fn port_of(pod: &Pod) -> Result<u16, String> {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or("Unknown");
    if phase != "Running" {
        let why = stopped(pod).map_or_else(|| "see kubectl describe pod".to_owned(), |it| it.text);
        return Err(format!("it is {phase}: {why}"));
    }
    let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
    let mut ports = containers.flat_map(|container| container.ports.iter().flatten());
    let port = ports.find(|port| port.name.as_deref() == Some(PORT));
    let port = port.and_then(|port| u16::try_from(port.container_port).ok());
    port.ok_or_else(|| format!("it has no port named {PORT}"))
}
