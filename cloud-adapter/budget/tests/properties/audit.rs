//! Checks P1 as calls go: in no window more than burst + rate x window.

use cloud_budget::{RateLimit, Time};

/// Watches one bucket. With limits that change, the largest burst of the window and the integral of the rate count.
#[derive(Clone, Debug, Default)]
pub(crate) struct Audit {
    rate: f64,
    /// One a limit since when windows may begin: its burst, and how much of that is used.
    levels: Vec<(f64, f64)>,
    at: Time,
}

impl Audit {
    /// From now on, that is the limit.
    pub(crate) fn limit(&mut self, now: Time, limit: RateLimit) {
        self.pass(now);
        self.rate = limit.rate;
        let burst = f64::from(limit.burst);
        // A window that began before may hold what either burst allows.
        self.levels.iter_mut().for_each(|(larger, _)| *larger = larger.max(burst));
        self.levels.push((burst, 0.0));
    }

    /// A call is sent; the error says by how much too many.
    pub(crate) fn spend(&mut self, now: Time, cost: u32) -> Result<(), f64> {
        self.pass(now);
        let mut beyond = 0.0_f64;
        for (burst, used) in &mut self.levels {
            *used += f64::from(cost);
            beyond = beyond.max(*used - *burst);
        }
        // What floating point is off by here, not there.
        if beyond > 1e-6 { Err(beyond) } else { Ok(()) }
    }

    fn pass(&mut self, now: Time) {
        let filled = now.since(self.at).as_secs_f64() * self.rate;
        self.levels.iter_mut().for_each(|(_, used)| *used = (*used - filled).max(0.0));
        self.at = now;
    }
}
