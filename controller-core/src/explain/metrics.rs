//! How much is not as wanted, and since when: what an alert asks for, and `/status` and `/explain` name.

use std::fmt;

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric as _},
    metrics::gauge::ConstGauge,
};

use super::Explain;
use crate::metrics::Registry;

/// Registers `unsettled` and `unsettled_oldest_seconds`.
pub(crate) fn register(explain: &Explain, registry: &mut Registry) {
    registry.register_collector(Box::new(Shown(explain.clone())));
}

/// Read when somebody asks.
#[derive(Debug)]
struct Shown(Explain);

impl Collector for Shown {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let (count, oldest) = self.0.backlog();
        let count = ConstGauge::new(i64::try_from(count).unwrap_or(i64::MAX));
        let help = "Nodes or Services of our shards that are not as wanted; in a dry run none";
        count.encode(encoder.encode_descriptor("unsettled", help, None, count.metric_type())?)?;
        let oldest = ConstGauge::new(oldest.as_secs_f64());
        let (name, help) = ("unsettled_oldest_seconds", "For how long the first of them is not as wanted");
        oldest.encode(encoder.encode_descriptor(name, help, None, oldest.metric_type())?)
    }
}
