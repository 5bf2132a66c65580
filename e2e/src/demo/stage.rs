//! The cluster of the demo.

use std::fmt::Write as _;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

use adapter_sim::simcloud::Family;
use anyhow::Context;
use e2e_tools::{Origin, Tools};
use kube::Client;
use rustix::process::Signal;

use crate::cluster::Cluster;
use crate::control_plane::APISERVER;
use crate::quiet::quiet;
use crate::{ADAPTER, CONTROLLERS, Prometheus, binaries, eventually};

use super::cloud::Cloud;
use super::cost::{Cost, Counts};
use super::report::{Output, Running, Stay};

/// The adapter and its clients.
const PROCESSES: [&str; 4] = [ADAPTER, CONTROLLERS[0], CONTROLLERS[1], CONTROLLERS[2]];

#[derive(Debug)]
pub(super) struct Stage {
    pub(super) cluster: Cluster<Cloud>,
    pub(super) output: Output,
    /// The Prometheus that scrapes the cluster, if requested.
    pub(super) prometheus: Option<Prometheus>,
    /// The number of nodes that have joined so far.
    pub(super) nodes: usize,
    /// The cloud's call counts when the first nodes joined.
    pub(super) before_nodes: Counts,
}

impl Stage {
    pub(super) fn new(cluster: Cluster<Cloud>, output: Output) -> Self {
        Self { cluster, output, prometheus: None, nodes: 0, before_nodes: Counts::new() }
    }

    pub(super) fn client(&self) -> Client {
        self.cluster.control_plane.client()
    }

    pub(super) async fn counts(&self) -> anyhow::Result<Counts> {
        self.cluster.cloud.counts().await
    }

    pub(super) async fn cost_since(&self, before: &Counts) -> anyhow::Result<Cost> {
        let all = [Family::Compute, Family::Identity, Family::Loadbalancer, Family::Network];
        Ok(Cost::between(before, &self.counts().await?, &all))
    }

    pub(super) async fn quiet(&mut self, controller: &str) -> anyhow::Result<()> {
        let pod = &*self.cluster.pods.get(controller)?;
        let what = format!("the queue of {controller} is empty");
        eventually(&what, self.cluster.cloud.time_limit(), || async { quiet(&pod.metrics().await?) }).await
    }

    /// The ends of the logs of all processes, which help to find the cause of a failure.
    pub(super) fn logs(&self) -> String {
        let tails = PROCESSES.iter().filter_map(|name| Some(self.cluster.pods.look_at(name).ok()?.tail()));
        tails.collect::<Vec<_>>().join("\n")
    }

    /// The exit status of a process, if it has ended and no step stopped it.
    pub(super) fn ended(&mut self, process: &str) -> Option<ExitStatus> {
        // The error is ignored here, because the next check reads the status again.
        if process == APISERVER {
            self.cluster.control_plane.apiserver_status().ok()?
        } else {
            self.cluster.pods.get(process).ok()?.exit_status().ok()?
        }
    }

    /// Starts a process again and returns its ID. Does not wait for its readiness.
    pub(super) fn start(&mut self, process: &str) -> anyhow::Result<u32> {
        if process == APISERVER {
            return self.cluster.control_plane.launch_apiserver();
        }
        let pod = self.cluster.pods.get(process)?;
        pod.start()?;
        pod.id().with_context(|| format!("{process} has no process"))
    }

    pub(super) fn stay(&mut self, tools: &Tools) -> Stay {
        let (processes, cloudctl) = (self.running(), self.cloudctl());
        let control_plane = &self.cluster.control_plane;
        let kubectl = &tools.kubectl;
        Stay {
            kubeconfig: control_plane.kubeconfig().display().to_string(),
            kubectl: (kubectl.origin != Origin::Path).then(|| kubectl.path.display().to_string()),
            cloudctl,
            cloud: self.cluster.cloud.access(),
            prometheus: self.prometheus.as_ref().map(|it| it.api.url().to_owned()),
            logs: control_plane.log_dir().display().to_string(),
            processes,
        }
    }

    fn running(&mut self) -> Vec<Running> {
        let mut running = Vec::new();
        for process in PROCESSES {
            let Ok(pod) = self.cluster.pods.get(process) else { continue };
            if pod.is_running() {
                running.extend(pod.id().map(|pid| Running { process, pid }));
            }
        }
        running
    }

    /// `cloudctl` with the URLs of all status pages.
    fn cloudctl(&self) -> String {
        let path = binaries().unwrap_or_default().join("cloudctl");
        let mut command = path.display().to_string();
        for process in PROCESSES {
            let Ok(url) = self.cluster.pods.look_at(process).and_then(|pod| pod.url("/")) else { continue };
            // Writing to a String cannot fail.
            write!(command, " --url {process}={}", url.trim_end_matches('/')).unwrap_or_default();
        }
        command
    }

    /// Stops all processes gracefully: clients before their servers.
    pub(super) async fn close(mut self) -> anyhow::Result<()> {
        let mut trouble = String::new();
        if let Some(prometheus) = self.prometheus.take()
            && let Err(error) = prometheus.stop().await
        {
            write!(trouble, "\n  {error:#}")?;
        }
        for name in PROCESSES.iter().rev() {
            let pod = self.cluster.pods.get(name)?;
            if !pod.is_running() {
                continue;
            }
            match pod.stop().await {
                Ok(status) if status.success() || was_cut_off(status) => (),
                Ok(status) => {
                    write!(trouble, "\n  {name} ended on SIGTERM with {status}; {}", pod.tail())?;
                }
                Err(error) => write!(trouble, "\n  {error:#}")?,
            }
        }
        self.cluster.control_plane.stop().await?;
        anyhow::ensure!(trouble.is_empty(), "not all processes ended gracefully:{trouble}");
        Ok(())
    }
}

/// Whether SIGTERM or SIGKILL ended the process. A process that was just started may not handle SIGTERM yet, and the user may kill a
/// process while the demo stops it.
fn was_cut_off(status: ExitStatus) -> bool {
    [Signal::TERM, Signal::KILL].into_iter().any(|signal| status.signal() == Some(signal.as_raw()))
}
