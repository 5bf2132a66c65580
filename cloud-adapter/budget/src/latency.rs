//! Durations of vendor operations: quantiles from a histogram that gradually drops old data.

use std::time::Duration;

use crate::Time;

/// Upper bounds of the cells in microseconds: the first is 1 ms, each further bound is a quarter larger, and the last is more than a
/// minute.
const BOUNDS: [u64; CELLS] = bounds();
const CELLS: usize = 52;
/// Number of durations after which the count of each cell is halved.
const MEMORY: u32 = 512;
/// Age at which the data is discarded. Without this limit, calls would be refused forever after one slow hour, and no call would be sent to
/// discover that the vendor is fast again.
const STALE: Duration = Duration::from_mins(1);

#[derive(Clone, Debug)]
pub(crate) struct Latency {
    cells: [u32; CELLS],
    total: u32,
    quantiles: Quantiles,
    recorded_at: Time,
}

/// Expected duration; zero if unknown.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Quantiles {
    pub(crate) p50: Duration,
    pub(crate) p95: Duration,
}

impl Default for Latency {
    fn default() -> Self {
        Self { cells: [0; CELLS], total: 0, quantiles: Quantiles::default(), recorded_at: Time::ZERO }
    }
}

impl Latency {
    pub(crate) fn record(&mut self, now: Time, latency: Duration) {
        let micros = u64::try_from(latency.as_micros()).unwrap_or(u64::MAX);
        let cell = BOUNDS.partition_point(|bound| *bound < micros).min(CELLS - 1);
        if let Some(count) = self.cells.get_mut(cell) {
            *count += 1;
        }
        self.total += 1;
        if self.total >= MEMORY {
            self.cells.iter_mut().for_each(|count| *count /= 2);
            self.total = self.cells.iter().sum();
        }
        self.recorded_at = now;
        self.quantiles = Quantiles { p50: self.quantile(50), p95: self.quantile(95) };
    }

    pub(crate) fn quantiles(&self, now: Time) -> Quantiles {
        if now.since(self.recorded_at) > STALE { Quantiles::default() } else { self.quantiles }
    }

    fn quantile(&self, percent: u32) -> Duration {
        let rank = (self.total * percent).div_ceil(100);
        let mut seen = 0;
        let cell = self.cells.iter().zip(BOUNDS).find(|(count, _)| {
            seen += **count;
            seen >= rank
        });
        cell.map_or(Duration::ZERO, |(_, bound)| Duration::from_micros(bound))
    }
}

const fn bounds() -> [u64; CELLS] {
    let mut bounds = [1_000; CELLS];
    let mut cell = 1;
    while cell < CELLS {
        #[expect(clippy::indexing_slicing, reason = "evaluated at compile time")]
        {
            bounds[cell] = bounds[cell - 1] * 5 / 4;
        }
        cell += 1;
    }
    bounds
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_at_most_a_quarter_too_high_and_expire() {
        let mut latency = Latency::default();
        let now = Time::ZERO + Duration::from_hours(1);
        for millis in 1..=100 {
            latency.record(now, Duration::from_millis(millis));
        }
        let Quantiles { p50, p95 } = latency.quantiles(now);
        assert!(p50 >= Duration::from_millis(50) && p50 <= Duration::from_millis(63), "{p50:?}");
        assert!(p95 >= Duration::from_millis(95) && p95 <= Duration::from_millis(119), "{p95:?}");
        assert_eq!(latency.quantiles(now + STALE * 2).p50, Duration::ZERO);
    }

    #[test]
    fn new_durations_displace_old_ones() {
        let mut latency = Latency::default();
        for _ in 0..2_000 {
            latency.record(Time::ZERO, Duration::from_secs(10));
        }
        for _ in 0..600 {
            latency.record(Time::ZERO, Duration::from_millis(100));
        }
        let Quantiles { p50, p95 } = latency.quantiles(Time::ZERO);
        assert!(p50 <= Duration::from_millis(125), "{p50:?}");
        assert!(p95 >= Duration::from_secs(10), "{p95:?}");
    }
}
