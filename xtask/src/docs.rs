//! `cargo xtask docs`: builds the documentation as a book into `target/book`.
//!
//! Pages stay where one finds them in the repository, and their links are made for it. The book is built of copies in the same places,
//! in which links to what is not a page of it lead to the repository, or are plain words.

mod stage;

use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::process::CommandExt;
use std::process::Command;

use anyhow::{Context, bail};

use crate::cargo;
use crate::check::tool::Tool;
use crate::step::say;

pub(crate) use stage::{SUMMARY, listed};

/// The book's settings; they name the folders below.
const SETTINGS: &str = "docs";
const SOURCE: &str = "target/docs/src";
const BOOK: &str = "target/book";

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Opens it in a browser
    #[arg(long)]
    open: bool,
    /// Serves it on loopback until Ctrl-C; search works by `--open`, too
    #[arg(
        long,
        value_name = "PORT",
        num_args = 0..=1,
        default_missing_value = "3000",
        value_parser = clap::value_parser!(u16).range(1..)
    )]
    serve: Option<u16>,
    /// Where the repository can be read, such as `https://git.example/x/blob/main`: links to what is no page of the book lead there
    #[arg(long, value_name = "URL")]
    repository: Option<String>,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    args.serve.map_or(Ok(()), free)?;
    let root = cargo::root();
    let source = root.join(SOURCE);
    // Of a page that is gone nothing stays.
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
        bail!("mdbook does not build the book: mend what it names above");
    }
    say(&format!("the book is in {BOOK}: open {BOOK}/index.html"));
    args.serve.map_or(Ok(()), serve)
}

/// Before the book is built: python3 would tell of a port that is taken by a stack trace.
fn free(port: u16) -> anyhow::Result<()> {
    let bound = TcpListener::bind((Ipv4Addr::LOCALHOST, port));
    bound
        .map(drop)
        .with_context(|| format!("--serve: cannot listen at port {port}; name another: --serve PORT"))
}

/// Python is here anyway, for `cargo xtask check`. In our place: whoever ends us ends what serves.
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
    fn a_port_that_is_taken_is_told_with_what_to_do() {
        let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = taken.local_addr().unwrap().port();
        let told = free(port).unwrap_err().to_string();
        assert!(told.contains(&port.to_string()) && told.contains("--serve PORT"), "{told}");
    }
}
