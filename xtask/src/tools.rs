//! `cargo xtask tools`: installs the programs of a control plane, and prints their paths.

use std::io::{self, Write};

use anyhow::Context;
use e2e_tools::{Environment, Found, Terminal, Tools};
use serde_json::{Value, json};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Print one JSON object instead of lines
    #[arg(long)]
    json: bool,
    /// Print the reason why a program was rejected
    #[arg(long, short)]
    verbose: bool,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let tools = get(args.verbose)?;
    let text = if args.json { json(&tools) } else { lines(&tools) };
    writeln!(io::stdout(), "{text}").context("cannot write to standard output")
}

/// Finds or builds the programs, with progress on standard error.
pub(crate) fn get(verbose: bool) -> anyhow::Result<Tools> {
    let environment = Environment::of_this_process()?;
    let mut progress = if verbose { Terminal::with_notes() } else { Terminal::new() };
    Ok(Tools::get(&environment, &mut progress)?)
}

fn lines(tools: &Tools) -> String {
    let line = |found: &Found| {
        format!("{:<15} {:<9} {:<19} {}", found.tool, found.version, found.origin, found.path.display())
    };
    tools.all().map(line).join("\n")
}

fn json(tools: &Tools) -> String {
    let member = |found: &Found| {
        let about = json!({ "path": found.path, "version": found.version.to_string(), "origin": found.origin.to_string() });
        (found.tool.name().to_owned(), about)
    };
    Value::Object(tools.all().map(member).into_iter().collect()).to_string()
}
