//! A client and a vendor, calls under way between them, and a log of what the vendor saw.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap},
    time::Duration,
};

use cloud_budget::Time;

use crate::{Vendor, Verdict};

/// Somebody who calls the vendor.
pub trait Client {
    /// What to do now; asked until it waits.
    fn next(&mut self, now: Time) -> Next;
    /// A call has come back.
    fn answered(&mut self, now: Time, call: u64, verdict: &Verdict);
}

/// What a client wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Send this call; the client's own number.
    Send(u64),
    /// Nothing until then, or until an answer comes.
    Wait(Option<Time>),
}

/// The world of one run.
#[derive(Debug)]
pub struct World<C> {
    /// Who calls.
    pub client: C,
    /// Who is called.
    pub vendor: Vendor,
    /// From sending to the answer; the vendor decides at once.
    latency: Duration,
    now: Time,
    under_way: BinaryHeap<Reverse<(Time, u64)>>,
    verdicts: BTreeMap<u64, (u64, Verdict)>,
    log: Log,
}

/// What the vendor saw: when each call came, and whether it was throttled.
#[derive(Clone, Debug, Default)]
pub struct Log(Vec<(Time, bool)>);

impl<C: Client> World<C> {
    /// The beginning.
    pub fn new(client: C, vendor: Vendor, latency: Duration) -> Self {
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

    /// What the vendor has seen so far.
    pub fn log(&self) -> &Log {
        &self.log
    }

    /// What time it is.
    pub fn now(&self) -> Time {
        self.now
    }

    /// Lets time pass.
    pub fn run_until(&mut self, until: Time) {
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

    /// Sends what the client wants to send; returns when it wants to be asked again.
    fn send(&mut self) -> Option<Time> {
        loop {
            match self.client.next(self.now) {
                // A client that wants to be asked again at once would be asked for ever.
                Next::Wait(wake) => return wake.map(|at| at.max(self.now + Duration::from_nanos(1))),
                Next::Send(call) => {
                    let verdict = self.vendor.call(self.now);
                    self.log.0.push((self.now, verdict.throttled));
                    let number = u64::try_from(self.log.0.len()).unwrap_or(u64::MAX);
                    self.under_way.push(Reverse((self.now + self.latency, number)));
                    self.verdicts.insert(number, (call, verdict));
                }
            }
        }
    }

    /// Hands over the answers that are due.
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
    /// Calls that the vendor saw from one moment to another.
    #[must_use]
    pub fn calls(&self, from: Time, until: Time) -> usize {
        self.between(from, until).count()
    }

    /// Throttled calls a minute.
    #[must_use]
    pub fn throttled_per_minute(&self, from: Time, until: Time) -> f64 {
        ratio(self.between(from, until).filter(|(_, throttled)| *throttled).count(), until, from) * 60.0
    }

    /// Calls a second that the vendor served.
    #[must_use]
    pub fn served_per_second(&self, from: Time, until: Time) -> f64 {
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
