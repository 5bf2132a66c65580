//! Steps in which Services are created and deleted.

use anyhow::{Context, ensure};
use k8s_openapi::api::core::v1::Service;
use kube::Api;
use kube::api::DeleteParams;

use crate::demo::cost::Cost;
use crate::demo::facts::{self, events_of};
use crate::demo::report::{BalancerFact, Fact, Report};
use crate::demo::stage::Stage;
use crate::demo::teller::Teller;
use crate::metrics::sum;
use crate::{eventually, seconds, service};

/// The Service of the first steps.
pub(super) const FIRST: &str = "web";
/// The Service that is created while the adapter does not run.
pub(super) const SECOND: &str = "shop";
/// A metric of the service-controller: the number of nodes that it uses as backends.
const TARGETS: &str = "cloud_controller_load_balancer_targets";

/// Creates a Service with two ports, and waits until its load balancer is complete.
pub(super) async fn appears(stage: &mut Stage, teller: &Teller) -> anyhow::Result<Cost> {
    all_nodes_are_targets(stage).await?;
    let before = stage.counts().await?;
    service(FIRST).port(80).port(443).create(&stage.client()).await?;
    let balancer = balanced(stage, FIRST).await?;
    teller.tell(&Report::Fact(Fact::Balancer(balancer)));
    stage.cost_since(&before).await
}

/// Deletes both Services, and waits until the cluster and the cloud contain no part of them.
pub(super) async fn go(stage: &mut Stage, teller: &Teller) -> anyhow::Result<Cost> {
    let before = stage.counts().await?;
    let services = api(stage);
    for name in [FIRST, SECOND] {
        let line = format!("kubectl delete service {name}");
        teller.tell(&Report::Fact(Fact::Command { line }));
        services.delete(name, &DeleteParams::default()).await.context("cannot delete the Service")?;
    }
    let what = "both Services and their load balancers are gone";
    eventually(what, stage.cluster.cloud.patience(), || async {
        for name in [FIRST, SECOND] {
            let left = services.get_opt(name).await.context("cannot get the Service")?;
            ensure!(left.is_none(), "Service {name} waits for its finalizer");
        }
        let left = stage.cluster.cloud.left().await?;
        ensure!(left == 0, "{left} load balancers or addresses are left");
        Ok(())
    })
    .await?;
    let cost = stage.cost_since(&before).await?;
    teller.tell(&Report::Fact(Fact::note("0 Services, 0 finalizers and 0 load balancers are left")));
    teller.tell(&Report::Fact(Fact::calls("of the cloud", &cost, stage.cluster.cloud.deletion())));
    Ok(cost)
}

/// Waits until a Service's load balancer is complete and has all nodes as members.
pub(super) async fn balanced(stage: &Stage, name: &str) -> anyhow::Result<BalancerFact> {
    let services = api(stage);
    let what = format!("Service {name} has its load balancer");
    eventually(&what, stage.cluster.cloud.patience(), || async {
        let service = services.get(name).await.context("cannot get the Service")?;
        let balancers = stage.cluster.cloud.balancers().await?;
        facts::balanced(&service, &balancers, stage.nodes)
    })
    .await
}

/// Waits until all nodes would be members of a new load balancer, which takes a moment after the nodes joined. A Service created before
/// would get the nodes one by one, with more calls than this step should show.
async fn all_nodes_are_targets(stage: &mut Stage) -> anyhow::Result<()> {
    let (wanted, pod) = (stage.nodes.to_string(), &*stage.cluster.pods.get("service-controller")?);
    eventually("load balancers would get all nodes as members", seconds(30), || async {
        let targets = sum(&pod.metrics().await?, TARGETS).to_string();
        ensure!(targets == wanted, "{targets} nodes would be members");
        Ok(())
    })
    .await
}

/// The output of `kubectl describe`, where users look for the reason.
pub(super) async fn described(stage: &Stage, name: &str) -> anyhow::Result<Vec<String>> {
    let description = stage.cluster.control_plane.kubectl(&["describe", "service", name]).await?;
    Ok(events_of(&description))
}

fn api(stage: &Stage) -> Api<Service> {
    Api::namespaced(stage.client(), "default")
}
