//! A throttled batch, and a caller that then requests each of its objects separately.

use std::time::Duration;

use cloud_budget::{Class, Time};

use crate::{
    CallerAction, Client, Vendor, Verdict, World,
    queue::{Budget, Queue, Work},
};

/// Number of objects in the batch.
pub const OBJECTS: u32 = 500;
/// Pause that the vendor requests after a throttle.
pub const PAUSE: Duration = Duration::from_secs(30);

/// Number of calls that a vendor receives until its pause is over, if it throttles a call for [`OBJECTS`] objects and as many calls for one
/// object each are submitted at once.
#[must_use]
pub fn throttled() -> usize {
    let mut vendor = Vendor::new(1.0).with_lockout(PAUSE).with_retry_after();
    // Another client has spent all tokens.
    while !vendor.call(Time::ZERO).throttled {}
    let mut world = World::new(Batch::new(), vendor, Duration::from_millis(50));
    world.run_until(Time::ZERO + PAUSE);
    world.log().calls(Time::ZERO, Time::ZERO + PAUSE)
}

struct Batch {
    budget: Budget,
}

impl Batch {
    fn new() -> Self {
        let mut batch = Self { budget: Budget::new(10.0, 20) };
        batch.submit(Time::ZERO, 0);
        batch
    }

    fn submit(&mut self, now: Time, object: u32) {
        let object = object.to_string().into();
        let work = Work { class: Class::Interactive, controller: "node-controller", reserve: true, object };
        // A refused call is not sent either.
        self.budget.submit(now, &work).ok();
    }
}

impl Client for Batch {
    fn next(&mut self, now: Time) -> CallerAction {
        self.budget.next(now)
    }

    fn answered(&mut self, now: Time, call: u64, verdict: &Verdict) {
        self.budget.answered(now, call, verdict);
        (1..=OBJECTS).for_each(|object| self.submit(now, object));
    }
}
