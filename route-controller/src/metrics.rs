//! What can be counted from outside. Names that dashboards know from elsewhere are kept; ours begin with `cloud_controller_`.

use controller_core::start::Process;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;

use crate::plan::Foreign;
use crate::plan::route::Owner;
use crate::requeue::attempts::Outcome;

/// What the route-controller counts.
#[derive(Clone, Debug, Default)]
pub(crate) struct Metrics {
    /// Passes, failed ones too.
    pub(crate) passes: Counter,
    /// Conditions written.
    pub(crate) conditions: Counter,
    /// Claims that are refused at present.
    pub(crate) refusals: Gauge,
    /// Routes that stay until a person says that they may go.
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
    /// Registers `route_controller_route_sync_total` and what begins with `cloud_controller_route`.
    pub(crate) fn register(process: &mut Process) -> Self {
        let metrics = Self::default();
        let help = "Passes in which all routes were compared with all nodes, failed ones too";
        process.registry.register("route_controller_route_sync", help, metrics.passes.clone());
        let ours = process.metrics();
        let help = "Routes that were laid or removed, by outcome";
        ours.register("routes", help, metrics.routes.clone());
        let help = "Conditions NetworkUnavailable that were written";
        ours.register("route_conditions", help, metrics.conditions.clone());
        let help = "Pod CIDRs that get no route at present, each with an Event on its node";
        ours.register("route_refusals", help, metrics.refusals.clone());
        let help = "Routes whose nodes are gone and that are not removed until a person says so";
        ours.register("route_removals_held", help, metrics.held.clone());
        let help = "Routes that overlap the pods' networks and are not this cluster's";
        ours.register("routes_foreign", help, metrics.foreign.clone());
        metrics
    }

    pub(crate) fn laid(&self, outcome: &Outcome) {
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
    async fn what_this_controller_shows_is_in_the_reference() {
        let mut process = process(NAMES, &FakeKube::new(), &FakeCloud::new());
        let metrics = Metrics::register(&mut process);
        metrics.laid(&Outcome::Done);
        metrics.foreign(&[]);
        let page = render(&process.registry).expect("a page");
        metrics_reference::assert_up_to_date(NAMES.controller, &["every controller"], &page);
    }
}
