//! The demo: the main job, end to end, on a real control plane, told step by step.
//!
//! `play` does things and hands over what happened as a `Report`; `narration` and serde turn reports into text,
//! and do nothing else. `play/` has one function a step. Nothing waits a fixed time: each step looks until it sees what it
//! promised, and fails at its deadline with what it saw instead.

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

/// Somebody ended it before its last step: what shells say of a program that was interrupted.
const INTERRUPTED: u8 = 130;

/// Plays, stays if it is to stay, and leaves nothing running.
///
/// # Errors
/// When nothing could be played at all.
pub async fn run(args: &Args) -> anyhow::Result<ExitCode> {
    // Building them takes minutes, and Ctrl-C ends that at once: signals are caught from here on only.
    let tools = crate::tools().context("cannot get etcd, kube-apiserver, kubectl and helm")?;
    let mut signals = Signals::catch()?;
    let teller = Teller::new(args.json);
    // Not cut short: what is half-made would stay.
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
        // Dropped half-way, it kills what is left.
        () = signals.next() => (),
    }
    Ok(code)
}

/// Who works in the project ends before it.
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

/// Until the end, or until somebody has seen enough. What still runs is returned.
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
