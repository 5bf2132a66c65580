//! Random elections with a model of the API server. Requests are delayed, lost, or executed after their timeout. Processes are paused or
//! killed, and a Lease is deleted or emptied.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

const NAMES: [&str; 3] = ["a", "b", "c"];
const MINUTE: Duration = Duration::from_mins(1);

#[derive(Clone, Debug)]
enum Call {
    Read,
    Write(Option<String>, Box<Record>),
}

/// The answer of the API server. `Err` means that the request was refused.
type ReadResult = Result<Option<Record>, ()>;

#[derive(Clone, Copy, Debug)]
struct Flight {
    process: usize,
    number: u64,
    started: Instant,
    write: bool,
}

#[derive(Debug)]
enum Event {
    Wake(usize),
    Arrive(Flight, Call),
    /// The end of a request. `None` means that the caller no longer waits for the answer.
    Return(Flight, Option<ReadResult>),
    /// An operator deletes or empties the Lease.
    Meddle,
    /// A process is killed, and another process is started in its place.
    Restart(usize),
}

struct Process {
    name: String,
    candidate: Candidate,
    /// The number of the request that the process waits for.
    waits_for: Option<u64>,
}

struct Election {
    now: Instant,
    events: BTreeMap<(Instant, u64), Event>,
    processes: Vec<Process>,
    lease: Option<Record>,
    versions: u64,
    number: u64,
    /// All terms so far, each with its epoch and its holder.
    terms: Vec<(u64, String)>,
    begin: Instant,
    /// Creation time of the Lease.
    made: Instant,
    chances: std::iter::Cycle<std::vec::IntoIter<u16>>,
    /// The number of requests in 1,000 that have a fault, and of wake-ups in 1,000 that are late.
    trouble: u16,
}

impl Election {
    fn new(n: usize, chances: Vec<u16>, trouble: u16) -> Self {
        let now = Instant::now();
        let mut election = Self {
            now,
            events: BTreeMap::new(),
            processes: NAMES.iter().take(n).map(|name| Process::new(name, now)).collect(),
            lease: Some(Record::default()),
            versions: 0,
            number: 0,
            terms: Vec::new(),
            begin: now,
            made: now,
            chances: chances.into_iter().cycle(),
            trouble,
        };
        for process in 0..n {
            election.after(Duration::ZERO, Event::Wake(process));
            election.after(MINUTE, Event::Restart(process));
        }
        election.after(MINUTE, Event::Meddle);
        election
    }

    fn chance(&mut self, below: u16) -> u16 {
        self.chances.next().unwrap_or_default() % below
    }

    fn millis(&mut self, below: u16) -> Duration {
        Duration::from_millis(self.chance(below).into())
    }

    fn troubled(&mut self) -> bool {
        self.chance(1000) < self.trouble
    }

    fn after(&mut self, delay: Duration, event: Event) {
        self.number += 1;
        self.events.insert((self.now + delay, self.number), event);
    }

    fn run(&mut self, until: Instant) {
        while let Some(((now, _), event)) = self.events.pop_first() {
            self.now = now;
            if now > until {
                return;
            }
            match event {
                Event::Wake(process) => self.wake(process),
                Event::Arrive(flight, call) => self.arrive(flight, call),
                Event::Return(flight, answer) => self.answered(flight, answer),
                Event::Meddle => self.meddle(),
                Event::Restart(process) => self.restart(process),
            }
        }
    }

    fn meddle(&mut self) {
        self.lease = match self.lease.take() {
            Some(lease) if self.chance(2) == 0 => {
                self.versions += 1;
                Some(Record { holder: None, version: self.versions.to_string(), ..lease })
            }
            // No process would observe a Lease that is created and deleted between two reads of that process.
            Some(lease) if self.now < self.made + Timing::default().duration => Some(lease),
            Some(_) | None => None,
        };
        let pause = MINUTE / 4 + self.millis(60_000);
        self.after(pause, Event::Meddle);
    }

    fn restart(&mut self, at: usize) {
        self.number += 1;
        // Each process has a unique name.
        let name = format!("{}{}", NAMES[at], self.number);
        self.processes[at] = Process::new(&name, self.now);
        self.after(Duration::ZERO, Event::Wake(at));
        let pause = MINUTE / 4 + self.millis(60_000);
        self.after(pause, Event::Restart(at));
    }

    fn wake(&mut self, at: usize) {
        if self.processes[at].waits_for.is_some() {
            return;
        }
        let process = &mut self.processes[at];
        match process.candidate.decide(self.now) {
            Action::Wait(until) => {
                let late = if self.troubled() { self.millis(15_000) } else { Duration::ZERO };
                self.after(until.duration_since(self.now) + late, Event::Wake(at));
            }
            Action::Lost(_) => {
                process.candidate.resign();
                self.after(Duration::ZERO, Event::Wake(at));
            }
            Action::Read => self.call(at, Call::Read),
            Action::Renew { version } if self.chance(50) == 0 => {
                let process = &mut self.processes[at];
                let held = process.record();
                process.candidate.resign();
                self.call(
                    at,
                    Call::Write(Some(version), Box::new(Record { holder: None, released: true, ..held })),
                );
            }
            Action::Renew { version } => {
                let held = self.processes[at].record();
                self.write(at, Some(version), held);
            }
            Action::Acquire(Acquisition { transitions, after, version }) => {
                let second = self.now.duration_since(self.begin).as_secs().max(after + 1);
                let acquired =
                    i64::try_from(second).ok().and_then(|second| Timestamp::from_second(second).ok());
                let holder = Some(self.processes[at].name.clone());
                let record = Record { holder, transitions, acquired, ..Record::default() };
                self.write(at, version, record);
            }
        }
    }

    fn write(&mut self, at: usize, version: Option<String>, record: Record) {
        // The renewal time only has to differ from that of all other writes.
        let renewed = i64::try_from(self.number).ok().and_then(|number| Timestamp::from_second(number).ok());
        self.call(at, Call::Write(version, Box::new(Record { renewed, ..record })));
    }

    fn call(&mut self, at: usize, call: Call) {
        self.number += 1;
        let write = matches!(call, Call::Write(..));
        let flight = Flight { process: at, number: self.number, started: self.now, write };
        self.processes[at].waits_for = Some(flight.number);
        self.after(Timing::default().call_limit(), Event::Return(flight, None));
        // A request may still arrive after its caller has stopped waiting.
        let delay = if self.troubled() { self.millis(20_000) } else { self.millis(200) };
        if !(self.troubled() && self.chance(2) == 0) {
            self.after(delay, Event::Arrive(flight, call));
        }
    }

    fn arrive(&mut self, flight: Flight, call: Call) {
        let answer = match call {
            Call::Read => Ok(self.lease.clone()),
            Call::Write(version, record) => {
                if self.lease.as_ref().map(|lease| &lease.version) == version.as_ref() {
                    self.versions += 1;
                    if self.lease.is_none() {
                        self.made = self.now;
                    }
                    let record = Record { version: self.versions.to_string(), ..*record };
                    self.lease = Some(record.clone());
                    Ok(Some(record))
                } else {
                    Err(())
                }
            }
        };
        let delay = if self.troubled() { self.millis(5000) } else { self.millis(200) };
        if !(self.troubled() && self.chance(2) == 0) {
            self.after(delay, Event::Return(flight, Some(answer)));
        }
    }

    fn answered(&mut self, flight: Flight, answer: Option<ReadResult>) {
        let Flight { process: at, number, started, write } = flight;
        let now = self.now;
        let process = &mut self.processes[at];
        if process.waits_for != Some(number) {
            return;
        }
        process.waits_for = None;
        let led = process.candidate.term().is_some();
        match (write, answer) {
            (true, Some(Ok(Some(record)))) => process.candidate.wrote(started, now, record),
            (true, _) => process.candidate.failed(started, now),
            (false, Some(Ok(record))) => process.candidate.saw(now, record),
            (false, _) => process.candidate.saw_nothing(started),
        }
        if let Some((epoch, until)) = process.candidate.term().filter(|_| write) {
            if !led {
                let (name, since) = (&self.processes[at].name, self.processes[at].candidate.since());
                let last = self.terms.last().map_or(0, |(epoch, _)| *epoch);
                assert!(epoch > last, "{name}: term {epoch} after {last}");
                let mut in_a_row = self.terms.iter().filter(|(epoch, _)| *epoch >= since);
                assert!(in_a_row.all(|(_, leader)| leader == name), "{name}: another holder since {since}");
                self.terms.push((epoch, name.clone()));
            }
            if until > now {
                self.no_other_leads(at);
            }
        }
        self.after(Duration::ZERO, Event::Wake(at));
    }

    fn no_other_leads(&self, at: usize) {
        for (other, process) in self.processes.iter().enumerate().filter(|(other, _)| *other != at) {
            let until = process.candidate.term().map(|(_, until)| until);
            assert!(
                until.is_none_or(|until| until <= self.now),
                "{} and {} lead at the same time",
                NAMES[at],
                NAMES[other]
            );
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: test_support::cases(300), ..ProptestConfig::default() })]

    #[test]
    fn never_do_two_lead(
        n in 2..=3_usize,
        trouble in 0..400_u16,
        chances in prop::collection::vec(any::<u16>(), 1000..1100),
    ) {
        let mut election = Election::new(n, chances, trouble);
        election.run(election.now + Duration::from_mins(10));
    }
}

#[test]
fn elections_of_the_model_change_hands_often() {
    let chances: Vec<u16> = (0..997_u32).map(|n| u16::try_from(n * 7919 % 65_521).expect("fits")).collect();
    let mut election = Election::new(3, chances, 150);
    election.run(election.now + Duration::from_mins(60));
    assert!(election.terms.len() > 20, "{} terms", election.terms.len());
}

impl Process {
    fn new(name: &str, now: Instant) -> Self {
        let candidate = Candidate::new(name, Timing::default(), now);
        Self { name: name.to_owned(), candidate, waits_for: None }
    }

    /// The record that this candidate renews.
    fn record(&self) -> Record {
        self.candidate.seen.as_ref().expect("renews").record.clone()
    }
}
