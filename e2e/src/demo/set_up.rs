//! The steps before the first node: chart and processes.

use std::env;

use serde_json::{Value, json};

use crate::helm::merge;
use crate::{Cluster, ControlPlane, Pace, Pods, Release, Values, seconds};

use super::cloud::Cloud;
use super::cost::{Cost, Counts};
use super::report::Output;
use super::stage::Stage;

/// The pod CIDR of the cluster. Large enough for a thousand nodes with 256 addresses each.
const CLUSTER_CIDR: &str = "10.240.0.0/12";
/// The interval of scrapes. Steps take seconds, and each step should be visible. The alerts keep the durations of the chart.
pub(super) const PACE: Pace = Pace { every: seconds(1), lasts: None };

pub(super) async fn install(
    control_plane: ControlPlane,
    cloud: Cloud,
    output: Output,
) -> anyhow::Result<Cluster<Cloud>> {
    let mut values = Values::new()?.render();
    merge(&mut values, &cloud.values());
    merge(&mut values, &json!({ "routeController": { "clusterCidr": CLUSTER_CIDR } }));
    merge(&mut values, &traces());
    output.command("helm install cloud-controllers helm/cloud-controllers --namespace kube-system ...");
    let release = Release::install(&control_plane, &values).await?;
    let pods = Pods::from_release(&control_plane, &release).await?;
    output.note(format!("the API server has the Deployments {}", pods.names().join(", ")));
    Ok(Cluster { pods, cloud, release, control_plane })
}

/// Returns chart values that pass the demo's own tracing variables to all processes. The variables decide where traces are sent.
fn traces() -> Value {
    let variables: Vec<_> = env::vars()
        .filter(|(name, _)| name.starts_with("OTEL_"))
        .map(|(name, value)| json!({ "name": name, "value": value }))
        .collect();
    let of_all = ["adapter", "nodeController", "serviceController", "routeController"];
    of_all.into_iter().map(|part| (part.to_owned(), json!({ "extraEnv": variables }))).collect()
}

/// Starts the processes. A process is ready when it has listed the objects of both Kubernetes and the cloud.
pub(super) async fn processes(stage: &mut Stage) -> anyhow::Result<Cost> {
    stage.cluster.pods.start()?;
    for name in stage.cluster.pods.names() {
        let pod = stage.cluster.pods.get(&name)?;
        pod.wait_ready(seconds(60)).await?;
        stage.output.note(format!("{name:<19} ready, as {}", pod.user()));
    }
    if let Some(prometheus) = &stage.prometheus {
        prometheus.sees_all().await?;
        stage.output.note("Prometheus has scraped all processes");
    }
    stage.cost_since(&Counts::new()).await
}
