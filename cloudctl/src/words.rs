//! Formats times and numbers for users.

use jiff::{SignedDuration, Timestamp};

/// The text in a table for a missing value.
pub(crate) const NOTHING: &str = "-";

/// Formats a duration in its two largest units: `4s`, `3m 4s`, `2h 5m`, `3d 1h`.
pub(crate) fn duration(seconds: f64) -> String {
    if seconds < 10.0 {
        let text = format!("{:.1}", seconds.max(0.0));
        return format!("{}s", text.trim_end_matches(".0"));
    }
    #[expect(clippy::cast_possible_truncation, reason = "saturates, far beyond any real duration")]
    let whole = seconds.round() as i64;
    let (minutes, hours, days) = (whole / 60, whole / 3600, whole / 86_400);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{whole}s"),
        (0, 0, minutes) => two(minutes, "m", whole % 60, "s"),
        (0, hours, minutes) => two(hours, "h", minutes % 60, "m"),
        (days, hours, _) => two(days, "d", hours % 24, "h"),
    }
}

fn two(more: i64, unit: &str, less: i64, part: &str) -> String {
    if less == 0 { format!("{more}{unit}") } else { format!("{more}{unit} {less}{part}") }
}

/// Formats the time since `at`. A time in the future counts as now, because clocks differ.
pub(crate) fn age(now: Timestamp, at: Timestamp) -> String {
    let seconds = now.duration_since(at).max(SignedDuration::ZERO).as_secs_f64();
    duration(seconds.round())
}

pub(crate) fn until(now: Timestamp, at: Timestamp) -> String {
    age(at, now)
}

/// Formats a number with at most two decimals. A number above zero is not shown as zero.
pub(crate) fn number(value: f64) -> String {
    if value > 0.0 && value < 0.005 {
        return "<0.01".to_owned();
    }
    let text = format!("{value:.2}");
    let short = text.trim_end_matches('0').trim_end_matches('.');
    short.to_owned()
}

pub(crate) fn or_nothing(text: &str) -> &str {
    if text.is_empty() { NOTHING } else { text }
}

/// Formats a number with its noun: `1 call`, `2 calls`.
pub(crate) fn many(number: u64, word: &str) -> String {
    if number == 1 { format!("1 {word}") } else { format!("{number} {word}s") }
}

/// Maximum number of names on a line.
const SHOWN: usize = 5;

pub(crate) fn named(names: &[String]) -> String {
    first_of(names, SHOWN)
}

/// Formats the number of objects, and at most this many of them.
pub(crate) fn first_of(names: &[String], most: usize) -> String {
    let shown: Vec<&str> = names.iter().take(most).map(String::as_str).collect();
    let more = if names.len() > most { ", ..." } else { "" };
    format!("{}: {}{more}", names.len(), shown.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_two_units() {
        for (seconds, text) in [
            (0.24, "0.2s"),
            (-3.0, "0s"),
            (2.0, "2s"),
            (12.0, "12s"),
            (60.0, "1m"),
            (184.0, "3m 4s"),
            (7_500.0, "2h 5m"),
            (262_800.0, "3d 1h"),
        ] {
            assert_eq!(duration(seconds), text);
        }
    }

    #[test]
    fn numbers_are_short() {
        for (value, text) in [
            (5.0, "5"),
            (0.25, "0.25"),
            (1.0 / 3.0, "0.33"),
            (10.5, "10.5"),
            (100.0, "100"),
            (0.004, "<0.01"),
            (0.0, "0"),
        ] {
            assert_eq!(number(value), text);
        }
    }

    #[test]
    fn a_future_time_counts_as_now() {
        let at = |second| Timestamp::from_second(second).expect("a time");
        assert_eq!(age(at(100), at(40)), "1m");
        assert_eq!(age(at(40), at(100)), "0s");
        assert_eq!(until(at(40), at(100)), "1m");
    }
}
