//! Durations in the syntax of Go's flags, and so of Kubernetes' own programs: `90s`, `5m`, `1h30m`, `1.5h`.

use std::time::Duration;

/// Maximum in nanoseconds, as in Go: a signed 64-bit integer, which is enough for 292 years.
const LONGEST: u128 = i64::MAX as u128;

/// Maximum number of digits after the point. Further digits make no difference.
const DIGITS: usize = 18;

/// Parses a duration that is not negative.
pub fn duration(text: &str) -> Result<Duration, &'static str> {
    read(text).ok_or("write a duration such as 15s, 5m or 1h30m")
}

pub(super) fn at_least(text: &str, shortest: Duration) -> Result<Duration, String> {
    let read = read(text).filter(|duration| *duration >= shortest);
    read.ok_or_else(|| format!("write a duration of {shortest:?} or more, such as 5m"))
}

/// Sums decimal numbers, each with its unit; `0` needs no unit. Returns `None` for anything else, and for a negative duration.
fn read(text: &str) -> Option<Duration> {
    let mut rest = text.strip_prefix('+').unwrap_or(text);
    if rest == "0" {
        return Some(Duration::ZERO);
    }
    if rest.is_empty() {
        return None;
    }
    let mut nanos: u128 = 0;
    while !rest.is_empty() {
        let (whole, after) = digits(rest);
        let (fraction, after) = after.strip_prefix('.').map_or(("", after), digits);
        if whole.is_empty() && fraction.is_empty() {
            return None;
        }
        let end = after.find(|c: char| c == '.' || c.is_ascii_digit()).unwrap_or(after.len());
        let (name, after) = after.split_at(end);
        nanos = nanos.checked_add(term(whole, fraction, unit(name)?)?)?;
        rest = after;
    }
    (nanos <= LONGEST).then(|| Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX)))
}

fn digits(text: &str) -> (&str, &str) {
    text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()))
}

/// Converts one number with its unit to nanoseconds. Fractions of a nanosecond are cut off.
fn term(whole: &str, fraction: &str, unit: u128) -> Option<u128> {
    let number = |digits: &str| if digits.is_empty() { Some(0) } else { digits.parse::<u128>().ok() };
    let fraction = fraction.get(..DIGITS).unwrap_or(fraction);
    let places = u32::try_from(fraction.len()).ok()?;
    let part = number(fraction)?.checked_mul(unit)?.checked_div(10_u128.checked_pow(places)?)?;
    number(whole)?.checked_mul(unit)?.checked_add(part)
}

fn unit(name: &str) -> Option<u128> {
    Some(match name {
        "ns" => 1,
        // The prefix is the micro sign or the Greek letter mu.
        "us" | "\u{b5}s" | "\u{3bc}s" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        "m" => 60_000_000_000,
        "h" => 3_600_000_000_000,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    // Behaviour: P24
    #[test]
    fn durations_are_parsed_as_in_go() {
        for (text, millis) in [
            ("0", 0),
            ("0s", 0),
            ("500ms", 500),
            ("15s", 15_000),
            ("+15s", 15_000),
            ("1h30m", 5_400_000),
            ("5m0s", 300_000),
            ("0.5m", 30_000),
            (".5m", 30_000),
            ("5.m", 300_000),
            ("1.5h30m", 7_200_000),
            ("30s1m", 90_000),
            ("1500us", 1),
            ("0.0000000000000000000001h", 0),
        ] {
            let read = duration(text).map(|duration| duration.as_millis());
            assert_eq!(read, Ok(millis), "{text}");
        }
        let micros = Duration::from_nanos(2_500);
        for text in ["2500ns", "2.5us", "2.5\u{b5}s", "2.5\u{3bc}s"] {
            assert_eq!(duration(text), Ok(micros), "{text}");
        }
        for text in [
            "",
            "5",
            "-5m",
            "soon",
            "+",
            ".",
            ".m",
            "5 m",
            "5m ",
            "5d",
            "1e3s",
            "5m5",
            "1.5.5s",
            "300000000h",
        ] {
            assert!(duration(text).expect_err(text).contains("such as 15s"), "{text}");
        }
    }

    #[test]
    fn a_short_duration_is_refused_with_the_minimum() {
        let shortest = Duration::from_millis(100);
        assert_eq!(at_least("100ms", shortest), Ok(shortest));
        for text in ["99ms", "0", "-5m", "soon", ""] {
            assert!(
                at_least(text, shortest).expect_err(text).contains("100ms or more, such as 5m"),
                "{text}"
            );
        }
    }
}
