//! Shell commands of the parameter file, for actions that only the vendor or the adapter's host can perform.
//!
//! A command runs with `sh -c`, the variables that [`Hook`] documents, and the variables of its lane. It must exit with 0 within its time
//! limit. Its standard output is its answer, so its background processes must write elsewhere. The suite kills a command that it no longer
//! waits for.

use std::{collections::BTreeMap, fmt, process::Stdio, time::Duration};

use serde::Deserialize;
use tokio::{io::AsyncReadExt as _, process::Command};

/// Maximum output of a command in bytes. More output is a defect of the command.
const OUTPUT_MAX: u64 = 16 * 1024 * 1024;

/// A command that the parameter file may define, with its variables and its output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Hook {
    // The following commands act in the cloud.
    /// Creates `COUNT` running instances called `NAME-0`, `NAME-1` ...; prints their provider IDs, one per line, in that order.
    CreateInstances,
    /// Deletes all of `PROVIDER_IDS` (separated by blanks). Instances that are already gone are not an error.
    DeleteInstances,
    /// Shuts `PROVIDER_ID` down. The instance still exists, but does not run.
    StopInstance,
    /// Starts `PROVIDER_ID` again.
    StartInstance,
    /// Changes a property of `PROVIDER_ID` that is part of a Node, such as its type.
    ChangeInstance,
    /// Changes a property of `PROVIDER_ID` that is not part of a Node, such as a tag.
    TouchInstance,
    /// Creates a load balancer called `NAME` without an owner, waits until it is complete, and prints its vendor ID.
    CreateLoadBalancer,
    /// Deletes the load balancer `VENDOR_ID`, if it still exists.
    DeleteLoadBalancer,
    /// Prints a description of the load balancer `VENDOR_ID`. Equal output means that the load balancer was not changed.
    DescribeLoadBalancer,
    /// Sets the state of the load balancer `VENDOR_ID` to ERROR.
    BreakLoadBalancer,
    /// Changes the load balancer `VENDOR_ID` by hand, such as by removing a listener.
    DriftLoadBalancer,
    /// Creates a route to `DESTINATION` through `PROVIDER_ID` without an owner; prints its vendor ID.
    CreateRoute,
    /// Deletes the route `VENDOR_ID` to `DESTINATION`, if it still exists.
    DeleteRoute,
    /// Prints one line for each object in the cloud that has the owner tags of `CLUSTER_ID`.
    ListOwned,
    /// Prints one line for each load balancer in the cloud, with or without an owner.
    ListLoadBalancers,
    /// Makes the vendor's reads lag behind its writes by `MILLISECONDS`; 0 ends the lag.
    LagReads,

    // The following commands act on the adapter's host. `REPLICA` is the index of the replica, from 0.
    /// Kills the adapter at once, as SIGKILL does. Returns when it is gone.
    KillAdapter,
    /// Asks the adapter to end, as SIGTERM does. Returns when it is gone.
    StopAdapter,
    /// Starts the adapter with the same flags and files.
    StartAdapter,
    /// Starts the adapter with another version of the hash of desired states, as a new version of the adapter would. Alternatively, the
    /// command gives all load balancers a hash of another version and starts the same adapter.
    StartAdapterWithNextHash,
    /// Replaces the adapter's configuration file with an invalid one.
    BreakConfig,
    /// Restores a valid configuration file. Its text differs from the text of the first file, so its revision differs too.
    MendConfig,
    /// Gives the adapter new vendor credentials; the old ones stay valid.
    RotateCredentials,
    /// Revokes the old vendor credentials.
    RevokeCredentials,
    /// Replaces the adapter's serving certificate.
    RotateServerCertificate,
    /// Replaces the token files of `secured.identities`.
    RotateTokens,
    /// Moves the adapter's clock forward by `SECONDS`.
    JumpClock,
}

impl fmt::Display for Hook {
    /// The command's key in the parameter file: the name in camel case.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = format!("{self:?}");
        let (first, rest) = name.split_at(1);
        write!(f, "{}{rest}", first.to_ascii_lowercase())
    }
}

/// The commands of one lane.
#[derive(Clone, Debug)]
pub struct Hooks {
    commands: BTreeMap<Hook, String>,
    env: BTreeMap<String, String>,
    limit: Duration,
}

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages describe the variants")]
pub enum HookError {
    #[error("hooks.{0} is not set")]
    Missing(Hook),
    #[error("hooks.{hook} cannot run")]
    Run { hook: Hook, source: std::io::Error },
    #[error("hooks.{hook} ended with {status}: {stderr}")]
    Failed { hook: Hook, status: std::process::ExitStatus, stderr: String },
    #[error("hooks.{hook} did not end within timings.hook, {} s", limit.as_secs())]
    Slow { hook: Hook, limit: Duration },
}

impl Hooks {
    /// Creates the commands of a lane with the variables `env`. `limit` is the time limit of each command. It does not cover the time until
    /// a started adapter is ready.
    pub fn new(commands: BTreeMap<Hook, String>, env: BTreeMap<String, String>, limit: Duration) -> Self {
        Self { commands, env, limit }
    }

    /// Whether the parameter file defines the command.
    pub fn has(&self, hook: Hook) -> bool {
        self.commands.contains_key(&hook)
    }

    /// Runs a command and returns its output, without the last line break.
    /// Fails if the command is not set, or if it fails.
    pub async fn run(&self, hook: Hook, variables: &[(&str, &str)]) -> Result<String, HookError> {
        let command = self.commands.get(&hook).ok_or(HookError::Missing(hook))?;
        let run = |source| HookError::Run { hook, source };
        let mut child = Command::new("sh")
            .args(["-c", command])
            .envs(&self.env)
            .envs(variables.iter().copied())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            // Ctrl-C must not reach the commands: the suite still needs them to clean up.
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .map_err(run)?;
        let (out, err) = (child.stdout.take(), child.stderr.take());
        let ended = async { tokio::try_join!(read(out), read(err), child.wait()) };
        let ended = tokio::time::timeout(self.limit, ended).await;
        let slow = |_elapsed| HookError::Slow { hook, limit: self.limit };
        let (out, stderr, status) = ended.map_err(slow)?.map_err(run)?;
        if !status.success() {
            return Err(HookError::Failed { hook, status, stderr: stderr.trim().to_owned() });
        }
        Ok(out.trim_end().to_owned())
    }
}

/// Reads a pipe up to a limit.
async fn read(pipe: Option<impl tokio::io::AsyncRead + Unpin>) -> std::io::Result<String> {
    let mut text = Vec::new();
    if let Some(pipe) = pipe {
        pipe.take(OUTPUT_MAX).read_to_end(&mut text).await?;
    }
    Ok(String::from_utf8_lossy(&text).into_owned())
}
