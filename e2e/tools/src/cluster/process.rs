//! Starts and ends servers that outlive this process. Each server has a PID file.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::Context;
use rustix::process::{Pid, Signal, kill_process};

use crate::cluster::layout::{Layout, NetworkNamespace};
use crate::cluster::wait::{Seen, wait};
use crate::tail::tail;

#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) name: String,
    pub(crate) place: NetworkNamespace,
    /// The process whose mount namespace the server shares. Only for servers of a node.
    pub(crate) mounts_of: Option<i32>,
    pub(crate) program: PathBuf,
    pub(crate) args: Vec<String>,
    pub(crate) env: BTreeMap<String, String>,
}

impl Server {
    pub(crate) fn new(
        name: impl Into<String>,
        place: NetworkNamespace,
        program: &Path,
        args: Vec<String>,
    ) -> Self {
        let (name, program) = (name.into(), program.to_path_buf());
        Self { name, place, mounts_of: None, program, args, env: BTreeMap::new() }
    }

    /// Starts the server unless it already runs.
    pub(crate) fn start(&self, layout: &Layout) -> anyhow::Result<Started> {
        if let Some(id) = running(layout, &self.name) {
            return Ok(Started { id, name: self.name.clone() });
        }
        let log = layout.log(&self.name);
        let output = OpenOptions::new().create(true).append(true).open(&log);
        let output = output.with_context(|| format!("cannot write {}", log.display()))?;
        let mut command = enter(self.place, self.mounts_of);
        // In a separate session, the server gets neither Ctrl-C nor the hang-up of the terminal. `setsid` replaces itself by the program,
        // so the child's process ID is that of the server.
        command.arg("setsid").arg(&self.program).args(&self.args).envs(&self.env);
        command
            .stdin(Stdio::null())
            .stdout(output.try_clone().context("cannot share a log file")?)
            .stderr(output);
        let child = command.spawn().with_context(|| format!("cannot start {}", self.name))?;
        let id = i32::try_from(child.id()).context("the process ID is out of range")?;
        let began = stat(id).map(|(_, began)| began).unwrap_or_default();
        let file = layout.pid(&self.name);
        fs::write(&file, format!("{id} {began}"))
            .with_context(|| format!("cannot write {}", file.display()))?;
        Ok(Started { id, name: self.name.clone() })
    }
}

/// A server that was started by this call or earlier.
#[derive(Clone, Debug)]
pub(crate) struct Started {
    pub(crate) id: i32,
    name: String,
}

impl Started {
    /// Turns `NotYet` into `Never` if the server has ended, because then the condition can never hold.
    pub(crate) fn unless_ended<T>(&self, layout: &Layout, seen: Seen<T>) -> Seen<T> {
        match seen {
            Seen::NotYet(_) if !is_alive(self.id) => {
                Seen::Never(format!("{} ended; {}", self.name, tail(&layout.log(&self.name))))
            }
            Seen::Yes(_) | Seen::NotYet(_) | Seen::Never(_) => seen,
        }
    }
}

/// A command that runs its further arguments inside a namespace. The command uses `nsenter`, because `ip netns exec` mounts another `/sys`,
/// which hides the cgroups.
pub(crate) fn enter(place: NetworkNamespace, mounts_of: Option<i32>) -> Command {
    let mut command = Command::new("nsenter");
    command.arg(format!("--net={}", place.namespace_file().display()));
    if let Some(id) = mounts_of {
        command.arg(format!("--mount=/proc/{id}/ns/mnt"));
    }
    command.arg("--");
    command
}

pub(crate) fn running(layout: &Layout, name: &str) -> Option<i32> {
    let text = fs::read_to_string(layout.pid(name)).ok()?;
    let (id, began) = recorded(&text)?;
    // Another process may have the same ID now, so the start times are compared.
    (alive_since(id)? == began).then_some(id)
}

/// Names of all servers that were started and not stopped.
pub(crate) fn known(layout: &Layout) -> Vec<String> {
    let entries = fs::read_dir(layout.pids()).into_iter().flatten().flatten();
    let mut names: Vec<_> = entries
        .filter_map(|entry| entry.file_name().to_str()?.strip_suffix(".pid").map(str::to_owned))
        .collect();
    names.sort();
    names
}

/// Kills a server, given by the name of its log. An orderly shutdown is not needed, because the server's data is removed anyway. The API
/// server would also take seconds to shut down.
pub async fn stop(layout: &Layout, name: &str) -> anyhow::Result<()> {
    // The ID is read again each time, because another process may get the same ID.
    kill_all(&format!("{name} has ended"), || running(layout, name).into_iter().collect()).await?;
    fs::remove_file(layout.pid(name)).ok();
    Ok(())
}

/// Sends SIGKILL to all processes that `list` returns, until it returns none.
pub(crate) async fn kill_all(what: &str, list: impl Fn() -> Vec<i32>) -> anyhow::Result<()> {
    // The caller may itself run inside a namespace of the cluster.
    let ourselves = i32::try_from(std::process::id()).ok();
    let others = |id: &i32| Some(*id) != ourselves && is_alive(*id);
    let living = || list().into_iter().filter(others).collect::<Vec<_>>();
    if living().is_empty() {
        return Ok(());
    }
    wait(what, || {
        let left = living();
        left.iter().for_each(|&id| kill(id));
        if left.is_empty() { Seen::Yes(()) } else { Seen::NotYet(format!("processes {left:?}")) }
    })
    .await
}

fn kill(id: i32) {
    if let Some(pid) = Pid::from_raw(id) {
        // Sending the signal fails only if the process has already ended.
        kill_process(pid, Signal::KILL).ok();
    }
}

fn is_alive(id: i32) -> bool {
    alive_since(id).is_some()
}

/// The start time of a process, if the process is alive. A zombie is not alive.
fn alive_since(id: i32) -> Option<u64> {
    stat(id).filter(|&(state, _)| state != 'Z' && state != 'X').map(|(_, began)| began)
}

fn stat(id: i32) -> Option<(char, u64)> {
    parse_stat(&fs::read_to_string(format!("/proc/{id}/stat")).ok()?)
}

/// Parses the state and the start time from `/proc/ID/stat`. The program's name, in parentheses, may contain any characters.
fn parse_stat(text: &str) -> Option<(char, u64)> {
    let (_, rest) = text.rsplit_once(") ")?;
    let mut fields = rest.split(' ');
    let state = fields.next()?.chars().next()?;
    Some((state, fields.nth(18)?.trim().parse().ok()?))
}

fn recorded(text: &str) -> Option<(i32, u64)> {
    let (id, began) = text.trim().split_once(' ')?;
    Some((id.parse().ok()?, began.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn process_is_identified_by_pid_and_start_time() {
        let text = "41 (a (b) c) S 1 41 41 0 -1 4194560 9 0 0 0 1 2 3 4 20 0 1 0 5678 9 10";
        assert_eq!(parse_stat(text), Some(('S', 5678)));
        assert_eq!(recorded("41 5678\n"), Some((41, 5678)));
        assert_eq!(recorded("41"), None);
    }

    #[test]
    fn reused_pid_is_not_the_server() {
        let dir = tempfile::tempdir().unwrap();
        let layout = Layout { home: dir.path().to_path_buf() };
        fs::create_dir(layout.pids()).unwrap();
        let id = i32::try_from(std::process::id()).unwrap();
        let (_, began) = stat(id).unwrap();

        fs::write(layout.pid("me"), format!("{id} {began}")).unwrap();
        fs::write(layout.pid("former"), format!("{id} {}", began - 1)).unwrap();

        assert_eq!(running(&layout, "me"), Some(id));
        assert_eq!(running(&layout, "former"), None);
        assert_eq!(known(&layout), ["former", "me"]);
    }
}
