//! `cloudctl plan`: what would be done now about all that is not as wanted, and what it costs in vendor calls.

pub(crate) mod gather;
mod price;
mod table;
#[cfg(test)]
pub(crate) mod tests;

use ::pages::report::{AdapterStatus, Priced};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use self::gather::Gathered;
pub use self::{gather::Planner, price::Price};
use crate::{
    missing::Missing,
    options::{Common, Component},
    session::{Page, Session, Usage},
};

/// What would be done now.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PlanReport {
    /// When this was so.
    pub at: Timestamp,
    /// Whose plans these are.
    pub planners: Vec<Planner>,
    /// What the replicas that were read leave open, such as a shard that none of them holds. A line each, for people.
    pub gaps: Vec<String>,
    /// In the order of their kinds and keys.
    pub objects: Vec<Planned>,
    /// What the changes at the vendor cost, a family each.
    pub price: Vec<Price>,
    /// How long they take at least, at the adapter's rates as they are now. `None`: not known, or the vendor is not asked at all now.
    pub at_least_seconds: Option<f64>,
    /// What could not be read.
    pub missing: Vec<Missing>,
}

/// What one controller would do about one object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Planned {
    /// Such as `service-controller`.
    pub controller: String,
    /// What, with its price.
    #[serde(flatten)]
    pub what: Priced,
}

/// Reads all plans.
pub(crate) async fn look(common: &Common, now: Timestamp) -> Result<PlanReport, Usage> {
    let components = [&[Component::CloudAdapter][..], &Component::CONTROLLERS].concat();
    let mut session = Session::open(common, &components, now).await?;
    let gathered = gather::all(&mut session).await;
    let adapters = session.pages::<AdapterStatus>(&[Component::CloudAdapter], "/status.json").await;
    let report = report(now, gathered, adapters);
    Ok(PlanReport { missing: session.lacks(), ..report })
}

/// What comes of the pages.
fn report(
    now: Timestamp,
    Gathered { planners, objects, gaps }: Gathered,
    adapters: Vec<Page<AdapterStatus>>,
) -> PlanReport {
    let leader = adapters.into_iter().map(|it| it.content).find(|it| it.leader);
    let steps = objects.iter().flat_map(|it| &it.what.vendor);
    let price = price::of(steps, leader.as_ref());
    let at_least_seconds = price::at_least(&price, leader.as_ref());
    PlanReport { at: now, planners, gaps, objects, price, at_least_seconds, missing: Vec::new() }
}

impl PlanReport {
    /// Whether every object was looked at.
    fn is_complete(&self) -> bool {
        self.gaps.is_empty() && self.planners.iter().all(Planner::is_complete)
    }
}
