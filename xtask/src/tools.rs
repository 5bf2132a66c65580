//! `cargo xtask tools`: installs the programs of a control plane, and prints their paths.

use std::io::{self, Write};

use anyhow::Context;
use e2e_tools::{Environment, Found, Terminal, Tools};

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

/// Formats JSON by hand: this is the only JSON that xtask writes, and xtask should build quickly.
fn json(tools: &Tools) -> String {
    let member = |found: &Found| {
        format!(
            "{}:{{\"path\":{},\"version\":{},\"origin\":{}}}",
            quoted(found.tool.name()),
            quoted(&found.path.to_string_lossy()),
            quoted(&found.version.to_string()),
            quoted(&found.origin.to_string()),
        )
    };
    format!("{{{}}}", tools.all().map(member).join(","))
}

fn quoted(text: &str) -> String {
    let mut json = String::from('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => json.extend(['\\', c]),
            c if c.is_control() => json.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => json.push(c),
        }
    }
    json.push('"');
    json
}

#[cfg(test)]
mod tests {
    use super::quoted;

    #[test]
    fn json_strings_are_escaped() {
        assert_eq!(quoted("/a \"b\"\\c\n"), r#""/a \"b\"\\c\u000a""#);
    }
}
