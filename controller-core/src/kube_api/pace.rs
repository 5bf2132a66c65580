//! The rate limit for requests to the API server: a number per second, and a burst.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

use crate::config::Rate;

/// Schedules requests at the rate. Clones share the state.
#[derive(Clone, Debug)]
pub(super) struct Pace {
    /// Interval between two requests.
    interval: Duration,
    /// How much earlier than scheduled a request may be sent, which permits the burst.
    ahead: Duration,
    next: Arc<Mutex<Instant>>,
}

impl Pace {
    pub(super) fn new(rate: Rate) -> Self {
        let interval = Duration::from_secs_f64(1.0 / rate.qps);
        let ahead = interval.saturating_mul(rate.burst.saturating_sub(1));
        Self { interval, ahead, next: Arc::new(Mutex::new(Instant::now())) }
    }

    pub(super) async fn wait(&self) {
        tokio::time::sleep_until(self.take(Instant::now())).await;
    }

    /// Returns when the next request may be sent, and schedules the following one.
    fn take(&self, now: Instant) -> Instant {
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        let scheduled = (*next).max(now);
        *next = scheduled + self.interval;
        scheduled.checked_sub(self.ahead).map_or(now, |early| early.max(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_burst_is_sent_at_once_and_then_paced() {
        let pace = Pace::new(Rate { qps: 10.0, burst: 3 });
        let begin = Instant::now();
        let mut at = Vec::new();
        for _ in 0..6 {
            pace.wait().await;
            at.push(begin.elapsed().as_millis());
        }
        assert_eq!(at, [0, 0, 0, 100, 200, 300]);
        tokio::time::sleep(Duration::from_mins(1)).await;
        let begin = Instant::now();
        for _ in 0..4 {
            pace.wait().await;
        }
        assert_eq!(begin.elapsed(), Duration::from_millis(100), "a pause saves up one burst and no more");
    }
}
