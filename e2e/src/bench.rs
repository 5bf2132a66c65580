//! The benchmark at full size: real etcd and kube-apiserver, a simulated cloud whose answers take their time, the chart's processes.
//!
//! Each scenario is a file: it does something to the `Stage`, and a pure function judges what that took. `result` is
//! what was measured as data, of which the `table` and the `page` in the docs are made. One set-up serves all scenarios, in the order of
//! [`Scenario`]; who asks for one gets it on a cluster that was grown in one go.

mod beside;
mod causes;
mod crowd;
mod fleet;
mod growth;
mod join;
mod leave;
mod listings;
mod machine;
mod memory;
mod one_more;
mod page;
mod profile;
mod progress;
mod replicas;
mod restart;
mod result;
mod routes;
mod seen;
mod stage;
mod steady;
mod table;
mod throttled;

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use e2e_tools::Tools;

pub use e2e_tools::bench::{Args, Scenario};

use crate::signals::Signals;

use machine::Machine;
use progress::Progress;
use result::{Report, Row, Size, Who};
use stage::Stage;

/// Somebody ended it before its last scenario: what shells say of a program that was interrupted.
const INTERRUPTED: u8 = 130;
/// What is made of the results, from the root of the repository.
const PAGE: &str = "docs/benchmarks.md";

/// Measures what is asked for, or writes the page, and leaves nothing running.
///
/// # Errors
/// When nothing could be measured at all, or a file cannot be read or written.
pub async fn run(args: &Args) -> anyhow::Result<ExitCode> {
    if !args.write_docs.is_empty() {
        return write_page(&args.write_docs);
    }
    let size = Size {
        nodes: args.nodes.into(),
        services: args.services.into(),
        members: args.members.min(args.nodes).into(),
        seconds: args.seconds.into(),
    };
    // Building them takes minutes, and Ctrl-C ends that at once: signals are caught from here on only.
    let tools = crate::tools().context("cannot get etcd, kube-apiserver, kubectl and helm")?;
    let mut signals = Signals::catch()?;
    let progress = Progress::begin();
    // Where the results go is nothing that they depend on.
    let flags =
        Args { json: None, profile: args.profile.as_ref().map(|_| "DIR".into()), ..args.clone() }.to_flags();
    let flags = flags.iter().map(|it| it.to_string_lossy().into_owned()).collect::<Vec<_>>();
    let command = format!("cargo xtask bench scale {}", flags.join(" "));
    let mut report = Report { machine: Machine::of_here(), command, size, ..Report::default() };
    let peers: &[Who] = if args.peer { &[Who::PeerConcurrent, Who::Peer] } else { &[] };
    let mut done = Some(Ok(()));
    for &who in [Who::Ours].iter().chain(peers) {
        progress.say(&format!("==> {}", who.words()));
        let mut stage = None;
        done = tokio::select! {
            done = Box::pin(measure(&tools, args, (&mut report, &mut stage), (progress, who))) => Some(done),
            () = signals.next() => None,
        };
        progress.say("everything is being stopped");
        if let Some(stage) = stage {
            tokio::select! {
                closed = stage.close() => closed?,
                // Dropped half-way, it kills what is left.
                () = signals.next() => (),
            }
        }
        if !matches!(done, Some(Ok(()))) {
            break;
        }
    }
    report.beside = beside::compared_in(&report.rows);
    tell(&report, args.json.as_deref())?;
    match done {
        None => Ok(ExitCode::from(INTERRUPTED)),
        Some(Err(error)) => Err(error),
        // What the peer misses is told and no failure of ours.
        Some(Ok(())) if report.rows.iter().filter(|it| it.who == Who::Ours).all(Row::is_met) => {
            Ok(ExitCode::SUCCESS)
        }
        Some(Ok(())) => Ok(ExitCode::FAILURE),
    }
}

/// One scenario after the other. One that fails is told, and ends it: what comes after would be measured on something else.
async fn measure(
    tools: &Tools,
    args: &Args,
    (report, stage): (&mut Report, &mut Option<Stage>),
    (progress, who): (Progress, Who),
) -> anyhow::Result<()> {
    for scenario in args.wanted().into_iter().filter(|it| is_of(*it, who)) {
        Box::pin(prepare(tools, (report.size, who), (scenario, &args.profile), (progress, stage))).await?;
        let stage = stage.as_mut().context("there is no cluster")?;
        let name = scenario.name();
        let load = machine::load();
        progress.say(&name);
        let row = match one(scenario, stage).await {
            Ok(row) => Row { scenario: name, load, who, ..row },
            Err(error) => {
                stage.keep_logs();
                let failed = Some(format!("{error:#}"));
                Row { title: name.clone(), scenario: name, load, who, failed, ..Row::default() }
            }
        };
        let row = Row { size: (stage.size != report.size).then_some(stage.size), ..row };
        let failed = row.failed.clone();
        progress.say(&table::lines(&row));
        report.rows.push(row);
        if failed.is_some() {
            break;
        }
    }
    Ok(())
}

/// The cluster for a scenario: that of the one before, unless it needs one of its own.
async fn prepare(
    tools: &Tools,
    (size, who): (Size, Who),
    (scenario, profile): (Scenario, &Option<PathBuf>),
    (progress, slot): (Progress, &mut Option<Stage>),
) -> anyhow::Result<()> {
    let own = scenario == Scenario::Replicas;
    if own && let Some(stage) = slot.take() {
        progress.told("the cluster of the others is stopped", stage.close()).await?;
    }
    if slot.is_none() {
        let started = if own {
            progress.told("a cluster with replicas starts", replicas::start(tools, size, progress)).await?
        } else {
            progress.told("the cluster starts", Stage::start(tools, (size, who), progress)).await?
        };
        *slot = Some(started);
    }
    let stage = slot.as_mut().context("there is no cluster")?;
    stage.profile.clone_from(profile);
    if matches!(scenario, Scenario::Join | Scenario::Growth) {
        return Ok(());
    }
    stage.grow(stage.size.nodes, stage.size.services.max(stage.services.len())).await
}

/// The peer has no adapter, and is no three processes; how it grows is seen by its figures at one size.
fn is_of(scenario: Scenario, who: Who) -> bool {
    use Scenario::{AdapterRestart, Growth, Replicas, Restart};
    who == Who::Ours || !matches!(scenario, Growth | Restart | AdapterRestart | Replicas)
}

async fn one(scenario: Scenario, stage: &mut Stage) -> anyhow::Result<Row> {
    match scenario {
        Scenario::Join => join::measure(stage).await,
        Scenario::Growth => growth::measure(stage).await,
        Scenario::Routes => routes::measure(stage).await,
        Scenario::Steady => steady::measure(stage).await,
        Scenario::NotReady => steady::not_ready(stage).await,
        Scenario::OneMore => one_more::measure(stage).await,
        Scenario::Leave => leave::measure(stage).await,
        Scenario::Crowd => crowd::measure(stage).await,
        Scenario::Restart => restart::controllers(stage).await,
        Scenario::AdapterRestart => restart::adapter(stage).await,
        Scenario::Throttled => throttled::measure(stage).await,
        Scenario::Replicas => replicas::measure(stage).await,
    }
}

/// The table to standard output, everything to the file.
fn tell(report: &Report, json: Option<&Path>) -> anyhow::Result<()> {
    io::stdout().write_all(table::table(report).as_bytes()).context("cannot write to standard output")?;
    let Some(path) = json else { return Ok(()) };
    let text = serde_json::to_string_pretty(report)?;
    fs::write(path, text + "\n").with_context(|| format!("cannot write {}", path.display()))
}

/// The last measurement of each scenario, by whom.
fn write_page(files: &[PathBuf]) -> anyhow::Result<ExitCode> {
    let read = |path: &PathBuf| {
        let text = fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        serde_json::from_str::<Report>(&text)
            .with_context(|| format!("{} is no result of `cargo xtask bench scale --json`", path.display()))
    };
    let reports = files.iter().map(read).collect::<anyhow::Result<Vec<_>>>()?;
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let to = root.parent().unwrap_or(root).join(PAGE);
    fs::write(&to, page::page(&reports)).with_context(|| format!("cannot write {}", to.display()))?;
    Ok(ExitCode::SUCCESS)
}
