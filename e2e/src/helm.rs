//! The chart, installed with Helm as by a user.

use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use anyhow::Context;
use serde_json::{Value, json};

use crate::control_plane::ControlPlane;
use crate::pod_ip::pod_ip;

/// The name of the release and of the chart.
const NAME: &str = "cloud-controllers";

/// The installed chart.
#[derive(Clone, Debug)]
pub struct Release {
    /// The namespace of the release.
    pub namespace: String,
}

impl Release {
    /// Installs the chart into `kube-system`.
    pub async fn install(control_plane: &ControlPlane, values: &Value) -> anyhow::Result<Self> {
        let this = Self { namespace: "kube-system".to_owned() };
        this.helm(control_plane, "install", values).await?;
        Ok(this)
    }

    /// Upgrades the release with these values. All other values get their defaults.
    pub async fn upgrade(&self, control_plane: &ControlPlane, values: &Value) -> anyhow::Result<()> {
        self.helm(control_plane, "upgrade", values).await
    }

    /// Uninstalls the release.
    pub async fn uninstall(self, control_plane: &ControlPlane) -> anyhow::Result<()> {
        control_plane.helm(&["uninstall", NAME, "--namespace", &self.namespace]).await.map(drop)
    }

    /// Whether an object belongs to this release, according to Helm's annotation.
    pub(crate) fn owns(&self, object: &impl kube::ResourceExt) -> bool {
        object.annotations().get("meta.helm.sh/release-name").is_some_and(|name| name == NAME)
    }

    async fn helm(&self, control_plane: &ControlPlane, verb: &str, values: &Value) -> anyhow::Result<()> {
        let file = control_plane.dir().join("values.json");
        fs::write(&file, values.to_string()).context("cannot write the values")?;
        let (chart, file) = (chart(), file.display().to_string());
        let chart = chart.display().to_string();
        let args = [verb, NAME, &chart, "--namespace", &self.namespace, "--values", &file];
        control_plane.helm(&args).await.map(drop)
    }
}

/// The chart values that tests set: separate ports, so that several clusters can run on one host.
#[derive(Clone, Debug)]
pub struct Values {
    ip: IpAddr,
    ports: [u16; 5],
    cluster_cidr: String,
    simcloud: Option<String>,
}

impl Values {
    /// Reserves the ports that the four processes listen on.
    pub fn new() -> anyhow::Result<Self> {
        let mut ports = [0; 5];
        for port in &mut ports {
            *port = test_support::ports::take()?;
        }
        Ok(Self { ip: pod_ip()?, ports, cluster_cidr: "10.244.0.0/16".to_owned(), simcloud: None })
    }

    /// Makes the adapter use a separate simulated cloud, instead of one inside its own process.
    #[must_use]
    pub fn simcloud(mut self, url: &str) -> Self {
        self.simcloud = Some(url.to_owned());
        self
    }

    /// The values as JSON, to which a test can add values.
    pub fn render(&self) -> Value {
        let [grpc, adapter, node, service, route] = self.ports;
        json!({
            "bindAddress": self.ip,
            "adapter": {
                "kind": "sim",
                "grpcPort": grpc,
                "httpPort": adapter,
                "sim": {
                    "notForProduction": true,
                    "endpoint": self.simcloud.as_deref().unwrap_or_default(),
                },
            },
            "nodeController": { "httpPort": node },
            "serviceController": { "httpPort": service },
            "routeController": { "httpPort": route, "clusterCidr": self.cluster_cidr },
        })
    }
}

pub(crate) fn chart() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).join("helm").join(NAME)
}

/// Merges `change` into `into`, key by key.
pub fn merge(into: &mut Value, change: &Value) {
    match (into, change) {
        (Value::Object(into), Value::Object(change)) => {
            for (key, value) in change {
                merge(into.entry(key).or_insert(Value::Null), value);
            }
        }
        (into, value) => *into = value.clone(),
    }
}
