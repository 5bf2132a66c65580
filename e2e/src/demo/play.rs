//! Runs the steps in order, and measures their times. After a failed step, no further step runs.

use std::sync::Arc;

use e2e_tools::Tools;
use tokio::time::Instant;

use crate::openstack::Project;
use crate::{ControlPlane, Prometheus};

use super::Args;
use super::cloud::Cloud;
use super::cost::Cost;
use super::report::{Outcome, Output, Report, Row};
use super::stage::Stage;
use super::{set_up, steps};

#[derive(Debug)]
pub(super) struct Play {
    output: Output,
    pub(super) rows: Vec<Row>,
}

impl Play {
    pub(super) fn new(output: Output) -> Self {
        Self { output, rows: Vec::new() }
    }

    /// Runs all steps, but stops at the first one that fails. All started processes are in `stage`, and keep running.
    pub(super) async fn all(
        &mut self,
        args: &Args,
        tools: &Tools,
        project: Option<Arc<Project>>,
        stage: &mut Option<Stage>,
    ) -> Option<()> {
        let (etcd, apiserver) = (&tools.etcd.version, &tools.kube_apiserver.version);
        let title = format!("etcd {etcd} and kube-apiserver {apiserver} are started");
        let control_plane = self.set_up("control plane", &title, ControlPlane::start(tools)).await?;
        let title = match project {
            None => "a simulated cloud is started, as a separate process, so that it outlives the adapter",
            Some(_) => "the demo uses a project of OpenStack: the real services, without hypervisors",
        };
        let cloud = self.set_up("cloud", title, Cloud::start(&control_plane, project)).await?;
        let installed = set_up::install(control_plane, cloud, self.output);
        let cluster = self.set_up("helm install", "the chart is installed with Helm", installed).await?;
        let stage = stage.insert(Stage::new(cluster, self.output));
        if args.observe {
            let title = "a real Prometheus is started and scrapes the processes";
            let (control_plane, pods) = (&stage.cluster.control_plane, &stage.cluster.pods);
            let started = Prometheus::start(control_plane, pods, set_up::PACE);
            let prometheus = self.set_up("prometheus", title, started).await?;
            self.output.note(format!("Prometheus is at {}", prometheus.api.url()));
            stage.prometheus = Some(prometheus);
        }
        self.on_cluster(args.nodes.into(), stage).await
    }

    async fn on_cluster(&mut self, nodes: usize, stage: &mut Stage) -> Option<()> {
        let title = "the adapter and the three controllers start, as described by their Deployments";
        self.step("processes", title, stage, set_up::processes).await?;
        let title = format!("{nodes} nodes join at once, as kubelets register them, and are initialised");
        self.step("nodes", &title, stage, async |stage| steps::nodes_join(stage, nodes).await).await?;
        let title = "the cloud gets routes to the pods of these nodes";
        self.step("routes", title, stage, steps::routes_exist).await?;
        let title = "a Service of type LoadBalancer gets an address and its members";
        self.step("service", title, stage, steps::service_is_created).await?;
        let title = "another node joins, gets its route and becomes a member, and leaves";
        self.step("one more node", title, stage, steps::node_joins_and_leaves).await?;
        let title = "the adapter is killed while it creates a second load balancer";
        self.step("adapter killed", title, stage, steps::adapter_is_killed).await?;
        let title = "all three controllers are restarted and find nothing to do";
        self.step("restart", title, stage, steps::controllers_restart).await?;
        let title = "both Services are deleted, and no part of them is left in the cloud";
        self.step("deletion", title, stage, steps::services_are_deleted).await
    }

    /// Runs a step that has no cost. Its errors contain the related logs.
    async fn set_up<T>(
        &mut self,
        step: &'static str,
        title: &str,
        work: impl Future<Output = anyhow::Result<T>>,
    ) -> Option<T> {
        let began = self.begin(step, title);
        let (value, result) = match work.await {
            Ok(value) => (Some(value), Ok(Cost::default())),
            Err(error) => (None, Err(format!("{error:#}"))),
        };
        self.end(step, began, result);
        value
    }

    /// Runs a step on the installed cluster.
    async fn step(
        &mut self,
        step: &'static str,
        title: &str,
        stage: &mut Stage,
        play: impl AsyncFnOnce(&mut Stage) -> anyhow::Result<Cost>,
    ) -> Option<()> {
        let began = self.begin(step, title);
        let result = play(stage).await.map_err(|error| format!("{error:#}\n{}", stage.logs()));
        let passed = result.is_ok();
        self.end(step, began, result);
        passed.then_some(())
    }

    fn begin(&self, step: &'static str, title: &str) -> Instant {
        let number = self.rows.len() + 1;
        self.output.print(&Report::StepBegins { number, step, title: title.to_owned() });
        Instant::now()
    }

    fn end(&mut self, step: &'static str, began: Instant, result: Result<Cost, String>) {
        let millis = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
        let (outcome, vendor_calls) = match result {
            Ok(cost) => (Outcome::Passed, cost),
            Err(why) => {
                self.output.print(&Report::StepFailed { step, millis, why });
                (Outcome::Failed, Cost::default())
            }
        };
        let row = Row { step, outcome, millis, vendor_calls };
        if outcome == Outcome::Passed {
            self.output.print(&Report::StepPassed(row.clone()));
        }
        self.rows.push(row);
    }
}
