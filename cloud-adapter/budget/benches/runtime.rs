//! Benchmark: duration of a decision of the scheduler with full queues.

#![expect(clippy::disallowed_methods, reason = "the benchmark measures real time")]

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use cloud_budget::{
    BucketConfig, Call, CallResult, Class, Config, Decision, Outcome, RateLimit, Scheduler, Ticket, Time,
};
use test_support::bench::{self, Row};

/// Number of queued calls: as many as the scheduler accepts, evenly distributed over all classes and controllers.
const QUEUED: u32 = 8192;
const CONTROLLERS: [&str; 4] = ["node-controller", "service-controller", "route-controller", "adapter"];
const FAMILIES: [&str; 4] = ["compute", "network", "loadbalancer", "identity"];
const OBJECTS: u32 = 1024;
const DECISIONS: u32 = 200_000;
const BOUND: Duration = Duration::from_micros(5);

fn main() -> std::io::Result<()> {
    let mut full = Full::new();
    full.run(DECISIONS / 10);
    let mut times = full.run(DECISIONS);
    times.sort_unstable();
    let quantile = |of_1000: usize| times.get(times.len() * of_1000 / 1000).copied().unwrap_or_default();
    let what = "scheduler decision to send or to wait, 8,192 calls queued";
    bench::print(&[
        Row::new("P18", format!("{what}: p50"), format!("{:.2?}", quantile(500))),
        Row::new("P18", format!("{what}: p99"), format!("{:.2?}", quantile(990)))
            .promised("<= 5 us", quantile(990) <= BOUND),
        Row::new("P18", format!("{what}: p99.9"), format!("{:.2?}", quantile(999))),
    ])
}

/// A scheduler whose queues stay full.
struct Full {
    scheduler: Scheduler,
    now: Time,
    submitted: u32,
    calls: BTreeMap<Ticket, Call>,
}

impl Full {
    fn new() -> Self {
        let bucket = |parent: Option<&str>, rate: f64| BucketConfig {
            parent: parent.map(str::to_owned),
            limit: RateLimit { rate, burst: 100 },
            adaptive: None,
        };
        let mut buckets = BTreeMap::from([("account".to_owned(), bucket(None, 900.0))]);
        buckets.extend(FAMILIES.map(|family| (family.to_owned(), bucket(Some("account"), 300.0))));
        let scheduler = Scheduler::new(Config { buckets, ..Config::default() }, Time::ZERO);
        let mut full = Self { scheduler, now: Time::ZERO, submitted: 0, calls: BTreeMap::new() };
        (0..QUEUED).for_each(|_| full.submit());
        full
    }

    fn submit(&mut self) {
        let number = self.submitted;
        self.submitted += 1;
        let pick =
            |list: [&'static str; 4], by: u32| list.into_iter().cycle().nth((number / by % 4) as usize);
        let class = Class::ALL.into_iter().cycle().nth((number % 4) as usize);
        let (Some(controller), Some(family), Some(class)) = (pick(CONTROLLERS, 4), pick(FAMILIES, 16), class)
        else {
            return;
        };
        let call = Call {
            family,
            operation: "call",
            class,
            controller,
            reserve: class >= Class::Interactive,
            namespace: "".into(),
            object: format!("object-{}", number % OBJECTS).into(),
            cost: 1,
            deadline: Some(self.now + Duration::from_hours(24)),
            self_check: false,
        };
        self.resubmit(call);
    }

    fn resubmit(&mut self, call: Call) {
        if let Ok(ticket) = self.scheduler.submit(self.now, call.clone()) {
            self.calls.insert(ticket, call);
        }
    }

    /// Makes this many decisions and returns the duration of each. Each call is answered at once and queued again. A decision to wait
    /// counts, too; the simulated time then advances to the end of the wait.
    fn run(&mut self, decisions: u32) -> Vec<Duration> {
        (0..decisions).map(|_| self.decide()).collect()
    }

    fn decide(&mut self) -> Duration {
        let began = Instant::now();
        let decision = self.scheduler.next(self.now);
        let took = began.elapsed();
        match decision {
            Decision::Send { ticket, .. } => {
                let latency = Duration::from_millis(50);
                let answer = CallResult { outcome: Outcome::Answered, latency, hint: None };
                self.scheduler.answered(self.now, ticket, answer);
                if let Some(call) = self.calls.remove(&ticket) {
                    self.resubmit(call);
                }
            }
            Decision::Refuse(ticket, _) => {
                if let Some(call) = self.calls.remove(&ticket) {
                    self.resubmit(call);
                }
            }
            Decision::Wait(until) => {
                self.now = until.unwrap_or(self.now).max(self.now + Duration::from_millis(1));
            }
        }
        took
    }
}
