//! `cargo xtask new-adapter`: creates a driver that compiles, runs, and reports what the developer must implement next.
//!
//! The new driver is a copy of `adapters/skeleton` under another name. The skeleton is a crate of this workspace, compiled, linted and
//! tested like the others.

mod name;
#[cfg(test)]
mod tests;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

use self::name::Name;
use crate::cargo;
use crate::step::{NamedCommand, Outcome, say};

const SKELETON: &str = "adapters/skeleton";

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Name of the cloud, such as `acme`: the crate is `adapters/acme`, the program `adapter-acme`, and provider IDs begin with `acme://`
    #[arg(value_parser = Name::read)]
    name: Name,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let name = &args.name;
    let root = cargo::root();
    write(&root.join(SKELETON), &root.join("adapters").join(name.as_str()), name)?;
    // The new code needs formatting, because a name of another length changes the wrapping and order of lines.
    let fmt = ["fmt", "--package", &name.package()].map(str::to_owned).into();
    if let Outcome::Failed(why) | Outcome::Skipped(why) =
        NamedCommand::cargo("fmt", fmt, "fix the errors that cargo reports").run()
    {
        bail!(why);
    }
    say(&next_steps(name));
    Ok(())
}

fn next_steps(name: &Name) -> String {
    let steps = [
        (format!("cargo test -p {}", name.package()), "compiles and starts the adapter"),
        (format!("adapters/{name}/README.md"), "what to implement, in which order"),
        (
            "docs/write-an-adapter.md".to_owned(),
            "how to implement it, and how to run the conformance suite against it",
        ),
    ];
    let width = steps.iter().map(|(what, _why)| what.len()).max().unwrap_or_default();
    let lines: Vec<String> =
        steps.iter().zip(1..).map(|((what, why), at)| format!("{at}. {what:width$}  {why}")).collect();
    format!(
        "\nCreated adapters/{name}. The adapter serves, and answers `not written yet` to every call \
        that needs the cloud.\n{}",
        lines.join("\n")
    )
}

fn write(skeleton: &Path, new: &Path, name: &Name) -> anyhow::Result<()> {
    if new.exists() {
        bail!("{} already exists: choose another name, or remove the folder", new.display());
    }
    for file in files(skeleton)? {
        let (from, to) = (skeleton.join(&file), new.join(&file));
        let text = fs::read_to_string(&from).with_context(|| format!("cannot read {}", from.display()))?;
        let written = || format!("cannot write {}", to.display());
        fs::create_dir_all(to.parent().unwrap_or(new)).with_context(written)?;
        fs::write(&to, name.rename(&text)).with_context(written)?;
    }
    Ok(())
}

/// Returns all files below a folder, with relative paths, sorted.
fn files(dir: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut folders = vec![PathBuf::new()];
    while let Some(folder) = folders.pop() {
        let here = dir.join(&folder);
        for entry in fs::read_dir(&here).with_context(|| format!("cannot read {}", here.display()))? {
            let entry = entry?;
            let path = folder.join(entry.file_name());
            if entry.file_type()?.is_dir() { folders.push(path) } else { found.push(path) }
        }
    }
    found.sort();
    Ok(found)
}
