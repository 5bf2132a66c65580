//! Background processes. Their process IDs are in files, so that each command finds the processes of its lane.

use std::{
    fs::{self, File},
    io,
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::Duration,
};

use anyhow::Context as _;

/// Maximum time for a process to end.
const TIMEOUT: Duration = Duration::from_secs(20);
const TICK: Duration = Duration::from_millis(10);

/// The path of a program of this repository. All programs are built into the folder of the running program.
pub(crate) fn program(name: &str) -> anyhow::Result<PathBuf> {
    let me = std::env::current_exe().context("cannot determine the folder of the programs")?;
    // Test binaries are one folder below.
    let folders = me.ancestors().skip(1).take(2);
    let found = folders.map(|folder| folder.join(name)).find(|path| path.is_file());
    found.with_context(|| format!("{name} is not built: `cargo build --workspace --bins --tests`"))
}

/// Starts a background process in a process group of its own, so that it does not receive Ctrl-C. Its output is appended to `NAME.log`, its
/// ID written to `NAME.pid`.
pub(crate) fn start(folder: &Path, name: &str, command: &mut Command) -> anyhow::Result<()> {
    let log = File::options().create(true).append(true).open(folder.join(format!("{name}.log")))?;
    let child = command
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        .process_group(0)
        .spawn()
        .with_context(|| format!("cannot start {name}"))?;
    fs::write(pid_file(folder, name), child.id().to_string())?;
    Ok(())
}

/// Ends a process by a signal such as `KILL`, and returns when it is gone. A process that is already gone is not an error.
pub(crate) fn end(folder: &Path, name: &str, signal: &str) -> anyhow::Result<()> {
    let file = pid_file(folder, name);
    let id = match fs::read_to_string(&file) {
        Ok(id) => id,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error.into()),
    };
    if is_there(&id) {
        kill(&["-s", signal, &id])?;
    }
    let mut waited = Duration::ZERO;
    while is_there(&id) {
        anyhow::ensure!(waited < TIMEOUT, "{name} ({id}) does not end");
        thread::sleep(TICK);
        waited += TICK;
    }
    fs::remove_file(&file)?;
    Ok(())
}

fn pid_file(folder: &Path, name: &str) -> PathBuf {
    folder.join(format!("{name}.pid"))
}

/// Whether a process is running; a zombie is not. Source: proc(5), stat.
fn is_there(id: &str) -> bool {
    match fs::read_to_string(format!("/proc/{id}/stat")) {
        Ok(stat) => !stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with('Z')),
        Err(_) => !Path::new("/proc/self").exists() && kill(&["-0", id]).is_ok(),
    }
}

fn kill(arguments: &[&str]) -> anyhow::Result<()> {
    let status = Command::new("kill").args(arguments).stderr(Stdio::null()).status().context("kill")?;
    anyhow::ensure!(status.success(), "kill {} ended with {status}", arguments.join(" "));
    Ok(())
}
