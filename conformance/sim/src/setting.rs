//! Starts lanes and writes the parameter file that describes them.

use std::{
    fs,
    io::{BufRead as _, BufReader},
    net::{SocketAddr, TcpListener},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use anyhow::Context as _;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{command, process};

/// What simcloud says when it listens.
const LISTENS: &str = "simcloud listens on ";
/// Of each family, in calls a second: far from what checks of other things need, near enough for those of budgets.
const RATE: u32 = 50;
const BURST: u32 = 50;
/// For how long reads of the simulated cloud may lag: what an adapter waits after writes.
const HORIZON: Duration = Duration::from_millis(300);

/// What shall be started.
#[derive(Clone, Debug)]
pub struct Plan {
    /// How many lanes.
    pub lanes: usize,
    /// More flags of each adapter, such as `--break=...`.
    pub adapter_flags: Vec<String>,
    /// More settings of each simcloud, as its admin API takes them.
    pub cloud_settings: Value,
}

impl Default for Plan {
    fn default() -> Self {
        let provisioning = json!({ "create_ms": 50, "update_ms": 10, "delete_ms": 10 });
        Self { lanes: 3, adapter_flags: Vec::new(), cloud_settings: json!({ "provisioning": provisioning }) }
    }
}

/// Running lanes. Dropping it ends them and removes their files.
#[derive(Debug)]
pub struct Setting {
    folder: TempDir,
    lanes: Vec<Lane>,
}

#[derive(Debug)]
struct Lane {
    name: String,
    folder: PathBuf,
    cloud: Child,
    cloud_url: String,
    grpc: SocketAddr,
    http: SocketAddr,
    proxy: SocketAddr,
}

impl Setting {
    /// Starts what the plan says, below `parent`. Adapters wait for the suite's proxies.
    ///
    /// # Errors
    /// Programs that are not built, ports that are taken.
    pub fn start(plan: &Plan, parent: &Path) -> anyhow::Result<Self> {
        fs::create_dir_all(parent)?;
        let folder = tempfile::Builder::new().prefix("conformance-").tempdir_in(parent)?;
        let mut setting = Self { folder, lanes: Vec::new() };
        for at in 0..plan.lanes {
            let name = format!("lane-{at}");
            let folder = setting.folder.path().join(&name);
            fs::create_dir_all(&folder)?;
            setting.lanes.push(Lane::start(name, folder, plan)?);
        }
        fs::write(setting.params(), format!("{:#}\n", setting.describe()?))?;
        Ok(setting)
    }

    /// The parameter file.
    #[must_use]
    pub fn params(&self) -> PathBuf {
        self.folder.path().join("params.yaml")
    }

    /// The parameter file's content: JSON, which is YAML, too.
    fn describe(&self) -> anyhow::Result<Value> {
        let me = process::program("conformance-sim")?;
        let hooks: serde_json::Map<String, Value> = command::NAMES
            .iter()
            .map(|&name| (name.to_owned(), format!("exec '{}' command {name}", me.display()).into()))
            .collect();
        let list = |collection: &str, path: &str, key: &str| {
            let empty = json!({ key: [], "next": null }).to_string();
            json!({ "collection": collection, "call": format!(r"^GET /v1/{path}\?limit="), "emptyBody": empty })
        };
        let bucket = |calls: &str| json!({ "rate": RATE, "burst": BURST, "calls": calls });
        Ok(json!({
            "lanes": self.lanes.iter().map(Lane::describe).collect::<Vec<_>>(),
            "hooks": hooks,
            "vendor": {
                "lists": [
                    list("instances", "instances", "instances"),
                    list("load-balancers", "load-balancers", "load_balancers"),
                    list("routes", "routes", "routes"),
                ],
                "requestIdHeader": "x-request-id",
            },
            "samples": { "missingProviderId": "sim://sim-1/i-999999", "foreignProviderId": "sim://sim-9/i-0001" },
            "limits": { "buckets": {
                "compute": bucket(" /v1/instances"),
                "loadbalancer": bucket(" /v1/(load-balancers|listeners|pools)"),
                "network": bucket(" /v1/routes"),
                "identity": bucket(" /v1/project"),
            } },
            "timings": {
                "converge": "30s",
                "ready": "15s",
                "outage": "3s",
                "settle": "20s",
                "load": "5s",
                "drift": "70s",
            },
        }))
    }
}

impl Drop for Setting {
    fn drop(&mut self) {
        for lane in &mut self.lanes {
            // What cannot be ended is somebody else's by now.
            process::end(&lane.folder, command::ADAPTER, "KILL").unwrap_or_default();
            lane.cloud.kill().and_then(|()| lane.cloud.wait()).map(drop).unwrap_or_default();
        }
    }
}

impl Lane {
    fn start(name: String, folder: PathBuf, plan: &Plan) -> anyhow::Result<Self> {
        let (cloud, cloud_url) = simcloud(&folder)?;
        let [grpc, http, proxy] = free_ports()?;
        let lane = Self { name, folder, cloud, cloud_url, grpc, http, proxy };
        lane.settings(&plan.cloud_settings)?;
        let config = lane.folder.join("config.yaml");
        let bucket = format!("{{rate: {RATE}, burst: {BURST}}}");
        let families = ["compute", "network", "loadbalancer", "identity"];
        let buckets: Vec<String> = families.iter().map(|family| format!("{family}: {bucket}")).collect();
        fs::write(&config, format!("limits: {{buckets: {{{}}}}}\n", buckets.join(", ")))?;
        let mut flags = vec![
            format!("--endpoint=http://{proxy}"),
            format!("--grpc-address={grpc}"),
            format!("--http-address={http}"),
            format!("--config={}", config.display()),
            format!("--consistency-horizon-ms={}", HORIZON.as_millis()),
            "--log-format=json".to_owned(),
        ];
        flags.extend(plan.adapter_flags.iter().cloned());
        fs::write(lane.folder.join(command::FLAGS), flags.join("\n"))?;
        command::start_in(&lane.folder, &[])?;
        Ok(lane)
    }

    fn describe(&self) -> Value {
        json!({
            "name": self.name,
            "endpoint": format!("http://{}", self.grpc),
            "http": format!("http://{}", self.http),
            "log": self.folder.join(format!("{}.log", command::ADAPTER)),
            "proxy": { "listen": self.proxy, "upstream": self.cloud_url },
            "env": { "CLOUD": self.cloud_url, "FOLDER": self.folder },
        })
    }

    /// Changes settings of the cloud, by the same program that commands use.
    fn settings(&self, change: &Value) -> anyhow::Result<()> {
        let mut child = Command::new(process::program("conformance-sim")?)
            .args(["command", "settings"])
            .env("CLOUD", &self.cloud_url)
            .env("SETTINGS", change.to_string())
            .stdin(Stdio::null())
            .spawn()?;
        anyhow::ensure!(child.wait()?.success(), "simcloud refuses the settings {change}");
        Ok(())
    }
}

/// Starts a cloud, and waits until it listens.
fn simcloud(folder: &Path) -> anyhow::Result<(Child, String)> {
    use std::os::unix::process::CommandExt as _;
    let log = fs::File::create(folder.join("simcloud.log"))?;
    let mut cloud = Command::new(process::program("simcloud")?)
        .args(["--listen", "127.0.0.1:0"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(log)
        .process_group(0)
        .spawn()
        .context("cannot start simcloud")?;
    let mut line = String::new();
    let output = cloud.stdout.take().context("its output is piped")?;
    BufReader::new(output).read_line(&mut line)?;
    let url = line.trim().strip_prefix(LISTENS).context("simcloud does not say where it listens")?;
    Ok((cloud, url.to_owned()))
}

/// Loopback ports that nobody uses now.
fn free_ports<const N: usize>() -> anyhow::Result<[SocketAddr; N]> {
    let listeners: Vec<TcpListener> =
        (0..N).map(|_| TcpListener::bind("127.0.0.1:0")).collect::<Result<_, _>>()?;
    let addresses: Vec<SocketAddr> =
        listeners.iter().map(TcpListener::local_addr).collect::<Result<_, _>>()?;
    addresses.try_into().ok().context("as many ports as listeners")
}
