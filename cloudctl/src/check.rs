//! `cloudctl check`: finds what is wrong before and after an installation. Prints one line for each check, with a hint and a link to the
//! documentation.

mod after;
mod before;
mod causes;
mod flags;
mod releases;
mod rights;
mod table;
#[cfg(test)]
mod tests;

use std::time::Duration;

use clap::Args;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tokio::time::{Instant, sleep};

use self::causes::Links;
use crate::{
    cluster::API_SERVER,
    missing::Missing,
    options::{Common, Component},
    orphans, page,
    release::NOT_INSTALLED,
    session::{Session, Usage},
};

/// Interval between checks with `--wait`.
const INTERVAL: Duration = Duration::from_secs(2);

/// Flags of `cloudctl check`.
#[derive(Args, Clone, Debug)]
pub(crate) struct CheckArgs {
    /// Repeat failed and waiting checks until they succeed, at most for this time, such as 2m
    #[arg(long, value_name = "TIME", value_parser = orphans::time)]
    wait: Option<Duration>,
}

/// The results of all checks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CheckReport {
    /// Time of the checks.
    pub at: Timestamp,
    /// The release that was checked. `None`: the chart is not installed, and the cluster was checked.
    pub release: Option<String>,
    /// The namespace of the release, or of the planned installation.
    pub namespace: String,
    /// The checks.
    pub checks: Vec<Check>,
    /// What could not be read.
    pub missing: Vec<Missing>,
}

/// A check with its result.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Check {
    /// The state that the check expects.
    pub name: String,
    /// The result.
    pub result: CheckResult,
    /// The state that the check found.
    pub found: String,
    /// What the user should do.
    pub hint: Option<String>,
    /// The URL of the page that explains the check.
    pub link: Option<String>,
    /// The failed checks because of which this one waits, by their names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub because: Vec<String>,
    #[serde(skip)]
    links: Links,
}

/// The result of a check.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum CheckResult {
    /// The check found the expected state.
    #[default]
    Ok,
    /// The expected state is normally reached soon, without action by the user, or once another check succeeds.
    Waiting,
    /// The state that was found deserves attention, but is not necessarily wrong.
    Warning,
    /// The check did not find the expected state.
    Failed,
    /// The user has no permission to read what the check needs.
    Unknown,
    /// The check needs a right that only administrators should have, and the user does not have it.
    Skipped,
}

#[derive(Clone, Copy, Debug)]
struct About {
    name: &'static str,
    hint: &'static str,
    /// The path of a page in the repository.
    link: &'static str,
}

impl About {
    fn result(self, result: CheckResult, found: impl Into<String>) -> Check {
        let is_ok = result == CheckResult::Ok;
        Check {
            name: self.name.to_owned(),
            result,
            found: found.into(),
            hint: (!is_ok).then(|| self.hint.to_owned()),
            link: (!is_ok).then(|| page::url(self.link)),
            ..Check::default()
        }
    }

    fn ok(self, found: impl Into<String>) -> Check {
        self.result(CheckResult::Ok, found)
    }

    /// Returns a failed check if `troubles` is not empty, otherwise a successful check.
    fn judged(self, troubles: &[String], found: impl Into<String>) -> Check {
        if troubles.is_empty() {
            return self.ok(found);
        }
        self.result(CheckResult::Failed, troubles.join("; "))
    }

    /// Returns a check whose result is unknown because something could not be read.
    fn unknown(self, why: &Missing) -> Check {
        let hint = match why.source.as_str() {
            API_SERVER => "let the API server answer first",
            _ => "the check needs the right to read this",
        };
        let hint = Some(hint.to_owned());
        Check { hint, ..self.result(CheckResult::Unknown, format!("not known: {}", why.why)) }
    }

    /// Returns a check that the user may not make. `right`: what the user may not do, such as `list Secrets`.
    fn not_permitted(self, result: CheckResult, right: &str) -> Check {
        let hint = Some("an administrator's `cloudctl check` checks it".to_owned());
        Check { hint, ..self.result(result, format!("not checked, because this user may not {right}")) }
    }
}

/// Runs all checks, and repeats them while a check fails or waits, and time is left.
pub(crate) async fn read(common: &Common, args: &CheckArgs, now: Timestamp) -> Result<CheckReport, Usage> {
    let began = Instant::now();
    loop {
        let waited = began.elapsed();
        let report = once(common, now.checked_add(waited).unwrap_or(now)).await?;
        let left = args.wait.is_some_and(|wait| waited.saturating_add(INTERVAL) < wait);
        if report.is_settled() || !left {
            return Ok(report);
        }
        sleep(INTERVAL).await;
    }
}

async fn once(common: &Common, now: Timestamp) -> Result<CheckReport, Usage> {
    let components = [&[Component::CloudAdapter][..], &Component::CONTROLLERS].concat();
    let mut session = Session::open(common, &components, now).await?;
    session.locate(common).await?;
    let installed = session.release.name.is_some() || !session.processes.is_empty();
    let checks = if installed {
        causes::marked(after::checks(&mut session).await)
    } else {
        session.missing.retain(|it| it.source != NOT_INSTALLED);
        match &session.cluster {
            Some(cluster) => before::checks(cluster, &session.release.namespace, now).await,
            None => Vec::new(),
        }
    };
    let missing = session.lacks();
    let release = installed.then(|| session.release.name.clone().unwrap_or_default());
    Ok(CheckReport { at: now, release, namespace: session.release.namespace, checks, missing })
}

impl CheckReport {
    /// Whether no check fails, and none would succeed if it were repeated later.
    fn is_settled(&self) -> bool {
        self.is_fine() && self.checks.iter().all(|it| it.result != CheckResult::Waiting)
    }

    fn is_fine(&self) -> bool {
        self.missing.is_empty() && self.checks.iter().all(|it| it.result != CheckResult::Failed)
    }
}
