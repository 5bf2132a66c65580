//! `cloudctl plan`: shows the changes that the controllers would make now to objects that are not in sync, and their cost in vendor calls.

pub(crate) mod gather;
mod price;
mod table;
#[cfg(test)]
pub(crate) mod tests;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use telemetry::report::{AdapterStatus, Priced};

use self::gather::Gathered;
pub use self::{gather::Planner, price::Price};
use crate::{
    missing::Missing,
    options::{Common, Component},
    session::{Page, Session, Usage},
};

/// The plans of all controllers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PlanReport {
    /// Time at which the pages were read.
    pub at: Timestamp,
    /// The replicas whose plans were read.
    pub planners: Vec<Planner>,
    /// What the pages do not cover, such as a shard that no replica holds. One line for each gap.
    pub gaps: Vec<String>,
    /// The plans, sorted by kind and key.
    pub objects: Vec<Planned>,
    /// The cost of the changes in the cloud, by family.
    pub price: Vec<Price>,
    /// The minimum time for all changes, at the adapter's current rates. `None` if the time is not known, or if the adapter currently sends
    /// no calls.
    pub at_least_seconds: Option<f64>,
    /// What could not be read.
    pub missing: Vec<Missing>,
}

/// The changes that one controller would make for one object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Planned {
    /// The controller, such as `service-controller`.
    pub controller: String,
    /// The plan, with its cost.
    #[serde(flatten)]
    pub what: Priced,
}

pub(crate) async fn read(common: &Common, now: Timestamp) -> Result<PlanReport, Usage> {
    let components = [&[Component::CloudAdapter][..], &Component::CONTROLLERS].concat();
    let mut session = Session::open(common, &components, now).await?;
    let gathered = gather::all(&mut session).await;
    let adapters = session.pages::<AdapterStatus>(&[Component::CloudAdapter], "/status.json").await;
    let report = report(now, gathered, adapters);
    Ok(PlanReport { missing: session.lacks(), ..report })
}

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
    /// Whether the pages have no gap, and every object was reconciled at least once.
    fn is_complete(&self) -> bool {
        self.gaps.is_empty() && self.planners.iter().all(Planner::is_complete)
    }
}
