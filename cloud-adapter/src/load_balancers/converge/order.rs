//! The newest desired state of a key, and the caller that requested it.

use cloud_api_proto::{AdapterError, Reason, v1alpha1::Fence};
use tokio::time::Instant;

use super::super::goal::Goal;
use crate::{fence::check_tag, vendor::Purpose};

#[derive(Clone, Debug)]
pub(crate) struct Order {
    pub(crate) goal: Goal,
    /// The writer's fence. When callers join a running task, the sequence of this fence does not change, because a new sequence would cause
    /// another write of tags.
    pub(crate) fence: Fence,
    pub(crate) purpose: Purpose,
    /// The oldest observation time that the caller accepts.
    pub(crate) bound: Option<Instant>,
    pub(super) number: u64,
}

impl Order {
    pub(crate) fn new(goal: Goal, fence: Fence, purpose: Purpose, bound: Option<Instant>) -> Self {
        Self { goal, fence, purpose: Purpose { deadline: None, ..purpose }, bound, number: 0 }
    }

    /// Returns whether the goal changed.
    ///
    /// If the goals differ, returns `STALE_FENCE` for an older fence of the same scope, and `OPERATION_CONFLICT` for a fence of another
    /// scope.
    pub(super) fn merge(&mut self, newer: Self) -> Result<bool, AdapterError> {
        let same_scope = self.fence.scope == newer.fence.scope;
        let priority = self.purpose.priority.max(newer.purpose.priority);
        if self.goal == newer.goal {
            if same_scope && newer.fence.epoch > self.fence.epoch {
                self.fence = newer.fence;
            }
            // The most urgent caller determines the priority.
            self.purpose.priority = priority;
            return Ok(false);
        }
        if !same_scope {
            let text = format!("{} is changing this key to another desired state", self.fence.scope);
            return Err(AdapterError::new(Reason::OperationConflict, text));
        }
        check_tag(&newer.fence, Some(&self.fence))?;
        *self = Self { number: self.number + 1, ..newer };
        Ok(true)
    }
}
