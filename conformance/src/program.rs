//! The program: reads flags, writes reports, and returns an exit code.

use std::{
    fs,
    io::{self, Write as _},
    path::Path,
    process::ExitCode,
    sync::Arc,
};

use anyhow::Context as _;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::{
    checks,
    options::Options,
    report::{Report, json::json, junit::junit, progress::Terminal, table::table},
    run::{RunError, run},
};

const WRONG_USAGE: u8 = 2;
/// Exit code after Ctrl-C: by convention, 128 plus the number of SIGINT.
const INTERRUPTED: u8 = 130;

/// Runs the suite with these flags. Writes errors to standard error.
pub async fn main(options: Options) -> ExitCode {
    match answer(&options).await {
        Ok(code) => code,
        Err(error) => {
            let usage = error.downcast_ref::<RunError>().is_none_or(RunError::is_usage);
            io::stderr().write_all(format!("error: {error:#}\n").as_bytes()).unwrap_or_default();
            ExitCode::from(if usage { WRONG_USAGE } else { 1 })
        }
    }
}

async fn answer(options: &Options) -> anyhow::Result<ExitCode> {
    let selection = options.selection();
    if options.choice.list {
        let chosen = selection.checks()?;
        if chosen.is_empty() {
            return Err(RunError::NoCheck.into());
        }
        print(&list(&chosen))?;
        return Ok(ExitCode::SUCCESS);
    }
    let params = options.params()?;
    writable("--junit", options.output.junit.as_deref())?;
    writable("--json", options.output.json.as_deref())?;
    let stop = CancellationToken::new();
    let limit = options.choice.timeout;
    // The run uses one listener for the first and the second Ctrl-C, because a signal between two listeners would be lost.
    let mut interrupts = signal(SignalKind::interrupt()).context("cannot listen for Ctrl-C")?;
    let (report, interrupted) = {
        let running = run(params, &selection, Arc::new(Terminal::new()), stop.clone());
        let mut running = std::pin::pin!(running);
        tokio::select! {
            report = running.as_mut() => (report?, false),
            () = asked_to_end(limit, &mut interrupts) => {
                stop.cancel();
                let text = "ending early: deleting the objects that the checks created; press Ctrl-C \
                again to end at once\n";
                io::stderr().write_all(text.as_bytes()).unwrap_or_default();
                tokio::select! {
                    report = running.as_mut() => (report?, true),
                    _ = interrupts.recv() => return Ok(ExitCode::from(INTERRUPTED)),
                }
            }
        }
    };
    finish(options, &report)?;
    Ok(match (interrupted, report.passed()) {
        (true, _) => ExitCode::from(INTERRUPTED),
        (false, true) => ExitCode::SUCCESS,
        (false, false) => ExitCode::FAILURE,
    })
}

/// Returns on SIGINT, on SIGTERM, or after the time limit.
async fn asked_to_end(limit: Option<std::time::Duration>, interrupts: &mut Signal) {
    let late = async {
        match limit {
            Some(limit) => tokio::time::sleep(limit).await,
            None => std::future::pending().await,
        }
    };
    let terminate = async {
        match signal(SignalKind::terminate()) {
            Ok(mut signal) => signal.recv().await.unwrap_or_default(),
            Err(_) => std::future::pending().await,
        }
    };
    tokio::select! {
        () = late => (),
        _ = interrupts.recv() => (),
        () = terminate => (),
    }
}

fn finish(options: &Options, report: &Report) -> anyhow::Result<()> {
    let all = checks::all();
    print(&table(report, &all))?;
    if let Some(path) = &options.output.junit {
        write("--junit", path, &junit(report)?)?;
    }
    if let Some(path) = &options.output.json {
        write("--json", path, &format!("{:#}\n", json(report, &all)))?;
    }
    Ok(())
}

fn list(chosen: &[crate::check::Check]) -> String {
    let lines = chosen.iter().map(|check| {
        let needs: Vec<String> = check.needs.iter().map(ToString::to_string).collect();
        let needs = if needs.is_empty() { String::new() } else { format!(" [{}]", needs.join(", ")) };
        let gated = if check.standing == crate::check::Standing::Mandatory { "M" } else { "C" };
        format!("{:7} {} {gated} {}{needs}\n", check.id, check.tier, check.name)
    });
    lines.collect()
}

fn print(text: &str) -> anyhow::Result<()> {
    io::stdout().write_all(text.as_bytes()).context("cannot write to standard output")
}

/// Checks before the run that the report can be written after the run. Leaves an existing file unchanged, and leaves no new file behind.
fn writable(flag: &str, path: Option<&Path>) -> anyhow::Result<()> {
    let Some(path) = path else { return Ok(()) };
    let new = !path.exists();
    let opened = fs::OpenOptions::new().append(true).create(true).open(path).map(drop);
    let tried = opened.and_then(|()| if new { fs::remove_file(path) } else { Ok(()) });
    tried.with_context(|| format!("{flag} {}", path.display()))
}

fn write(flag: &str, path: &Path, text: &str) -> anyhow::Result<()> {
    fs::write(path, text).with_context(|| format!("{flag} {}", path.display()))
}
