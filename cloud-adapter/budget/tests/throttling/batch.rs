//! Tests a throttled batch, followed by a caller that requests each object of the batch separately.

use std::time::Duration;

use cloud_budget::Time;

use crate::{CallerAction, Client, Vendor, Verdict, World, clients::Budget};

const OBJECTS: u32 = 500;
/// Pause that the vendor requests after a throttle.
const PAUSE: Duration = Duration::from_secs(30);

/// Number of calls that the vendor receives until its pause is over. The vendor throttles one call for [`OBJECTS`] objects; the client then
/// submits one call for each object, all at once.
pub(crate) fn throttled() -> usize {
    let mut vendor = Vendor::new(1.0).with_lockout(PAUSE).with_retry_after();
    // Another client has spent all tokens.
    while !vendor.call(Time::ZERO).throttled {}
    let mut budget = Budget::new(10.0, 20);
    budget.submit(Time::ZERO, "batch");
    let mut world = World::new(Batch(budget), vendor, Duration::from_millis(50));
    world.run_until(Time::ZERO + PAUSE);
    world.log().calls(Time::ZERO, Time::ZERO + PAUSE)
}

struct Batch(Budget);

impl Client for Batch {
    fn next(&mut self, now: Time) -> CallerAction {
        self.0.next(now)
    }

    fn answered(&mut self, now: Time, call: u64, verdict: &Verdict) {
        self.0.answered(now, call, verdict);
        (1..=OBJECTS).for_each(|object| {
            self.0.submit(now, &object.to_string());
        });
    }
}
