//! Counters of a run.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use cloud_adapter::vendor::{Family, Operation};
use cloud_budget::Class;

#[derive(Clone, Debug)]
pub(crate) struct Caller {
    pub(crate) class: Class,
    pub(crate) controller: &'static str,
    pub(crate) object: Arc<str>,
    /// Whether the waits of these calls are also counted separately, as waits of users.
    pub(crate) user: bool,
    /// Whether the call belongs to a periodic listing, which nothing waits for.
    pub(crate) periodic: bool,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Tally {
    pub(crate) families: BTreeMap<Family, Calls>,
    /// How long each call waited, by class.
    pub(crate) waits: BTreeMap<Class, Vec<Duration>>,
    /// How long each call waited, for calls for Services that users create during the start.
    pub(crate) user_waits: Vec<Duration>,
    /// Number of calls that were refused and retried later.
    pub(crate) refused: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Calls {
    pub(crate) reads: u32,
    pub(crate) writes: u32,
    /// Number of calls of periodic listings, which nothing waits for.
    pub(crate) periodic: u32,
    /// Total time that the vendor took to answer these calls.
    pub(crate) in_progress: Duration,
}

impl Tally {
    pub(crate) fn sent(&mut self, operation: Operation, caller: &Caller, wait: Duration, latency: Duration) {
        let calls = self.families.entry(operation.family).or_default();
        if operation.write {
            calls.writes += 1;
        } else {
            calls.reads += 1;
        }
        calls.periodic += u32::from(caller.periodic);
        calls.in_progress += latency;
        self.waits.entry(caller.class).or_default().push(wait);
        if caller.user {
            self.user_waits.push(wait);
        }
    }
}
