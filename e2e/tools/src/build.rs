//! Builds one program into the cache. An incomplete program never appears in the cache, and only one process builds at a time.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::compiler;
use crate::error::Error;
use crate::progress::Progress;
use crate::recipe::Recipe;

/// The prefix of the names of build directories. The holder of the lock may remove directories of an interrupted build.
const WORK: &str = ".build-";
const CHECK_EVERY: Duration = Duration::from_millis(100);
const TAIL_LINES: usize = 20;

/// A lock that prevents builds by other processes until it is dropped.
#[derive(Debug)]
pub(crate) struct Lock {
    _file: File,
}

impl Lock {
    pub(crate) fn take(cache: &Path, progress: &mut dyn Progress) -> Result<Self, Error> {
        fs::create_dir_all(cache).map_err(|source| io_error("cannot create the cache", cache, source))?;
        let path = cache.join(".lock");
        let file = File::create(&path).map_err(|source| io_error("cannot create", &path, source))?;
        if file.try_lock().is_err() {
            progress.say("Another process builds the tools; waiting for it");
            file.lock().map_err(|source| io_error("cannot lock", &path, source))?;
        }
        remove_left_overs(cache);
        Ok(Self { _file: file })
    }
}

/// Builds the recipe and returns the path of the complete executable. The lock proves that no other process builds.
pub(crate) fn build(
    recipe: &Recipe,
    cache: &Path,
    _lock: &Lock,
    progress: &mut dyn Progress,
) -> Result<PathBuf, Error> {
    compiler::check(recipe.tool, Path::new("go"))?;
    let work = cache.join(format!("{WORK}{}", recipe.slot()));
    fs::create_dir_all(&work).map_err(|source| io_error("cannot create", &work, source))?;
    let log = work.join("build.log");
    let output = File::create(&log).map_err(|source| io_error("cannot create", &log, source))?;
    let child = go_build(recipe, &work.join(recipe.tool.name()), output)
        .spawn()
        .map_err(|source| io_error("cannot start go in", &recipe.module, source))?;

    progress.begin(recipe.tool, recipe.tool.build_time());
    let done = wait(child, progress);
    progress.end();
    if !done.map_err(|source| io_error("cannot wait for go in", &recipe.module, source))? {
        return Err(Error::Build { tool: recipe.tool, output: tail(&log) });
    }
    publish(recipe, cache, &work)
}

fn go_build(recipe: &Recipe, to: &Path, output: File) -> Command {
    let mut command = Command::new("go");
    command
        .args(["build", "-trimpath", "-ldflags", &recipe.tool.ldflags(), "-o"])
        .arg(to)
        .arg(recipe.tool.package())
        .current_dir(&recipe.module)
        // The pinned versions apply, even if the user has set a workspace or flags.
        .envs([("CGO_ENABLED", "0"), ("GOFLAGS", "-mod=readonly"), ("GOWORK", "off")])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(output);
    command
}

/// Waits for the build, and returns whether it succeeded. Ctrl-C also ends the child, because it is in the same process group.
#[expect(clippy::disallowed_methods, reason = "a compiler runs in real time, which no test pauses")]
fn wait(mut child: Child, progress: &mut dyn Progress) -> io::Result<bool> {
    let start = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status.success());
        }
        progress.tick(start.elapsed());
        thread::sleep(CHECK_EVERY);
    }
}

/// Moves the complete program into the cache with one rename.
fn publish(recipe: &Recipe, cache: &Path, work: &Path) -> Result<PathBuf, Error> {
    let slot = cache.join(recipe.slot());
    if slot.exists() {
        // The directory exists but the executable is missing, for example because the user has removed it.
        fs::remove_dir_all(&slot).map_err(|source| io_error("cannot remove", &slot, source))?;
    }
    fs::rename(work, &slot).map_err(|source| io_error("cannot rename to", &slot, source))?;
    Ok(recipe.executable(cache))
}

fn remove_left_overs(cache: &Path) {
    let Ok(entries) = fs::read_dir(cache) else { return };
    for entry in entries.flatten() {
        if entry.file_name().to_string_lossy().starts_with(WORK) {
            // Files that cannot be removed only take up space; the next build tries again to remove them.
            fs::remove_dir_all(entry.path()).ok();
        }
    }
}

fn tail(log: &Path) -> String {
    let text = fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<_> = text.lines().collect();
    lines.get(lines.len().saturating_sub(TAIL_LINES)..).unwrap_or_default().join("\n")
}

fn io_error(what: &'static str, path: &Path, source: io::Error) -> Error {
    Error::Io { what, path: path.to_path_buf(), source }
}
