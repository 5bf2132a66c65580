//! Tests with random input of all kinds. The invariants are checked after each step.

use std::{
    cell::Cell,
    collections::{BTreeMap, HashMap},
    time::Duration,
};

use cloud_budget::{
    Adaptive, AfterCall, BucketConfig, Call, CallResult, Class, Config, Decision, Hint, Outcome, QueueLimits,
    RateLimit, Scheduler, Ticket, Time,
};
use proptest::{
    prelude::{Strategy, any, prop},
    test_runner::{self, TestRunner},
};

use crate::{
    audit::Audit,
    world::{self, Random},
};

/// Minimum number of calls per case, averaged over all cases. Not all steps submit a call, and a few cases have few steps.
const CALLS: u64 = 4_000;
/// Number of steps of one case.
const STEPS: usize = 10_000;
/// Number of cases. In total they have a hundred thousand calls for each commit, and two million in the deep run.
const CASES: u32 = 25;

const FAMILIES: [&str; 2] = ["compute", "network"];
const OPERATIONS: [&str; 2] = ["Get", "List"];
/// The names of all buckets. `List` in `compute` is the only operation with a separate bucket.
const NAMES: [&str; 4] = ["account", "compute", "network", "compute:List"];
/// Each class and controller, and whether its calls may use the reserve.
const LEAVES: [(Class, &str, bool); 6] = [
    (Class::Background, "node", false),
    (Class::Background, "adapter", false),
    (Class::Lifecycle, "node", false),
    (Class::Interactive, "node", false),
    (Class::Interactive, "service", true),
    (Class::Traffic, "service", true),
];
const NAMESPACES: [&str; 3] = ["", "shop", "evil"];
const WEIGHTS: u64 = 1 + 1 + 3 + 8 + 8 + 8;
const LIMITS: QueueLimits = QueueLimits { total: 150, per_leaf: 60, per_object: 8 };

/// P1, P7, P13, P14 with random calls: all kinds of responses, cancellations, joining callers, reloads, leader changes, time steps. Each
/// call ends exactly once, and queues keep their bounds.
#[test]
fn invariants_hold_for_random_input() {
    let (handed_in, sent) = (Cell::new(0), Cell::new(0));
    let input = (any::<u64>(), prop::collection::vec(limits(), 1..6), 1..=STEPS);
    let config = test_runner::Config {
        cases: test_support::cases(CASES),
        ..test_runner::Config::with_source_file(file!())
    };
    let held = TestRunner::new(config).run(&input, |(seed, limits, steps)| {
        // Short cases help proptest to shrink failing input.
        let steps = if steps > 100 { STEPS } else { steps };
        let mut model = Model::new(seed, limits);
        for step in 0..steps {
            model.step();
            if step % 10 == 0 {
                model.check_bounds();
            }
        }
        model.settle();
        handed_in.set(handed_in.get() + model.handed_in);
        sent.set(sent.get() + model.sent_by_leaf.iter().sum::<u64>());
        model.fill();
        Ok(())
    });
    held.unwrap_or_else(|broken| panic!("{broken}"));
    println!("{} random calls, {} of them sent", handed_in.get(), sent.get());
    assert!(handed_in.get() >= CALLS * u64::from(test_support::cases(CASES)), "{} calls", handed_in.get());
}

fn limits() -> impl Strategy<Value = [RateLimit; 4]> {
    let limit = (0.5..50.0_f64, 3..60_u32).prop_map(|(rate, burst)| RateLimit { rate, burst });
    [limit.clone(), limit.clone(), limit.clone(), limit]
}

fn config(limits: &[RateLimit; 4]) -> Config {
    let bucket = |limit| BucketConfig { parent: None, limit, adaptive: Some(Adaptive::default()) };
    let buckets = NAMES.iter().zip(limits).map(|(name, limit)| ((*name).to_owned(), bucket(*limit)));
    Config { buckets: buckets.collect(), queue: LIMITS, ..Config::default() }
}

#[derive(Clone, Debug)]
struct Known {
    call: Call,
    leaf: usize,
    flying: bool,
}

struct Model {
    random: Random,
    scheduler: Scheduler,
    now: Time,
    configs: Vec<[RateLimit; 4]>,
    audits: BTreeMap<&'static str, Audit>,
    /// Times before which no call may be sent, by bucket.
    pauses: BTreeMap<&'static str, Time>,
    allowed_until: Option<Time>,
    calls: HashMap<Ticket, Known>,
    /// Tickets of `calls`, from which the test chooses at random.
    tickets: Vec<Ticket>,
    wake: Option<Time>,
    handed_in: u64,
    sent_by_leaf: [u64; LEAVES.len()],
}

impl Model {
    fn new(seed: u64, configs: Vec<[RateLimit; 4]>) -> Self {
        let first = configs[0];
        let mut audits = BTreeMap::from(NAMES.map(|name| (name, Audit::default())));
        for (name, limit) in NAMES.iter().zip(first) {
            audits.get_mut(name).expect("named").limit(Time::ZERO, limit);
        }
        Self {
            random: Random(seed),
            scheduler: Scheduler::new(config(&first), Time::ZERO),
            now: Time::ZERO,
            configs,
            audits,
            pauses: BTreeMap::new(),
            allowed_until: None,
            calls: HashMap::new(),
            tickets: Vec::new(),
            wake: None,
            handed_in: 0,
            sent_by_leaf: [0; LEAVES.len()],
        }
    }

    fn step(&mut self) {
        match self.random.below(1_000) {
            0..450 => {
                let leaf = self.random.below(6);
                let leaf = usize::try_from(leaf).expect("small");
                let call = self.any_call(leaf);
                self.submit(leaf, call);
            }
            450..700 => self.answer_any(),
            700..750 => self.cancel_any(),
            750..800 => self.raise_any(),
            800..990 => self.let_time_pass(),
            990..992 => self.reload(),
            992 => self.scheduler.empty(self.now),
            993 => self.scheduler.self_check(self.now, false),
            994..997 => self.scheduler.self_check(self.now, true),
            997 => self.allow(Some(self.now + Duration::from_millis(self.random.0 % 5_000))),
            _ => self.allow(None),
        }
        self.drain();
    }

    fn any_call(&mut self, leaf: usize) -> Call {
        let random = &mut self.random;
        let (class, controller, reserve) = LEAVES[leaf];
        let hurried = random.below(3) > 0;
        Call {
            family: FAMILIES[usize::try_from(random.below(10) / 7).expect("small")],
            operation: OPERATIONS[usize::try_from(random.below(2)).expect("small")],
            reserve,
            cost: if random.below(20) == 0 { 3 } else { 1 },
            deadline: hurried.then(|| self.now + Duration::from_millis(random.below(60_000))),
            self_check: random.below(100) == 0,
            namespace: NAMESPACES[usize::try_from(random.below(3)).expect("small")].into(),
            ..world::call(class, controller, &random.below(12).to_string())
        }
    }

    fn submit(&mut self, leaf: usize, call: Call) -> bool {
        self.handed_in += 1;
        match self.scheduler.submit(self.now, call.clone()) {
            Ok(ticket) => {
                let known = Known { call, leaf, flying: false };
                assert!(self.calls.insert(ticket, known).is_none(), "{ticket:?} is new");
                self.tickets.push(ticket);
                true
            }
            Err(refusal) => {
                assert!(refusal.retry_after >= Duration::from_millis(500), "{refusal:?}");
                false
            }
        }
    }

    fn answer_any(&mut self) {
        let Some(ticket) = self.any_ticket().filter(|ticket| self.calls[ticket].flying) else { return };
        let random = &mut self.random;
        let outcome = match random.below(100) {
            0..85 => Outcome::Answered,
            85..93 => Outcome::Failed,
            93 => Outcome::Unauthorized,
            94..97 => Outcome::Throttled { retry_after: None, bucket: None },
            97 => Outcome::Throttled {
                retry_after: Some(Duration::from_nanos(random.below(8_000_000_000))),
                bucket: Some("account"),
            },
            _ => Outcome::Throttled {
                retry_after: Some(Duration::from_nanos(random.below(8_000_000_000))),
                bucket: None,
            },
        };
        let hint = Hint {
            bucket: None,
            remaining: random.below(200),
            limit: Some(200),
            reset: Some(Duration::from_secs(random.below(20))),
        };
        let hint = (random.below(50) == 0).then_some(hint);
        self.answer(ticket, outcome, hint);
    }

    fn answer(&mut self, ticket: Ticket, outcome: Outcome, hint: Option<Hint>) {
        let family = self.calls[&ticket].call.family;
        if let Outcome::Throttled { retry_after: Some(retry_after), bucket } = outcome {
            let until = self.pauses.entry(bucket.unwrap_or(family)).or_default();
            *until = (*until).max(self.now + retry_after);
        }
        let latency = Duration::from_millis(self.random.below(900));
        match self.scheduler.answered(self.now, ticket, CallResult { outcome, latency, hint }) {
            AfterCall::Again => self.calls.get_mut(&ticket).expect("known").flying = false,
            AfterCall::Done => self.end(ticket),
        }
    }

    fn cancel_any(&mut self) {
        let Some(ticket) = self.any_ticket() else { return };
        let flying = self.calls[&ticket].flying;
        assert_eq!(self.scheduler.cancel(ticket), !flying);
        if !flying {
            self.end(ticket);
        }
        assert!(!self.scheduler.cancel(ticket), "the call is cancelled only once");
    }

    /// Adds another caller to a random call.
    fn raise_any(&mut self) {
        let Some(ticket) = self.any_ticket() else { return };
        let leaf = usize::try_from(self.random.below(6)).expect("small");
        let Known { call, flying, .. } = self.calls[&ticket].clone();
        let joins = self.any_call(leaf);
        let Call { family, operation, cost, self_check, .. } = call;
        let raised = Call { family, operation, cost, self_check, ..joins };
        if let Some(deadline) = raised.deadline {
            let late = self.scheduler.late(self.now, ticket, deadline);
            assert!(late.is_none_or(|(expected, _)| !flying && expected > deadline));
        }
        let moved = self.scheduler.raise(self.now, ticket, raised.clone());
        let known = self.calls.get_mut(&ticket).expect("known");
        if moved || flying {
            (known.leaf, known.call) = (leaf, raised);
        } else {
            known.call.deadline = raised.deadline;
        }
    }

    fn any_ticket(&mut self) -> Option<Ticket> {
        let len = u64::try_from(self.tickets.len()).expect("small");
        (len > 0).then(|| self.tickets[usize::try_from(self.random.below(len)).expect("small")])
    }

    fn let_time_pass(&mut self) {
        self.now = match (self.random.below(4), self.wake) {
            (0, Some(wake)) => self.now.max(wake),
            (1, _) => self.now + Duration::from_millis(self.random.below(3_000)),
            _ => self.now + Duration::from_nanos(self.random.below(100_000_000)),
        };
    }

    fn reload(&mut self) {
        let len = u64::try_from(self.configs.len()).expect("small");
        let limits = self.configs[usize::try_from(self.random.below(len)).expect("small")];
        self.scheduler.configure(self.now, config(&limits));
        for (name, limit) in NAMES.iter().zip(limits) {
            self.audits.get_mut(name).expect("named").limit(self.now, limit);
        }
    }

    fn allow(&mut self, until: Option<Time>) {
        self.allowed_until = until;
        self.scheduler.allow_until(until);
    }

    fn drain(&mut self) {
        loop {
            match self.scheduler.next(self.now) {
                Decision::Send { ticket, .. } => self.check_sent(ticket),
                Decision::Refuse(ticket, refusal) => {
                    assert!(!self.calls[&ticket].flying, "{refusal:?} of a call in flight");
                    assert!(refusal.retry_after >= Duration::from_millis(500), "{refusal:?}");
                    self.end(ticket);
                }
                Decision::Wait(wake) => {
                    assert!(wake.is_none_or(|wake| wake > self.now), "the scheduler would loop forever");
                    self.wake = wake;
                    return;
                }
            }
        }
    }

    fn check_sent(&mut self, ticket: Ticket) {
        let now = self.now;
        let known = self
            .calls
            .get_mut(&ticket)
            .expect("the call has not ended: neither cancelled nor refused nor answered");
        assert!(!known.flying, "the call is not sent twice");
        known.flying = true;
        self.sent_by_leaf[known.leaf] += 1;
        let call = &known.call;
        assert!(call.deadline.is_none_or(|deadline| now < deadline), "expired");
        assert!(self.allowed_until.is_none_or(|until| now < until), "the replica is no longer the leader");
        for name in path(call) {
            assert!(self.pauses.get(name).is_none_or(|until| now >= *until), "{name} is paused");
            let audit = self.audits.get_mut(name).expect("named");
            assert_eq!(audit.spend(now, call.cost), Ok(()), "{name}");
        }
    }

    fn check_bounds(&self) {
        let report = self.scheduler.report(self.now);
        let queued: Vec<_> = report.leaves.iter().map(|leaf| leaf.queued).collect();
        assert_eq!(
            queued.iter().sum::<u64>(),
            u64::try_from(self.waiting()).expect("small"),
            "no call is lost"
        );
        assert!(queued.iter().all(|leaf| *leaf <= 60), "{queued:?}");
        assert!(queued.iter().sum::<u64>() <= 150, "{queued:?}");
    }

    fn waiting(&self) -> usize {
        self.tickets.iter().filter(|ticket| !self.calls[ticket].flying).count()
    }

    fn end(&mut self, ticket: Ticket) {
        assert!(self.calls.remove(&ticket).is_some(), "{ticket:?} ends once");
        self.tickets.retain(|other| *other != ticket);
    }

    /// The vendor recovers: every queued call is sent or refused.
    fn settle(&mut self) {
        self.scheduler.self_check(self.now, true);
        self.allow(None);
        for _ in 0..100_000 {
            self.drain();
            self.answer_flying();
            self.drain();
            if self.tickets.is_empty() {
                return;
            }
            self.now = self.wake.unwrap_or(self.now);
        }
        assert!(self.tickets.is_empty(), "never sent: {:?}", self.calls);
    }

    fn answer_flying(&mut self) {
        for ticket in self.tickets.clone() {
            if self.calls[&ticket].flying {
                self.answer(ticket, Outcome::Answered, None);
            }
        }
    }

    /// All classes have unlimited work, and background work gets its share.
    fn fill(&mut self) {
        self.sent_by_leaf = [0; LEAVES.len()];
        while self.sent_by_leaf.iter().sum::<u64>() < 600 {
            for (index, (class, controller, reserve)) in LEAVES.into_iter().enumerate() {
                while self.tickets.iter().filter(|ticket| self.calls[ticket].leaf == index).count() < 20 {
                    let object = (self.random.below(12)).to_string();
                    let call = Call { reserve, ..world::call(class, controller, &object) };
                    if !self.submit(index, call) {
                        break;
                    }
                }
            }
            self.drain();
            self.answer_flying();
            self.now = self.wake.unwrap_or(self.now);
        }
        let [background, ..] = self.sent_by_leaf;
        let all: u64 = self.sent_by_leaf.iter().sum();
        assert!(background as f64 + 1.0 >= 0.9 * all as f64 / WEIGHTS as f64, "{:?}", self.sent_by_leaf);
    }
}

fn path(call: &Call) -> impl Iterator<Item = &'static str> {
    let operation = (call.family == "compute" && call.operation == "List").then_some("compute:List");
    ["account", call.family].into_iter().chain(operation)
}
