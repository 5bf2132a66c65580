//! Three quantiles of a set of durations, and how durations are written.

use std::time::Duration;

use serde::Serialize;

/// Quantiles in seconds, rounded to milliseconds. They use the nearest-rank method, so each quantile is a value that was measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Quantiles {
    /// Median.
    pub(crate) p50_seconds: f64,
    /// 99th percentile.
    pub(crate) p99_seconds: f64,
    /// Maximum.
    pub(crate) max_seconds: f64,
}

impl Quantiles {
    /// `None` if there are no durations.
    pub(crate) fn of(times: &[Duration]) -> Option<Self> {
        let mut times = times.to_vec();
        times.sort_unstable();
        let at = |percent: usize| {
            let rank = (times.len() * percent).div_ceil(100);
            times.get(rank.saturating_sub(1)).copied().map(seconds)
        };
        Some(Self { p50_seconds: at(50)?, p99_seconds: at(99)?, max_seconds: at(100)? })
    }
}

/// Rounds to the millisecond.
pub(crate) fn seconds(time: Duration) -> f64 {
    rounded(time.as_secs_f64(), 1_000.0)
}

/// Rounds to a multiple of 1 divided by this number.
pub(crate) fn rounded(number: f64, parts: f64) -> f64 {
    (number * parts).round() / parts
}

/// Formats a duration in the largest suitable unit.
pub(crate) fn in_words(time: f64) -> String {
    match time {
        short if short < 1.0 => format!("{} ms", (short * 1_000.0).round()),
        some if some < 120.0 => format!("{} s", rounded(some, 10.0)),
        long if long < 7_200.0 => format!("{} min", rounded(long / 60.0, 10.0)),
        longest => format!("{} h", rounded(longest / 3_600.0, 10.0)),
    }
}

pub(crate) fn span(time: Duration) -> String {
    in_words(seconds(time))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_measured_values() {
        let times: Vec<_> = (1..=200).rev().map(Duration::from_secs).collect();
        let all = Quantiles { p50_seconds: 100.0, p99_seconds: 198.0, max_seconds: 200.0 };
        assert_eq!(Quantiles::of(&times), Some(all));
        let one = Quantiles { p50_seconds: 0.25, p99_seconds: 0.25, max_seconds: 0.25 };
        assert_eq!(Quantiles::of(&[Duration::from_millis(250)]), Some(one));
        assert_eq!(Quantiles::of(&[]), None);
    }
}
