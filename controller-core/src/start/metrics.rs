//! Which replica is at work, under the names that dashboards for the classic cloud controller manager know.

use std::fmt;

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric as _},
    metrics::gauge::ConstGauge,
};

use super::{Process, Term};

/// The value of the label `manager`, which had all controllers in it.
const MANAGER: &str = "cloud-controller-manager";

/// Registers `running_managed_controllers` and, with an election, `leader_election_master_status`.
pub(super) fn register(process: &mut Process) {
    let shown = Shown {
        term: process.term.clone(),
        lease: process.candidate.as_ref().map(|candidate| candidate.lease.clone()),
        managed: process.names.managed,
    };
    process.registry.register_collector(Box::new(shown));
}

/// Read when somebody asks.
#[derive(Debug)]
struct Shown {
    term: Term,
    lease: Option<String>,
    managed: &'static [&'static str],
}

impl Collector for Shown {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let gauge = ConstGauge::new(i64::from(self.term.is_running()));
        let kind = gauge.metric_type();
        if let Some(lease) = &self.lease {
            let help = "Whether this replica holds the Lease: 1 or 0";
            let mut metric = encoder.encode_descriptor("leader_election_master_status", help, None, kind)?;
            gauge.encode(metric.encode_family(&[("name", lease.as_str())])?)?;
        }
        let help = "Whether a controller works in this process: 1 or 0";
        let mut metric = encoder.encode_descriptor("running_managed_controllers", help, None, kind)?;
        for name in self.managed {
            gauge.encode(metric.encode_family(&[("name", *name), ("manager", MANAGER)])?)?;
        }
        Ok(())
    }
}
