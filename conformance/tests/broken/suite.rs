//! One run of the suite against one adapter.

use std::{collections::BTreeMap, path::Path, sync::Arc, time::Duration};

use adapter_conformance::sim::{Bucket, Plan, Setting};
use adapter_conformance::{
    Params, Selection,
    check::{Check, Need, Tier},
    checks,
    report::{Outcome, progress::Silent, table},
};
use tokio::{task, time::Instant};
use tokio_util::sync::CancellationToken;

use crate::table::{GOOD, Row};

/// Checks that run against every adapter, in addition to those in its row. They are the quick checks of each family, so that eighty
/// adapters take minutes. Excluded are checks that measure or wait for real time (pauses, horizons, outages, deadlines), use many objects,
/// create load balancers one after another, kill adapters, or need replicas or callers with identities.
const ALWAYS: [&str; 23] = [
    "ID-04", "ID-05", "ID-06", "ERR-01", "ERR-02", "ERR-03", "ERR-04", "ERR-07", "ERR-08", "INS-01",
    "INS-02", "INS-03", "INS-04", "INS-09", "INS-12", "LB-01", "LB-02", "LB-08", "LB-14", "LB-15", "RT-01",
    "RT-03", "RT-04",
];

/// A limit so low that calls which bypass the budget exceed it even on a busy host.
const SCARCE: Bucket = Bucket { rate: 1, burst: 20 };

/// Time limit of each check. It is short, because many checks wait in vain for a broken adapter.
const LIMIT: Duration = Duration::from_secs(40);

/// The entry that replaces the checks if the suite could not run.
const SETTING: &str = "the setting";

/// Time to recover. A broken adapter that does not recover within this time does not recover later either.
const HEAL: Duration = Duration::from_secs(8);

/// Which checks run in addition to those that must fail: the checks of [`ALWAYS`], or all checks of the first two tiers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Depth {
    Usual,
    Full,
}

#[derive(Debug)]
pub(crate) struct Seen {
    pub(crate) row: Row,
    /// The failed checks, each with its report.
    pub(crate) failed: BTreeMap<String, String>,
    /// Checks that should fail according to the table, but did not run.
    pub(crate) skipped: Vec<String>,
    pub(crate) took: Duration,
}

impl Seen {
    pub(crate) fn is_as_listed(&self) -> bool {
        let Row { fails, may_fail, .. } = &self.row;
        // The checks after the bar in a row (`fails_too`) do not count here, because test runs do not execute them.
        let expected = |id: &String| fails.contains(id) || may_fail.contains(id);
        fails.iter().all(|id| self.failed.contains_key(id)) && self.failed.keys().all(expected)
    }

    pub(crate) fn ran(&self) -> bool {
        !self.failed.contains_key(SETTING)
    }

    /// The row with the observed results.
    pub(crate) fn renewed(&self) -> Row {
        let surely = |id: &&String| !self.row.may_fail.contains(id);
        // If the row had no checks, all failed checks go before the bar.
        let first = self.row.fails.is_empty() && self.row.fault != GOOD;
        let each_time = |id: &String| first || ALWAYS.contains(&id.as_str()) || self.row.fails.contains(id);
        let (fails, fails_too) = self.failed.keys().filter(surely).cloned().partition(each_time);
        Row { fails, fails_too, ..self.row.clone() }
    }

    /// The differences, with the reports of the checks that should not have failed.
    pub(crate) fn difference(&self) -> String {
        let Self { row: Row { fault, fails, may_fail, .. }, failed, skipped, .. } = self;
        let missed: Vec<&String> = fails.iter().filter(|id| !failed.contains_key(*id)).collect();
        let more = failed.iter().filter(|(id, _)| !fails.contains(id) && !may_fail.contains(id));
        let more: Vec<&str> = more.map(|(_, said)| said.as_str()).collect();
        let mut text = format!("== {fault}: ");
        if !missed.is_empty() {
            text += &format!("did not fail {missed:?} (skipped: {skipped:?}); ");
        }
        if !more.is_empty() {
            text += &format!("unexpected failures:\n{}", more.join("\n"));
        }
        text
    }
}

pub(crate) async fn test(row: Row, depth: Depth) -> Seen {
    let begun = Instant::now();
    let (failed, skipped) = run(&row, depth).await.unwrap_or_else(|error| {
        let failed = [(SETTING.to_owned(), format!("{error:#}"))].into();
        (failed, Vec::new())
    });
    Seen { row, failed, skipped, took: begun.elapsed() }
}

fn chosen(row: &Row, depth: Depth) -> Vec<Check> {
    let wanted = |check: &Check| match depth {
        Depth::Usual => ALWAYS.contains(&check.id),
        Depth::Full => check.tier != Tier::T3,
    };
    let all = checks::all().into_iter();
    all.filter(|check| wanted(check) || row.fails.iter().any(|id| id == check.id)).collect()
}

async fn run(row: &Row, depth: Depth) -> anyhow::Result<(BTreeMap<String, String>, Vec<String>)> {
    let chosen = chosen(row, depth);
    let needs = |need: Need| chosen.iter().any(|check| check.needs.contains(&need));
    let names = |id: &str| row.fails.iter().any(|one| one == id);
    let flags = if row.fault == GOOD { Vec::new() } else { vec![format!("--break={}", row.fault)] };
    let plan = Plan {
        lanes: 1,
        secured: needs(Need::Secured),
        replicas: needs(Need::Replicas)
            || chosen.iter().any(|check| check.visits_replicas && names(check.id)),
        network: if names("BUD-01") { SCARCE } else { Bucket::default() },
        adapter_flags: flags,
        ..Plan::default()
    };
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).to_owned();
    let setting = task::spawn_blocking(move || Setting::start(&plan, &folder)).await??;
    let mut params = Params::load(&setting.params())?;
    params.timings.heal = HEAL;
    let include = chosen.into_iter().map(|check| check.id.to_owned()).collect();
    let selection = Selection { include, seed: Some(1), limit: Some(LIMIT), ..Selection::default() };
    let report =
        adapter_conformance::run(params, &selection, Arc::new(Silent), CancellationToken::new()).await?;
    task::spawn_blocking(move || drop(setting)).await?;
    let mut failed = BTreeMap::new();
    let mut skipped = Vec::new();
    for entry in &report.entries {
        let id = entry.check.id.to_owned();
        match &entry.outcome {
            Outcome::Failed(_) => {
                failed.insert(id, table::failure(entry));
            }
            Outcome::Skipped(why) if row.fails.contains(&id) => skipped.push(format!("{id}: {why}")),
            Outcome::Passed | Outcome::Skipped(_) => (),
        }
    }
    Ok((failed, skipped))
}
