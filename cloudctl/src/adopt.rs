//! `cloudctl adopt`: what another cloud controller manager left, and what taking over would change. Nothing: the swap is safe.

mod former;
mod table;
#[cfg(test)]
mod tests;
mod writes;

use ::pages::report::VendorStep;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

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

/// What taking over would mean.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AdoptReport {
    /// When this was so.
    pub at: Timestamp,
    /// Nothing would change at the cloud but marks that say whose things are, nothing in the cluster would be replaced or removed, and
    /// everything was looked at.
    pub safe: bool,
    /// Why it is not known to be safe. A line each, for people.
    pub doubts: Vec<String>,
    /// What another cloud controller manager left in the cluster.
    pub former: Former,
    /// Whose plans these are.
    pub planners: Vec<Planner>,
    /// What would change.
    pub changes: Vec<Change>,
    /// What would be written in the cluster where nothing is yet.
    pub additions: Vec<Change>,
    /// How many marks would be set: tags, names and descriptions by which ours are known.
    pub marks: u64,
    /// What would be done, object by object, marks and writes to the API server included.
    pub objects: Vec<Planned>,
    /// What could not be read.
    pub missing: Vec<Missing>,
}

/// Something that would be another thing than before.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Change {
    /// Such as `service-controller`.
    pub controller: String,
    /// Of the object that it is done for.
    pub kind: String,
    /// Which object.
    pub key: String,
    /// In words.
    pub what: String,
    /// The vendor's operation. `None`: it is done in the cluster.
    pub operation: Option<String>,
}

/// Reads all plans, and looks for what was left.
pub(crate) async fn look(common: &Common, now: Timestamp) -> Result<AdoptReport, Usage> {
    let mut session = Session::open(common, &Component::CONTROLLERS, now).await?;
    let gathered = gather::all(&mut session).await;
    let (former, lacking) = match &session.cluster {
        Some(cluster) => former::look(cluster, now).await,
        None => (Former::unread("there is no way to the API server"), Vec::new()),
    };
    session.missing.extend(lacking);
    let missing = session.lacks();
    Ok(report(now, gathered, former, missing))
}

/// What comes of it.
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
    let doubts = [gaps, doubts(&planners, &objects, &changes, &missing)].concat();
    let safe = doubts.is_empty();
    AdoptReport { at: now, safe, doubts, former, planners, changes, additions, marks, objects, missing }
}

/// Whether a step only says whose a thing is: it sets tags, a name or a description. Known by the words of our drivers
/// (`adapters/*/src/step.rs`); what an adapter says in other words counts as a change.
fn is_mark(step: &VendorStep) -> bool {
    let marks = ["tag ", "call ", "describe "].iter().any(|word| step.description.starts_with(word));
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
        let who = format!("{} {}", it.controller, it.process);
        if !it.dry_run {
            all.push(format!("{who}: works already, so that its plan is what is left to do: install it with --set dryRun=true, before it works"));
        }
        if !it.is_complete() {
            all.push(format!("{who}: has looked at {} of {} objects so far: ask again", it.looked_at, it.of));
        }
    }
    if !changes.is_empty() {
        let plural = if changes.len() == 1 { "thing" } else { "things" };
        all.push(format!("{} {plural} would change", changes.len()));
    }
    let in_trouble = objects.iter().filter_map(|it| Some((&it.what, it.what.trouble.as_ref()?)));
    all.extend(in_trouble.map(|(it, words)| format!("{} {}: {words}", it.kind, it.key)));
    if !missing.is_empty() {
        all.push("not everything could be read".to_owned());
    }
    all
}
