//! Where the work of a task stands in the queue for the vendor, so that whoever waits for the task can be told.

use std::{
    mem,
    sync::{Arc, Mutex, PoisonError},
};

use cloud_budget::{BudgetWait, Ticket};

use super::Vendor;

/// Places are looked up through so many that share work with each other.
const SHARED_MAX: usize = 8;

/// Where it stands now. Cloning shares it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Place(Arc<Mutex<Stands>>);

#[derive(Clone, Debug, Default)]
enum Stands {
    /// Nothing of its is handed in.
    #[default]
    Nowhere,
    /// This call of its is, and may wait for its turn.
    Call(Ticket),
    /// It waits for work that is shared, which stands there.
    With(Place),
}

/// It stands there until this is dropped.
#[derive(Debug)]
pub(super) struct Standing {
    place: Place,
    before: Stands,
}

impl Place {
    /// A call is handed in.
    pub(super) fn call(&self, ticket: Ticket) -> Standing {
        self.stand(Stands::Call(ticket))
    }

    /// It waits for work that is shared.
    pub(super) fn with(&self, shared: &Self) -> Standing {
        self.stand(Stands::With(shared.clone()))
    }

    fn stand(&self, now: Stands) -> Standing {
        let before = mem::replace(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner), now);
        Standing { place: self.clone(), before }
    }

    fn ticket(&self) -> Option<Ticket> {
        let mut place = self.clone();
        for _ in 0..SHARED_MAX {
            let stands = place.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
            match stands {
                Stands::Nowhere => return None,
                Stands::Call(ticket) => return Some(ticket),
                Stands::With(shared) => place = shared,
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
    /// What the call waits for that stands at this place. `None`: there is none, or the budget is not what keeps it.
    pub(crate) fn waits(&self, place: &Place) -> Option<BudgetWait> {
        self.dispatcher.wait(place.ticket()?)
    }
}
