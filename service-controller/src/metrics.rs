//! The metrics of the controller. Names that begin with `service_controller_` are those of the former cloud controller manager.

use std::{fmt, time::Duration};

use controller_core::{
    metrics::{Registry, controller_registry},
    mirror,
};
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric as _},
    metrics::{
        counter::Counter,
        gauge::ConstGauge,
        histogram::{Histogram, exponential_buckets},
    },
};

use crate::{CONTROLLER, mirror::Mirrors};

/// Number of buckets of the histograms, which range from 1 s to 16384 s.
const BUCKETS: u16 = 15;

#[derive(Clone, Debug)]
pub(crate) struct Metrics {
    host_updates: Counter,
    host_errors: Counter,
    since_change: Histogram,
    host_update: Histogram,
}

impl Metrics {
    pub(crate) fn register(registry: &mut Registry, mirrors: &Mirrors) -> Self {
        let seconds = || Histogram::new(exponential_buckets(1.0, 2.0, BUCKETS));
        let metrics = Self {
            host_updates: Counter::default(),
            host_errors: Counter::default(),
            since_change: seconds(),
            host_update: seconds(),
        };
        let help = "Successful ensures after a change of nodes";
        registry.register("service_controller_loadbalancer_sync", help, metrics.host_updates.clone());
        let help = "Failed ensures after a change of nodes";
        registry.register("service_controller_nodesync_error", help, metrics.host_errors.clone());
        let help = "Seconds from a change of nodes until a load balancer was updated";
        registry.register("service_controller_nodesync_latency_seconds", help, metrics.since_change.clone());
        let help = "Seconds from the first call to the adapter until a load balancer has the new nodes";
        registry.register(
            "service_controller_update_loadbalancer_host_latency_seconds",
            help,
            metrics.host_update.clone(),
        );
        let measured = [mirrors.services.measured(), mirrors.nodes.measured(), mirrors.cloud.measured()];
        mirror::register(controller_registry(registry, CONTROLLER), measured);
        controller_registry(registry, CONTROLLER).register_collector(Box::new(Sizes(mirrors.clone())));
        metrics
    }

    /// Records that a load balancer was updated after a change of nodes. The two durations are the time since the change, and the time
    /// since the first call.
    pub(crate) fn hosts_updated(&self, since_change: Duration, since_asked: Duration) {
        self.host_updates.inc();
        self.since_change.observe(since_change.as_secs_f64());
        self.host_update.observe(since_asked.as_secs_f64());
    }

    pub(crate) fn hosts_failed(&self) {
        self.host_errors.inc();
    }
}

/// Sizes of caches, computed on each scrape.
#[derive(Debug)]
struct Sizes(Mirrors);

impl Collector for Sizes {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let (targets, _since) = self.0.targets(None);
        let balance = self.0.balance();
        let sizes = [
            (
                "load_balancer_targets",
                "Nodes behind each load balancer without a node-selector",
                targets.len(),
            ),
            (
                "load_balancer_targets_withheld",
                "Nodes that are not used as targets because they have no provider ID or internal address",
                targets.withheld,
            ),
            (
                "load_balancer_orphans",
                "Load balancers of this cluster that no Service uses; the log names them, and \
                --orphans decides what happens to them",
                balance.orphans,
            ),
            (
                "load_balancer_services_elsewhere",
                "Services without a load balancer because the cloud adapter does not support load balancers",
                self.0.elsewhere(),
            ),
        ];
        for (name, help, size) in sizes {
            let gauge = ConstGauge::new(i64::try_from(size).unwrap_or(i64::MAX));
            let metric = encoder.encode_descriptor(name, help, None, gauge.metric_type())?;
            gauge.encode(metric)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use controller_core::{
        Clock,
        metrics::render,
        queue::{Backoff, Queue},
        testing::BEGIN,
    };

    use super::*;
    use crate::mirror::Reading;

    #[test]
    fn metrics_are_in_the_reference() {
        let backoff = Backoff { first: Duration::from_secs(1), longest: Duration::from_secs(1) };
        let mirrors =
            Mirrors::new(Clock::starting_at(BEGIN), Queue::new("service", backoff), Reading::default());
        let mut registry = Registry::default();
        let metrics = Metrics::register(&mut registry, &mirrors);
        metrics.hosts_updated(Duration::from_secs(1), Duration::from_secs(1));
        metrics.hosts_failed();
        let page = render(&registry).expect("a page");
        test_support::reference::assert_up_to_date(CONTROLLER, &["every controller"], &page);
    }
}
