//! `cloudctl orphans`: shows load balancers that no Service uses any more, and deletes them on request.

mod release;
mod releases;
mod table;
#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, time::Duration};

use clap::Args;
use jiff::{Timestamp, fmt::friendly::SpanParser};
use serde::{Deserialize, Serialize};
use telemetry::report::{ControllerStatus, Orphan};

pub use self::release::Outcome;
pub(crate) use self::release::release;
use crate::{
    gaps::gaps,
    missing::Missing,
    options::{Common, Component},
    session::{Page, Session, Usage},
};

/// Flags of `cloudctl orphans`.
#[derive(Args, Clone, Debug)]
pub(crate) struct OrphansArgs {
    /// Let service-controller delete the load balancers with the given UIDs, or all load balancers with --all
    #[arg(long)]
    pub(crate) delete: bool,
    /// UIDs of the deleted Services
    #[arg(value_name = "UID", requires = "delete", value_parser = uid)]
    pub(crate) uids: Vec<String>,
    /// Delete all load balancers that are shown
    #[arg(long, requires = "delete", conflicts_with = "uids")]
    pub(crate) all: bool,
    /// Delete without asking for confirmation
    #[arg(long, requires = "delete")]
    pub(crate) yes: bool,
    /// Maximum time to wait until the load balancers are deleted
    #[arg(long, requires = "delete", default_value = "5m", value_name = "TIME", value_parser = time)]
    pub(crate) timeout: Duration,
}

/// Load balancers that no Service uses any more.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OrphansReport {
    /// Time at which the pages were read.
    pub at: Timestamp,
    /// The load balancers, sorted by the names of their former Services.
    pub orphans: Vec<Orphan>,
    /// Number of further load balancers that are not listed.
    pub more: u64,
    /// The releases (permissions to delete) whose load balancers no longer exist. Maps the UID of the former Service to its
    /// `NAMESPACE/NAME`. Only filled if everything could be read.
    pub stale: BTreeMap<String, String>,
    /// Why there may be more load balancers, one line for each reason.
    pub gaps: Vec<String>,
    /// What could not be read.
    pub missing: Vec<Missing>,
}

pub(crate) async fn list(session: &mut Session) -> OrphansReport {
    let mut seen = read_pages(session).await;
    match releases::read(session).await {
        Ok(released) => seen.stale = stale(released, &seen),
        Err(why) if !seen.missing.contains(&why) => seen.missing.push(why),
        Err(_known) => (),
    }
    seen
}

/// Returns the releases whose load balancers no longer exist. A page lists released load balancers before all others, so none of them is
/// cut off.
fn stale(mut released: BTreeMap<String, String>, seen: &OrphansReport) -> BTreeMap<String, String> {
    if !seen.is_known() {
        return BTreeMap::new();
    }
    released.retain(|uid, _| seen.orphans.iter().all(|it| it.uid != *uid));
    released
}

async fn read_pages(session: &mut Session) -> OrphansReport {
    let of = [Component::ServiceController];
    let pages = session.pages::<ControllerStatus>(&of, "/status").await;
    report(session, pages)
}

pub(crate) async fn open(common: &Common, now: Timestamp) -> Result<Session, Usage> {
    let mut session = Session::open(common, &[Component::ServiceController], now).await?;
    session.locate(common).await?;
    Ok(session)
}

fn report(session: &Session, pages: Vec<Page<ControllerStatus>>) -> OrphansReport {
    let mut gaps = gaps(Component::ServiceController, &pages);
    // A page lists released load balancers before all others, so an unreleased one on the page shows that no released one was cut off.
    let hides = |it: &ControllerStatus| it.more_orphans > 0 && it.orphans.iter().all(|it| it.released);
    if pages.iter().any(|it| hides(&it.content)) {
        gaps.push("the page does not list all load balancers whose deletion is permitted".to_owned());
    }
    let more = pages.iter().map(|it| it.content.more_orphans).sum();
    let mut orphans: Vec<Orphan> = pages.into_iter().flat_map(|it| it.content.orphans).collect();
    orphans.sort_by(|a, b| (&a.key, &a.uid).cmp(&(&b.key, &b.uid)));
    // While a shard moves to another replica, two replicas may report the same load balancer, with different times.
    orphans.dedup_by(|a, b| a.uid == b.uid);
    let (missing, stale) = (session.lacks(), BTreeMap::new());
    OrphansReport { at: session.now, orphans, more, stale, gaps, missing }
}

impl OrphansReport {
    /// Whether the pages are complete, so that an orphan that no page shows does not exist.
    fn is_known(&self) -> bool {
        self.gaps.is_empty() && self.missing.is_empty()
    }
}

/// Whether `orphan` may still have a Service, because the controller's cache may not show the Service yet.
const fn is_doubted(orphan: &Orphan) -> bool {
    orphan.since.is_none() && !orphan.released
}

/// Checks that a UID can be a key of a ConfigMap.
fn uid(text: &str) -> Result<String, String> {
    let fine = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_');
    if (1..=253).contains(&text.len()) && text.bytes().all(fine) {
        return Ok(text.to_owned());
    }
    Err("write a UID, as `cloudctl orphans` shows it".to_owned())
}

pub(crate) fn time(text: &str) -> Result<Duration, String> {
    let parsed = SpanParser::new().parse_unsigned_duration(text);
    parsed.map_err(|_error| "write a number with its unit, such as 90s, 5m, 1h".to_owned())
}
