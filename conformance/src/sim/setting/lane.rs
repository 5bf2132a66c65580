//! One lane: a cloud, its adapters, and their files.

use std::{
    fs,
    io::{BufRead as _, BufReader},
    net::SocketAddr,
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use anyhow::Context as _;
use serde_json::{Value, json};

use super::{Bucket, Plan};
use crate::sim::{command, process};

/// The line that simcloud prints when it listens.
const LISTENS: &str = "simcloud listens on ";
/// The consistency horizon: the maximum lag of the simulated cloud's reads.
pub(super) const HORIZON: Duration = Duration::from_millis(300);
/// Short ages, so that checks which wait for a listing do not wait long.
const CACHE: &str = "cache: {instances: {maxAge: 10s}, loadBalancers: {maxAge: 10s}}";
const LEASES: &str = "lease-server";

/// A running lane. Dropping this value ends its processes.
#[derive(Debug)]
pub(crate) struct Lane {
    pub(crate) folder: PathBuf,
    cloud: Child,
    proxy: SocketAddr,
    more_flags: Vec<String>,
    pub(crate) describe: Value,
}

impl Lane {
    pub(super) fn prepare(name: &str, parent: &Path, plan: &Plan, canary: &str) -> anyhow::Result<Self> {
        let folder = parent.join(name);
        fs::create_dir_all(&folder)?;
        fs::write(folder.join(command::TOKEN), canary)?;
        let (cloud, cloud_url) = simcloud(&folder, canary)?;
        let [proxy] = free_ports()?;
        let describe = json!({
            "name": name,
            "proxy": { "listen": proxy, "upstream": cloud_url },
            "env": { "CLOUD": cloud_url, "FOLDER": folder },
        });
        let more_flags = plan.adapter_flags.clone();
        let lane = Self { folder, cloud, proxy, more_flags, describe };
        lane.settings(&cloud_url, &plan.cloud_settings)?;
        let usual = Bucket::default();
        let families =
            [("compute", usual), ("network", plan.network), ("loadbalancer", usual), ("identity", usual)];
        let bucket = |(family, Bucket { rate, burst })| format!("{family}: {{rate: {rate}, burst: {burst}}}");
        let buckets: Vec<String> = families.into_iter().map(bucket).collect();
        let config = format!("limits: {{buckets: {{{}}}}}\n{CACHE}\n", buckets.join(", "));
        fs::write(lane.folder.join(command::CONFIG), config)?;
        Ok(lane)
    }

    /// Adds an adapter, without TLS unless the flags configure it.
    pub(super) fn adapter(mut self, flags: &[String]) -> anyhow::Result<Self> {
        let [grpc, http] = free_ports()?;
        self.start("0", [grpc, http], flags)?;
        self.tell("endpoint", format!("http://{grpc}").into());
        self.tell_http(http);
        Ok(self)
    }

    /// Adds two replicas, and a Lease for their leader election.
    pub(super) fn replicas(mut self) -> anyhow::Result<Self> {
        let [leases] = free_ports()?;
        let mut server = Command::new(process::program("conformance-sim")?);
        process::start(&self.folder, LEASES, server.args(["lease-server", "--listen", &leases.to_string()]))?;
        let kubeconfig = self.folder.join("kubeconfig");
        fs::write(&kubeconfig, kubeconfig_of(leases).to_string())?;
        let mut addresses = Vec::new();
        for replica in ["0", "1"] {
            let [grpc, http] = free_ports()?;
            let flags = [
                "--replicas=active-standby".to_owned(),
                format!("--advertise-address={grpc}"),
                format!("--kubeconfig={}", kubeconfig.display()),
            ];
            self.start(replica, [grpc, http], &flags)?;
            self.tell_http(http);
            addresses.push(grpc.to_string());
        }
        self.tell("endpoint", format!("static:///{}", addresses.join(",")).into());
        self.tell("replicas", addresses.iter().map(|address| format!("http://{address}")).collect());
        Ok(self)
    }

    fn start(&self, replica: &str, [grpc, http]: [SocketAddr; 2], flags: &[String]) -> anyhow::Result<()> {
        let file = |name: &str| self.folder.join(name).display().to_string();
        let own = [
            format!("--endpoint=http://{}", self.proxy),
            format!("--token-file={}", file(command::TOKEN)),
            format!("--grpc-address={grpc}"),
            format!("--http-address={http}"),
            format!("--config={}", file(command::CONFIG)),
            format!("--consistency-horizon-ms={}", HORIZON.as_millis()),
            "--log-format=json".to_owned(),
            // The suite creates load balancers without tags directly in the cloud, and lets the adapter adopt them.
            "--grant=*:adopt=*".to_owned(),
        ];
        let all = [&own[..], flags, &self.more_flags].concat().join("\n");
        fs::write(self.folder.join(format!("{}.flags", command::adapter_name(replica))), all)?;
        command::start(&self.folder, replica)
    }

    pub(super) fn tell(&mut self, key: &str, value: Value) {
        if let Some(fields) = self.describe.as_object_mut() {
            fields.insert(key.to_owned(), value);
        }
    }

    fn tell_http(&mut self, http: SocketAddr) {
        if self.describe.get("http").is_none() {
            self.tell("http", format!("http://{http}").into());
            let log = self.folder.join(format!("{}.log", command::adapter_name("0")));
            self.tell("log", log.display().to_string().into());
        }
    }

    /// Changes settings of the simulated cloud by running `conformance-sim`, the program that also runs the commands of the parameter file.
    fn settings(&self, cloud: &str, change: &Value) -> anyhow::Result<()> {
        let mut child = Command::new(process::program("conformance-sim")?)
            .args(["command", "settings"])
            .env("CLOUD", cloud)
            .env("FOLDER", &self.folder)
            .env("SETTINGS", change.to_string())
            .stdin(Stdio::null())
            .spawn()?;
        anyhow::ensure!(child.wait()?.success(), "simcloud refuses the settings {change}");
        Ok(())
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        for name in [command::adapter_name("0"), command::adapter_name("1"), LEASES.to_owned()] {
            // If `kill` fails, the process has already ended.
            process::end(&self.folder, &name, "KILL").unwrap_or_default();
        }
        self.cloud.kill().and_then(|()| self.cloud.wait()).map(drop).unwrap_or_default();
    }
}

fn simcloud(folder: &Path, token: &str) -> anyhow::Result<(Child, String)> {
    let log = fs::File::create(folder.join("simcloud.log"))?;
    let mut cloud = Command::new(process::program("simcloud")?)
        .args(["--listen", "127.0.0.1:0"])
        .env("SIMCLOUD_TOKEN", token)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(log)
        .process_group(0)
        .spawn()
        .context("cannot start simcloud")?;
    let mut line = String::new();
    let output = cloud.stdout.take().context("standard output is a pipe")?;
    BufReader::new(output).read_line(&mut line)?;
    let url = line.trim().strip_prefix(LISTENS).context("simcloud did not print its listen address")?;
    Ok((cloud, url.to_owned()))
}

fn kubeconfig_of(server: SocketAddr) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{ "name": "c", "cluster": { "server": format!("http://{server}") } }],
        "users": [{ "name": "u", "user": {} }],
        "contexts": [{ "name": "x", "context": { "cluster": "c", "user": "u", "namespace": "kube-system" } }],
        "current-context": "x",
    })
}

/// Loopback ports that stay reserved, because killed adapters are started again with the same ports.
fn free_ports<const N: usize>() -> anyhow::Result<[SocketAddr; N]> {
    let mut addresses = [SocketAddr::from(([127, 0, 0, 1], 0)); N];
    for address in &mut addresses {
        *address = test_support::ports::loopback()?;
    }
    Ok(addresses)
}
