//! The commands that the documentation tells its readers to type, typed: each block that says `run`, page by page, and what it shows below
//! them is looked for in what they print. What a page needs beside a shell is its stage.

#![expect(clippy::unwrap_used, reason = "clippy knows tests, and not their helpers")]

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use anyhow::{Context, ensure};
use doc_pages::{Command, How, blocks, entries, resolve, says};
use e2e::{ControlPlane, WITHIN, eventually, tools};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, from_str};
use tempfile::TempDir;
use tokio::time::timeout;

const SUMMARY: &str = "docs/SUMMARY.md";
/// What a page's commands name by a path of the repository.
const FOLDERS: [&str; 2] = ["examples", "helm"];
/// What only looks is repeated until it sees what the page shows: the page's reader is slower than we are.
const LOOKS: [&str; 4] =
    ["kubectl get ", "kubectl describe ", "kubectl --namespace kube-system get ", "cloudctl explain "];

/// How a shown line begins if its command is to fail.
const REFUSAL: &str = "Error:";

/// A block of a page, and what there is to type.
struct Task {
    place: String,
    commands: Vec<(String, Vec<String>)>,
}

/// Installing, scaling, upgrading: the chart on an API server of its own for each page.
#[tokio::test]
async fn what_guides_say_works_on_a_cluster() {
    let pages = pages("");
    assert!(pages.len() >= 3, "of how many pages are there commands? {}", pages.len());
    let mut faults = Vec::new();
    for tasks in pages {
        let control_plane = ControlPlane::start(&tools().unwrap()).await.unwrap();
        faults.extend(Shell::new(control_plane.kubeconfig()).unwrap().do_all(&tasks).await);
    }
    assert!(faults.is_empty(), "{}", faults.join("\n\n"));
}

/// The tutorial, and what one looks at in trouble: in the terminal beside the demo.
#[tokio::test]
async fn what_the_tutorial_says_works_beside_the_demo() {
    let demo = std::process::Command::new(env!("CARGO_BIN_EXE_demo"))
        .args(["--json", "--nodes=3"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut demo = Staying(demo);
    let told = BufReader::new(demo.0.stdout.take().unwrap()).lines();
    let mut told = told.map(|line| from_str::<Value>(&line.unwrap()).unwrap());
    let stay = told.find(|line| line["event"] == "stay").expect("it stays");
    let shell = Shell::new(Path::new(stay["kubeconfig"].as_str().unwrap())).unwrap();
    shell.alias("cloudctl", stay["cloudctl"].as_str().unwrap()).unwrap();
    let pages = pages("demo");
    assert!(pages.len() >= 2, "of how many pages are there commands? {}", pages.len());
    let mut faults = Vec::new();
    for tasks in pages {
        faults.extend(shell.do_all(&tasks).await);
    }
    assert!(faults.is_empty(), "{}", faults.join("\n\n"));
}

/// What there is to type on this stage, by pages of the book.
fn pages(stage: &str) -> Vec<Vec<Task>> {
    let root = root();
    let summary = fs::read_to_string(root.join(SUMMARY)).unwrap();
    let paths = entries(&summary).into_iter().filter_map(|entry| resolve(SUMMARY, entry.path));
    let pages = paths.map(|path| {
        let text = fs::read_to_string(root.join(&path)).unwrap();
        let here = blocks(&text).into_iter().filter(|block| block.how == Some(How::Run(stage)));
        let owned = |it: Command<'_>| (it.text, it.output.into_iter().map(str::to_owned).collect());
        let tasks = here.map(|block| Task {
            place: format!("{path}:{}", block.line),
            commands: block.commands().into_iter().map(owned).collect(),
        });
        tasks.collect::<Vec<_>>()
    });
    pages.filter(|tasks| !tasks.is_empty()).collect()
}

fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_path_buf()
}

/// A terminal in a folder of its own, that looks like the repository.
struct Shell {
    dir: TempDir,
    kubeconfig: PathBuf,
}

impl Shell {
    fn new(kubeconfig: &Path) -> anyhow::Result<Self> {
        let (dir, tools) = (TempDir::new()?, tools()?);
        let bin = dir.path().join("bin");
        fs::create_dir(&bin)?;
        symlink(&tools.helm.path, bin.join("helm"))?;
        symlink(&tools.kubectl.path, bin.join("kubectl"))?;
        for folder in FOLDERS {
            symlink(root().join(folder), dir.path().join(folder))?;
        }
        Ok(Self { dir, kubeconfig: kubeconfig.to_path_buf() })
    }

    /// As the demo tells its visitors to.
    fn alias(&self, name: &str, command: &str) -> anyhow::Result<()> {
        let path = self.dir.path().join("bin").join(name);
        fs::write(&path, format!("#!/bin/sh\nexec {command} \"$@\"\n"))?;
        Ok(fs::set_permissions(path, fs::Permissions::from_mode(0o755))?)
    }

    /// What went wrong, whatever came before it.
    async fn do_all(&self, tasks: &[Task]) -> Vec<String> {
        let mut faults = Vec::new();
        for Task { place, commands } in tasks {
            for (command, shown) in commands {
                if let Err(error) = self.type_in(command, shown).await {
                    faults.push(format!("{place}: {command}\n{error:#}"));
                }
            }
        }
        faults
    }

    async fn type_in(&self, command: &str, shown: &[String]) -> anyhow::Result<()> {
        if !shown.is_empty() && LOOKS.iter().any(|look| command.starts_with(look)) {
            return eventually("it prints what the page shows", WITHIN, || self.once(command, shown)).await;
        }
        self.once(command, shown).await
    }

    async fn once(&self, command: &str, shown: &[String]) -> anyhow::Result<()> {
        let folder = self.dir.path();
        let mut bash = tokio::process::Command::new("bash");
        bash.args(["-euo", "pipefail", "-c", command]).current_dir(folder).env_clear().kill_on_drop(true);
        let path = format!("{}:/usr/local/bin:/usr/bin:/bin", folder.join("bin").display());
        bash.env("PATH", path).env("HOME", folder).env("KUBECONFIG", &self.kubeconfig).stdin(Stdio::null());
        let output = timeout(2 * WITHIN, bash.output()).await.context("it does not end")??;
        let printed = [output.stdout, output.stderr].concat();
        let printed = String::from_utf8_lossy(&printed);
        let shown: Vec<&str> = shown.iter().map(String::as_str).collect();
        let is_to_fail = shown.iter().any(|line| line.starts_with(REFUSAL));
        ensure!(output.status.success() != is_to_fail, "{}:\n{printed}", output.status);
        ensure!(says(&printed, &shown), "the page shows\n{}\nand it prints\n{printed}", shown.join("\n"));
        Ok(())
    }
}

/// Ends with its test, in good order, even if that fails.
struct Staying(Child);

impl Drop for Staying {
    fn drop(&mut self) {
        if matches!(self.0.try_wait(), Ok(None)) {
            kill_process(Pid::from_child(&self.0), Signal::TERM).ok();
            self.0.wait().ok();
        }
    }
}
