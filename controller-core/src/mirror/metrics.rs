//! Size, age and state of mirrors, read when somebody asks.

use std::fmt;

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeGaugeValue, EncodeMetric as _},
    metrics::{MetricType, gauge::ConstGauge},
};

use super::Mirror;
use crate::metrics::Registry;

/// Registers `mirror_objects`, `mirror_synced`, `mirror_connected` and `mirror_age_seconds` for all mirrors of a controller, told apart by
/// the label `mirror`. Call it once: a name may be described only once on a page.
pub fn register(registry: &mut Registry, mirrors: impl IntoIterator<Item = Box<dyn Measured>>) {
    let mirrors = mirrors.into_iter().collect();
    registry.sub_registry_with_prefix("mirror").register_collector(Box::new(Gauges(mirrors)));
}

/// A mirror of whatever, as far as it is measured.
pub trait Measured: fmt::Debug + Send + Sync {
    /// What is mirrored.
    fn what(&self) -> &'static str;
    /// How many items it holds.
    fn n_objects(&self) -> usize;
    /// Whether one complete listing has been seen.
    fn is_synced(&self) -> bool;
    /// Whether the other side answers now.
    fn is_connected(&self) -> bool;
    /// How old what it shows is, in seconds. `None`: it shows nothing yet.
    fn age_seconds(&self) -> Option<f64>;
}

impl<K, T> Mirror<K, T>
where
    K: Ord + Clone + fmt::Debug + Send + Sync + 'static,
    T: fmt::Debug + Send + Sync + 'static,
{
    /// For [`register`].
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
        let help = "Time since the other side was last known to be as the mirror shows it";
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
        metrics::{controller_registry, render},
        mirror::{ObjectName, kubernetes::Listing},
        testing::{BEGIN, FakeKube, eventually, node},
    };

    #[tokio::test(start_paused = true)]
    async fn a_cut_shows_on_the_page_and_so_does_its_end() {
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
        let follow = mirror.follow_kubernetes((api, Listing::Pages), |_node| Some(()), |_change| ());
        let script = async {
            assert!(shows("connected", 0), "nobody was asked yet");
            eventually("it is listed", || shows("connected", 1)).await;
            kube.away(true);
            eventually("the cut shows", || shows("connected", 0)).await;
            assert!(shows("synced", 1), "what was listed stays");
            kube.away(false);
            eventually("it is over", || shows("connected", 1)).await;
        };
        tokio::select! {
            () = follow => (),
            () = script => (),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn each_name_is_described_once_however_many_mirrors_there_are() {
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
