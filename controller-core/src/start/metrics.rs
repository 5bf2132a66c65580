//! Metrics that show which replica is active, under the names that dashboards for the former cloud controller manager use.

use std::fmt;

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric as _},
    metrics::gauge::ConstGauge,
};

use super::Process;
use crate::{explain, leadership::Shards};

/// The value of the label `manager`, which is the name of the program that formerly contained all controllers.
const MANAGER: &str = "cloud-controller-manager";

/// Registers `running_managed_controllers` and the metrics of unsettled objects. With leader election, this also registers
/// `leader_election_master_status`.
pub(super) fn register(process: &mut Process) {
    let shown = Shown { shards: process.shards.clone(), managed: process.names.managed };
    process.registry.register_collector(Box::new(shown));
    let explain = process.explain.clone();
    explain::register(&explain, process.metrics());
}

#[derive(Debug)]
struct Shown {
    shards: Shards,
    managed: &'static [&'static str],
}

impl Collector for Shown {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let gauge = ConstGauge::new(i64::from(self.shards.is_running()));
        let kind = gauge.metric_type();
        let leases = || self.shards.terms().iter().filter_map(|term| Some((term.lease()?, term)));
        if leases().next().is_some() {
            let help = "Whether this replica holds the Lease: 1 or 0";
            let mut metric = encoder.encode_descriptor("leader_election_master_status", help, None, kind)?;
            for (lease, term) in leases() {
                let holds = ConstGauge::new(i64::from(term.is_running()));
                holds.encode(metric.encode_family(&[("name", lease)])?)?;
            }
        }
        let help = "Whether a controller works in this process: 1 or 0";
        let mut metric = encoder.encode_descriptor("running_managed_controllers", help, None, kind)?;
        for name in self.managed {
            gauge.encode(metric.encode_family(&[("name", *name), ("manager", MANAGER)])?)?;
        }
        Ok(())
    }
}
