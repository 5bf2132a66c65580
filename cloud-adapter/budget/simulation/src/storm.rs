//! A storm of single calls while Services change. Measures the wait of their calls, and the duration of a whole change.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap},
    time::Duration,
};

use cloud_budget::{Class, Time};

use crate::{
    CallerAction, Client, Vendor, Verdict, World,
    chance::Chance,
    queue::{Queue, Work},
};

/// Time from sending to the answer, for a slow vendor.
const LATENCY: Duration = Duration::from_millis(300);

/// The parameters of a storm.
#[derive(Clone, Copy, Debug)]
pub struct Weather {
    /// Number of calls submitted at once, each about a different node.
    pub calls: u32,
    /// Class of the calls of the storm.
    pub class: Class,
    /// Interval between storms.
    pub every: Duration,
    /// Number of Services changed per second.
    pub services: f64,
    /// Number of consecutive calls per change.
    pub steps: u32,
    /// Duration in which Services are changed.
    pub lasts: Duration,
}

/// A storm of 5,000 calls at once for nodes, in the class `class`, at 10 calls per second. Services change every five seconds.
#[must_use]
pub const fn nodes_at_once(class: Class) -> Weather {
    let lasts = Duration::from_mins(10);
    Weather { calls: 5000, class, every: lasts, services: 0.2, steps: 3, lasts }
}

/// The bucket that is used with [`nodes_at_once`].
pub const FAST: (f64, u32) = (10.0, 20);

/// A storm of 200 calls for nodes every ten minutes, at one call per second. Services change occasionally, with six calls each.
pub const SLOW_VENDOR: Weather = Weather {
    calls: 200,
    class: Class::Lifecycle,
    every: Duration::from_mins(10),
    services: 0.02,
    steps: 6,
    lasts: Duration::from_hours(6),
};

/// The bucket that is used with [`SLOW_VENDOR`].
pub const SLOW: (f64, u32) = (1.0, 60);

/// Results of a run, as 99th percentiles.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    /// Time for which a Service's call was queued.
    pub wait: Duration,
    /// The duration of all calls of a Service's change.
    pub ensure: Duration,
}

/// Runs the scenario on a queue.
pub fn blow(weather: &Weather, queue: impl Queue) -> Times {
    let client = Storm::new(weather, queue);
    let mut world = World::new(client, Vendor::unlimited(), LATENCY);
    let mut until = Time::ZERO + weather.lasts;
    // Run until all started work has ended.
    world.run_until(until);
    while !world.client.changed_all() {
        until = until + weather.every;
        world.run_until(until);
    }
    Times { wait: p99(&mut world.client.waits), ensure: p99(&mut world.client.ensures) }
}

struct Storm<Q> {
    queue: Q,
    jobs: Vec<Job>,
    /// Jobs, ordered by the time at which they submit a call.
    due: BinaryHeap<Reverse<(Time, usize)>>,
    /// Jobs whose call is queued or in flight.
    calls: BTreeMap<u64, usize>,
    waits: Vec<Duration>,
    ensures: Vec<Duration>,
    services: usize,
}

/// A chain of calls, each of which is submitted after the previous one returned.
struct Job {
    work: Work,
    service: bool,
    steps: u32,
    began: Time,
    /// Time at which the current call was submitted for the first time.
    asked: Option<Time>,
}

impl<Q: Queue> Storm<Q> {
    fn new(weather: &Weather, queue: Q) -> Self {
        let services = services(weather);
        let n_services = services.len();
        let jobs: Vec<_> = nodes(weather).into_iter().chain(services).collect();
        let due = jobs.iter().enumerate().map(|(number, job)| Reverse((job.began, number))).collect();
        let (waits, ensures) = (Vec::new(), Vec::new());
        Self { queue, jobs, due, calls: BTreeMap::new(), waits, ensures, services: n_services }
    }

    fn changed_all(&self) -> bool {
        self.ensures.len() == self.services
    }

    /// Submits the calls that are due.
    fn submit(&mut self, now: Time) {
        while let Some(&Reverse((at, number))) = self.due.peek()
            && at <= now
        {
            self.due.pop();
            let Some(job) = self.jobs.get_mut(number) else { continue };
            job.asked.get_or_insert(now);
            match self.queue.submit(now, &job.work) {
                Ok(call) => {
                    self.calls.insert(call, number);
                }
                // A controller retries at the time that the refusal gives.
                Err(later) => self.due.push(Reverse((now + later, number))),
            }
        }
    }
}

impl<Q: Queue> Client for Storm<Q> {
    fn next(&mut self, now: Time) -> CallerAction {
        self.submit(now);
        let next = self.queue.next(now);
        match next {
            CallerAction::Send(call) => {
                let job = self.calls.get(&call).and_then(|number| self.jobs.get_mut(*number));
                if let Some(job) = job
                    && let Some(asked) = job.asked.take()
                    && job.service
                {
                    self.waits.push(now.since(asked));
                }
                next
            }
            CallerAction::Wait(until) => {
                let due = self.due.peek().map(|Reverse((at, _))| *at);
                CallerAction::Wait(until.into_iter().chain(due).min())
            }
        }
    }

    fn answered(&mut self, now: Time, call: u64, verdict: &Verdict) {
        if self.queue.answered(now, call, verdict) {
            return;
        }
        let Some(number) = self.calls.remove(&call) else { return };
        let Some(job) = self.jobs.get_mut(number) else { return };
        job.steps = job.steps.saturating_sub(1);
        if job.steps > 0 {
            self.due.push(Reverse((now, number)));
        } else if job.service {
            self.ensures.push(now.since(job.began));
        }
    }
}

fn nodes(weather: &Weather) -> Vec<Job> {
    let mut began = Time::ZERO;
    let mut jobs = Vec::new();
    while began < Time::ZERO + weather.lasts {
        jobs.extend((0..weather.calls).map(|node| {
            let object = format!("node-{node}").into();
            let work = Work { class: weather.class, controller: "node-controller", reserve: false, object };
            Job { work, service: false, steps: 1, began, asked: None }
        }));
        began = began + weather.every;
    }
    jobs
}

fn services(weather: &Weather) -> Vec<Job> {
    let mut chance = Chance::new(7);
    let mut jobs = Vec::new();
    let mut seconds = chance.until_next(weather.services);
    while seconds < weather.lasts.as_secs_f64() {
        let object = format!("service-{}", jobs.len()).into();
        let work =
            Work { class: Class::Interactive, controller: "service-controller", reserve: true, object };
        let began = Time::ZERO + Duration::from_secs_f64(seconds);
        jobs.push(Job { work, service: true, steps: weather.steps, began, asked: None });
        seconds += chance.until_next(weather.services);
    }
    jobs
}

fn p99(times: &mut [Duration]) -> Duration {
    times.sort_unstable();
    let rank = (times.len() * 99).div_ceil(100);
    times.get(rank.saturating_sub(1)).copied().unwrap_or_default()
}
