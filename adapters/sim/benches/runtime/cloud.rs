//! A simulated cloud in this process, so that its memory does not count as the adapter's.

use std::ops::RangeInclusive;

use adapter_sim::simcloud::{Cloud, SharedCloud, model::Project, serve};
use anyhow::{Context as _, ensure};
use reqwest::{Client, Method};
use serde_json::{Value, json};
use tokio::{net::TcpListener, task::JoinSet};
use tokio_util::sync::CancellationToken;

pub(crate) const CLUSTER: &str = "c-1";

/// Dropping this value ends the cloud.
pub(crate) struct BenchCloud {
    pub(crate) url: String,
    client: Client,
    _serving: JoinSet<std::io::Result<()>>,
}

impl BenchCloud {
    /// The cloud completes all changes at once.
    pub(crate) async fn start(machines: u32) -> anyhow::Result<Self> {
        let project = Project { account: "sim".into(), project: "bench".into(), region: "sim-1".into() };
        let listener = TcpListener::bind("127.0.0.1:0").await.context(
            "cannot listen on a port for \
        the simulated cloud",
        )?;
        let url = format!("http://{}", listener.local_addr()?);
        let mut serving = JoinSet::new();
        let cloud = SharedCloud::new(Cloud::new(project).switched_on_at(jiff::Timestamp::now()));
        serving.spawn(serve(listener, cloud, CancellationToken::new()));
        let started = Self { url, client: Client::builder().no_proxy().build()?, _serving: serving };
        let settings = json!({
            "provisioning": { "create_ms": 0, "update_ms": 0, "delete_ms": 0 },
            "quotas": { "load_balancers": 100_000 },
        });
        started.send(Method::PATCH, "admin/settings", &settings).await?;
        let machines = json!({ "count": machines, "name": "node-{n}" });
        started.send(Method::POST, "admin/instances", &machines).await?;
        Ok(started)
    }

    /// Creates load balancers with two ports, in the same state as an adapter creates them.
    pub(crate) async fn load_balancers(
        &self,
        count: u32,
        machines: RangeInclusive<u32>,
    ) -> anyhow::Result<()> {
        for number in 0..count {
            let made = self.send(Method::POST, "v1/load-balancers", &balancer(number)).await?;
            let id = made.get("id").and_then(Value::as_str).context("a load balancer has an ID")?;
            for port in [80, 443] {
                let listener = listener(port, machines.clone());
                self.send(Method::POST, &format!("v1/load-balancers/{id}/listeners"), &listener).await?;
            }
        }
        Ok(())
    }

    async fn send(&self, method: Method, path: &str, body: &Value) -> anyhow::Result<Value> {
        let answer = self.client.request(method, format!("{}/{path}", self.url)).json(body).send().await?;
        let status = answer.status();
        let text = answer.text().await?;
        ensure!(status.is_success(), "{path}: {status}: {text}");
        Ok(serde_json::from_str(&text)?)
    }
}

fn balancer(number: u32) -> Value {
    let name = format!("web-{number}");
    json!({
        "name": format!("bench-shop-{name}"),
        "scheme": "internet",
        "tags": {
            "cloudadapter.dev/cluster-id": CLUSTER,
            "cloudadapter.dev/cluster-name": "bench",
            "cloudadapter.dev/fence": "service-controller/0/1/1",
            "cloudadapter.dev/hash": "1-531cbdf8673ffa1da6cea62a06d0c845",
            "cloudadapter.dev/owner-kind": "Service",
            "cloudadapter.dev/owner-name": name,
            "cloudadapter.dev/owner-namespace": "shop",
            "cloudadapter.dev/owner-uid": name,
        },
    })
}

fn listener(port: u32, machines: RangeInclusive<u32>) -> Value {
    let member = |number: u32| {
        json!({
            "address": format!("10.0.{}.{}", number / 256, number % 256),
            "instance_id": format!("i-{number:04}"),
            "port": 30_000 + port,
        })
    };
    let members: Vec<_> = machines.map(member).collect();
    let name = format!("tcp-{port}");
    let pool = json!({ "name": name, "protocol": "TCP", "members": members });
    json!({ "name": name, "protocol": "TCP", "port": port, "pool": pool })
}
