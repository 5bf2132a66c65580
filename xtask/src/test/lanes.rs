//! Runs the test programs of a package several at a time: end-to-end tests mostly wait for other programs. What each prints comes
//! when it has ended, in one piece.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::io::{self, Seek as _, SeekFrom};
use std::iter;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::thread;

use anyhow::{Context as _, bail};
use serde::Deserialize;

use crate::cargo;
use crate::step::{Outcome, say};

/// At once. Each file of tests starts an etcd and a kube-apiserver, which are busy for some seconds.
const LANES: usize = 2;
/// These wait for minutes and do hardly anything: in a lane of their own they cost nobody time.
const PATIENT: [&str; 1] = ["minutes"];

/// A line of cargo's messages. Source: The Cargo Book, External tools, JSON messages.
#[derive(Deserialize)]
#[serde(tag = "reason", rename_all = "kebab-case")]
enum Message {
    CompilerArtifact {
        target: Target,
        profile: Profile,
        executable: Option<PathBuf>,
    },
    #[serde(other)]
    Other,
}

#[derive(Deserialize)]
struct Target {
    name: String,
}

#[derive(Deserialize)]
struct Profile {
    test: bool,
}

/// A program with tests.
pub(super) struct Program {
    name: String,
    path: PathBuf,
}

/// Builds the test programs of a package in `folder` and runs all of them, whatever becomes of the first.
pub(super) fn run(package: &str, folder: &Path, repair: &str) -> Outcome {
    let failed = build(&["--package", package]).and_then(|programs| run_all(programs, folder));
    match failed.as_deref() {
        Ok([]) => Outcome::Passed,
        Ok(names) => Outcome::Failed(format!("{}; {repair}", names.join(", "))),
        Err(error) => Outcome::Failed(format!("{error:#}")),
    }
}

/// Builds the test programs that these arguments of cargo name.
pub(super) fn build(which: &[&str]) -> anyhow::Result<VecDeque<Program>> {
    let built = Command::new(cargo::program())
        .args(["test", "--no-run", "--message-format=json-render-diagnostics"])
        .args(which)
        .current_dir(cargo::root())
        .stderr(Stdio::inherit())
        .output()
        .context("cargo does not start")?;
    if !built.status.success() {
        bail!("the tests do not build: mend what cargo names above");
    }
    programs(&built.stdout)
}

fn programs(messages: &[u8]) -> anyhow::Result<VecDeque<Program>> {
    let mut programs = VecDeque::new();
    for message in serde_json::Deserializer::from_slice(messages).into_iter() {
        match message.context("cargo's messages cannot be read")? {
            Message::CompilerArtifact { target, profile: Profile { test: true }, executable: Some(path) } => {
                programs.push_back(Program { name: target.name, path });
            }
            Message::CompilerArtifact { .. } | Message::Other => (),
        }
    }
    Ok(programs)
}

/// The names of those that failed.
fn run_all(programs: VecDeque<Program>, folder: &Path) -> anyhow::Result<Vec<String>> {
    let (patient, busy): (VecDeque<_>, _) =
        programs.into_iter().partition(|program| PATIENT.contains(&program.name.as_str()));
    let (patient, busy) = (Mutex::new(patient), Mutex::new(busy));
    let failed = Mutex::new(Vec::new());
    let lane = |waiting: &Mutex<VecDeque<Program>>| -> anyhow::Result<()> {
        loop {
            let next = waiting.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
            let Some(program) = next else { return Ok(()) };
            let (passed, mut printed) = program.run(folder)?;
            // Held while it prints.
            let mut failed = failed.lock().unwrap_or_else(PoisonError::into_inner);
            say(&format!("--- {}", program.name));
            io::copy(&mut printed, &mut io::stderr())?;
            if !passed {
                failed.push(program.name);
            }
        }
    };
    thread::scope(|scope| {
        let lanes = iter::once(&patient).chain(iter::repeat_n(&busy, LANES));
        let lanes: Vec<_> = lanes.map(|waiting| scope.spawn(move || lane(waiting))).collect();
        lanes.into_iter().try_for_each(|lane| match lane.join() {
            Ok(ended) => ended,
            Err(_) => bail!("a lane ended in a panic"),
        })
    })?;
    Ok(failed.into_inner().unwrap_or_else(PoisonError::into_inner))
}

impl Program {
    /// How to run it: in the package's folder, as cargo does.
    pub(super) fn command(&self, folder: &Path) -> Command {
        let mut command = Command::new(&self.path);
        command
            .current_dir(folder)
            .envs([("CARGO", cargo::program()), ("CARGO_MANIFEST_DIR", OsString::from(folder))]);
        command
    }

    /// Whether it passed, and what it printed.
    fn run(&self, folder: &Path) -> anyhow::Result<(bool, std::fs::File)> {
        let mut printed = tempfile::tempfile().context("no temporary file")?;
        let status = self
            .command(folder)
            .stdin(Stdio::null())
            .stdout(printed.try_clone()?)
            .stderr(printed.try_clone()?)
            .status()
            .with_context(|| format!("cannot start {}", self.path.display()))?;
        printed.seek(SeekFrom::Start(0))?;
        Ok((status.success(), printed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_programs_are_found_among_cargos_messages() {
        let messages = br#"{"reason":"compiler-artifact","target":{"name":"e2e"},"profile":{"test":false},"executable":null}
{"reason":"build-script-executed","package_id":"x"}
{"reason":"compiler-artifact","target":{"name":"tool"},"profile":{"test":false},"executable":"/t/tool"}
{"reason":"compiler-artifact","target":{"name":"demo"},"profile":{"test":true},"executable":"/t/demo-1"}
{"reason":"build-finished","success":true}"#;
        let found: Vec<_> = programs(messages).unwrap().into_iter().map(|one| (one.name, one.path)).collect();
        assert_eq!(found, [("demo".to_owned(), PathBuf::from("/t/demo-1"))]);
        assert!(programs(b"{").is_err());
    }

    #[test]
    #[cfg(unix)]
    fn all_are_run_and_those_that_fail_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let [patient] = PATIENT;
        let programs = [("true", "true"), ("false", "false"), (patient, "false"), ("no-such", "no-such")]
            .map(|(name, path)| Program { name: name.to_owned(), path: path.into() });
        let [good, bad, long, nobody] = programs;
        let mut failed = run_all(VecDeque::from([good, bad, long]), folder.path()).unwrap();
        failed.sort_unstable();
        assert_eq!(failed, ["false", patient]);
        let error = run_all(VecDeque::from([nobody]), folder.path()).unwrap_err();
        assert_eq!(error.to_string(), "cannot start no-such");
    }
}
