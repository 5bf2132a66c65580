//! The report on a simulation. `-o json` prints its fields.

use serde::Serialize;

use crate::limits::{
    Advice, Cloud,
    results::{Scenario, Steady, Users},
};

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Report {
    pub(crate) cloud: Cloud,
    pub(crate) nodes: u32,
    /// Number of Services of type LoadBalancer, with one port each.
    pub(crate) services: u32,
    pub(crate) routes: u32,
    /// Families for which neither the file nor the driver has limits.
    pub(crate) assumed: Vec<&'static str>,
    /// A start: the adapter and its controllers start; all nodes and Services already exist.
    pub(crate) bootstrap: Scenario,
    /// Services that users create during the start. `None`: the start never ends.
    pub(crate) users: Option<Users>,
    pub(crate) steady: Steady,
    /// A node joins a cluster that has converged.
    pub(crate) joins: Scenario,
    pub(crate) advice: Vec<Advice>,
    /// The start after all advice was followed. `None`: the advice would not change the start.
    pub(crate) advised_bootstrap: Option<Scenario>,
}
