//! Shares of controllers and classes when all queues are full.

use std::time::Duration;

use cloud_budget::{Class, Time, Weights};

use crate::{Vendor, World, clients::Ours};

/// Rate of the bucket, in calls per second.
const RATE: f64 = 10.0;
const BURST: u32 = 20;

/// Share of the rate that a class gets if it always has calls to send and no other class has any, during a minute after the burst is spent.
#[must_use]
pub fn alone(class: Class) -> f64 {
    let mut world = world(&[(class, "service-controller")]);
    let (from, until) = (at(60), at(120));
    world.run_until(until);
    world.log().served_per_second(from, until) / RATE
}

/// What background work gets relative to the share of its weight, if all classes have calls to send for ten minutes.
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
