//! Dry run: computes what the controller would write to a node. The caches suffice, so a dry run sends no request.

use std::sync::Arc;

use controller_core::explain::{
    Ledger, Object, Rehearsal, Rehearse,
    rehearse::{BoxStream, StreamExt as _, stream},
};

use super::Reconciler;
use crate::{
    explain,
    lifecycle::DELETE_GONE_NODE,
    lookup::Lookup,
    plan::{Action, Node},
};

/// Makes plans for nodes with the same code as the workers.
pub(crate) struct Rehearsals {
    pub(crate) reconciler: Arc<Reconciler>,
    /// Nodes that may be deleted.
    pub(crate) ends: Ledger,
    /// Nodes whose shutdown taint would change.
    pub(crate) taints: Ledger,
}

impl Rehearse for Rehearsals {
    fn rehearse(self: Arc<Self>, objects: Vec<Object>) -> BoxStream<'static, (Object, Rehearsal)> {
        stream::iter(objects).map(move |object| (object.clone(), self.rehearsal(&object))).boxed()
    }
}

impl Rehearsals {
    fn rehearsal(&self, object: &Object) -> Rehearsal {
        let node = self.reconciler.mirrors.nodes.get(&object.name).filter(|node| node.uid == object.uid);
        let Some(node) = node else { return Rehearsal::default() };
        let mut found = self.of_node(&node);
        found.cluster.extend(self.taints.plan(object));
        found.cluster.extend(self.ends.plan(object).into_iter().filter(|line| line == DELETE_GONE_NODE));
        found
    }

    fn of_node(&self, node: &Node) -> Rehearsal {
        if self.reconciler.mirrors.apart(node).is_some() {
            return Rehearsal::default();
        }
        // While the cache does not show the last write, that write is not planned again.
        if self.reconciler.executor.is_ahead_of(node) {
            return Rehearsal::default();
        }
        let plan = self.reconciler.plan(node, Lookup::peek);
        let writes = plan.actions.iter().filter(|action| !matches!(action, Action::LookUp));
        let cluster = writes.flat_map(|action| lines(&action.to_string())).collect();
        let trouble = plan.refusal.as_ref().map(|refusal| explain::refused(node, refusal));
        Rehearsal { cluster, trouble, ..Rehearsal::default() }
    }
}

fn lines(text: &str) -> Vec<String> {
    text.lines().map(str::to_owned).collect()
}
