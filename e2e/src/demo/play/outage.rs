//! A step in which the adapter is killed while it creates a load balancer.

use anyhow::{Context, ensure};

use crate::demo::cloud::Balancer;
use crate::demo::cost::Cost;
use crate::demo::report::{Fact, Report};
use crate::demo::stage::Stage;
use crate::demo::teller::Teller;
use crate::{ADAPTER, events_on, eventually, seconds, service};

use super::services::{self, SECOND, balanced};

/// Shows that no request is lost, and that no object is created twice.
pub(super) async fn in_the_middle(stage: &mut Stage, teller: &Teller) -> anyhow::Result<Cost> {
    // Wait first: otherwise remaining work for the first Service would be interrupted and reported in this step, too.
    stage.quiet("service-controller").await?;
    let before = stage.counts().await?;
    let old: Vec<_> = stage.cluster.cloud.balancers().await?.into_iter().map(|it| it.id).collect();
    stage.cluster.cloud.build_slowly().await?;
    service(SECOND).port(8080).create(&stage.client()).await?;
    let half_built = eventually(
        "the cloud begins to create the load balancer",
        stage.cluster.cloud.patience(),
        || async {
            new(stage, &old).await?.into_iter().next().context("the load balancer does not exist yet")
        },
    );
    let half_built = half_built.await?;

    stage.cluster.pods.get(ADAPTER)?.kill().await?;
    let text = format!("{ADAPTER} was killed (SIGKILL) while {} was {}", half_built.id, half_built.status);
    teller.tell(&Report::Fact(Fact::note(text)));
    wait_told(stage).await?;
    teller.tell(&Report::Fact(Fact::Command { line: format!("kubectl describe service {SECOND}") }));
    teller.tell(&Report::Fact(Fact::Output { lines: services::described(stage, SECOND).await? }));

    let adapter = stage.cluster.pods.get(ADAPTER)?;
    adapter.start()?;
    adapter.wait_ready(seconds(60)).await?;
    teller.tell(&Report::Fact(Fact::note(format!("{ADAPTER} is back"))));
    let balancer = balanced(stage, SECOND).await?;
    let made = new(stage, &old).await?;
    ensure!(
        made.len() == 1 && balancer.id == half_built.id,
        "Service {SECOND} has {}, but its creation began with {}; the cloud has {} for it",
        balancer.id,
        half_built.id,
        made.len()
    );
    teller.tell(&Report::Fact(Fact::Balancer(balancer)));
    stage.cluster.cloud.build_as_usual().await?;
    let cost = stage.cost_since(&before).await?;
    let what = "no request lost, no object created twice: exactly one load balancer; in total";
    let creation = stage.cluster.cloud.creation();
    teller.tell(&Report::Fact(Fact::calls(what, &cost, creation)));
    ensure!(cost.calls_of(creation) == 1, "the load balancer was created more than once");
    Ok(cost)
}

/// Waits until an Event on the Service shows what the controller waits for.
async fn wait_told(stage: &Stage) -> anyhow::Result<()> {
    eventually(
        "an Event on the Service shows that the controller waits for the adapter",
        seconds(60),
        || async {
            let events = events_on(&stage.client(), "Service", SECOND).await?;
            let mut failures = events.iter().filter(|event| event.starts_with("SyncLoadBalancerFailed: "));
            let told = failures.any(|event| event.contains("cloud adapter"));
            ensure!(told, "its Events are {events:?}");
            Ok(())
        },
    )
    .await
}

/// The load balancers that did not exist before.
async fn new(stage: &Stage, old: &[String]) -> anyhow::Result<Vec<Balancer>> {
    let all = stage.cluster.cloud.balancers().await?;
    Ok(all.into_iter().filter(|it| !old.contains(&it.id)).collect())
}
