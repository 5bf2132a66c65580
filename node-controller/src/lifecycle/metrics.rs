//! Metrics of the shutdown taint and the deletion of nodes.

use controller_core::{brake::Verdict, start::Process};
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge},
};

use super::execute::Ended;

#[derive(Clone, Debug)]
pub(super) struct Metrics {
    deletions: Family<Labels, Counter>,
    held: Gauge,
    tripped: Gauge,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Labels {
    outcome: &'static str,
}

impl Metrics {
    pub(super) fn register(process: &mut Process) -> Self {
        let metrics =
            Self { deletions: Family::default(), held: Gauge::default(), tripped: Gauge::default() };
        let registry = process.metrics();
        let help = "Nodes whose instances are gone, by the outcome of their deletion";
        registry.register("node_deletions", help, metrics.deletions.clone());
        let help = "Nodes whose instances are gone and that the deletion brake holds";
        registry.register("node_deletions_held", help, metrics.held.clone());
        let help =
            "Whether the deletion brake holds nodes because more would be deleted than it allows: 1 or 0";
        registry.register("node_deletion_brake_tripped", help, metrics.tripped.clone());
        metrics
    }

    pub(super) fn ended(&self, ended: Ended) {
        self.deletions.get_or_create(&Labels { outcome: ended.word() }).inc();
    }

    pub(super) fn held(&self, verdict: Verdict, n_nodes: usize) {
        let held = if verdict == Verdict::Go { 0 } else { n_nodes };
        self.held.set(i64::try_from(held).unwrap_or(i64::MAX));
        self.tripped.set(matches!(verdict, Verdict::Tripped { .. }).into());
    }
}

#[cfg(test)]
mod tests {
    use controller_core::{
        metrics::render,
        mirror::Mirror,
        testing::{FakeCloud, FakeKube, process},
    };

    use super::*;
    use crate::NAMES;

    #[tokio::test(start_paused = true)]
    async fn held_nodes_are_in_the_metrics() {
        let mut process = process(NAMES, &FakeKube::new(), &FakeCloud::new());
        let metrics = Metrics::register(&mut process);
        let shows = |line: &str| {
            let name = "cloud_controller_node_";
            let line = format!("{name}{line}");
            let text = render(&process.registry).expect("text");
            assert!(text.lines().any(|it| it == line), "{line} is missing in:\n{text}");
        };
        metrics.held(Verdict::Tripped { allowance: 1 }, 4);
        shows("deletions_held{controller=\"node-controller\"} 4");
        shows("deletion_brake_tripped{controller=\"node-controller\"} 1");
        metrics.held(Verdict::Later { after: std::time::Duration::ZERO }, 2);
        shows("deletions_held{controller=\"node-controller\"} 2");
        shows("deletion_brake_tripped{controller=\"node-controller\"} 0");
        metrics.held(Verdict::Go, 2);
        shows("deletions_held{controller=\"node-controller\"} 0");
        for ended in [Ended::Deleted, Ended::Deleted, Ended::Stale] {
            metrics.ended(ended);
        }
        shows("deletions_total{controller=\"node-controller\",outcome=\"deleted\"} 2");
        shows("deletions_total{controller=\"node-controller\",outcome=\"stale\"} 1");
    }

    #[tokio::test(start_paused = true)]
    async fn metrics_are_in_the_reference() {
        let mut process = process(NAMES, &FakeKube::new(), &FakeCloud::new());
        Metrics::register(&mut process).ended(Ended::Deleted);
        let nodes = Mirror::new("nodes", process.clock);
        crate::metrics::Metrics::register(&mut process, &nodes).refused(&crate::plan::Refusal::Foreign);
        let page = render(&process.registry).expect("a page");
        test_support::reference::assert_up_to_date(NAMES.controller, &["every controller"], &page);
    }
}
