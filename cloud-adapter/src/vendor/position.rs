//! The queue position of a task's current vendor call. It is reported to callers that wait for the task.

use std::{
    mem,
    sync::{Arc, Mutex, PoisonError},
};

use cloud_budget::{BudgetWait, Ticket};

use super::Vendor;

/// Maximum number of references from one shared place to the next.
const SHARED_MAX: usize = 8;

/// The current queue position of a task. Clones share the state.
#[derive(Clone, Debug, Default)]
pub(crate) struct QueuePosition(Arc<Mutex<Position>>);

#[derive(Clone, Debug, Default)]
enum Position {
    /// No call is queued.
    #[default]
    Nowhere,
    /// This call was submitted, and may be queued.
    Call(Ticket),
    /// The task waits for shared work, which has this position.
    With(QueuePosition),
}

/// Restores the former position when this value is dropped.
#[derive(Debug)]
pub(super) struct Standing {
    place: QueuePosition,
    before: Position,
}

impl QueuePosition {
    /// Records that a call was submitted.
    pub(super) fn call(&self, ticket: Ticket) -> Standing {
        self.stand(Position::Call(ticket))
    }

    /// Records that the task waits for shared work.
    pub(super) fn with(&self, shared: &Self) -> Standing {
        self.stand(Position::With(shared.clone()))
    }

    fn stand(&self, now: Position) -> Standing {
        let before = mem::replace(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner), now);
        Standing { place: self.clone(), before }
    }

    fn ticket(&self) -> Option<Ticket> {
        let mut place = self.clone();
        for _ in 0..SHARED_MAX {
            let stands = place.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
            match stands {
                Position::Nowhere => return None,
                Position::Call(ticket) => return Some(ticket),
                Position::With(shared) => place = shared,
            }
        }
        None
    }
}

impl Drop for Standing {
    fn drop(&mut self) {
        let before = mem::take(&mut self.before);
        *self.place.0.lock().unwrap_or_else(PoisonError::into_inner) = before;
    }
}

impl Vendor {
    /// What the call at this place waits for. `None`: there is no call, or the call does not wait for a budget.
    pub(crate) fn waits(&self, place: &QueuePosition) -> Option<BudgetWait> {
        self.dispatcher.wait(place.ticket()?)
    }
}
