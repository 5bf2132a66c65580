//! What only the vendor's side, or the adapter's host, can do: shell commands of the parameter file.
//!
//! A command runs with `sh -c`, with the variables that [`Hook`] documents beside those of its lane, and must end with 0 within its
//! limit. What it prints is its answer: whatever it leaves running must write elsewhere. It is killed when nobody waits any more.

use std::{collections::BTreeMap, fmt, process::Stdio, time::Duration};

use serde::Deserialize;
use tokio::{io::AsyncReadExt as _, process::Command};

use crate::check::Stop;

/// More is no answer but a defect of the command.
const OUTPUT_MAX: u64 = 16 * 1024 * 1024;

/// A command that the parameter file may define, with its variables and what it prints.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Hook {
    // The vendor's side.
    /// Makes `COUNT` running instances called `NAME-0`, `NAME-1` ...; prints their provider IDs, one a line, in that order.
    CreateInstances,
    /// Removes all of `PROVIDER_IDS` (separated by blanks); those that are gone already are no error.
    DeleteInstances,
    /// Shuts `PROVIDER_ID` down, so that it exists and does not run.
    StopInstance,
    /// Lets `PROVIDER_ID` run again.
    StartInstance,
    /// Changes something of `PROVIDER_ID` that a Node is made from, such as its type.
    ChangeInstance,
    /// Changes something of `PROVIDER_ID` that no Node is made from, such as a tag.
    TouchInstance,
    /// Makes a load balancer called `NAME` that has no owner, waits until it is whole, and prints its vendor ID.
    CreateLoadBalancer,
    /// Removes the load balancer `VENDOR_ID`, if it is still there.
    DeleteLoadBalancer,
    /// Prints whatever describes the load balancer `VENDOR_ID`: equal text means that nobody changed it.
    DescribeLoadBalancer,
    /// Makes the vendor give up on the load balancer `VENDOR_ID`: its state becomes ERROR.
    BreakLoadBalancer,
    /// Changes the load balancer `VENDOR_ID` by hand, such as by removing a listener.
    DriftLoadBalancer,
    /// Makes a route to `DESTINATION` by `PROVIDER_ID` that has no owner; prints its vendor ID.
    CreateRoute,
    /// Removes the route `VENDOR_ID` to `DESTINATION`, if it is still there.
    DeleteRoute,
    /// Prints one line for each object at the vendor that carries the owner tags of `CLUSTER_ID`.
    ListOwned,
    /// Prints one line for each load balancer at the vendor, whoever owns it, if anybody.
    ListLoadBalancers,
    /// Makes the vendor's reads lag behind its writes by `MILLISECONDS`; 0: no longer.
    LagReads,

    // The adapter's host.
    // `REPLICA` says which of several, from 0.
    /// Kills the adapter at once, as SIGKILL does. Returns when it is gone.
    KillAdapter,
    /// Asks the adapter to end, as SIGTERM does. Returns when it is gone.
    StopAdapter,
    /// Starts the adapter with the same flags and files.
    StartAdapter,
    /// Starts the adapter as a release would that has another version of the hash of desired states; or gives all load balancers a hash
    /// of another version, as that release would find them, and starts the adapter as it is.
    StartAdapterWithNextHash,
    /// Replaces the adapter's configuration file with one that it must refuse.
    BreakConfig,
    /// Puts a good configuration file back, one that is not the first to the letter: its revision differs.
    MendConfig,
    /// Gives the adapter new vendor credentials; the old ones are still good.
    RotateCredentials,
    /// Makes the old vendor credentials useless.
    RevokeCredentials,
    /// Replaces the adapter's serving certificate.
    RotateServerCertificate,
    /// Replaces the token files of `secured.identities`.
    RotateTokens,
    /// Lets the adapter's clock jump by `SECONDS`.
    JumpClock,
}

impl Hook {
    /// As the parameter file calls it.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::CreateInstances => "createInstances",
            Self::DeleteInstances => "deleteInstances",
            Self::StopInstance => "stopInstance",
            Self::StartInstance => "startInstance",
            Self::ChangeInstance => "changeInstance",
            Self::TouchInstance => "touchInstance",
            Self::CreateLoadBalancer => "createLoadBalancer",
            Self::DeleteLoadBalancer => "deleteLoadBalancer",
            Self::DescribeLoadBalancer => "describeLoadBalancer",
            Self::BreakLoadBalancer => "breakLoadBalancer",
            Self::DriftLoadBalancer => "driftLoadBalancer",
            Self::CreateRoute => "createRoute",
            Self::DeleteRoute => "deleteRoute",
            Self::ListOwned => "listOwned",
            Self::ListLoadBalancers => "listLoadBalancers",
            Self::LagReads => "lagReads",
            Self::KillAdapter => "killAdapter",
            Self::StopAdapter => "stopAdapter",
            Self::StartAdapter => "startAdapter",
            Self::StartAdapterWithNextHash => "startAdapterWithNextHash",
            Self::BreakConfig => "breakConfig",
            Self::MendConfig => "mendConfig",
            Self::RotateCredentials => "rotateCredentials",
            Self::RevokeCredentials => "revokeCredentials",
            Self::RotateServerCertificate => "rotateServerCertificate",
            Self::RotateTokens => "rotateTokens",
            Self::JumpClock => "jumpClock",
        }
    }
}

impl fmt::Display for Hook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// The commands of one lane.
#[derive(Clone, Debug)]
pub struct Hooks {
    commands: BTreeMap<Hook, String>,
    env: BTreeMap<String, String>,
    limit: Duration,
}

/// A command that did not do its work.
#[derive(Debug, thiserror::Error)]
pub enum HookError {
    /// There is none of this name.
    #[error("hooks.{0} is not set")]
    Missing(Hook),
    /// The shell cannot be started, or its output not be read.
    #[error("hooks.{hook} cannot run")]
    Run {
        /// Which.
        hook: Hook,
        /// Why.
        source: std::io::Error,
    },
    /// It ended with another code than 0.
    #[error("hooks.{hook} ended with {status}: {said}")]
    Failed {
        /// Which.
        hook: Hook,
        /// Its code or signal.
        status: std::process::ExitStatus,
        /// What it wrote to standard error.
        said: String,
    },
    /// It did not end in time.
    #[error("hooks.{hook} did not end within timings.hook, {} s", limit.as_secs())]
    Slow {
        /// Which.
        hook: Hook,
        /// How long it was waited for.
        limit: Duration,
    },
}

impl From<HookError> for Stop {
    fn from(error: HookError) -> Self {
        match error {
            HookError::Missing(hook) => Self::skipped(format!("hooks.{hook} is not set")),
            HookError::Run { .. } | HookError::Failed { .. } | HookError::Slow { .. } => {
                Self::failed("the hooks of the parameter file work", chain(&error))
            }
        }
    }
}

impl Hooks {
    /// With the variables of a lane. Who starts an adapter waits for its command, not for the adapter: `limit` is for commands.
    #[must_use]
    pub fn new(commands: BTreeMap<Hook, String>, env: BTreeMap<String, String>, limit: Duration) -> Self {
        Self { commands, env, limit }
    }

    /// Whether the parameter file has it.
    #[must_use]
    pub fn has(&self, hook: Hook) -> bool {
        self.commands.contains_key(&hook)
    }

    /// Runs a command and answers what it printed, without the last line's end.
    ///
    /// # Errors
    /// If there is none, or it fails.
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
            // Ctrl-C is for the suite, which still needs its commands to clean up.
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .map_err(run)?;
        let (out, err) = (child.stdout.take(), child.stderr.take());
        let ended = async { tokio::try_join!(read(out), read(err), child.wait()) };
        let ended = tokio::time::timeout(self.limit, ended).await;
        let slow = |_elapsed| HookError::Slow { hook, limit: self.limit };
        let (out, said, status) = ended.map_err(slow)?.map_err(run)?;
        if !status.success() {
            return Err(HookError::Failed { hook, status, said: said.trim().to_owned() });
        }
        Ok(out.trim_end().to_owned())
    }
}

/// What a pipe has, up to a bound.
async fn read(pipe: Option<impl tokio::io::AsyncRead + Unpin>) -> std::io::Result<String> {
    let mut text = Vec::new();
    if let Some(pipe) = pipe {
        pipe.take(OUTPUT_MAX).read_to_end(&mut text).await?;
    }
    Ok(String::from_utf8_lossy(&text).into_owned())
}

/// An error with all its causes.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}
