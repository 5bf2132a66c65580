//! Reconciles a node in four steps: read the caches, plan, execute, and handle errors. The modules of these steps make all decisions.

pub(crate) mod rehearse;

use std::sync::Arc;

use controller_core::{
    Again, Clock,
    events::{REMIND, Recorder, Reminders},
    explain::{Ledger, Object},
    leadership::Shards,
    mirror::ObjectName,
};
use tokio::time::Instant;
use tracing::{debug, warn};

use crate::{
    echo,
    error::Error,
    events,
    execute::Executor,
    explain,
    lookup::{Lookup, LookupResult},
    metrics::Metrics,
    mirror::{Found, Mirrors},
    ownership::{self, Apart},
    plan::{Instance, InstanceStatus, Node, Plan, Refusal, plan},
};

pub(crate) struct Reconciler {
    pub(crate) mirrors: Mirrors,
    pub(crate) lookup: Lookup,
    pub(crate) executor: Executor,
    pub(crate) recorder: Recorder,
    pub(crate) metrics: Metrics,
    pub(crate) shards: Shards,
    pub(crate) ledger: Ledger,
    pub(crate) reminders: Reminders,
    pub(crate) clock: Clock,
    pub(crate) dry_run: bool,
}

impl Reconciler {
    /// Returns when to reconcile the node again.
    pub(crate) async fn reconcile(&self, name: &ObjectName) -> Again {
        let Some(node) = self.mirrors.nodes.get(name) else {
            self.ledger.forget_name(name);
            self.reminders.clear_name(name);
            return Again::Done;
        };
        match self.shards.enter(&node.uid) {
            Ok(pass) => Box::pin(pass.run(self.reconcile_node(node))).await,
            Err(again) => again,
        }
    }

    async fn reconcile_node(&self, node: Arc<Node>) -> Again {
        let object = Object::node(&node.name, &node.uid);
        self.ledger.begin_pass(&object);
        // Drop the entries of earlier nodes with the same name.
        self.ledger.forget_others_of_name(&object);
        self.reminders.keep_only(&object);
        let again = match self.mirrors.apart(&node) {
            None => Box::pin(self.converge(&node, &object)).await,
            Some(apart) => self.leave_alone(&node, &object, &apart),
        };
        self.ledger.end_pass(&object);
        self.ledger.mark_seen(&object);
        again
    }

    /// Does nothing to a node that does not belong to this release. Cost: no call, except for the Event of a node without an owner.
    fn leave_alone(&self, node: &Node, object: &Object, apart: &Apart) -> Again {
        self.reminders.clear(object);
        self.ledger.mark_settled(object);
        if node.is_uninitialised() && apart.may_have_no_owner() {
            self.await_owner(node)
        } else {
            Again::Done
        }
    }

    /// Waits until another release initialises the node, and emits an Event if this takes too long. All releases share the Event.
    fn await_owner(&self, node: &Node) -> Again {
        if let Some(grace) = ownership::grace(node, self.clock.now()) {
            return Again::After(grace);
        }
        self.recorder.emit_shared(&events::about(node), events::unclaimed(node));
        Again::After(REMIND)
    }

    async fn converge(&self, node: &Arc<Node>, object: &Object) -> Again {
        if self.executor.is_ahead_of(node) {
            return Again::After(echo::LIMIT);
        }
        let plan = self.plan(node, Lookup::answer);
        debug!(%plan, "Executing plan");
        self.ledger.record_plan(object, &plan);
        // Another release may have the node's cloud.
        if node.is_uninitialised()
            && plan.refusal == Some(Refusal::Foreign)
            && self.mirrors.rules.shares_nodes()
        {
            self.reminders.clear(object);
            self.ledger.record_wait(object, &explain::foreign(node));
            return self.await_owner(node);
        }
        self.report_refusal(node, object, &plan);
        if self.dry_run && plan.writes() {
            if plan.refusal.is_none() {
                self.ledger.record_dry_run(object);
            }
            return plan.again;
        }
        match self.executor.carry_out(node, &plan).await {
            Ok(()) => {
                if plan.settles(node) {
                    self.ledger.mark_settled(object);
                }
                plan.again
            }
            Err(error) => {
                self.report_failure(node, object, &error);
                error.again()
            }
        }
    }

    fn report_failure(&self, node: &Node, object: &Object, error: &Error) {
        let cause = std::error::Error::source(error).map(ToString::to_string).unwrap_or_default();
        let notice = events::sync_failed(error, &cause);
        if !error.is_stale() {
            self.ledger.record_wait(object, &explain::failing(error, &notice));
        }
        if error.refused() {
            self.recorder.emit(&events::about(node), notice);
        } else if error.is_stale() {
            debug!(%error, cause, "Another client changed the node at the same time; reconciling again");
        } else {
            warn!(%error, cause, "Reconcile failed; retrying");
        }
    }

    /// Plans for a node. `answer` decides whether the cloud's answer is consumed.
    pub(crate) fn plan(&self, node: &Node, answer: fn(&Lookup, &Node) -> Option<LookupResult>) -> Plan {
        let found = match self.mirrors.cached_instance(node) {
            Found::One(instance) => Ok(instance),
            Found::Many(provider_ids) => Err(InstanceStatus::Ambiguous { provider_ids }),
            Found::Nothing => match self.mirrors.elsewhere(node) {
                Some(elsewhere) => Err(elsewhere),
                None => self.beyond_the_mirror(answer(&self.lookup, node)),
            },
        };
        match found {
            Ok(instance) => plan(node, &InstanceStatus::Seen(&self.mirrors.rules.label(instance))),
            Err(status) => plan(node, &status),
        }
    }

    fn beyond_the_mirror(
        &self,
        answer: Option<LookupResult>,
    ) -> Result<Arc<Instance>, InstanceStatus<'static>> {
        match (answer, self.mirrors.unavailable()) {
            (Some(LookupResult::Seen(instance)), _) => Ok(instance),
            (_, Some(unavailable)) => Err(unavailable),
            (Some(LookupResult::NotVisible), None) => Err(self.mirrors.not_visible()),
            (Some(LookupResult::Foreign), None) => Err(InstanceStatus::Foreign),
            (Some(LookupResult::Failed { reason, error, again }), None) => {
                Err(InstanceStatus::Failed { reason, error, again })
            }
            (None, None) => Err(InstanceStatus::Unasked),
        }
    }

    /// Reports a refusal. An uninitialised node gets an Event. For an initialised node, which keeps working, the refusal is only logged.
    fn report_refusal(&self, node: &Node, object: &Object, plan: &Plan) {
        let Some(refusal) = &plan.refusal else {
            if plan.asks() {
                // Another look-up is not progress, so the ledger keeps its entry.
                self.ledger.keep_last_wait(object);
                return;
            }
            self.reminders.clear(object);
            if plan.actions.is_empty() && !plan.settles(node) {
                self.ledger.record_wait(object, &explain::listing());
            }
            return;
        };
        self.ledger.record_wait(object, &explain::refused(node, refusal));
        if node.is_uninitialised() {
            self.metrics.refused(refusal);
            let (about, notice) = (events::about(node), events::refused(node, refusal));
            self.recorder.emit(&about, notice.clone());
            self.reminders.set(object, about, vec![(Instant::now(), notice)]);
        } else {
            self.reminders.clear(object);
            warn!(node = node.name, ?refusal, "Refused to update node addresses");
        }
    }
}
