//! The commands that the documentation tells its readers to type: which there are, by pages, and a terminal to type them in. What a page
//! needs beside a terminal is its stage, which a test makes.

mod session;

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};
use doc_pages::{Block, How, alike, blocks, entries, resolve, says};
use tempfile::TempDir;

use crate::bed::WITHIN;
use crate::eventually::eventually;
use session::Session;

const SUMMARY: &str = "docs/SUMMARY.md";
/// What a page's commands name by a path of the repository.
const FOLDERS: [&str; 2] = ["examples", "helm"];
/// How a shown line begins if its command is to fail.
const REFUSAL: &str = "Error:";
/// What only looks is repeated until it sees what the page shows: the page's reader is slower than we are.
const LOOKS: [&str; 3] = ["cloudctl explain ", "cloudctl status", "curl --silent "];
const KUBECTL_LOOKS: [&str; 5] = ["get", "describe", "logs", "auth", "cloud"];
const NAMESPACE: &str = "kube-system";
/// Where its programs are, as with `cargo install`: a page puts one of its own beside them.
const BIN: &str = ".cargo/bin";

/// What a page has to type on a stage.
#[derive(Clone, Debug)]
pub struct Page {
    /// In the repository.
    pub path: String,
    /// In their order.
    pub commands: Vec<Command>,
}

/// A command of a page.
#[derive(Clone, Debug)]
pub struct Command {
    /// The page, and the line that its block begins at.
    pub place: String,
    /// What is typed.
    pub text: String,
    /// What the page shows below it.
    pub shown: Vec<String>,
}

/// What there is to type on this stage, by pages of the book.
///
/// # Errors
/// When a page cannot be read.
pub fn pages(stage: &str) -> anyhow::Result<Vec<Page>> {
    let mut pages = select(|block| block.how == Some(How::Run(stage)))?;
    pages.retain(|page| !page.commands.is_empty());
    Ok(pages)
}

/// All commands of the book in blocks of one's choice, by pages.
///
/// # Errors
/// When a page cannot be read.
pub fn select(choose: impl Fn(&Block<'_>) -> bool) -> anyhow::Result<Vec<Page>> {
    let summary = read(SUMMARY)?;
    let paths = entries(&summary).into_iter().filter_map(|entry| resolve(SUMMARY, entry.path));
    let page = |path: String| {
        let text = read(&path)?;
        let mut commands = Vec::new();
        for block in blocks(&text).into_iter().filter(&choose) {
            let place = format!("{path}:{}", block.line);
            commands.extend(block.commands().into_iter().map(|it| Command {
                place: place.clone(),
                text: it.text,
                shown: it.output.into_iter().map(str::to_owned).collect(),
            }));
        }
        Ok(Page { path, commands })
    };
    paths.map(page).collect()
}

/// Whether a page shows what was printed: its transcript of that command is looked for, the `nth` of those that begin so.
///
/// Words with figures are like any others with figures, since names, times and counts are those of another day.
///
/// # Errors
/// When the page has no such transcript, or shows what is not printed.
pub fn shows(path: &str, command: &str, nth: usize, printed: &str) -> anyhow::Result<()> {
    let text = read(path)?;
    let blocks = blocks(&text);
    let mut commands = blocks.iter().flat_map(Block::commands).filter(|it| it.text == command);
    let transcript = commands.nth(nth).with_context(|| format!("{path}: shows no {command} ({nth})"))?;
    ensure!(!transcript.output.is_empty(), "{path}: shows nothing below {command} ({nth})");
    let shown = transcript.output.join("\n");
    ensure!(alike(printed, &transcript.output), "{path} shows\n{shown}\nand {command} prints\n{printed}");
    Ok(())
}

fn read(path: &str) -> anyhow::Result<String> {
    fs::read_to_string(root().join(path)).with_context(|| format!("cannot read {path}"))
}

fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_path_buf()
}

/// Where the commands are typed: a folder of its own, that looks like the repository.
#[derive(Debug)]
pub struct Terminal {
    dir: TempDir,
    env: Vec<(String, String)>,
}

impl Terminal {
    /// In front of the cluster that a kubeconfig names.
    ///
    /// # Errors
    /// When the folder cannot be made.
    pub fn new(kubeconfig: &Path, helm: &Path, kubectl: &Path) -> anyhow::Result<Self> {
        let dir = TempDir::new()?;
        let bin = dir.path().join(BIN);
        fs::create_dir_all(&bin)?;
        symlink(helm, bin.join("helm"))?;
        symlink(kubectl, bin.join("kubectl"))?;
        for folder in FOLDERS {
            symlink(root().join(folder), dir.path().join(folder))?;
        }
        let path = format!("{}:/usr/local/bin:/usr/bin:/bin", bin.display());
        let (home, kubeconfig) = (dir.path().display().to_string(), kubeconfig.display().to_string());
        let env = [("PATH", path), ("HOME", home), ("KUBECONFIG", kubeconfig)];
        Ok(Self { env: env.map(|(name, value)| (name.to_owned(), value)).into(), dir })
    }

    /// Gives a command a name, as the demo tells its visitors to.
    ///
    /// # Errors
    /// When its file cannot be written.
    pub fn alias(&self, name: &str, command: &str) -> anyhow::Result<()> {
        let path = self.dir.path().join(BIN).join(name);
        fs::write(&path, format!("#!/bin/sh\nexec {command} \"$@\"\n"))?;
        Ok(fs::set_permissions(path, fs::Permissions::from_mode(0o755))?)
    }

    /// Sets what a page has a variable for, such as the node that it is about.
    #[must_use]
    pub fn with(mut self, name: &str, value: &str) -> Self {
        self.env.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Types a page, and returns what went wrong, whatever came before it. What it left running is ended.
    ///
    /// # Errors
    /// When there is no shell.
    pub async fn type_in(&self, page: &Page) -> anyhow::Result<Vec<String>> {
        let mut faults = Vec::new();
        let mut session = Session::start(self.dir.path(), &self.env)?;
        for command in &page.commands {
            if let Err(error) = session.see(command).await {
                faults.push(format!("{}: {}\n{error:#}", command.place, command.text));
            }
            if session.has_ended() {
                session = Session::start(self.dir.path(), &self.env)?;
            }
        }
        Ok(faults)
    }
}

impl Session {
    /// Types a command, and looks for what the page shows.
    async fn see(&mut self, command: &Command) -> anyhow::Result<()> {
        if !command.only_looks() {
            return self.once(command).await;
        }
        let session = tokio::sync::Mutex::new(self);
        let seen = eventually("it prints what the page shows", WITHIN, || async {
            session.lock().await.once(command).await
        });
        seen.await
    }

    async fn once(&mut self, command: &Command) -> anyhow::Result<()> {
        let (code, printed) = self.run(&command.text).await?;
        let shown: Vec<&str> = command.shown.iter().map(String::as_str).collect();
        let is_to_fail = shown.iter().any(|line| line.starts_with(REFUSAL));
        if (code == 0) == is_to_fail {
            bail!("exit code {code}:\n{printed}");
        }
        ensure!(says(&printed, &shown), "the page shows\n{}\nand it prints\n{printed}", shown.join("\n"));
        Ok(())
    }
}

impl Command {
    fn only_looks(&self) -> bool {
        let words = self.text.split_whitespace().filter(|word| !word.starts_with('-') && *word != NAMESPACE);
        match words.take(2).collect::<Vec<_>>().as_slice() {
            ["kubectl", verb] => KUBECTL_LOOKS.contains(verb),
            _ => LOOKS.iter().any(|look| self.text.starts_with(look)),
        }
    }
}
