//! Metrics for the size, age and state of mirrors, collected at each scrape.

use std::fmt;

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeGaugeValue, EncodeMetric as _},
    metrics::{MetricType, gauge::ConstGauge},
};

use super::Mirror;
use crate::metrics::Registry;

/// Registers `mirror_objects`, `mirror_synced`, `mirror_connected` and `mirror_age_seconds` for all mirrors of a controller, distinguished
/// by the label `mirror`. Call this function only once, because the metrics page must not contain a name twice.
pub fn register(registry: &mut Registry, mirrors: impl IntoIterator<Item = Box<dyn Measured>>) {
    let mirrors = mirrors.into_iter().collect();
    registry.sub_registry_with_prefix("mirror").register_collector(Box::new(Gauges(mirrors)));
}

/// A mirror of any type, with the data that metrics need.
pub trait Measured: fmt::Debug + Send + Sync {
    /// The mirrored collection.
    fn what(&self) -> &'static str;
    /// Number of items.
    fn n_objects(&self) -> usize;
    /// Whether the mirror has received a complete listing.
    fn is_synced(&self) -> bool;
    /// Whether the other side answers now.
    fn is_connected(&self) -> bool;
    /// Age of the content in seconds, or `None` before the first listing.
    fn age_seconds(&self) -> Option<f64>;
}

impl<K, T> Mirror<K, T>
where
    K: Ord + Clone + fmt::Debug + Send + Sync + 'static,
    T: fmt::Debug + Send + Sync + 'static,
{
    /// Erases the type of a mirror for [`register`].
    #[must_use]
    pub fn measured(&self) -> Box<dyn Measured> {
        Box::new(self.clone())
    }
}

impl<K, T> Measured for Mirror<K, T>
where
    K: Ord + Clone + fmt::Debug + Send + Sync,
    T: fmt::Debug + Send + Sync,
{
    fn what(&self) -> &'static str {
        self.what()
    }

    fn n_objects(&self) -> usize {
        self.read(|content| content.len())
    }

    fn is_synced(&self) -> bool {
        self.is_synced()
    }

    fn is_connected(&self) -> bool {
        self.link().is_up()
    }

    fn age_seconds(&self) -> Option<f64> {
        self.age().map(|age| age.as_secs_f64())
    }
}

#[derive(Debug)]
struct Gauges(Vec<Box<dyn Measured>>);

impl Collector for Gauges {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let objects = |mirror: &dyn Measured| Some(i64::try_from(mirror.n_objects()).unwrap_or(i64::MAX));
        self.family(&mut encoder, "objects", "Objects in the mirror", objects)?;
        let synced = |mirror: &dyn Measured| Some(i64::from(mirror.is_synced()));
        self.family(&mut encoder, "synced", "1 after the first complete listing", synced)?;
        let connected = |mirror: &dyn Measured| Some(i64::from(mirror.is_connected()));
        self.family(&mut encoder, "connected", "1 while the other side answers", connected)?;
        let help = "Time for which the content has not been confirmed by the other side";
        self.family(&mut encoder, "age_seconds", help, |mirror| mirror.age_seconds())
    }
}

impl Gauges {
    fn family<V: EncodeGaugeValue>(
        &self,
        encoder: &mut DescriptorEncoder<'_>,
        name: &str,
        help: &str,
        value: impl Fn(&dyn Measured) -> Option<V>,
    ) -> Result<(), fmt::Error> {
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for mirror in &self.0 {
            if let Some(value) = value(mirror.as_ref()) {
                ConstGauge::new(value).encode(family.encode_family(&[("mirror", mirror.what())])?)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Node;
    use kube::Api;

    use super::*;
    use crate::{
        Clock,
        config::Listing,
        metrics::{controller_registry, render},
        mirror::ObjectName,
        testing::{BEGIN, FakeKube, eventually, node},
    };

    #[tokio::test(start_paused = true)]
    async fn an_outage_and_its_end_show_in_the_metrics() {
        let (kube, clock) = (FakeKube::new(), Clock::starting_at(BEGIN));
        kube.put::<Node>(node("a"));
        let mirror: Mirror<ObjectName, ()> = Mirror::new("nodes", clock);
        let mut registry = Registry::default();
        register(controller_registry(&mut registry, "node-controller"), [mirror.measured()]);
        let shows = |name: &str, value: u8| {
            let line = format!("mirror_{name}{{controller=\"node-controller\",mirror=\"nodes\"}} {value}\n");
            render(&registry).expect("a page").contains(&line)
        };
        let api: Api<Node> = Api::all(kube.client());
        let follow = mirror.follow_kubernetes(api, Listing::Pages, |_node| Some(()), |_change| ());
        let script = async {
            assert!(shows("connected", 0), "no request was sent yet");
            eventually("the node is listed", || shows("connected", 1)).await;
            kube.away(true);
            eventually("the cut is visible", || shows("connected", 0)).await;
            assert!(shows("synced", 1), "the listed content stays");
            kube.away(false);
            eventually("the connection is back", || shows("connected", 1)).await;
        };
        tokio::select! {
            () = follow => (),
            () = script => (),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn each_metric_is_described_once_for_all_mirrors() {
        let clock = Clock::starting_at(BEGIN);
        let nodes: Mirror<ObjectName, u32> = Mirror::new("nodes", clock);
        let instances: Mirror<String, u32> = Mirror::new("instances", clock);
        nodes.mark_synced();
        nodes.mark_fresh();
        let mut registry = Registry::default();
        let ours = controller_registry(&mut registry, "node-controller");
        register(ours, [nodes.measured(), instances.measured()]);
        let page = render(&registry).expect("a page");
        let sample = |name: &str, mirror: &str, value: &str| {
            format!(
                r#"cloud_controller_mirror_{name}{{controller="node-controller",mirror="{mirror}"}} {value}"#
            )
        };
        for line in [
            sample("objects", "nodes", "0"),
            sample("objects", "instances", "0"),
            sample("synced", "nodes", "1"),
            sample("synced", "instances", "0"),
            sample("connected", "nodes", "0"),
            sample("age_seconds", "nodes", "0.0"),
        ] {
            assert!(page.lines().any(|it| it == line), "{line} is not in\n{page}");
        }
        let described: Vec<&str> = page.lines().filter(|line| line.starts_with("# TYPE")).collect();
        assert_eq!(described.len(), 4, "{page}");
    }
}
