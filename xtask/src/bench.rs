//! `cargo xtask bench`: measures figures with bounds, and figures for comparison. Each crate prints its figures from its own benchmark;
//! this command collects them in one table. The benchmark of a whole cluster is a separate program.

mod scale;

use std::io::{self, Write};
use std::process::{Command, Stdio};

use anyhow::{Context, bail};
use clap::Subcommand;
use test_support::bench::{Row, Verdict};

use crate::cargo;
use crate::step::say;

#[derive(Debug, clap::Args)]
#[command(
    about = "Measures figures with bounds, and figures for comparison",
    long_about = "Measures figures with bounds, and figures for comparison.\n\nBuilds for release. \
    Progress goes to standard error, the table to standard output. The figures depend \
    on this computer, so run nothing else at the same time.",
    after_help = "Exit codes:\n  0  all figures are within their bounds\n  1  a figure is outside of its bound, or a benchmark \
                  failed; the table shows the figure"
)]
pub(crate) struct Args {
    /// What to measure
    #[command(subcommand)]
    subject: Subject,
}

#[derive(Debug, Subcommand)]
enum Subject {
    /// The runtime of adapters: memory and speed
    Runtime,
    // The scale benchmark prints its own help.
    Scale(scale::Args),
}

/// The packages whose benchmarks measure the runtime, in the order in which their rows are printed.
const RUNTIME: [&str; 2] = ["cloud-budget", "adapter-sim"];

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    match &args.subject {
        Subject::Runtime => runtime(),
        Subject::Scale(args) => scale::run(args),
    }
}

fn runtime() -> anyhow::Result<()> {
    let mut rows = Vec::new();
    let mut failed = Vec::new();
    for package in RUNTIME {
        say(&format!("\n==> {package}"));
        match measure(package, "runtime") {
            Ok(more) => rows.extend(more),
            Err(error) => failed.push(format!("{package}: {error:#}")),
        }
    }
    io::stdout()
        .write_all(test_support::bench::table(&rows).as_bytes())
        .context("cannot write to standard output")?;
    judge(&rows, &failed)
}

/// Runs one benchmark and collects its rows. Prints its other output at once.
fn measure(package: &str, bench: &str) -> anyhow::Result<Vec<Row>> {
    let output = Command::new(cargo::program())
        .args(["bench", "--quiet", "--package", package, "--bench", bench])
        .current_dir(cargo::root())
        .stderr(Stdio::inherit())
        .output()
        .context("cannot start cargo")?;
    let text = String::from_utf8_lossy(&output.stdout);
    let (mut rows, mut others) = (Vec::new(), Vec::new());
    for line in text.lines() {
        match line.parse() {
            Ok(row) => rows.push(row),
            Err(test_support::bench::NotARow) => others.push(line),
        }
    }
    others.into_iter().for_each(say);
    if !output.status.success() {
        bail!("the benchmark ended with {}; see its output above", output.status);
    }
    if rows.is_empty() {
        bail!("the benchmark printed no figures");
    }
    Ok(rows)
}

fn judge(rows: &[Row], failed: &[String]) -> anyhow::Result<()> {
    let missed = rows.iter().filter(|row| row.verdict == Verdict::Missed).count();
    match (missed, failed) {
        (0, []) => Ok(()),
        (0, failed) => bail!("{}", failed.join("; ")),
        (missed, []) => bail!("{missed} of {} figures are outside of their bounds", rows.len()),
        (missed, failed) => {
            bail!("{missed} of {} figures are outside of their bounds; {}", rows.len(), failed.join("; "))
        }
    }
}

#[cfg(test)]
mod tests {
    use test_support::bench::Row;

    use super::judge;

    #[test]
    fn only_a_missed_bound_or_a_failed_bench_is_an_error() {
        let told = Row::told("P3", "wait", "486 s");
        let met = told.clone().promised("<= 500 s", true);
        let missed = told.clone().promised("<= 0.5 s", false);
        assert!(judge(&[told, met.clone()], &[]).is_ok());
        let error = judge(&[met.clone(), missed], &[]).unwrap_err();
        assert_eq!(error.to_string(), "1 of 2 figures are outside of their bounds");
        let error = judge(&[met], &["a: cannot start cargo".to_owned()]).unwrap_err();
        assert_eq!(error.to_string(), "a: cannot start cargo");
    }
}
