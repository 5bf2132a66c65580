//! Checks property P1 after each call: no window has more calls than burst + rate x window.

use cloud_budget::{RateLimit, Time};

/// Audits one bucket. If limits change, the largest burst in the window and the integral of the rate apply.
#[derive(Clone, Debug, Default)]
pub(crate) struct Audit {
    rate: f64,
    /// One entry per limit set so far, for the windows that began under that limit: the largest burst since then, and the used part of
    /// that burst.
    levels: Vec<(f64, f64)>,
    at: Time,
}

impl Audit {
    pub(crate) fn limit(&mut self, now: Time, limit: RateLimit) {
        self.pass(now);
        self.rate = limit.rate;
        let burst = f64::from(limit.burst);
        // A window that began earlier may contain the larger of the two bursts.
        self.levels.iter_mut().for_each(|(larger, _)| *larger = larger.max(burst));
        self.levels.push((burst, 0.0));
    }

    /// Records a sent call. Returns the number of tokens above the limit as an error.
    pub(crate) fn spend(&mut self, now: Time, cost: u32) -> Result<(), f64> {
        self.pass(now);
        let mut beyond = 0.0_f64;
        for (burst, used) in &mut self.levels {
            *used += f64::from(cost);
            beyond = beyond.max(*used - *burst);
        }
        // Tolerance for floating-point errors of this audit.
        if beyond > 1e-6 { Err(beyond) } else { Ok(()) }
    }

    fn pass(&mut self, now: Time) {
        let filled = now.since(self.at).as_secs_f64() * self.rate;
        self.levels.iter_mut().for_each(|(_, used)| *used = (*used - filled).max(0.0));
        self.at = now;
    }
}
