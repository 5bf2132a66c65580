//! The demo: shows the main functions on a real control plane, step by step.
//!
//! `play` contains the order of the steps, and `steps` contains one function for each step. Each step polls until its result is visible;
//! there are no fixed waiting times. `report` renders what happens as text or JSON.

mod cloud;
mod cost;
mod facts;
mod keeper;
mod play;
mod report;
mod set_up;
mod stage;
mod steps;

use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context;
use e2e_tools::Tools;
use e2e_tools::demo::Cloud;

pub use e2e_tools::demo::Args;

use crate::openstack::Project;
use crate::signals::Signals;
use keeper::Keeper;
use play::Play;
use report::{Output, Report};
use stage::Stage;

/// The exit code after an interruption by the user, the same as in shells.
const INTERRUPTED: u8 = 130;

/// Plays all steps, waits for the user if requested, and stops all processes.
pub async fn run(args: &Args) -> anyhow::Result<ExitCode> {
    // Building the tools takes minutes. Signals are caught only after the build, so that Ctrl-C ends the build at once.
    let tools = crate::tools().context("cannot get etcd, kube-apiserver, kubectl and helm")?;
    let mut signals = Signals::catch()?;
    let output = Output { json: args.json };
    // Ctrl-C does not interrupt the set-up of the OpenStack project, because an interruption would leave parts of the project behind.
    let project = match args.cloud {
        Cloud::Sim => None,
        Cloud::Openstack => Some(Arc::new(Project::make().await?)),
    };
    let mut stage = None;
    let code = show(args, &tools, project.clone(), &mut stage, &mut signals).await;
    if stage.is_none() && project.is_none() {
        return Ok(code);
    }
    output.print(&Report::CleanUp);
    tokio::select! {
        closed = close(stage, project) => closed?,
        // If this future is dropped half-way, dropping the stage kills the remaining processes.
        () = signals.next() => (),
    }
    Ok(code)
}

/// Stops the processes that use the project, before the project is removed.
async fn close(stage: Option<Stage>, project: Option<Arc<Project>>) -> anyhow::Result<()> {
    let closed = match stage {
        None => Ok(()),
        Some(stage) => stage.close().await,
    };
    if let Some(project) = project {
        project.remove().await?;
    }
    closed
}

/// Plays until the end or until the user interrupts. The processes in `stage` still run afterwards.
async fn show(
    args: &Args,
    tools: &Tools,
    project: Option<Arc<Project>>,
    stage: &mut Option<Stage>,
    signals: &mut Signals,
) -> ExitCode {
    let output = Output { json: args.json };
    let mut play = Play::new(output);
    let passed = tokio::select! {
        passed = play.all(args, tools, project, stage) => passed.is_some(),
        () = signals.next() => return ExitCode::from(INTERRUPTED),
    };
    output.print(&Report::Summary { steps: play.rows, passed });
    if let Some(stage) = stage {
        if !passed {
            stage.cluster.control_plane.keep_logs();
        }
        if !args.once {
            output.print(&Report::Stay(stage.stay(tools)));
            tokio::select! {
                () = Keeper::new().keep(stage) => (),
                () = signals.next() => (),
            }
        }
    }
    if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
