//! The steps before the first node: control plane, cloud, chart, processes.

use std::env;
use std::sync::Arc;

use e2e_tools::Tools;
use serde_json::{Value, json};

use crate::demo::cloud::Cloud;
use crate::demo::cost::{Cost, Counts};
use crate::demo::report::{Fact, Report};
use crate::demo::stage::Stage;
use crate::demo::teller::Teller;
use crate::helm::merge;
use crate::openstack::Project;
use crate::{Cluster, ControlPlane, Pace, Pods, Prometheus, Release, Values, seconds};

use super::Play;

/// The pod CIDR of the cluster. Large enough for a thousand nodes with 256 addresses each.
const CLUSTER_CIDR: &str = "10.240.0.0/12";
/// The interval of scrapes. Steps take seconds, and each step should be visible. The alerts keep the durations of the chart.
const PACE: Pace = Pace { every: seconds(1), lasts: None };

/// The parts that were started. `None` if a step failed.
pub(super) async fn cluster(
    play: &mut Play<'_>,
    tools: &Tools,
    project: Option<Arc<Project>>,
) -> Option<Cluster<Cloud>> {
    let teller = play.teller;
    let title = format!(
        "etcd {} and kube-apiserver {} are started",
        tools.etcd.version, tools.kube_apiserver.version
    );
    let control_plane = play.act("control plane", title, ControlPlane::start(tools)).await?;
    let title = match project {
        None => "a simulated cloud is started, as a separate process, so that it outlives the adapter",
        Some(_) => "the demo uses a project of OpenStack: the real services, without hypervisors",
    };
    let cloud = cloud(&control_plane, project, teller);
    let cloud = play.act("cloud", title.to_owned(), cloud).await?;
    let title = "the chart is installed with Helm".to_owned();
    play.act("helm install", title, install(control_plane, cloud, teller)).await
}

async fn cloud(
    control_plane: &ControlPlane,
    project: Option<Arc<Project>>,
    teller: &Teller,
) -> anyhow::Result<Cloud> {
    let cloud = Cloud::start(control_plane, project).await?;
    teller.tell(&Report::Fact(Fact::note(cloud.introduction())));
    Ok(cloud)
}

async fn install(
    control_plane: ControlPlane,
    cloud: Cloud,
    teller: &Teller,
) -> anyhow::Result<Cluster<Cloud>> {
    let mut values = Values::new()?.render();
    merge(&mut values, &cloud.values());
    merge(&mut values, &json!({ "routeController": { "clusterCidr": CLUSTER_CIDR } }));
    merge(&mut values, &traces());
    let line = format!(
        "helm install cloud-controllers helm/cloud-controllers --namespace kube-system \
         --set routeController.clusterCidr={CLUSTER_CIDR} {} ...",
        cloud.flags()
    );
    teller.tell(&Report::Fact(Fact::Command { line }));
    let release = Release::install(&control_plane, &values).await?;
    let pods = Pods::from_release(&control_plane, &release).await?;
    let names = pods.names().join(", ");
    teller.tell(&Report::Fact(Fact::note(format!("the API server has the Deployments {names}"))));
    Ok(Cluster { pods, cloud, release, control_plane })
}

/// Passes the demo's tracing variables on: they decide where traces are sent, as for any program.
fn traces() -> Value {
    let variables: Vec<_> = env::vars()
        .filter(|(name, _)| name.starts_with("OTEL_"))
        .map(|(name, value)| json!({ "name": name, "value": value }))
        .collect();
    let of_all = ["adapter", "nodeController", "serviceController", "routeController"];
    of_all.into_iter().map(|part| (part.to_owned(), json!({ "extraEnv": variables }))).collect()
}

/// Starts a Prometheus, if the user requested one.
pub(super) async fn prometheus(play: &mut Play<'_>, stage: &mut Stage) -> bool {
    let Cluster { control_plane, pods, .. } = &mut stage.cluster;
    let title = "a real Prometheus is started and scrapes the processes".to_owned();
    let teller = play.teller;
    let starts = async {
        let prometheus = Prometheus::start(control_plane, pods, PACE).await?;
        teller.tell(&Report::Fact(Fact::note(format!("Prometheus is at {}", prometheus.api.url()))));
        anyhow::Ok(prometheus)
    };
    let started = play.act("prometheus", title, starts).await;
    stage.prometheus = started;
    stage.prometheus.is_some()
}

/// Starts the processes. A process is ready when it has listed the objects of both Kubernetes and the cloud.
pub(super) async fn processes(stage: &mut Stage, teller: &Teller) -> anyhow::Result<Cost> {
    stage.cluster.pods.start()?;
    for name in stage.cluster.pods.names() {
        let pod = stage.cluster.pods.get(&name)?;
        pod.wait_ready(seconds(60)).await?;
        teller.tell(&Report::Fact(Fact::Process { name, user: pod.user().to_owned() }));
    }
    if let Some(prometheus) = &stage.prometheus {
        prometheus.sees_all().await?;
        teller.tell(&Report::Fact(Fact::note("Prometheus has scraped all processes")));
    }
    stage.cost_since(&Counts::new()).await
}
