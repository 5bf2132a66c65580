//! What lasts while nothing wakes the object: told again in the same words, before the API server forgets it. Nobody is asked for that.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use k8s_openapi::api::core::v1::ObjectReference;
use tokio::time::{Instant, sleep};

use super::{Notice, Recorder};
use crate::{explain::Object, mirror::ObjectName, start::Shards};

/// Events are kept for an hour by default: who looks later than that must still find one.
pub const REMIND: Duration = Duration::from_mins(30);
/// Between two looks at what stands.
const LOOK: Duration = Duration::from_mins(1);

/// Tells again what stands. Cloning gives another handle.
#[derive(Clone, Debug)]
pub struct Reminders(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    recorder: Recorder,
    shards: Shards,
    all: Mutex<BTreeMap<Object, Standing>>,
}

/// What was told of an object and lasts: each with when it was told last.
#[derive(Debug)]
struct Standing {
    about: ObjectReference,
    told: Vec<(Instant, Notice)>,
}

impl Reminders {
    /// Nothing stands yet.
    #[must_use]
    pub fn new(recorder: Recorder, shards: Shards) -> Self {
        Self(Arc::new(Inner { recorder, shards, all: Mutex::default() }))
    }

    /// All that was told of an object and lasts until somebody looks at it again, with when it was told. Nothing: all of it is over.
    pub fn stands(&self, object: &Object, about: ObjectReference, told: Vec<(Instant, Notice)>) {
        if told.is_empty() {
            self.over(object);
        } else {
            self.all().insert(object.clone(), Standing { about, told });
        }
    }

    /// When each of what stands was told last, in the order in which it was given.
    #[must_use]
    pub fn told(&self, object: &Object) -> Vec<Instant> {
        let all = self.all();
        all.get(object).map(|it| it.told.iter().map(|(at, _)| *at).collect()).unwrap_or_default()
    }

    /// What was told of an object is over.
    pub fn over(&self, object: &Object) {
        self.all().remove(object);
    }

    /// There is no object of this name.
    pub fn gone(&self, name: &ObjectName) {
        self.retain_of(name, |_| false);
    }

    /// Nobody else has its name.
    pub fn only(&self, object: &Object) {
        self.retain_of(&object.name, |it| it == object);
    }

    /// Tells again, now and then, for ever.
    pub async fn run(self) {
        loop {
            sleep(LOOK).await;
            self.remind(Instant::now());
        }
    }

    /// Tells again what was told long ago. What finds no place now is told at the next look.
    fn remind(&self, now: Instant) {
        let Inner { recorder, shards, .. } = &*self.0;
        let mut all = self.all();
        // Another replica tells of the others.
        all.retain(|object, _| shards.has(&object.uid));
        for Standing { about, told } in all.values_mut() {
            let due = |at: Instant| now.saturating_duration_since(at) >= REMIND;
            for (at, notice) in told.iter_mut().filter(|(at, _)| due(*at)) {
                if recorder.try_tell(about, notice.clone()) {
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

    fn all(&self) -> MutexGuard<'_, BTreeMap<Object, Standing>> {
        // Every operation on it is a single one: it is consistent whatever happened.
        self.0.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
