//! Starts lanes and writes the parameter file that describes them.

mod lane;
mod secured;

use std::{
    fs,
    path::{Path, PathBuf},
};

use serde_json::{Map, Value, json};
use tempfile::TempDir;

use self::lane::Lane;
use crate::sim::{command, process};

/// Default bucket of each family, in calls per second: high enough not to limit most checks, low enough for the checks of budgets.
const RATE: u32 = 50;
const BURST: u32 = 50;

/// The adapter's limit for the vendor calls of a family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bucket {
    /// Calls per second.
    pub rate: u32,
    /// Burst.
    pub burst: u32,
}

impl Default for Bucket {
    fn default() -> Self {
        Self { rate: RATE, burst: BURST }
    }
}

/// The lanes to start.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Number of lanes.
    pub lanes: usize,
    /// Whether to add an adapter that authenticates callers.
    pub secured: bool,
    /// Whether to add two replicas of one adapter.
    pub replicas: bool,
    /// Bucket of the network family; the other families have the default.
    pub network: Bucket,
    /// Additional flags of each adapter, such as `--break=...`.
    pub adapter_flags: Vec<String>,
    /// Additional settings of each simcloud, in the format of its admin API.
    pub cloud_settings: Value,
}

impl Default for Plan {
    fn default() -> Self {
        // The time in which load balancers are created and changed.
        let cloud_settings = json!({ "provisioning": { "create_ms": 50, "update_ms": 10, "delete_ms": 10 } });
        let (network, adapter_flags) = (Bucket::default(), Vec::new());
        Self { lanes: 3, secured: true, replicas: true, network, adapter_flags, cloud_settings }
    }
}

/// Running lanes. Dropping this value ends them and removes their files.
#[derive(Debug)]
pub struct Setting {
    network: Bucket,
    /// A text in the vendor credentials of all adapters. The suite searches the adapters' output for it.
    canary: String,
    lanes: Vec<Lane>,
    secured: Option<Lane>,
    replicas: Option<Lane>,
    // Must be the last field: fields are dropped in order, and lanes find their processes by the files in the folder.
    folder: TempDir,
}

impl Setting {
    /// Starts the lanes of the plan, with files below `parent`. Adapters retry until the suite's proxies listen.
    pub fn start(plan: &Plan, parent: &Path) -> anyhow::Result<Self> {
        fs::create_dir_all(parent)?;
        let folder = tempfile::Builder::new().prefix("conformance-").tempdir_in(parent)?;
        let word = folder.path().file_name().map(|name| name.to_string_lossy().into_owned());
        let canary = format!("canary-{}", word.unwrap_or_default());
        let network = plan.network;
        let mut setting = Self { folder, network, canary, lanes: Vec::new(), secured: None, replicas: None };
        for at in 0..plan.lanes {
            let lane = Lane::prepare(&format!("lane-{at}"), setting.folder.path(), plan, &setting.canary)?;
            setting.lanes.push(lane.adapter(&[])?);
        }
        if plan.secured {
            let lane = Lane::prepare("secured", setting.folder.path(), plan, &setting.canary)?;
            setting.secured = Some(secured::start(lane)?);
        }
        if plan.replicas {
            let lane = Lane::prepare("replicas", setting.folder.path(), plan, &setting.canary)?;
            setting.replicas = Some(lane.replicas()?);
        }
        fs::write(setting.params(), format!("{:#}\n", setting.describe()?))?;
        Ok(setting)
    }

    /// Path of the parameter file.
    pub fn params(&self) -> PathBuf {
        self.folder.path().join("params.yaml")
    }

    /// The content of the parameter file: JSON, which is valid YAML.
    fn describe(&self) -> anyhow::Result<Value> {
        let mut params = json!({
            "lanes": self.lanes.iter().map(|lane| lane.describe.clone()).collect::<Vec<_>>(),
            "hooks": hooks(&command::NAMES)?,
            "vendor": vendor(),
            "samples": {
                "machines": 10_000,
                "missingProviderId": "sim://sim-1/i-999999",
                "foreignProviderId": "sim://sim-9/i-0001",
                "canary": self.canary,
            },
            "limits": limits(self.network),
            "timings": {
                "converge": "30s",
                "ready": "15s",
                "consistency": format!("{}ms", lane::HORIZON.as_millis()),
                "outage": "3s",
                "settle": "20s",
                "load": "5s",
                // Long enough for two listings and the reaction to them.
                "drift": "25s",
                // The adapter reads its files every 5 s.
                "reload": "7s",
                "connectionAge": "6s",
            },
        });
        for (key, lane) in [("secured", &self.secured), ("replicas", &self.replicas)] {
            if let (Some(lane), Some(params)) = (lane, params.as_object_mut()) {
                params.insert(key.to_owned(), lane.describe.clone());
            }
        }
        Ok(params)
    }
}

/// Commands of the parameter file. Each one runs this crate's program.
fn hooks(names: &[&str]) -> anyhow::Result<Map<String, Value>> {
    let me = process::program("conformance-sim")?;
    let hook = |name: &&str| ((*name).to_owned(), format!("exec '{}' command {name}", me.display()).into());
    Ok(names.iter().map(hook).collect())
}

fn vendor() -> Value {
    let list = |collection: &str, key: &str| {
        let empty = json!({ key: [], "next": null }).to_string();
        json!({ "collection": collection, "call": format!(r"^GET /v1/{collection}\?limit="), "emptyBody": empty })
    };
    json!({
        "lists": [
            list("instances", "instances"),
            list("load-balancers", "load_balancers"),
            list("routes", "routes"),
        ],
        "requestIdHeader": "x-request-id",
    })
}

fn limits(network: Bucket) -> Value {
    let bucket =
        |Bucket { rate, burst }, calls: &str| json!({ "rate": rate, "burst": burst, "calls": calls });
    let usual = Bucket::default();
    json!({ "buckets": {
        "compute": bucket(usual, " /v1/instances"),
        "loadbalancer": bucket(usual, " /v1/(load-balancers|listeners|pools)"),
        "network": bucket(network, " /v1/routes"),
        "identity": bucket(usual, " /v1/project"),
    } })
}
