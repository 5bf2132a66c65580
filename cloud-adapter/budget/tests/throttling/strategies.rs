//! Clients that always have calls to send, configured for 10 calls per second, against a vendor that allows less.

use std::time::Duration;

use cloud_budget::Time;

use crate::{
    Client, Vendor, World,
    clients::{Aimd, Cubic, Fixed, Saturated, Workers},
};

/// Configured rate of all clients, in calls per second.
const CEILING: f64 = 10.0;
/// Configured burst of all clients, in calls.
const BURST: u32 = 20;
const LATENCY: Duration = Duration::from_millis(50);
const RUN: Duration = Duration::from_mins(30);
/// Time after which a client is expected to have adapted.
const LEARNT: Duration = Duration::from_mins(5);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Strategy {
    /// 50 workers, exponential back-off, no limiter.
    Workers,
    Fixed,
    /// The strategy of the AWS SDKs.
    Cubic,
    Aimd,
    Budget,
}

impl Strategy {
    /// All strategies.
    pub(crate) const ALL: [Self; 5] = [Self::Workers, Self::Fixed, Self::Cubic, Self::Aimd, Self::Budget];
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Figures {
    pub(crate) throttled: f64,
    /// Served share of the allowed calls. Slightly above 1 if the vendor's burst was used, too.
    pub(crate) used: f64,
}

/// Runs one client. Returns the figures of the whole run, and those of the time after adaptation.
pub(crate) fn saturated(strategy: Strategy, vendor: Vendor) -> [Figures; 2] {
    let (ceiling, burst) = (CEILING, f64::from(BURST));
    match strategy {
        Strategy::Workers => run(Workers::new(50), vendor),
        Strategy::Fixed => run(Fixed::new(ceiling, burst), vendor),
        Strategy::Cubic => run(Cubic::new(ceiling, burst), vendor),
        Strategy::Aimd => run(Aimd::new(ceiling, burst), vendor),
        Strategy::Budget => run(Saturated::new(ceiling, BURST), vendor),
    }
}

/// Time until the client uses the whole rate, if the vendor allows `before` calls per second for a while, and then [`CEILING`].
pub(crate) fn raised(before: f64, lasted: Duration) -> Duration {
    let mut world = budget(Vendor::new(before));
    world.run_until(Time::ZERO + lasted);
    let changed = world.now();
    world.vendor.set_rate(changed, CEILING);
    let full = |world: &World<Saturated>| {
        world.client.bucket(world.now()).is_some_and(|bucket| bucket.rate >= CEILING && bucket.knee.is_none())
    };
    while !full(&world) && world.now().since(changed) < RUN {
        world.run_until(world.now() + Duration::from_secs(1));
    }
    world.now().since(changed)
}

/// Figures after the change, if the vendor allows [`CEILING`] for a while, and then `after` calls per second.
pub(crate) fn lowered(after: f64, lasted: Duration) -> Figures {
    let mut world = budget(Vendor::new(CEILING));
    world.run_until(Time::ZERO + lasted);
    let changed = world.now();
    world.vendor.set_rate(changed, after);
    world.run_until(changed + RUN);
    figures(&world, changed)
}

fn budget(vendor: Vendor) -> World<Saturated> {
    World::new(Saturated::new(CEILING, BURST), vendor, LATENCY)
}

fn run(client: impl Client, vendor: Vendor) -> [Figures; 2] {
    let mut world = World::new(client, vendor, LATENCY);
    world.run_until(Time::ZERO + RUN);
    [Time::ZERO, Time::ZERO + LEARNT].map(|from| figures(&world, from))
}

fn figures<C: Client>(world: &World<C>, from: Time) -> Figures {
    let (log, until) = (world.log(), world.now());
    let used = log.served_per_second(from, until) / world.vendor.rate();
    Figures { throttled: log.throttled_per_minute(from, until), used }
}
