//! Size, age and state of a mirror, read when somebody asks.

use std::fmt;

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric as _},
    metrics::gauge::ConstGauge,
};

use super::Mirror;
use crate::metrics::Registry;

impl<K, T> Mirror<K, T>
where
    K: Ord + Clone + fmt::Debug + Send + Sync + 'static,
    T: fmt::Debug + Send + Sync + 'static,
{
    /// Registers `mirror_objects`, `mirror_synced` and `mirror_age_seconds`, each with the label `mirror`.
    pub fn register(&self, registry: &mut Registry) {
        let registry = registry
            .sub_registry_with_prefix("mirror")
            .sub_registry_with_label(("mirror".into(), self.what().into()));
        registry.register_collector(Box::new(Gauges(self.clone())));
    }
}

#[derive(Debug)]
struct Gauges<K, T>(Mirror<K, T>);

impl<K, T> Collector for Gauges<K, T>
where
    K: Ord + Clone + fmt::Debug + Send + Sync + 'static,
    T: fmt::Debug + Send + Sync + 'static,
{
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let objects =
            ConstGauge::new(i64::try_from(self.0.read(|content| content.len())).unwrap_or(i64::MAX));
        let kind = objects.metric_type();
        objects.encode(encoder.encode_descriptor("objects", "Objects in the mirror", None, kind)?)?;
        let synced = ConstGauge::new(i64::from(self.0.is_synced()));
        let help = "1 after the first complete listing";
        synced.encode(encoder.encode_descriptor("synced", help, None, synced.metric_type())?)?;
        if let Some(age) = self.0.age() {
            let age = ConstGauge::new(age.as_secs_f64());
            let help = "Time since the other side last said that the mirror is right";
            age.encode(encoder.encode_descriptor("age_seconds", help, None, age.metric_type())?)?;
        }
        Ok(())
    }
}
