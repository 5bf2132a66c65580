//! Shares of controllers and classes when all queues are full.

use std::time::Duration;

use cloud_budget::{Class, Time, Weights};

use crate::{Vendor, World, clients::Ours};

/// Calls per second.
const RATE: f64 = 10.0;
const BURST: u32 = 20;

/// A class that always has calls to send, alone, for a minute after the burst is spent: the share of the rate that it gets.
#[must_use]
pub fn alone(class: Class) -> f64 {
    let mut world = world(&[(class, "service-controller")]);
    let (from, until) = (at(60), at(120));
    world.run_until(until);
    world.log().served_per_second(from, until) / RATE
}

/// All classes have calls to send for ten minutes: what background work gets, relative to the share of its weight.
#[must_use]
pub fn background_under_load() -> f64 {
    let mut world = world(&Class::ALL.map(|class| (class, "service-controller")));
    let (from, until) = (at(60), at(660));
    world.run_until(from);
    let before = world.client.sent(Class::Background);
    world.run_until(until);
    let sent = u32::try_from(world.client.sent(Class::Background) - before).unwrap_or(u32::MAX);
    let weights = Weights::default();
    let sum: u32 = Class::ALL.iter().map(|class| weights.of(*class)).sum();
    let promised = RATE / f64::from(sum) * until.since(from).as_secs_f64();
    f64::from(sent) / promised
}

fn world(queues: &[(Class, &'static str)]) -> World<Ours> {
    World::new(Ours::with_queues(RATE, BURST, queues), Vendor::unlimited(), Duration::from_millis(300))
}

fn at(seconds: u64) -> Time {
    Time::ZERO + Duration::from_secs(seconds)
}
