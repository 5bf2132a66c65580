//! `cargo xtask docs`: builds the documentation as a book into `target/book`.
//!
//! The pages stay at their paths in the repository, and their links are relative to these paths. The book is built from copies at the same
//! paths. Links to files that are not pages of the book become links to the repository, or plain text.

mod links;
mod stage;

use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::process::CommandExt;
use std::process::Command;

use anyhow::{Context, bail};

use crate::cargo;
use crate::step::say;
use crate::tool::Tool;

/// The settings of the book, which name the folders below.
const SETTINGS: &str = "docs";
const SOURCE: &str = "target/docs/src";
const BOOK: &str = "target/book";

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Open the book in a browser
    #[arg(long)]
    open: bool,
    /// Serve the book on loopback until Ctrl-C; search works with `--open`, too
    #[arg(
        long,
        value_name = "PORT",
        num_args = 0..=1,
        default_missing_value = "3000",
        value_parser = clap::value_parser!(u16).range(1..)
    )]
    serve: Option<u16>,
    /// Base URL of the repository's files, such as `https://git.example/x/blob/main`, for links to files that are not pages of the book
    #[arg(long, value_name = "URL")]
    repository: Option<String>,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    args.serve.map_or(Ok(()), free)?;
    let root = cargo::root();
    let source = root.join(SOURCE);
    // Removes copies of pages that no longer exist.
    if source.exists() {
        fs::remove_dir_all(&source).with_context(|| format!("cannot clear {SOURCE}"))?;
    }
    for (path, text) in stage::pages(&root, args.repository.as_deref())? {
        let place = source.join(&path);
        let folder = place.parent().context("a page has a folder")?;
        fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
        fs::write(&place, text).with_context(|| format!("cannot write {}", place.display()))?;
    }
    let mut mdbook = Command::new(Tool::Mdbook.get()?);
    mdbook.arg("build").args(args.open.then_some("--open")).arg(SETTINGS).current_dir(&root);
    let built = mdbook.status().context("cannot start mdbook")?;
    if !built.success() {
        bail!("mdbook cannot build the book: fix what it reports above");
    }
    say(&format!("the book is in {BOOK}: open {BOOK}/index.html"));
    args.serve.map_or(Ok(()), serve)
}

/// Checks the port before the book is built, because python3 prints only a stack trace if the port is in use.
fn free(port: u16) -> anyhow::Result<()> {
    let bound = TcpListener::bind((Ipv4Addr::LOCALHOST, port));
    bound
        .map(drop)
        .with_context(|| format!("--serve: cannot listen on port {port}; use another one: --serve PORT"))
}

/// Serves with Python, which `cargo xtask check` requires anyway. Uses `exec`, so that a signal to this process ends the server.
fn serve(port: u16) -> anyhow::Result<()> {
    say(&format!("http://127.0.0.1:{port}, until Ctrl-C"));
    let error = Command::new("python3")
        .args(["-m", "http.server", &port.to_string(), "--bind", "127.0.0.1", "--directory", BOOK])
        .current_dir(cargo::root())
        .exec();
    Err(error).context("cannot start python3")
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, TcpListener};

    use super::free;

    #[test]
    fn occupied_port_is_reported_with_a_hint() {
        let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = taken.local_addr().unwrap().port();
        let message = free(port).unwrap_err().to_string();
        assert!(message.contains(&port.to_string()) && message.contains("--serve PORT"), "{message}");
    }
}
