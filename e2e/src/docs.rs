//! Runs the commands that the documentation asks its readers to type. Collects the commands by page, and types them in a shell. The test
//! provides the environment that a page needs (the stage).

mod session;

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};
use e2e_tools::pages::{Block, How, SUMMARY, alike, blocks, listed, says};
use tempfile::TempDir;

use crate::eventually::{WITHIN, eventually};
use session::Session;

/// Files of the repository that commands of pages use.
const FOLDERS: [&str; 2] = ["examples", "helm"];
/// If the page shows a line that begins with this text, the command is expected to fail.
const REFUSAL: &str = "Error:";
/// Read-only commands. They are repeated until they print what the page shows, because a reader types more slowly.
const READ_COMMANDS: [&str; 3] = ["cloudctl explain ", "cloudctl status", "curl --silent "];
const KUBECTL_READS: [&str; 5] = ["get", "describe", "logs", "auth", "cloud"];
const NAMESPACE: &str = "kube-system";
/// The folder of installed programs, as with `cargo install`: commands of pages add programs to it.
const BIN: &str = ".cargo/bin";

/// The commands of a page for one stage.
#[derive(Clone, Debug)]
pub struct Page {
    /// The path in the repository.
    pub path: String,
    /// The commands in their order.
    pub commands: Vec<Command>,
}

/// A command of a page.
#[derive(Clone, Debug)]
pub struct Command {
    /// The page, and the line at which the command's block begins.
    pub place: String,
    /// The text to type.
    pub text: String,
    /// The output that the page shows.
    pub shown: Vec<String>,
}

/// The commands for this stage, by page of the book.
pub fn pages(stage: &str) -> anyhow::Result<Vec<Page>> {
    let mut pages = select(|block| block.how == Some(How::Run(stage)))?;
    pages.retain(|page| !page.commands.is_empty());
    Ok(pages)
}

/// The commands in selected blocks of the book, by page.
pub fn select(choose: impl Fn(&Block<'_>) -> bool) -> anyhow::Result<Vec<Page>> {
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
    listed(&read(SUMMARY)?).into_iter().map(page).collect()
}

/// Checks that a page shows this output below the `nth` occurrence of the command.
///
/// A word with digits matches any other word with digits, because names, times and counts differ between runs.
pub fn shows(path: &str, command: &str, nth: usize, printed: &str) -> anyhow::Result<()> {
    let text = read(path)?;
    let blocks = blocks(&text);
    let mut commands = blocks.iter().flat_map(Block::commands).filter(|it| it.text == command);
    let transcript = commands.nth(nth).with_context(|| format!("{path} does not show {command} ({nth})"))?;
    ensure!(!transcript.output.is_empty(), "{path} shows no output below {command} ({nth})");
    let shown = transcript.output.join("\n");
    ensure!(alike(printed, &transcript.output), "{path} shows\n{shown}\nbut {command} printed\n{printed}");
    Ok(())
}

fn read(path: &str) -> anyhow::Result<String> {
    fs::read_to_string(root().join(path)).with_context(|| format!("cannot read {path}"))
}

fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_path_buf()
}

/// A terminal in which the commands are typed. Its current folder looks like the repository.
#[derive(Debug)]
pub struct Terminal {
    dir: TempDir,
    env: Vec<(String, String)>,
}

impl Terminal {
    /// A terminal for the cluster of a kubeconfig.
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

    /// Makes a command available under a name, like the aliases that the demo prints.
    pub fn alias(&self, name: &str, command: &str) -> anyhow::Result<()> {
        let path = self.dir.path().join(BIN).join(name);
        fs::write(&path, format!("#!/bin/sh\nexec {command} \"$@\"\n"))?;
        Ok(fs::set_permissions(path, fs::Permissions::from_mode(0o755))?)
    }

    /// Sets a shell variable that the commands of a page use, such as the name of a node.
    #[must_use]
    pub fn with(mut self, name: &str, value: &str) -> Self {
        self.env.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Types the commands of a page, and returns their errors. A failed command does not end the session. Kills background processes at the
    /// end.
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
    /// Types a command, and compares its output with the page.
    async fn see(&mut self, command: &Command) -> anyhow::Result<()> {
        if !command.only_looks() {
            return self.once(command).await;
        }
        let session = tokio::sync::Mutex::new(self);
        let seen = eventually("the command prints what the page shows", WITHIN, || async {
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
        ensure!(
            says(&printed, &shown),
            "the page shows\n{}\nbut the command printed\n{printed}",
            shown.join("\n")
        );
        Ok(())
    }
}

impl Command {
    fn only_looks(&self) -> bool {
        let words = self.text.split_whitespace().filter(|word| !word.starts_with('-') && *word != NAMESPACE);
        match words.take(2).collect::<Vec<_>>().as_slice() {
            ["kubectl", verb] => KUBECTL_READS.contains(verb),
            _ => READ_COMMANDS.iter().any(|command| self.text.starts_with(command)),
        }
    }
}
