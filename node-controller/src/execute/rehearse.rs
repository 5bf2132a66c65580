//! What would be written to a node, and is not. Nothing is asked for it: what there is to know stands in the mirrors.

use std::sync::Arc;

use controller_core::explain::{
    Ledger, Object, Rehearsal, Rehearse,
    rehearse::{BoxStream, StreamExt as _, stream},
};

use crate::{
    explain,
    lifecycle::GOES,
    lookup::Lookup,
    plan::{Action, Node},
    reconcile::Reconciler,
};

/// Looks at nodes as the workers do.
pub(crate) struct Rehearsals {
    pub(crate) reconciler: Arc<Reconciler>,
    /// Of nodes that may have to go.
    pub(crate) ends: Ledger,
    /// Of nodes whose machines are switched off, or are not any more.
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
        found.cluster.extend(self.ends.plan(object).into_iter().filter(|line| line == GOES));
        found
    }

    fn of_node(&self, node: &Node) -> Rehearsal {
        // What was written a moment ago is not to be written again.
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
