//! Limits the number of watches of a collection, because each client that does not read keeps a message in memory.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use cloud_api_proto::{AdapterError, Reason};

use crate::auth::{Caller, Role};

/// Maximum number of watches of a collection. The size of a message is at most 1 MiB, so clients that do not read use at most 256 MiB.
const WATCHES_MAX: usize = 256;
/// Maximum number of watches per caller. A controller opens one watch per replica, and another while a connection is replaced.
const OF_ONE_CALLER: usize = 32;

/// Clones share the state.
#[derive(Clone, Debug, Default)]
pub(super) struct WatchSlots(Arc<Mutex<HashMap<Caller, usize>>>);

/// The registration of a watch, until this value is dropped.
#[derive(Debug)]
pub(super) struct WatchSlot {
    slots: WatchSlots,
    caller: Caller,
}

impl WatchSlots {
    /// Without authentication all callers look the same, so the limit per caller does not apply.
    ///
    /// Returns `QUEUE_FULL` if a limit is reached.
    pub(super) fn take(&self, collection: &str, caller: &Caller) -> Result<WatchSlot, AdapterError> {
        self.with(|watches| {
            if watches.values().sum::<usize>() >= WATCHES_MAX {
                let text =
                    format!("the {collection} have {WATCHES_MAX} watches: retry when a watch has ended");
                return Err(AdapterError::new(Reason::QueueFull, text));
            }
            let own = watches.entry(caller.clone()).or_default();
            if caller.role != Role::Anyone && *own >= OF_ONE_CALLER {
                let subject = &caller.subject;
                let text =
                    format!("{subject} has {OF_ONE_CALLER} watches of the {collection}: end a watch first");
                return Err(AdapterError::new(Reason::QueueFull, text));
            }
            *own += 1;
            Ok(WatchSlot { slots: self.clone(), caller: caller.clone() })
        })
    }

    pub(super) fn any(&self) -> bool {
        self.with(|watches| !watches.is_empty())
    }

    fn with<R>(&self, act: impl FnOnce(&mut HashMap<Caller, usize>) -> R) -> R {
        act(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Drop for WatchSlot {
    fn drop(&mut self) {
        self.slots.with(|watches| {
            if let Some(own) = watches.get_mut(&self.caller) {
                *own -= 1;
                if *own == 0 {
                    watches.remove(&self.caller);
                }
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn caller(number: usize) -> Caller {
        Caller { role: Role::NodeController, subject: format!("controller-{number}").into() }
    }

    fn full(taken: Result<WatchSlot, AdapterError>, text: &str) {
        let error = taken.expect_err("full");
        assert_eq!((error.reason, error.message.as_str()), (Reason::QueueFull, text));
        assert!(error.retry_after >= Some(Duration::from_millis(500)), "{error:?}");
    }

    #[test]
    fn watches_of_one_caller_are_bounded() {
        let slots = WatchSlots::default();
        let mut taken: Vec<WatchSlot> =
            (0..OF_ONE_CALLER).map(|_| slots.take("routes", &caller(1)).expect("a free slot")).collect();
        full(
            slots.take("routes", &caller(1)),
            "controller-1 has 32 watches of the routes: end a watch first",
        );
        slots.take("routes", &caller(2)).expect("a slot for another caller");
        taken.pop();
        slots.take("routes", &caller(1)).expect("one has ended");
    }

    #[test]
    fn all_callers_share_the_places_of_a_collection() {
        let slots = WatchSlots::default();
        let mut taken: Vec<WatchSlot> = (0..WATCHES_MAX)
            .map(|number| slots.take("routes", &caller(number / OF_ONE_CALLER)).expect("a free slot"))
            .collect();
        let text = "the routes have 256 watches: retry when a watch has ended";
        full(slots.take("routes", &caller(99)), text);
        taken.pop();
        slots.take("routes", &caller(99)).expect("one has ended");
        drop(taken);
        assert!(!slots.any(), "callers without watches are removed");
    }

    #[test]
    fn unauthenticated_callers_share_all_places() {
        let slots = WatchSlots::default();
        let take = || slots.take("routes", &Caller::anyone());
        let taken: Vec<WatchSlot> = (0..WATCHES_MAX).map(|_| take().expect("a free slot")).collect();
        full(take(), "the routes have 256 watches: retry when a watch has ended");
        drop(taken);
        take().expect("they have ended");
    }
}
