//! The simulated world: a client, a vendor, the calls in flight between them, and a log of the calls that the vendor received.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap},
    time::Duration,
};

use cloud_budget::Time;

use crate::{Vendor, Verdict};

pub(crate) trait Client {
    /// Returns the next action. Called until it returns a wait.
    fn next(&mut self, now: Time) -> CallerAction;
    fn answered(&mut self, now: Time, call: u64, verdict: &Verdict);
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CallerAction {
    /// Send the call with this number, which the client assigns.
    Send(u64),
    /// Wait until this time, or until an answer arrives.
    Wait(Option<Time>),
}

#[derive(Debug)]
pub(crate) struct World<C> {
    pub(crate) client: C,
    pub(crate) vendor: Vendor,
    /// Time from sending a call to its answer. Whether the vendor throttles the call is decided at the time of sending.
    latency: Duration,
    now: Time,
    under_way: BinaryHeap<Reverse<(Time, u64)>>,
    verdicts: BTreeMap<u64, (u64, Verdict)>,
    log: Log,
}

/// The calls that the vendor received: the time of each, and whether it was throttled.
#[derive(Clone, Debug, Default)]
pub(crate) struct Log(Vec<(Time, bool)>);

impl<C: Client> World<C> {
    pub(crate) fn new(client: C, vendor: Vendor, latency: Duration) -> Self {
        Self {
            client,
            vendor,
            latency,
            now: Time::ZERO,
            under_way: BinaryHeap::new(),
            verdicts: BTreeMap::new(),
            log: Log::default(),
        }
    }

    pub(crate) fn log(&self) -> &Log {
        &self.log
    }

    pub(crate) fn now(&self) -> Time {
        self.now
    }

    pub(crate) fn run_until(&mut self, until: Time) {
        while self.now <= until {
            let wake = self.send();
            let answer = self.under_way.peek().map(|Reverse((at, _))| *at);
            let next = wake.into_iter().chain(answer).min().unwrap_or(Time::MAX).max(self.now);
            if next > until {
                break;
            }
            self.now = next;
            self.deliver();
        }
        self.now = until;
    }

    /// Sends the calls that the client wants to send. Returns the time at which to ask the client again.
    fn send(&mut self) -> Option<Time> {
        loop {
            match self.client.next(self.now) {
                // The wait lasts at least 1 ns, so that a client that asks to be called again now cannot stop the simulated time.
                CallerAction::Wait(wake) => return wake.map(|at| at.max(self.now + Duration::from_nanos(1))),
                CallerAction::Send(call) => {
                    let verdict = self.vendor.call(self.now);
                    self.log.0.push((self.now, verdict.throttled));
                    let number = u64::try_from(self.log.0.len()).unwrap_or(u64::MAX);
                    self.under_way.push(Reverse((self.now + self.latency, number)));
                    self.verdicts.insert(number, (call, verdict));
                }
            }
        }
    }

    fn deliver(&mut self) {
        while let Some(&Reverse((at, number))) = self.under_way.peek()
            && at <= self.now
        {
            self.under_way.pop();
            if let Some((call, verdict)) = self.verdicts.remove(&number) {
                self.client.answered(self.now, call, &verdict);
            }
        }
    }
}

impl Log {
    pub(crate) fn calls(&self, from: Time, until: Time) -> usize {
        self.between(from, until).count()
    }

    pub(crate) fn throttled_per_minute(&self, from: Time, until: Time) -> f64 {
        ratio(self.between(from, until).filter(|(_, throttled)| *throttled).count(), until, from) * 60.0
    }

    pub(crate) fn served_per_second(&self, from: Time, until: Time) -> f64 {
        ratio(self.between(from, until).filter(|(_, throttled)| !throttled).count(), until, from)
    }

    fn between(&self, from: Time, until: Time) -> impl Iterator<Item = &(Time, bool)> {
        self.0.iter().filter(move |(at, _)| (from..until).contains(at))
    }
}

#[expect(clippy::cast_precision_loss, reason = "a run has far fewer than 2^52 calls")]
fn ratio(calls: usize, until: Time, from: Time) -> f64 {
    calls as f64 / until.since(from).as_secs_f64()
}
