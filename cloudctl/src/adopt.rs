//! `cloudctl adopt`: shows what another cloud controller manager left, and what a takeover would change. If the takeover would change
//! nothing, the switch is safe.

pub(crate) mod former;
mod table;
#[cfg(test)]
mod tests;
mod writes;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use telemetry::report::VendorStep;

pub(crate) use self::former::is_uninitialised;
pub use self::former::{Former, FormerLease};
use crate::{
    missing::Missing,
    options::{Common, Component},
    plan::{
        Planned, Planner,
        gather::{self, Gathered},
    },
    session::{Session, Usage},
};

/// The changes that a takeover would make.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AdoptReport {
    /// Time at which the status pages were read.
    pub at: Timestamp,
    /// Set if all status pages and plans were complete, and nothing in the cluster would be replaced or removed. In the cloud, only
    /// ownership marks may change.
    pub safe: bool,
    /// Set if the controllers already run without `--dry-run`, and no other cloud controller manager runs.
    pub nothing_to_adopt: bool,
    /// Why the takeover is not known to be safe, one line for each reason.
    pub doubts: Vec<String>,
    /// What another cloud controller manager left in the cluster.
    pub former: Former,
    /// The replicas whose plans were read.
    pub planners: Vec<Planner>,
    /// The planned changes.
    pub changes: Vec<Change>,
    /// The values that would be written in the cluster where no value is set yet.
    pub additions: Vec<Change>,
    /// Number of marks that would be set: tags, names and descriptions that show the ownership of this cluster.
    pub marks: u64,
    /// All planned actions by object, including marks and writes to the API server.
    pub objects: Vec<Planned>,
    /// What could not be read.
    pub missing: Vec<Missing>,
}

/// A change to an existing state.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Change {
    /// The controller, such as `service-controller`.
    pub controller: String,
    /// The kind of the object that the change is for.
    pub kind: String,
    /// The key of the object.
    pub key: String,
    /// A description of the change.
    pub what: String,
    /// The vendor's operation. `None`: the change is made in the cluster.
    pub operation: Option<String>,
}

pub(crate) async fn read(common: &Common, now: Timestamp) -> Result<AdoptReport, Usage> {
    let mut session = Session::open(common, &Component::CONTROLLERS, now).await?;
    let gathered = gather::all(&mut session).await;
    let (former, lacking) = match &session.cluster {
        Some(cluster) => former::read(cluster, now).await,
        None => (Former::unread("not connected to the API server"), Vec::new()),
    };
    session.missing.extend(lacking);
    let missing = session.lacks();
    Ok(report(now, gathered, former, missing))
}

fn report(now: Timestamp, gathered: Gathered, former: Former, missing: Vec<Missing>) -> AdoptReport {
    let Gathered { planners, objects, gaps } = gathered;
    let steps = objects.iter().flat_map(|it| &it.what.vendor);
    let marks = u64::try_from(steps.filter(|step| is_mark(step)).count()).unwrap_or(u64::MAX);
    let (mut changes, mut additions) = (Vec::new(), Vec::new());
    for planned in &objects {
        let vendor = planned.what.vendor.iter().filter(|step| !is_mark(step));
        changes.extend(vendor.map(|step| change(planned, &step.description, Some(&step.operation))));
        for (line, adds) in writes::of(&planned.what.cluster) {
            let list = if adds { &mut additions } else { &mut changes };
            list.push(change(planned, line, None));
        }
    }
    let nothing_to_adopt = !planners.is_empty() && !planners.iter().any(|it| it.dry_run) && !former.runs();
    let mut doubts = [gaps, doubts(&planners, &objects, &changes, &missing)].concat();
    if nothing_to_adopt {
        doubts.clear();
    }
    let safe = doubts.is_empty() && !nothing_to_adopt;
    AdoptReport {
        at: now,
        safe,
        nothing_to_adopt,
        doubts,
        former,
        planners,
        changes,
        additions,
        marks,
        objects,
        missing,
    }
}

/// Whether a step only marks ownership by tags, a name or a description. Steps are recognised by the texts of this repository's drivers
/// (`adapters/*/src/step.rs`); a text of another adapter counts as a change.
fn is_mark(step: &VendorStep) -> bool {
    let marks = ["tag ", "rename ", "describe "].iter().any(|word| step.description.starts_with(word));
    marks && step.operation.starts_with("Update")
}

fn change(planned: &Planned, what: &str, operation: Option<&str>) -> Change {
    Change {
        controller: planned.controller.clone(),
        kind: planned.what.kind.clone(),
        key: planned.what.key.clone(),
        what: what.to_owned(),
        operation: operation.map(str::to_owned),
    }
}

fn doubts(planners: &[Planner], objects: &[Planned], changes: &[Change], missing: &[Missing]) -> Vec<String> {
    let mut all = Vec::new();
    if planners.is_empty() {
        all.push("no plan was read".to_owned());
    }
    for it in planners {
        let name = format!("{} {}", it.controller, it.process);
        if !it.dry_run {
            all.push(format!(
                "{name}: already runs without --dry-run, so its plan shows only the remaining \
                changes; `adopt` is for a dry run (--set dryRun=true) before that"
            ));
        }
        if !it.is_complete() {
            all.push(format!(
                "{name}: has reconciled {} of {} objects so far: try again later",
                it.looked_at, it.of
            ));
        }
    }
    if !changes.is_empty() {
        let plural = if changes.len() == 1 { "thing" } else { "things" };
        all.push(format!("{} {plural} would change", changes.len()));
    }
    let in_trouble = objects.iter().filter_map(|it| Some((&it.what, it.what.trouble.as_ref()?)));
    all.extend(in_trouble.map(|(it, words)| format!("{} {}: {words}", it.kind, it.key)));
    if !missing.is_empty() {
        all.push("some pages or objects could not be read".to_owned());
    }
    all
}
