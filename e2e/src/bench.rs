//! The benchmark at full size: real etcd and kube-apiserver, a simulated cloud with latency, and the processes of the chart.
//!
//! Each scenario is a file. It performs an action on the `Stage`, and a pure function checks the cost. `result` contains the measurements
//! as data, from which `page` renders the documentation. All scenarios share one set-up and run in the order of [`Scenario`]. If a single
//! scenario is selected, its cluster grows to full size at once.

mod causes;
mod crowd;
mod fleet;
mod growth;
mod join;
mod leave;
mod listings;
mod machine;
mod memory;
mod numbers;
mod one_more;
mod page;
mod progress;
mod replicas;
mod restart;
mod result;
mod routes;
mod seen;
mod stage;
mod steady;
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

/// The exit code after an interruption by the user, the same as in shells.
const INTERRUPTED: u8 = 130;
/// The page that is rendered from the results, relative to the root of the repository.
const PAGE: &str = "docs/benchmarks.md";

/// Runs the benchmark, or writes the page. Leaves no process running.
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
    // Building the tools takes minutes. Signals are caught only after the build, so that Ctrl-C ends the build at once.
    let tools = crate::tools().context("cannot get etcd, kube-apiserver, kubectl and helm")?;
    let mut signals = Signals::catch()?;
    let progress = Progress::begin();
    // The recorded command leaves out the path of the JSON file, which does not affect the results.
    let flags = Args { json: None, ..args.clone() }.to_flags();
    let flags = flags.iter().map(|it| it.to_string_lossy().into_owned()).collect::<Vec<_>>();
    let command = format!("cargo xtask bench scale {}", flags.join(" "));
    let mut report = Report { machine: Machine::of_here(), command, size, ..Report::default() };
    let peers: &[Who] = if args.peer { &[Who::PeerConcurrent, Who::Peer] } else { &[] };
    let mut done = Some(Ok(()));
    for &who in [Who::Ours].iter().chain(peers) {
        progress.say(&format!("==> {}", who.words()));
        let mut stage = None;
        done = tokio::select! {
            done = Box::pin(measure(&tools, args, &mut report, &mut stage, progress, who)) => Some(done),
            () = signals.next() => None,
        };
        progress.say("stopping everything");
        if let Some(stage) = stage {
            tokio::select! {
                closed = stage.close() => closed?,
                // If this future is dropped half-way, dropping the stage kills the remaining processes.
                () = signals.next() => (),
            }
        }
        if !matches!(done, Some(Ok(()))) {
            break;
        }
    }
    write(&report, args.json.as_deref())?;
    match done {
        None => Ok(ExitCode::from(INTERRUPTED)),
        Some(Err(error)) => Err(error),
        // A target that only the peer (another cloud controller manager) misses is reported, but the run does not fail.
        Some(Ok(())) if report.rows.iter().filter(|it| it.who == Who::Ours).all(Row::is_met) => {
            Ok(ExitCode::SUCCESS)
        }
        Some(Ok(())) => Ok(ExitCode::FAILURE),
    }
}

/// Runs the scenarios one after the other. A failed scenario is reported and ends the run, because later scenarios would start from another
/// state.
async fn measure(
    tools: &Tools,
    args: &Args,
    report: &mut Report,
    stage: &mut Option<Stage>,
    progress: Progress,
    who: Who,
) -> anyhow::Result<()> {
    for scenario in args.wanted().into_iter().filter(|it| is_of(*it, who)) {
        Box::pin(prepare(tools, report.size, who, scenario, progress, stage)).await?;
        let stage = stage.as_mut().context("no cluster was started")?;
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
        progress.say(&page::summary(&row));
        report.rows.push(row);
        if failed.is_some() {
            break;
        }
    }
    Ok(())
}

/// Provides the cluster for a scenario: the cluster of the previous scenario, or a separate cluster if the scenario needs one.
async fn prepare(
    tools: &Tools,
    size: Size,
    who: Who,
    scenario: Scenario,
    progress: Progress,
    slot: &mut Option<Stage>,
) -> anyhow::Result<()> {
    let own = scenario == Scenario::Replicas;
    if own && let Some(stage) = slot.take() {
        progress.step("stopping the shared cluster", stage.close()).await?;
    }
    if slot.is_none() {
        let started = if own {
            progress.step("starting a cluster with replicas", replicas::start(tools, size, progress)).await?
        } else {
            progress.step("starting the cluster", Stage::start(tools, size, who, progress)).await?
        };
        *slot = Some(started);
    }
    let stage = slot.as_mut().context("no cluster was started")?;
    if matches!(scenario, Scenario::Join | Scenario::Growth) {
        return Ok(());
    }
    stage.grow(stage.size.nodes, stage.size.services.max(stage.services.len())).await
}

/// Whether a scenario applies to the measured system. The peer is one process without an adapter, and is measured at one size only.
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

/// Writes the tables to standard output and the complete results to the file.
fn write(report: &Report, json: Option<&Path>) -> anyhow::Result<()> {
    let tables = page::tables(std::slice::from_ref(report));
    io::stdout().write_all(tables.as_bytes()).context("cannot write to standard output")?;
    let Some(path) = json else { return Ok(()) };
    let text = serde_json::to_string_pretty(report)?;
    fs::write(path, text + "\n").with_context(|| format!("cannot write {}", path.display()))
}

/// Writes the page from the last measurement of each scenario and measured system.
fn write_page(files: &[PathBuf]) -> anyhow::Result<ExitCode> {
    let read = |path: &PathBuf| {
        let text = fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        serde_json::from_str::<Report>(&text).with_context(|| {
            format!("{} is not a result of `cargo xtask bench scale --json`", path.display())
        })
    };
    let reports = files.iter().map(read).collect::<anyhow::Result<Vec<_>>>()?;
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let to = root.parent().unwrap_or(root).join(PAGE);
    fs::write(&to, page::page(&reports)).with_context(|| format!("cannot write {}", to.display()))?;
    Ok(ExitCode::SUCCESS)
}
