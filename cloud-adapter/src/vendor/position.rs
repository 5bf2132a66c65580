//! The queue position of a task's current vendor call. The position is reported to callers that wait for the task.

use std::{
    mem,
    sync::{Arc, Mutex, PoisonError},
};

use cloud_budget::{BudgetWait, Ticket};

use super::Vendor;

/// Maximum number of consecutive `Shared` references that are followed.
const SHARED_MAX: usize = 8;

/// Clones share the state.
#[derive(Clone, Debug, Default)]
pub(crate) struct QueuePosition(Arc<Mutex<Position>>);

#[derive(Clone, Debug, Default)]
enum Position {
    #[default]
    NotQueued,
    /// The task has submitted this call, which may be queued.
    Call(Ticket),
    /// The task waits for shared work, which has this position.
    Shared(QueuePosition),
}

/// Restores the former position when this value is dropped.
#[derive(Debug)]
pub(super) struct PositionGuard {
    position: QueuePosition,
    before: Position,
}

impl QueuePosition {
    pub(super) fn call(&self, ticket: Ticket) -> PositionGuard {
        self.set(Position::Call(ticket))
    }

    /// Records that the task waits for shared work.
    pub(super) fn with(&self, shared: &Self) -> PositionGuard {
        self.set(Position::Shared(shared.clone()))
    }

    fn set(&self, now: Position) -> PositionGuard {
        let before = mem::replace(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner), now);
        PositionGuard { position: self.clone(), before }
    }

    fn ticket(&self) -> Option<Ticket> {
        let mut position = self.clone();
        for _ in 0..SHARED_MAX {
            let current = position.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
            match current {
                Position::NotQueued => return None,
                Position::Call(ticket) => return Some(ticket),
                Position::Shared(shared) => position = shared,
            }
        }
        None
    }
}

impl Drop for PositionGuard {
    fn drop(&mut self) {
        let before = mem::take(&mut self.before);
        *self.position.0.lock().unwrap_or_else(PoisonError::into_inner) = before;
    }
}

impl Vendor {
    /// Returns the budget that the call at this position waits for. `None`: there is no call, or the call does not wait for a budget.
    pub(crate) fn waits(&self, position: &QueuePosition) -> Option<BudgetWait> {
        self.dispatcher.wait(position.ticket()?)
    }
}
