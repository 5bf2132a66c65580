//! Checks whether replicas speed up the work, and whether they repeat each other's work. This module contains only pure functions.

use super::super::result::{Target, quantity};
use super::super::stage::RATE;
use super::per_second;

pub(super) const SHARDS: usize = 8;
/// Default of --leader-elect-lease-duration.
pub(super) const LEASE_SECONDS: f64 = 15.0;
/// Default of --leader-elect-retry-period, at which the other replicas check for an expired Lease.
const RETRY_SECONDS: f64 = 2.0;
/// The time for a single Service, in seconds.
const PASS_SECONDS: f64 = 3.0;
/// Minimum number of vendor writes for a Service: the load balancer, its port with the members, and the tag that marks it as complete.
const WRITES_EACH: usize = 3;
/// The minimum speed-up when the number of replicas doubles.
const GROWS: f64 = 1.1;
/// From this used share on, the budget or the CPU time counts as exhausted.
const ALL: f64 = 0.9;

/// Calls per second for each family, at [`Rate::Unbound`].
pub(super) const UNBOUND: u32 = 1000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rate {
    /// A rate that the controllers never reach.
    Unbound,
    Default,
}

impl Rate {
    /// A short name, for names of objects.
    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::Unbound => "unbound",
            Self::Default => "default",
        }
    }

    pub(super) const fn words(self) -> &'static str {
        match self {
            Self::Unbound => "a rate that does not bind",
            Self::Default => "the default rate",
        }
    }

    fn calls_a_second(self) -> f64 {
        match self {
            Self::Unbound => f64::from(UNBOUND),
            Self::Default => f64::from(RATE),
        }
    }
}

/// The result of creating many Services at once with some number of replicas.
#[derive(Clone, Copy, Debug)]
pub(super) struct Interval {
    pub(super) replicas: usize,
    pub(super) rate: Rate,
    pub(super) services: usize,
    /// Seconds until the last Service had its address.
    pub(super) seconds: f64,
    /// Vendor calls for load balancers.
    pub(super) calls: f64,
    /// The busy share of all cores.
    pub(super) busy: f64,
    /// Vendor writes.
    pub(super) writes: u64,
}

impl Interval {
    fn speed(&self) -> f64 {
        per_second(self.services, self.seconds)
    }

    /// The share of the budget that was used.
    fn used(&self) -> f64 {
        self.calls / (self.rate.calls_a_second() * self.seconds).max(f64::EPSILON)
    }

    pub(super) fn words(&self) -> String {
        format!(
            "{}, {}: {} Services in {}, {} per second; {:.0} % of the rate used, cores {:.0} % busy.",
            number(self.replicas),
            self.rate.words(),
            self.services,
            quantity(self.seconds, "s"),
            quantity(self.speed(), ""),
            self.used() * 100.0,
            self.busy * 100.0
        )
    }
}

/// The result of killing one replica while Services were created.
#[derive(Clone, Copy, Debug)]
pub(super) struct Killed {
    /// Seconds until the last Service had its load balancer.
    pub(super) served: f64,
    pub(super) services: usize,
    /// Number of load balancers that were created.
    pub(super) made: u64,
    pub(super) writes: u64,
    /// Number of load balancers without a Service.
    pub(super) left_over: usize,
}

pub(super) fn judge(steps: &[Interval], killed: &Killed) -> Vec<Target> {
    let of = |rate| steps.iter().filter(move |step| step.rate == rate).collect::<Vec<_>>();
    let mut targets: Vec<_> =
        of(Rate::Unbound).windows(2).filter_map(|pair| Some(growth(pair.first()?, pair.last()?))).collect();
    targets.extend(of(Rate::Default).into_iter().map(|step| {
        let what = format!("{}: used share of the default rate", number(step.replicas));
        Target::at_least(what, step.used(), ALL, "")
    }));
    let least = |services: usize| u64::try_from(services * WRITES_EACH).unwrap_or(u64::MAX);
    let (writes, all) = steps.iter().fold((0, 0), |(writes, all), step| {
        (step.writes.saturating_add(writes), least(step.services).saturating_add(all))
    });
    let within = LEASE_SECONDS + RETRY_SECONDS + PASS_SECONDS;
    targets.extend([
        Target::count("vendor writes (minimum: 3 per Service)", writes, all),
        Target::at_most(
            "kill -9 of one: all Services served (15 s Lease, 2 s retry period, 3 s work)",
            killed.served,
            within,
            "s",
        ),
        Target::count(
            "kill -9 of one: load balancers created",
            killed.made,
            u64::try_from(killed.services).unwrap_or(u64::MAX),
        ),
        Target::count(
            "kill -9 of one: load balancers without a Service",
            u64::try_from(killed.left_over).unwrap_or(u64::MAX),
            0,
        ),
        Target::count(
            "kill -9 of one: vendor writes (minimum: 3 per Service)",
            killed.writes,
            least(killed.services),
        ),
    ]);
    targets
}

/// Requires that more replicas are faster, unless the rate limit or the CPU time is exhausted.
fn growth(few: &Interval, many: &Interval) -> Target {
    let grown = many.speed() / few.speed().max(f64::EPSILON);
    let why = if many.used() >= ALL {
        ", the rate limits"
    } else if many.busy >= ALL {
        ", no core is idle"
    } else {
        ""
    };
    Target {
        what: format!("{}: Services per second, relative to {}", number(many.replicas), number(few.replicas)),
        figure: format!("{}{why}", quantity(grown, "")),
        bound: format!(">= {GROWS}, or the rate or the cores are used up"),
        met: grown >= GROWS || !why.is_empty(),
    }
}

pub(super) fn number(replicas: usize) -> String {
    if replicas == 1 { "1 replica".to_owned() } else { format!("{replicas} replicas") }
}

#[cfg(test)]
mod tests {
    use super::{Interval, Killed, Rate, Target, judge};

    const GOOD: Killed = Killed { served: 20.0, services: 600, made: 600, writes: 1800, left_over: 0 };

    fn step(replicas: usize, rate: Rate, seconds: f64) -> Interval {
        Interval { replicas, rate, services: 100, seconds, calls: 400.0, busy: 0.5, writes: 300 }
    }

    fn met(steps: &[Interval], killed: &Killed) -> Vec<bool> {
        judge(steps, killed).iter().map(|it: &Target| it.met).collect()
    }

    #[test]
    fn replicas_must_help_unless_rate_or_cpu_is_used_up() {
        let first = step(1, Rate::Unbound, 11.1);
        let growth = |second: Interval| met(&[first, second], &GOOD)[0];
        assert!(growth(step(2, Rate::Unbound, 10.0)));
        assert!(!growth(step(2, Rate::Unbound, 10.2)));
        assert!(growth(Interval { busy: 0.9, ..step(2, Rate::Unbound, 11.0) }));
        assert!(growth(Interval { calls: 9900.0, ..step(2, Rate::Unbound, 11.0) }));
        // Each number of replicas is compared with the previous number, not with the first.
        let three = [first, step(2, Rate::Unbound, 5.5), step(4, Rate::Unbound, 5.5)];
        assert_eq!(met(&three, &GOOD)[..2], [true, false]);
    }

    #[test]
    fn idle_budget_and_fourth_write_miss_the_target() {
        let (used, idle) = (step(1, Rate::Default, 22.2), step(2, Rate::Default, 22.3));
        assert_eq!(met(&[used, idle], &GOOD)[..3], [true, false, true]);
        let twice = Interval { writes: 301, ..used };
        assert_eq!(met(&[twice], &GOOD)[..2], [true, false]);
    }

    #[test]
    fn late_or_duplicate_load_balancer_misses_the_target() {
        let of = |killed: Killed| met(&[], &killed)[1..].to_vec();
        assert_eq!(of(GOOD), [true; 4]);
        assert_eq!(of(Killed { served: 20.1, ..GOOD }), [false, true, true, true]);
        assert_eq!(of(Killed { made: 601, ..GOOD }), [true, false, true, true]);
        assert_eq!(of(Killed { left_over: 1, ..GOOD }), [true, true, false, true]);
        assert_eq!(of(Killed { writes: 1801, ..GOOD }), [true, true, true, false]);
    }
}
