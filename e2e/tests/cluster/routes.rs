//! Packets between pods on different nodes arrive if the route-controller has created routes in the cloud, and only then.

use std::collections::BTreeSet;

use anyhow::{Context, ensure};
use e2e::eventually;
use reqwest::Method;
use serde_json::{from_value, json};

use crate::bed::{Bed, WITHIN, scenario};
use crate::inside::{Answering, Container};

#[test]
fn pods_on_two_nodes_reach_each_other_only_by_routes() {
    scenario(2, async |bed| {
        // Installs everything except the routes.
        bed.install(&json!({ "routeController": { "enabled": false } })).await?;
        bed.until_initialised().await?;
        let pair = Pair::start(bed).await?;
        pair.cut_off(bed, "no route-controller runs").await?;
        let routes = bed.cloud.state().await?.routes;
        ensure!(routes.is_empty(), "{routes:?}");

        // Intervals that suit a test; the defaults are 5 minutes for the controller, and 2 minutes for the adapter's cache.
        let often = json!({
            "adapter": { "cache": { "routes": { "maxAge": "5s" } } },
            "routeController": { "reconciliationPeriod": "5s" },
        });
        bed.upgrade(&often).await?;
        pair.connected(bed, "route-controller runs").await?;
        conditions(bed).await?;
        let ours = destinations(bed).await?;
        ensure!(ours == bed.pod_networks().await?.into_iter().collect(), "{ours:?}");

        // The routes are removed in the cloud, and cannot be created again for now.
        eventually("the routes are removed and not restored", WITHIN, || async {
            bed.cloud.clear_faults().await?;
            remove_routes(bed).await?;
            let refusal = json!({ "match": { "operation": "BatchRoutes" }, "action": { "respond": { "status": 503 } } });
            bed.cloud.add_fault(&from_value(refusal)?).await?;
            let quicker = bed.cloud.state().await?.routes;
            ensure!(quicker.is_empty(), "restored too early: {quicker:?}");
            Ok(())
        })
        .await?;
        pair.cut_off(bed, "the routes were removed in the cloud").await?;
        bed.cloud.clear_faults().await?;
        pair.connected(bed, "route-controller has restored them").await?;
        let mended = destinations(bed).await?;
        ensure!(mended == ours, "{mended:?}");
        Ok(())
    });
}

/// Two pods on two nodes.
struct Pair([Side; 2]);

struct Side {
    pod: Container,
    answering: Answering,
}

impl Pair {
    async fn start(bed: &Bed) -> anyhow::Result<Self> {
        let one = Container::idle(bed, "one", "node-1").await?;
        let two = Container::idle(bed, "two", "node-2").await?;
        let side = |pod: Container| anyhow::Ok(Side { answering: pod.answer()?, pod });
        Ok(Self([side(one)?, side(two)?]))
    }

    /// Both directions, each with its sender and its receiver.
    fn ways(&self) -> [(&Side, &Side); 2] {
        let Self([one, two]) = self;
        [(one, two), (two, one)]
    }

    /// Waits until neither pod reaches the other, and checks that each reaches itself.
    async fn cut_off(&self, bed: &Bed, because: &str) -> anyhow::Result<()> {
        eventually(&format!("no packet arrives: {because}"), WITHIN, || async {
            for (from, to) in self.ways() {
                let answer = from.pod.get(to.answering.at, "/").await;
                ensure!(answer.is_err(), "{} is reached: {answer:?}", to.answering.at);
            }
            Ok(())
        })
        .await?;
        for (from, _) in self.ways() {
            from.pod.get(from.answering.at, "/").await.context("a pod does not reach itself")?;
        }
        bed.step(&format!("no packet arrives at the other node: {because}"));
        Ok(())
    }

    /// Waits until each pod reaches the other, with its own address as the source.
    async fn connected(&self, bed: &Bed, because: &str) -> anyhow::Result<()> {
        eventually(&format!("packets arrive: {because}"), WITHIN, || async {
            for (from, to) in self.ways() {
                let (seen, own) =
                    (from.pod.get(to.answering.at, "/").await?, from.pod.address()?.to_string());
                ensure!(seen == own, "{own} was seen as {seen}");
            }
            Ok(())
        })
        .await?;
        bed.step(&format!("packets arrive at the other node: {because}"));
        Ok(())
    }
}

/// Removes all routes, whatever their owner.
pub(crate) async fn remove_routes(bed: &Bed) -> anyhow::Result<()> {
    let routes = bed.cloud.state().await?.routes;
    let ids: Vec<_> = routes.iter().map(|route| &route.id).collect();
    bed.cloud.by_hand(Method::POST, "/v1/routes:batch", Some(&json!({ "remove": ids }))).await
}

async fn destinations(bed: &Bed) -> anyhow::Result<BTreeSet<String>> {
    Ok(bed.cloud.state().await?.routes.iter().map(|route| route.destination.to_string()).collect())
}

async fn conditions(bed: &Bed) -> anyhow::Result<()> {
    let reasons = "jsonpath={.items[*].status.conditions[?(@.type==\"NetworkUnavailable\")].reason}";
    let both = |all: &str| all == "RouteCreated RouteCreated";
    bed.until("both nodes have the condition", &["get", "nodes", "--output", reasons], both).await.map(drop)
}
