//! Parses and formats the header `grpc-timeout`. Source: gRPC over HTTP/2, `Timeout`.

use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue};

const NAME: HeaderName = HeaderName::from_static("grpc-timeout");
/// Largest value in the header, which allows eight digits.
const LARGEST: u128 = 99_999_999;

/// Parses the timeout of a call. `None`: the call has no timeout.
pub(super) fn read(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get(NAME)?.to_str().ok()?;
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    let number: u64 = digits.parse().ok()?;
    match unit {
        "H" => Some(Duration::from_secs(number.saturating_mul(60 * 60))),
        "M" => Some(Duration::from_secs(number.saturating_mul(60))),
        "S" => Some(Duration::from_secs(number)),
        "m" => Some(Duration::from_millis(number)),
        "u" => Some(Duration::from_micros(number)),
        "n" => Some(Duration::from_nanos(number)),
        _ => None,
    }
}

/// Formats the remaining time in the finest unit in which the number has at most eight digits.
pub(super) fn write(headers: &mut HeaderMap, left: Duration) {
    let units = [(left.as_micros(), 'u'), (left.as_millis(), 'm'), (u128::from(left.as_secs()), 'S')];
    let fits = units.into_iter().find(|(number, _)| *number <= LARGEST);
    let (number, unit) = fits.unwrap_or((LARGEST, 'S'));
    if let Ok(value) = HeaderValue::try_from(format!("{number}{unit}")) {
        headers.insert(NAME, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        for (left, text) in [
            (Duration::from_millis(1500), "1500000u"),
            (Duration::from_secs(30), "30000000u"),
            (Duration::from_secs(3600), "3600000m"),
            (Duration::from_secs(1_000_000), "1000000S"),
        ] {
            let mut headers = HeaderMap::new();
            write(&mut headers, left);
            assert_eq!(headers.get(NAME).and_then(|value| value.to_str().ok()), Some(text));
            assert_eq!(read(&headers), Some(left), "{text}");
        }
    }

    #[test]
    fn what_is_no_timeout_sets_none() {
        for text in ["", "S", "10", "10x", "-1S", "1.5S"] {
            let headers = [(NAME, HeaderValue::from_static(text))].into_iter().collect();
            assert_eq!(read(&headers), None, "{text}");
        }
    }
}
