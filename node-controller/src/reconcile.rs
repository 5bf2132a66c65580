//! The corridor: takes one node through the four rooms and decides nothing itself.

use std::sync::Arc;

use controller_core::{Again, events::Recorder, mirror::ObjectName, start::Shards};
use tracing::{debug, warn};

use crate::{
    echo, events,
    execute::Executor,
    lookup::{Answer, Lookup},
    metrics::Metrics,
    mirror::{Found, Mirrors},
    plan::{Instance, Node, Plan, Sighting, plan},
    requeue::Error,
};

pub(crate) struct Reconciler {
    pub(crate) mirrors: Mirrors,
    pub(crate) lookup: Lookup,
    pub(crate) executor: Executor,
    pub(crate) recorder: Recorder,
    pub(crate) metrics: Metrics,
    pub(crate) shards: Shards,
}

impl Reconciler {
    /// Looks at one node and says when to look again.
    pub(crate) async fn reconcile(&self, name: &ObjectName) -> Again {
        let Some(node) = self.mirrors.nodes.get(name) else { return Again::Done };
        match self.shards.enter(&node.uid) {
            Ok(turn) => Box::pin(turn.run(self.turn(node))).await,
            Err(again) => again,
        }
    }

    async fn turn(&self, node: Arc<Node>) -> Again {
        if self.executor.is_ahead_of(&node) {
            return Again::After(echo::LIMIT);
        }
        let plan = self.plan(&node);
        debug!(%plan, "Planned");
        self.tell(&node, &plan);
        match self.executor.carry_out(&node, &plan).await {
            Ok(()) => plan.again,
            Err(error) => {
                self.tell_failure(&node, &error);
                error.again()
            }
        }
    }

    fn tell_failure(&self, node: &Node, error: &Error) {
        let cause = std::error::Error::source(error).map(ToString::to_string).unwrap_or_default();
        if error.refused() {
            self.recorder.tell(&events::about(node), events::sync_failed(error, &cause));
        } else if error.is_stale() {
            debug!(%error, cause, "Somebody else wrote first, looks again");
        } else {
            warn!(%error, cause, "Tries again");
        }
    }

    fn plan(&self, node: &Node) -> Plan {
        let found = match self.mirrors.sight(node) {
            Found::One(instance) => Ok(instance),
            Found::Many(provider_ids) => Err(Sighting::Ambiguous { provider_ids }),
            Found::Nothing => self.beyond_the_mirror(node),
        };
        match found {
            Ok(instance) => plan(node, &Sighting::Seen(&instance)),
            Err(sighting) => plan(node, &sighting),
        }
    }

    fn beyond_the_mirror(&self, node: &Node) -> Result<Arc<Instance>, Sighting<'static>> {
        match (self.lookup.answer(node), self.mirrors.unavailable()) {
            (Some(Answer::Seen(instance)), _) => Ok(instance),
            (_, Some(unavailable)) => Err(unavailable),
            (Some(Answer::NotVisible), None) => Err(Sighting::NotVisible),
            (Some(Answer::Foreign), None) => Err(Sighting::Foreign),
            (Some(Answer::Failed { error, again }), None) => Err(Sighting::Failed { error, again }),
            (None, None) => Err(Sighting::Unasked),
        }
    }

    /// Whoever waits for a node reads why; what an initialised node misses is logged only, since it works.
    fn tell(&self, node: &Node, plan: &Plan) {
        let Some(refusal) = &plan.refusal else { return };
        if node.is_uninitialised() {
            self.metrics.refused(refusal);
            self.recorder.tell(&events::about(node), events::refused(node, refusal));
        } else {
            warn!(node = node.name, ?refusal, "Addresses are left as they are");
        }
    }
}
