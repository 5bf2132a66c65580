//! The commands of the parameter file, for a lane of the simulated cloud. Their variables are those of `adapter_conformance::hooks`,
//! and those that [`Setting`](crate::Setting) gives each lane: `CLOUD` (base URL of its simcloud) and `FOLDER` (its files).

use std::{env, ffi::OsString, path::PathBuf, process::Command};

use anyhow::{Context as _, bail};
use reqwest::Method;
use serde_json::{Value, json};

use crate::process;

/// The name of the adapter's process.
pub(crate) const ADAPTER: &str = "adapter-sim";
/// The file of its flags, one a line.
pub(crate) const FLAGS: &str = "flags";

/// Does what a command of this name does, and answers what it prints.
///
/// # Errors
/// A name that is none, a variable that is missing, a cloud that refuses.
pub async fn run(name: &str) -> anyhow::Result<String> {
    let cloud = || Cloud::new();
    match name {
        "createInstances" => cloud()?.create_instances(&variable("NAME")?, variable("COUNT")?.parse()?).await,
        "deleteInstances" => {
            let cloud = cloud()?;
            for id in variable("PROVIDER_IDS")?.split_whitespace() {
                cloud.delete("instances", vendor_id(id)).await?;
            }
            Ok(String::new())
        }
        "stopInstance" => cloud()?.change_instance(json!({ "status": "stopped" })).await,
        "startInstance" => cloud()?.change_instance(json!({ "status": "running" })).await,
        "changeInstance" => cloud()?.change_instance(json!({ "type": "s.changed" })).await,
        "touchInstance" => cloud()?.change_instance(json!({ "tags": { "touched": "yes" } })).await,
        "deleteLoadBalancer" => cloud()?.delete("load-balancers", &variable("VENDOR_ID")?).await,
        "listOwned" => cloud()?.owned(&variable("CLUSTER_ID")?).await,
        "limitRate" => cloud()?.limit_rate().await,
        "lagReads" => {
            let lag: u64 = variable("MILLISECONDS")?.parse()?;
            cloud()?.settings(json!({ "consistency_ms": lag })).await
        }
        // Not in the parameter file: for whoever starts the cloud.
        "settings" => cloud()?.settings(serde_json::from_str(&variable("SETTINGS")?)?).await,
        "killAdapter" => end("KILL"),
        "stopAdapter" => end("TERM"),
        "startAdapter" => start(&[]),
        _ => bail!("there is no command {name}"),
    }
}

/// The commands that there are, as the parameter file has them.
pub(crate) const NAMES: [&str; 13] = [
    "createInstances",
    "deleteInstances",
    "stopInstance",
    "startInstance",
    "changeInstance",
    "touchInstance",
    "deleteLoadBalancer",
    "listOwned",
    "limitRate",
    "lagReads",
    "killAdapter",
    "stopAdapter",
    "startAdapter",
];

/// The admin API of a simcloud.
struct Cloud {
    url: String,
    client: reqwest::Client,
}

impl Cloud {
    fn new() -> anyhow::Result<Self> {
        #[expect(
            clippy::disallowed_methods,
            reason = "commands play the vendor's operator, who has no budget"
        )]
        let client = reqwest::Client::builder().no_proxy().build()?;
        Ok(Self { url: variable("CLOUD")?, client })
    }

    async fn admin(&self, method: Method, path: &str, body: Option<Value>) -> anyhow::Result<Value> {
        let request = self.client.request(method, format!("{}/admin/{path}", self.url));
        let request = match body {
            Some(body) => request.json(&body),
            None => request,
        };
        let answer = request.send().await.with_context(|| format!("{path}: is the cloud there?"))?;
        let status = answer.status();
        let body: Value = answer.json().await.with_context(|| path.to_owned())?;
        anyhow::ensure!(status.is_success(), "{path}: {status} {body}");
        Ok(body)
    }

    async fn create_instances(&self, name: &str, count: u32) -> anyhow::Result<String> {
        let order = json!({ "name": format!("{name}-{{n}}"), "count": count });
        let made = self.admin(Method::POST, "instances", Some(order)).await?;
        let ids = made["instances"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|one| Some(format!("sim://{}/{}", one["region"].as_str()?, one["id"].as_str()?)));
        Ok(ids.collect::<Vec<_>>().join("\n"))
    }

    async fn change_instance(&self, change: Value) -> anyhow::Result<String> {
        let id = variable("PROVIDER_ID")?;
        self.admin(Method::PATCH, &format!("instances/{}", vendor_id(&id)), Some(change)).await?;
        Ok(String::new())
    }

    /// One that is gone already is no error.
    async fn delete(&self, collection: &str, id: &str) -> anyhow::Result<String> {
        let gone = |error: &anyhow::Error| error.to_string().contains("404");
        match self.admin(Method::DELETE, &format!("{collection}/{id}"), None).await {
            Err(error) if !gone(&error) => Err(error),
            Ok(_) | Err(_) => Ok(String::new()),
        }
    }

    async fn owned(&self, cluster: &str) -> anyhow::Result<String> {
        let state = self.admin(Method::GET, "state", None).await?;
        let collections = ["load_balancers", "routes"].iter().flat_map(|name| state[*name].as_array());
        let owned = collections.flatten().filter(|one| {
            let mut tags = one["tags"].as_object().into_iter().flatten();
            tags.any(|(key, value)| key.ends_with("/cluster-id") && value == cluster)
        });
        Ok(owned.filter_map(|one| one["id"].as_str()).collect::<Vec<_>>().join("\n"))
    }

    async fn limit_rate(&self) -> anyhow::Result<String> {
        let limit = match variable("RATE") {
            Ok(rate) => json!({ "rate": rate.parse::<f64>()?, "burst": variable("BURST")?.parse::<u32>()? }),
            Err(_) => Value::Null,
        };
        self.settings(json!({ "rate_limits": { variable("FAMILY")?: limit } })).await
    }

    async fn settings(&self, change: Value) -> anyhow::Result<String> {
        self.admin(Method::PATCH, "settings", Some(change)).await?;
        Ok(String::new())
    }
}

/// `sim://region/i-1` is `i-1` to the cloud.
fn vendor_id(provider_id: &str) -> &str {
    provider_id.rsplit('/').next().unwrap_or(provider_id)
}

fn end(signal: &str) -> anyhow::Result<String> {
    process::end(&folder()?, ADAPTER, signal)?;
    Ok(String::new())
}

/// With the flags of the lane, and more.
pub(crate) fn start(more: &[&str]) -> anyhow::Result<String> {
    start_in(&folder()?, more)
}

pub(crate) fn start_in(folder: &std::path::Path, more: &[&str]) -> anyhow::Result<String> {
    let flags = std::fs::read_to_string(folder.join(FLAGS))?;
    let mut command = Command::new(process::program(ADAPTER)?);
    command.args(flags.lines()).args(more).env_remove("KUBECONFIG");
    process::start(folder, ADAPTER, &mut command)?;
    Ok(String::new())
}

fn folder() -> anyhow::Result<PathBuf> {
    Ok(PathBuf::from(variable("FOLDER")?))
}

fn variable(name: &str) -> anyhow::Result<String> {
    let value = env::var_os(name).map(OsString::into_string);
    let value = value.with_context(|| format!("the variable {name} is not set"))?;
    value.ok().with_context(|| format!("the variable {name} is no text"))
}
