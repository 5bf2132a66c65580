//! Metrics for the number of objects that are not in sync, and for how long they have not been in sync. Alerts use these metrics; `/status`
//! and `/explain` name the objects.

use std::fmt;

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric as _},
    metrics::gauge::ConstGauge,
};

use super::Explain;
use crate::metrics::Registry;

pub(crate) fn register(explain: &Explain, registry: &mut Registry) {
    registry.register_collector(Box::new(Shown(explain.clone())));
}

#[derive(Debug)]
struct Shown(Explain);

impl Collector for Shown {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let (count, oldest) = self.0.backlog();
        let count = ConstGauge::new(i64::try_from(count).unwrap_or(i64::MAX));
        let help = "Nodes or Services in the shards of this replica that are not in sync; 0 in a dry run";
        count.encode(encoder.encode_descriptor("unsettled", help, None, count.metric_type())?)?;
        let oldest = ConstGauge::new(oldest.as_secs_f64());
        let (name, help) =
            ("unsettled_oldest_seconds", "How long the oldest unsettled object is not in sync");
        oldest.encode(encoder.encode_descriptor(name, help, None, oldest.metric_type())?)
    }
}
