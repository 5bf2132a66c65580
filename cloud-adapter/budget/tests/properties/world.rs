//! A vendor and its clients in virtual time. Jobs are chains of calls; each call is submitted after the previous one was answered.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::Duration,
};

use cloud_budget::{
    AfterCall, BucketConfig, Call, CallResult, Class, Config, Decision, Outcome, QueueLimits, RateLimit,
    Refusal, Scheduler, Ticket, Time,
};

/// Pseudo-random numbers that are the same in each run (SplitMix64).
#[derive(Clone, Debug)]
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    pub(crate) fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Returns the time between independent arrivals with `rate` per second.
    pub(crate) fn gap(&mut self, rate: f64) -> Duration {
        Duration::from_secs_f64(-(1.0 - self.unit()).ln() / rate)
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Job {
    pub(crate) begins: Duration,
    /// The first call of the chain; all calls of the chain are equal.
    pub(crate) call: Call,
    pub(crate) calls: u32,
    /// Time from each attempt to its deadline. A job with a deadline retries after a refusal, at the time in the refusal.
    pub(crate) max_wait: Option<Duration>,
}

/// The result of a job.
#[derive(Clone, Debug, Default)]
pub(crate) struct Course {
    pub(crate) sent: Vec<Time>,
    pub(crate) waits: Vec<Duration>,
    /// Time from the start of the job to the last answer.
    pub(crate) took: Option<Duration>,
    pub(crate) refusals: Vec<Refusal>,
}

enum Event {
    Submit(usize),
    Answer(Ticket, Duration),
}

pub(crate) struct World {
    pub(crate) scheduler: Scheduler,
    pub(crate) now: Time,
    /// Jobs in the order in which their calls were sent.
    pub(crate) sent: Vec<(Time, usize)>,
    pub(crate) courses: Vec<Course>,
    jobs: Vec<Job>,
    events: BTreeMap<(Time, u64), Event>,
    tickets: HashMap<Ticket, usize>,
    sequence: u64,
    random: Random,
    /// The shortest and the longest latency of the vendor.
    latency: (Duration, Duration),
    pub(crate) vendor: Box<Vendor>,
}

type Vendor = dyn FnMut(Time, &Call) -> Outcome;

impl World {
    pub(crate) fn new(config: Config, jobs: Vec<Job>) -> Self {
        let mut world = Self {
            scheduler: Scheduler::new(config, Time::ZERO),
            now: Time::ZERO,
            sent: Vec::new(),
            courses: vec![Course::default(); jobs.len()],
            events: BTreeMap::new(),
            tickets: HashMap::new(),
            sequence: 0,
            random: Random(7),
            latency: (Duration::from_millis(200), Duration::from_millis(400)),
            vendor: Box::new(|_, _| Outcome::Answered),
            jobs: Vec::new(),
        };
        for (index, job) in jobs.iter().enumerate() {
            world.schedule(Time::ZERO + job.begins, Event::Submit(index));
        }
        world.jobs = jobs;
        world
    }

    /// Advances to that time, or until no work is left.
    pub(crate) fn run(&mut self, until: Duration) {
        let until = Time::ZERO + until;
        loop {
            let wake = self.drain();
            let event = self.events.first_key_value().map(|((at, _), _)| *at);
            let Some(next) = wake.into_iter().chain(event).min().filter(|next| *next <= until) else {
                self.now = until;
                return;
            };
            assert!(next >= self.now, "scheduled in the past");
            self.now = next;
            while let Some(entry) = self.events.first_entry().filter(|entry| entry.key().0 <= next) {
                match entry.remove() {
                    Event::Submit(job) => self.submit(job),
                    Event::Answer(ticket, latency) => self.answer(ticket, latency),
                }
            }
        }
    }

    /// Executes the scheduler's decisions until it returns a wait. Returns the end of that wait.
    fn drain(&mut self) -> Option<Time> {
        loop {
            match self.scheduler.next(self.now) {
                Decision::Send { ticket, waited } => self.send(ticket, waited),
                Decision::Refuse(ticket, refusal) => {
                    let job = self.tickets.remove(&ticket).expect("known");
                    self.refused(job, refusal);
                }
                Decision::Wait(until) => {
                    assert!(until.is_none_or(|until| until > self.now), "the scheduler would loop forever");
                    return until;
                }
            }
        }
    }

    fn send(&mut self, ticket: Ticket, waited: Duration) {
        let job = self.tickets[&ticket];
        self.sent.push((self.now, job));
        self.courses[job].sent.push(self.now);
        self.courses[job].waits.push(waited);
        let (least, most) = self.latency;
        let latency = least + (most - least).mul_f64(self.random.unit());
        self.schedule(self.now + latency, Event::Answer(ticket, latency));
    }

    fn submit(&mut self, index: usize) {
        let job = &self.jobs[index];
        let deadline = job.max_wait.map(|max_wait| self.now + max_wait);
        match self.scheduler.submit(self.now, Call { deadline, ..job.call.clone() }) {
            Ok(ticket) => assert_eq!(self.tickets.insert(ticket, index), None),
            Err(refusal) => self.refused(index, refusal),
        }
    }

    fn refused(&mut self, index: usize, refusal: Refusal) {
        if self.jobs[index].max_wait.is_some() {
            self.schedule(self.now + refusal.retry_after, Event::Submit(index));
        }
        self.courses[index].refusals.push(refusal);
    }

    fn answer(&mut self, ticket: Ticket, latency: Duration) {
        let index = self.tickets[&ticket];
        let outcome = (self.vendor)(self.now, &self.jobs[index].call);
        let done = outcome == Outcome::Answered;
        if self.scheduler.answered(self.now, ticket, CallResult { outcome, latency, hint: None })
            == AfterCall::Again
        {
            return;
        }
        self.tickets.remove(&ticket);
        let job = &mut self.jobs[index];
        job.calls -= u32::from(done);
        if job.calls == 0 {
            self.courses[index].took = Some(self.now.since(Time::ZERO + job.begins));
        } else if done {
            self.schedule(self.now, Event::Submit(index));
        }
    }

    /// Events at the same time keep the order in which they were scheduled.
    fn schedule(&mut self, at: Time, event: Event) {
        self.sequence += 1;
        self.events.insert((at, self.sequence), event);
    }
}

pub(crate) fn call(class: Class, controller: &'static str, object: &str) -> Call {
    Call {
        family: "compute",
        operation: "Call",
        class,
        controller,
        reserve: class == Class::Traffic || (class == Class::Interactive && controller == "service"),
        namespace: Arc::from(""),
        object: Arc::from(object),
        cost: 1,
        deadline: None,
        self_check: false,
    }
}

/// One call for each of `count` objects, all at once.
pub(crate) fn storm(count: usize, class: Class, controller: &'static str) -> Vec<Job> {
    let job = |index| Job {
        begins: Duration::ZERO,
        call: call(class, controller, &format!("node-{index}")),
        calls: 1,
        max_wait: None,
    };
    (0..count).map(job).collect()
}

/// Services that arrive at `rate` per second until `until`, each of which makes `calls` calls in sequence.
pub(crate) fn services(random: &mut Random, rate: f64, calls: u32, until: Duration) -> Vec<Job> {
    let mut begins = Duration::ZERO;
    let mut jobs = Vec::new();
    loop {
        begins += random.gap(rate);
        if begins >= until {
            return jobs;
        }
        let call = call(Class::Interactive, "service", &format!("service-{}", jobs.len()));
        jobs.push(Job { begins, call, calls, max_wait: None });
    }
}

/// One bucket for all calls, and queues that are large enough.
pub(crate) fn config(rate: f64, burst: u32) -> Config {
    let bucket = BucketConfig { parent: None, limit: RateLimit { rate, burst }, adaptive: None };
    Config {
        buckets: BTreeMap::from([("compute".to_owned(), bucket)]),
        queue: QueueLimits { total: 100_000, per_leaf: 100_000, per_object: 100_000 },
        ..Config::default()
    }
}

pub(crate) fn percentile(mut values: Vec<Duration>, percent: usize) -> Duration {
    values.sort_unstable();
    let rank = (values.len() * percent).div_ceil(100);
    values[rank - 1]
}
