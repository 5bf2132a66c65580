//! The commands of the parameter file, for a lane of the simulated cloud. The commands get the variables of `adapter_conformance::hooks`.
//! [`Setting`](crate::sim::Setting) adds two variables for each lane: `CLOUD` (base URL of its simcloud) and `FOLDER` (its files).

mod cloud;
mod files;

use std::{
    env,
    ffi::OsString,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, bail};
use serde_json::json;

use self::cloud::Cloud;
pub(crate) use self::{
    cloud::TOKEN,
    files::{CONFIG, SERVER_FILES, next},
};
use crate::sim::process;

pub(crate) const NAMES: [&str; 24] = [
    "createInstances",
    "deleteInstances",
    "stopInstance",
    "startInstance",
    "changeInstance",
    "touchInstance",
    "createLoadBalancer",
    "deleteLoadBalancer",
    "describeLoadBalancer",
    "breakLoadBalancer",
    "driftLoadBalancer",
    "createRoute",
    "deleteRoute",
    "listOwned",
    "listLoadBalancers",
    "lagReads",
    "killAdapter",
    "stopAdapter",
    "startAdapter",
    "startAdapterWithNextHash",
    "breakConfig",
    "mendConfig",
    "rotateCredentials",
    "revokeCredentials",
];
/// Additional commands for lanes whose callers have tokens.
pub(crate) const SECURED: [&str; 2] = ["rotateServerCertificate", "rotateTokens"];

/// Runs the command with this name, and returns its output.
pub async fn run(name: &str) -> anyhow::Result<String> {
    match name {
        "killAdapter" | "stopAdapter" | "startAdapter" => adapter(name),
        "startAdapterWithNextHash" => {
            Cloud::new()?.age_hashes().await?;
            adapter("startAdapter")
        }
        "breakConfig" | "mendConfig" | "rotateServerCertificate" | "rotateTokens" => {
            files::run(name, &folder()?).map(|()| String::new())
        }
        _ => vendor(name, &Cloud::new()?).await,
    }
}

async fn vendor(name: &str, cloud: &Cloud) -> anyhow::Result<String> {
    match name {
        "createInstances" => cloud.create_instances(&variable("NAME")?, variable("COUNT")?.parse()?).await,
        "deleteInstances" => cloud.delete_instances(&variable("PROVIDER_IDS")?).await,
        "stopInstance" => cloud.change_instance(json!({ "status": "stopped" })).await,
        "startInstance" => cloud.change_instance(json!({ "status": "running" })).await,
        "changeInstance" => cloud.change_instance(json!({ "type": "s.changed" })).await,
        "touchInstance" => cloud.change_instance(json!({ "tags": { "touched": "yes" } })).await,
        "createLoadBalancer" => cloud.create_load_balancer(&variable("NAME")?).await,
        "deleteLoadBalancer" => cloud.delete("admin/load-balancers", &variable("VENDOR_ID")?).await,
        "describeLoadBalancer" => cloud.describe_load_balancer(&variable("VENDOR_ID")?).await,
        "breakLoadBalancer" => cloud.break_load_balancer(&variable("VENDOR_ID")?).await,
        "driftLoadBalancer" => cloud.drift_load_balancer(&variable("VENDOR_ID")?).await,
        "createRoute" => cloud.create_route(&variable("DESTINATION")?, &variable("PROVIDER_ID")?).await,
        "deleteRoute" => cloud.delete_route(&variable("VENDOR_ID")?).await,
        "listOwned" => cloud.owned(&variable("CLUSTER_ID")?).await,
        "listLoadBalancers" => cloud.list_load_balancers().await,
        "lagReads" => {
            let lag: u64 = variable("MILLISECONDS")?.parse()?;
            cloud.settings(&json!({ "consistency_ms": lag })).await
        }
        "rotateCredentials" => cloud.rotate_credentials(&folder()?).await,
        "revokeCredentials" => cloud.revoke_credentials().await,
        // This command is not in the parameter file, because only the start of a lane's cloud uses it.
        "settings" => cloud.settings(&serde_json::from_str(&variable("SETTINGS")?)?).await,
        _ => bail!("unknown command '{name}'"),
    }
}

fn adapter(name: &str) -> anyhow::Result<String> {
    let replica = variable("REPLICA").unwrap_or_else(|_| "0".to_owned());
    let folder = folder()?;
    match name {
        "startAdapter" => start(&folder, &replica)?,
        "killAdapter" => process::end(&folder, &adapter_name(&replica), "KILL")?,
        _ => process::end(&folder, &adapter_name(&replica), "TERM")?,
    }
    Ok(String::new())
}

/// Starts a lane's adapter with its flags, which are in a file.
pub(crate) fn start(folder: &Path, replica: &str) -> anyhow::Result<()> {
    let name = adapter_name(replica);
    let flags = std::fs::read_to_string(folder.join(format!("{name}.flags")))?;
    let mut command = Command::new(process::program("adapter-sim")?);
    command.args(flags.lines()).env_remove("KUBECONFIG");
    process::start(folder, &name, &mut command)
}

pub(crate) fn adapter_name(replica: &str) -> String {
    format!("adapter-{replica}")
}

fn folder() -> anyhow::Result<PathBuf> {
    Ok(PathBuf::from(variable("FOLDER")?))
}

fn variable(name: &str) -> anyhow::Result<String> {
    let value = env::var_os(name).map(OsString::into_string);
    let value = value.with_context(|| format!("the variable {name} is not set"))?;
    value.ok().with_context(|| format!("the variable {name} is not valid UTF-8"))
}
