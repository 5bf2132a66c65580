//! The order of the steps, and their times. A failed step is the last one.

mod nodes;
mod outage;
mod restart;
mod services;
mod set_up;

use std::sync::Arc;
use std::time::Duration;

use e2e_tools::Tools;
use tokio::time::Instant;

use crate::openstack::Project;
use crate::{ADAPTER, CONTROLLERS};

use super::cost::Cost;
use super::report::{Evidence, Heading, Outcome, Report, Row};
use super::stage::{Stage, Suspects};
use super::teller::Teller;

/// A running play.
#[derive(Debug)]
pub(super) struct Play<'a> {
    teller: &'a Teller,
    nodes: u16,
    observe: bool,
    rows: Vec<Row>,
}

/// The steps on an installed cluster.
#[derive(Clone, Copy, Debug)]
enum Scene {
    Processes,
    Nodes,
    Routes,
    Service,
    OneMore,
    OneLess,
    Outage,
    Restart,
    Deletion,
}

impl<'a> Play<'a> {
    pub(super) fn new(teller: &'a Teller, nodes: u16, observe: bool) -> Self {
        Self { teller, nodes, observe, rows: Vec::new() }
    }

    /// Plays until a step fails. All started processes are in `stage`, and keep running.
    pub(super) async fn all(
        &mut self,
        tools: &Tools,
        project: Option<Arc<Project>>,
        stage: &mut Option<Stage>,
    ) -> bool {
        let Some(cluster) = set_up::cluster(self, tools, project).await else { return false };
        let stage = stage.insert(Stage::new(cluster));
        if self.observe && !set_up::prometheus(self, stage).await {
            return false;
        }
        for scene in Scene::ALL {
            if !self.scene(scene, stage).await {
                return false;
            }
        }
        true
    }

    /// Reports a summary of all steps.
    pub(super) fn sum_up(&self) {
        let passed = self.rows.iter().all(|row| row.outcome == Outcome::Passed);
        self.teller.tell(&Report::Summary { steps: self.rows.clone(), passed });
    }

    async fn scene(&mut self, scene: Scene, stage: &mut Stage) -> bool {
        let began = self.begin(scene.name(), scene.title(self.nodes));
        match scene.play(stage, self.teller, self.nodes).await {
            Ok(cost) => {
                self.passed(scene.name(), began, cost);
                true
            }
            Err(why) => {
                let took = began.elapsed();
                let evidence = stage.evidence(scene.suspects()).await;
                self.failed(scene.name(), took, &why, evidence);
                false
            }
        }
    }

    /// Runs a step that creates objects for later steps. Its errors contain the related logs.
    async fn act<T>(
        &mut self,
        step: &'static str,
        title: String,
        work: impl Future<Output = anyhow::Result<T>>,
    ) -> Option<T> {
        let began = self.begin(step, title);
        match work.await {
            Ok(value) => {
                self.passed(step, began, Cost::default());
                Some(value)
            }
            Err(why) => {
                self.failed(step, began.elapsed(), &why, Vec::new());
                None
            }
        }
    }

    fn begin(&self, step: &'static str, title: String) -> Instant {
        let number = self.rows.len() + 1;
        self.teller.tell(&Report::StepBegins(Heading { number, step, title }));
        Instant::now()
    }

    fn passed(&mut self, step: &'static str, began: Instant, vendor_calls: Cost) {
        let millis = millis(began.elapsed());
        let row = Row { step, outcome: Outcome::Passed, millis, vendor_calls: vendor_calls.clone() };
        self.rows.push(row);
        self.teller.tell(&Report::StepPassed { step, millis, vendor_calls });
    }

    fn failed(&mut self, step: &'static str, took: Duration, why: &anyhow::Error, evidence: Vec<Evidence>) {
        let millis = millis(took);
        self.rows.push(Row { step, outcome: Outcome::Failed, millis, vendor_calls: Cost::default() });
        self.teller.tell(&Report::StepFailed { step, millis, why: format!("{why:#}"), evidence });
    }
}

impl Scene {
    const ALL: [Self; 9] = [
        Self::Processes,
        Self::Nodes,
        Self::Routes,
        Self::Service,
        Self::OneMore,
        Self::OneLess,
        Self::Outage,
        Self::Restart,
        Self::Deletion,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::Processes => "processes",
            Self::Nodes => "nodes",
            Self::Routes => "routes",
            Self::Service => "service",
            Self::OneMore => "one more node",
            Self::OneLess => "one node less",
            Self::Outage => "adapter killed",
            Self::Restart => "restart",
            Self::Deletion => "deletion",
        }
    }

    fn title(self, nodes: u16) -> String {
        match self {
            Self::Processes => {
                "the adapter and the three controllers start, as described by their Deployments".to_owned()
            }
            Self::Nodes => {
                format!("{nodes} nodes join at once, as kubelets register them, and are initialised")
            }
            Self::Routes => "the cloud gets routes to the pods of these nodes".to_owned(),
            Self::Service => "a Service of type LoadBalancer gets an address and its members".to_owned(),
            Self::OneMore => {
                "a node joins; its route is created, and the Service's load balancer gets a member".to_owned()
            }
            Self::OneLess => "a node leaves; its route and its load balancer member are removed".to_owned(),
            Self::Outage => "the adapter is killed while it creates a second load balancer".to_owned(),
            Self::Restart => "all three controllers are restarted and find nothing to do".to_owned(),
            Self::Deletion => {
                "both Services are deleted, and no part of them is left in the cloud".to_owned()
            }
        }
    }

    fn suspects(self) -> Suspects {
        let (processes, object): (&'static [&'static str], _) = match self {
            Self::Processes | Self::Restart => (&CONTROLLERS, None),
            Self::Nodes => (&["node-controller", ADAPTER], Some(("Node", "node-1"))),
            Self::Routes => (&["route-controller", ADAPTER], Some(("Node", "node-1"))),
            Self::OneMore | Self::OneLess => (&CONTROLLERS, Some(("Service", services::FIRST))),
            Self::Service | Self::Deletion => {
                (&["service-controller", ADAPTER], Some(("Service", services::FIRST)))
            }
            Self::Outage => (&["service-controller", ADAPTER], Some(("Service", services::SECOND))),
        };
        Suspects { processes, object }
    }

    async fn play(self, stage: &mut Stage, teller: &Teller, nodes: u16) -> anyhow::Result<Cost> {
        match self {
            Self::Processes => set_up::processes(stage, teller).await,
            Self::Nodes => nodes::join(stage, teller, nodes).await,
            Self::Routes => nodes::routes(stage, teller).await,
            Self::Service => services::appears(stage, teller).await,
            Self::OneMore => nodes::one_more(stage, teller).await,
            Self::OneLess => nodes::one_less(stage, teller).await,
            Self::Outage => outage::in_the_middle(stage, teller).await,
            Self::Restart => restart::controllers(stage, teller).await,
            Self::Deletion => services::go(stage, teller).await,
        }
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
