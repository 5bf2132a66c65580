//! Metrics of this controller. Metrics that also exist in k8s.io/cloud-provider keep their names, for existing dashboards; the other names
//! begin with `cloud_controller_`.

use controller_core::start::Process;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;

use crate::error::attempts::Outcome;
use crate::plan::Foreign;
use crate::plan::route::Owner;

#[derive(Clone, Debug, Default)]
pub(crate) struct Metrics {
    /// Passes, including failed ones.
    pub(crate) passes: Counter,
    /// Conditions written.
    pub(crate) conditions: Counter,
    /// Pod CIDRs that are refused now.
    pub(crate) refusals: Gauge,
    /// Routes whose removal is held until an operator allows it.
    pub(crate) held: Gauge,
    foreign: Family<OwnerLabels, Gauge>,
    routes: Family<RouteLabels, Counter>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RouteLabels {
    action: &'static str,
    outcome: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OwnerLabels {
    owner: &'static str,
}

impl Metrics {
    /// Registers `route_controller_route_sync_total` and the metrics that begin with `cloud_controller_route`.
    pub(crate) fn register(process: &mut Process) -> Self {
        let metrics = Self::default();
        let help = "Passes in which all routes were compared with all nodes, including failed passes";
        process.registry.register("route_controller_route_sync", help, metrics.passes.clone());
        let ours = process.metrics();
        let help = "Routes that were created or removed, by outcome";
        ours.register("routes", help, metrics.routes.clone());
        let help = "Conditions NetworkUnavailable that were written";
        ours.register("route_conditions", help, metrics.conditions.clone());
        let help = "Pod CIDRs that get no route at present, each with an Event on its node";
        ours.register("route_refusals", help, metrics.refusals.clone());
        let help = "Routes whose nodes are gone and whose removal is held until an operator allows it";
        ours.register("route_removals_held", help, metrics.held.clone());
        let help = "Routes that overlap the pod CIDRs and do not belong to this cluster";
        ours.register("routes_foreign", help, metrics.foreign.clone());
        metrics
    }

    pub(crate) fn created(&self, outcome: &Outcome) {
        self.count("lay", outcome);
    }

    pub(crate) fn removed(&self, outcome: &Outcome) {
        self.count("remove", outcome);
    }

    pub(crate) fn foreign(&self, foreign: &[Foreign]) {
        for (owner, label) in [(Owner::OtherCluster, "other-cluster"), (Owner::Unmanaged, "unmanaged")] {
            let n = foreign.iter().filter(|route| route.owner == owner).count();
            let gauge = self.foreign.get_or_create(&OwnerLabels { owner: label });
            gauge.set(i64::try_from(n).unwrap_or(i64::MAX));
        }
    }

    fn count(&self, action: &'static str, outcome: &Outcome) {
        let outcome = match outcome {
            Outcome::Done => "done",
            Outcome::Pending { .. } => "pending",
            Outcome::Failed { .. } => "failed",
            Outcome::Refused { .. } => "refused",
        };
        self.routes.get_or_create(&RouteLabels { action, outcome }).inc();
    }
}

#[cfg(test)]
mod tests {
    use controller_core::metrics::render;
    use controller_core::testing::{FakeCloud, FakeKube, process};

    use super::*;
    use crate::NAMES;

    #[tokio::test(start_paused = true)]
    async fn metrics_are_in_the_reference() {
        let mut process = process(NAMES, &FakeKube::new(), &FakeCloud::new());
        let metrics = Metrics::register(&mut process);
        metrics.created(&Outcome::Done);
        metrics.foreign(&[]);
        let page = render(&process.registry).expect("a page");
        test_support::reference::assert_up_to_date(NAMES.controller, &["every controller"], &page);
    }
}
