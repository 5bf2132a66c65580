//! Re-emits Events for lasting conditions before the API server drops the Events. Used for conditions that trigger no reconcile of the
//! object. This module makes no calls to the adapter.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use k8s_openapi::api::core::v1::ObjectReference;
use tokio::time::{Instant, sleep};

use super::{Notice, REMIND, Recorder, repeat::is_over};
use crate::{explain::Object, leadership::Shards, mirror::ObjectName};

const CHECK_INTERVAL: Duration = Duration::from_mins(1);

/// Re-emits the Events that still apply. Clones share the state.
#[derive(Clone, Debug)]
pub struct Reminders(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    recorder: Recorder,
    shards: Shards,
    all: Mutex<BTreeMap<Object, Reminder>>,
}

/// The notices about an object that still apply, each with the time of its last Event.
#[derive(Debug)]
struct Reminder {
    about: ObjectReference,
    notices: Vec<(Instant, Notice)>,
}

impl Reminders {
    /// Creates reminders without notices.
    #[must_use]
    pub fn new(recorder: Recorder, shards: Shards) -> Self {
        Self(Arc::new(Inner { recorder, shards, all: Mutex::default() }))
    }

    /// Sets the notices that apply to an object until its next reconcile, with the times of their Events. An empty list removes all
    /// notices.
    pub fn set(&self, object: &Object, about: ObjectReference, notices: Vec<(Instant, Notice)>) {
        if notices.is_empty() {
            self.clear(object);
        } else {
            self.all().insert(object.clone(), Reminder { about, notices });
        }
    }

    /// Returns when each notice about an object was emitted last, in the order of the given notices.
    #[must_use]
    pub fn emitted_at(&self, object: &Object) -> Vec<Instant> {
        let all = self.all();
        all.get(object).map(|it| it.notices.iter().map(|(at, _)| *at).collect()).unwrap_or_default()
    }

    /// Declares that the notices about an object no longer apply.
    pub fn clear(&self, object: &Object) {
        self.all().remove(object);
    }

    /// Removes all notices about objects with this name, because the object was deleted.
    pub fn clear_name(&self, name: &ObjectName) {
        self.retain_of(name, |_| false);
    }

    /// Declares that this object is the only one with its name; notices about earlier objects no longer apply.
    pub fn keep_only(&self, object: &Object) {
        self.retain_of(&object.name, |it| it == object);
    }

    /// Re-emits Events periodically. Never returns.
    pub async fn run(self) {
        loop {
            sleep(CHECK_INTERVAL).await;
            self.remind(Instant::now());
        }
    }

    /// Re-emits the notices that are due. Notices that the queue refuses are retried at the next check.
    fn remind(&self, now: Instant) {
        let Inner { recorder, shards, .. } = &*self.0;
        let mut all = self.all();
        // Another replica emits the Events of the other shards.
        all.retain(|object, _| shards.has(&object.uid));
        for Reminder { about, notices } in all.values_mut() {
            for (at, notice) in notices.iter_mut().filter(|(at, _)| is_over(*at, REMIND, now)) {
                if recorder.try_emit(about, notice.clone()) {
                    *at = now;
                }
            }
        }
    }

    fn retain_of(&self, name: &ObjectName, stays: impl Fn(&Object) -> bool) {
        let mut all = self.all();
        let first = Object { name: name.clone(), uid: String::new() };
        let named = all.range(first..).map(|(it, _)| it).take_while(|it| it.name == *name);
        let over: Vec<Object> = named.filter(|it| !stays(it)).cloned().collect();
        for object in over {
            all.remove(&object);
        }
    }

    fn all(&self) -> MutexGuard<'_, BTreeMap<Object, Reminder>> {
        // The map is consistent even after a panic, since every operation on the map is a single step.
        self.0.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
