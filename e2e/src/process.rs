//! Servers as child processes that never outlive this process. Dropping the value kills the server. If util-linux's `setpriv` is installed,
//! the kernel kills the servers when this process is killed.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{LazyLock, mpsc};
use std::thread;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
pub(crate) use e2e_tools::tail;
use rustix::process::{Pid, Signal, kill_process};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::eventually::eventually;

/// Time limit for the end of a killed process. A process usually ends within milliseconds, but the host may be busy.
const KILLED_WITHIN: Duration = Duration::from_secs(10);

/// The description of a server, which can be started several times.
#[derive(Clone, Debug)]
pub struct Launch {
    /// The name of the log file, also used in messages.
    pub name: String,
    /// The executable file.
    pub program: PathBuf,
    /// The program's arguments.
    pub args: Vec<String>,
    /// The program's whole environment; the server inherits no variables.
    pub env: BTreeMap<String, String>,
    /// The directory for the log file. The output of every start is appended to the same file.
    pub log_dir: PathBuf,
}

/// A started server.
#[derive(Debug)]
pub struct Process {
    name: String,
    log: PathBuf,
    child: Child,
}

impl Launch {
    /// Starts the server.
    pub fn start(&self) -> anyhow::Result<Process> {
        let program = self.program.display();
        ensure!(self.program.is_file(), "cannot start {}: program not found: {program}", self.name);
        let log = self.log();
        let output = OpenOptions::new().create(true).append(true).open(&log);
        let output = output.with_context(|| format!("cannot write {}", log.display()))?;
        let mut command = guarded(&self.program);
        command
            .args(&self.args)
            .env_clear()
            .envs(&self.env)
            .stdin(Stdio::null())
            .stdout(output.try_clone().context("cannot share a log file")?)
            .stderr(output);
        let child = spawn(command).with_context(|| format!("cannot start {program}"))?;
        Ok(Process { name: self.name.clone(), log, child })
    }

    /// The log file of all starts.
    pub fn log(&self) -> PathBuf {
        self.log_dir.join(format!("{}.log", self.name))
    }
}

impl Process {
    /// The exit status, if the server has ended.
    pub fn exit_status(&mut self) -> anyhow::Result<Option<ExitStatus>> {
        self.child.try_wait().with_context(|| format!("cannot read the status of {}", self.name))
    }

    /// Whether the server has not ended.
    pub fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// The process ID.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends SIGKILL and waits until the process is gone.
    pub async fn kill(&mut self) -> anyhow::Result<ExitStatus> {
        self.child.kill().with_context(|| format!("cannot kill {}", self.name))?;
        self.ended(KILLED_WITHIN).await
    }

    /// Sends SIGTERM and waits until the process has ended.
    pub async fn terminate(&mut self, deadline: Duration) -> anyhow::Result<ExitStatus> {
        if let Some(status) = self.exit_status()? {
            return Ok(status);
        }
        kill_process(Pid::from_child(&self.child), Signal::TERM)
            .with_context(|| format!("cannot signal {}", self.name))?;
        self.ended(deadline).await
    }

    /// Returns an error with the end of the log if the process has ended. Loops that wait for an effect of the process call this.
    pub fn ensure_running(&mut self) -> anyhow::Result<()> {
        match self.exit_status()? {
            None => Ok(()),
            Some(status) => bail!("{} ended ({status}); {}", self.name, tail(&self.log)),
        }
    }

    async fn ended(&mut self, deadline: Duration) -> anyhow::Result<ExitStatus> {
        let what = format!("{} has ended", self.name);
        let child = &mut self.child;
        let ended = eventually(&what, deadline, || {
            let status = child.try_wait();
            async { status?.context("the process still runs") }
        });
        ended.await.with_context(|| tail(&self.log))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Both calls fail only if the process has already ended.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

pub(crate) fn in_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|dir| dir.join(name)).find(|file| file.is_file())
}

/// Builds a command whose process is killed together with this process, if the system supports this.
pub(crate) fn guarded(program: &Path) -> Command {
    static SETPRIV: LazyLock<Option<PathBuf>> =
        LazyLock::new(|| in_path("setpriv").filter(|it| can_guard(it)));
    let Some(setpriv) = SETPRIV.as_ref() else {
        // The command stays in this process group, so that Ctrl-C reaches it, too.
        return Command::new(program);
    };
    let mut command = Command::new(setpriv);
    // The command gets a separate process group, so that this process can stop it gracefully on Ctrl-C.
    command.args(["--pdeathsig", "KILL", "--"]).arg(program).process_group(0);
    command
}

/// Whether this `setpriv` is the one of util-linux. Other programs of this name do not have the option `--pdeathsig`.
fn can_guard(setpriv: &Path) -> bool {
    let Some(program) = in_path("true") else { return false };
    let args = [OsStr::new("--pdeathsig"), OsStr::new("KILL"), OsStr::new("--"), program.as_os_str()];
    let tried = Command::new(setpriv).args(args).stdout(Stdio::null()).stderr(Stdio::null()).status();
    tried.is_ok_and(|status| status.success())
}

/// Starts a command from a thread that lasts as long as this process. The kernel treats the end of the *thread* that started a child as the
/// parent's death, and an async runtime ends threads at any time. The child is in the caller's network namespace.
pub(crate) fn spawn(command: Command) -> io::Result<Child> {
    type Order = (Command, File, mpsc::Sender<io::Result<Child>>);
    static SPAWNER: LazyLock<mpsc::Sender<Order>> = LazyLock::new(|| {
        let (orders, inbox) = mpsc::channel::<Order>();
        thread::spawn(move || {
            for (mut command, network, answer) in inbox {
                let child = enter(&network).and_then(|()| command.spawn());
                // Sending fails only if the caller no longer waits, but the caller always waits for the answer.
                answer.send(child).ok();
            }
        });
        orders
    });
    let (answer, done) = mpsc::channel();
    SPAWNER.send((command, File::open(NETWORK)?, answer)).map_err(io::Error::other)?;
    done.recv().map_err(io::Error::other)?
}

/// The network namespace of the calling thread.
const NETWORK: &str = "/proc/thread-self/ns/net";

/// Enters this network namespace, unless the thread is already in it. Requires root.
fn enter(network: &File) -> io::Result<()> {
    if network.metadata()?.ino() == fs::metadata(NETWORK)?.ino() {
        return Ok(());
    }
    Ok(move_into_link_name_space(network.as_fd(), Some(LinkNameSpaceType::Network))?)
}

#[cfg(test)]
mod tests {
    use super::{BTreeMap, Duration, Launch, PathBuf, fs, in_path};

    fn shell(dir: &tempfile::TempDir, script: &str) -> Launch {
        Launch {
            name: "shell".to_owned(),
            program: in_path("sh").unwrap(),
            args: vec!["-c".to_owned(), script.to_owned()],
            env: BTreeMap::from([("GREETING".to_owned(), "hello".to_owned())]),
            log_dir: dir.path().to_path_buf(),
        }
    }

    #[tokio::test]
    async fn process_ends_by_signals_and_by_drop() {
        let dir = tempfile::tempdir().unwrap();
        let launch = shell(&dir, "while :; do read -r line </dev/zero; done");

        let mut killed = launch.start().unwrap();
        assert!(killed.is_running());
        assert!(!killed.kill().await.unwrap().success());
        let mut terminated = launch.start().unwrap();
        assert!(!terminated.terminate(Duration::from_secs(10)).await.unwrap().success());
        let dropped = launch.start().unwrap();
        let proc = PathBuf::from(format!("/proc/{}", dropped.id()));
        drop(dropped);
        assert!(!proc.exists());
    }

    #[tokio::test]
    async fn early_end_shows_the_log() {
        let dir = tempfile::tempdir().unwrap();
        let mut process = shell(&dir, "echo $GREETING ${HOME-unset}; exit 3").start().unwrap();
        process.ended(Duration::from_secs(10)).await.unwrap();

        let error = format!("{:#}", process.ensure_running().unwrap_err());
        assert!(error.contains("exit status: 3") && error.contains("hello unset"), "{error}");
        assert_eq!(fs::read_to_string(dir.path().join("shell.log")).unwrap(), "hello unset\n");
    }

    #[test]
    fn missing_program_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let launch = Launch { program: "/nowhere/etcd".into(), ..shell(&dir, "") };
        assert!(launch.start().unwrap_err().to_string().contains("program not found: /nowhere/etcd"));
    }
}
