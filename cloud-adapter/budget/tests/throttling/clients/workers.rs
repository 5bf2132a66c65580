//! Workers that send one call after the other and back off when they are throttled, as most controllers do.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap},
    time::Duration,
};

use cloud_budget::Time;

use crate::{CallerAction, Client, Verdict, chance::Chance};

/// The first back-off and the longest. The back-off doubles with each throttle, with jitter, as in the AWS SDKs.
const FIRST: f64 = 1.0;
const LONGEST: f64 = 20.0;

#[derive(Debug)]
pub(crate) struct Workers {
    /// Idle workers by the time at which they send.
    ready: BinaryHeap<Reverse<(Time, u64)>>,
    /// Number of consecutive throttles of each worker.
    throttles: BTreeMap<u64, i32>,
    chance: Chance,
}

impl Workers {
    pub(crate) fn new(workers: u64) -> Self {
        let ready = (0..workers).map(|worker| Reverse((Time::ZERO, worker))).collect();
        Self { ready, throttles: BTreeMap::new(), chance: Chance::new(1) }
    }
}

impl Client for Workers {
    fn next(&mut self, now: Time) -> CallerAction {
        match self.ready.peek() {
            Some(&Reverse((at, worker))) if at <= now => {
                self.ready.pop();
                CallerAction::Send(worker)
            }
            next => CallerAction::Wait(next.map(|Reverse((at, _))| *at)),
        }
    }

    fn answered(&mut self, now: Time, worker: u64, verdict: &Verdict) {
        let throttles = self.throttles.entry(worker).or_default();
        let wait = if verdict.throttled {
            let longest = (FIRST * 2_f64.powi(*throttles)).min(LONGEST);
            *throttles = throttles.saturating_add(1).min(16);
            let asked = verdict.retry_after.unwrap_or_default();
            asked.max(Duration::from_secs_f64(longest * self.chance.uniform()))
        } else {
            *throttles = 0;
            Duration::ZERO
        };
        self.ready.push(Reverse((now + wait, worker)));
    }
}
