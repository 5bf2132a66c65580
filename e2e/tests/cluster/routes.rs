//! Packets between pods of different nodes: they arrive where route-controller made the cloud a route, and nowhere else.

use std::collections::BTreeSet;

use anyhow::{Context, ensure};
use e2e::eventually;
use reqwest::Method;
use serde_json::{from_value, json};

use crate::bed::{Bed, WITHIN, scenario};
use crate::inside::{Answering, Container};

#[test]
fn pods_of_two_nodes_reach_each_other_by_the_routes_alone() {
    scenario(2, async |bed| {
        // Everything but the routes.
        bed.install(&json!({ "routeController": { "enabled": false } })).await?;
        bed.until_initialised().await?;
        let pair = Pair::start(bed).await?;
        pair.cut_off(bed, "no route-controller runs").await?;
        let routes = bed.cloud.state().await?.routes;
        ensure!(routes.is_empty(), "{routes:?}");

        // Looks often enough for a test; by default that is 5 minutes, and what the adapter remembers 2 minutes old.
        let often = json!({
            "adapter": { "cache": { "routes": { "maxAge": "5s" } } },
            "routeController": { "reconciliationPeriod": "5s" },
        });
        bed.upgrade(&often).await?;
        pair.connected(bed, "route-controller runs").await?;
        conditions(bed).await?;
        let ours = destinations(bed).await?;
        ensure!(ours == bed.pod_networks().await?.into_iter().collect(), "{ours:?}");

        // Somebody removes them by hand, and they cannot be made again for now.
        eventually("the routes are gone and stay so", WITHIN, || async {
            bed.cloud.clear_faults().await?;
            remove_routes(bed).await?;
            let refusal = json!({ "match": { "operation": "BatchRoutes" }, "action": { "respond": { "status": 503 } } });
            bed.cloud.add_fault(&from_value(refusal)?).await?;
            let quicker = bed.cloud.state().await?.routes;
            ensure!(quicker.is_empty(), "mended before: {quicker:?}");
            Ok(())
        })
        .await?;
        pair.cut_off(bed, "somebody removed the routes").await?;
        bed.cloud.clear_faults().await?;
        pair.connected(bed, "route-controller has mended them").await?;
        let mended = destinations(bed).await?;
        ensure!(mended == ours, "{mended:?}");
        Ok(())
    });
}

/// Two pods on two nodes.
struct Pair([Side; 2]);

/// A pod that answers whoever asks.
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

    /// From, and to.
    fn ways(&self) -> [(&Side, &Side); 2] {
        let Self([one, two]) = self;
        [(one, two), (two, one)]
    }

    /// Neither reaches the other, and each what is on its own node.
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

    /// Each reaches the other, and is seen there with its own address.
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

/// Whoever made them.
pub(crate) async fn remove_routes(bed: &Bed) -> anyhow::Result<()> {
    let routes = bed.cloud.state().await?.routes;
    let ids: Vec<_> = routes.iter().map(|route| &route.id).collect();
    bed.cloud.by_hand(Method::POST, "/v1/routes:batch", Some(&json!({ "remove": ids }))).await
}

async fn destinations(bed: &Bed) -> anyhow::Result<BTreeSet<String>> {
    Ok(bed.cloud.state().await?.routes.iter().map(|route| route.destination.to_string()).collect())
}

/// Both nodes say so.
async fn conditions(bed: &Bed) -> anyhow::Result<()> {
    let reasons = "jsonpath={.items[*].status.conditions[?(@.type==\"NetworkUnavailable\")].reason}";
    let both = |all: &str| all == "RouteCreated RouteCreated";
    bed.until("both nodes have the condition", &["get", "nodes", "--output", reasons], both).await.map(drop)
}
