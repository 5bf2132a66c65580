//! The demo: shows the main functions on a real control plane, step by step.
//!
//! `play` performs the steps and emits `Report`s; `narration` and serde only render reports as text or JSON. `play/` has one function per
//! step. There are no fixed waiting times: each step polls until its result is visible, and fails at its deadline with the last
//! observation.

mod cloud;
mod cost;
mod facts;
mod keeper;
mod narration;
mod play;
mod report;
mod stage;
mod teller;

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
use report::{Report, Stay};
use stage::Stage;
use teller::Teller;

/// The exit code after an interruption by the user, the same as in shells.
const INTERRUPTED: u8 = 130;

/// Plays all steps, waits for the user if requested, and stops all processes.
pub async fn run(args: &Args) -> anyhow::Result<ExitCode> {
    // Building the tools takes minutes, and Ctrl-C ends the build at once: signals are caught only after it.
    let tools = crate::tools().context("cannot get etcd, kube-apiserver, kubectl and helm")?;
    let mut signals = Signals::catch()?;
    let teller = Teller::new(args.json);
    // The set-up of the project is not interrupted, because parts of the project would be left behind.
    let project = match args.cloud {
        Cloud::Sim => None,
        Cloud::Openstack => Some(Arc::new(Project::make().await?)),
    };
    let (code, stage) = show(args, (&tools, project.clone()), &teller, &mut signals).await;
    if stage.is_none() && project.is_none() {
        return Ok(code);
    }
    teller.tell(&Report::CleanUp);
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

/// Plays until the end or until the user interrupts. Returns the processes that still run.
async fn show(
    args: &Args,
    (tools, project): (&Tools, Option<Arc<Project>>),
    teller: &Teller,
    signals: &mut Signals,
) -> (ExitCode, Option<Stage>) {
    let mut stage = None;
    let mut play = Play::new(teller, args.nodes, args.observe);
    let passed = tokio::select! {
        passed = play.all(tools, project, &mut stage) => passed,
        () = signals.next() => return (ExitCode::from(INTERRUPTED), stage),
    };
    play.sum_up();
    if let Some(stage) = stage.as_mut() {
        if !passed {
            stage.keep_logs();
        }
        if !args.once {
            teller.tell(&Report::Stay(Stay::at(stage, tools)));
            tokio::select! {
                () = Keeper::new().keep(stage, teller) => (),
                () = signals.next() => (),
            }
        }
    }
    (if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE }, stage)
}
