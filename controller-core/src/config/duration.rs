//! Durations as the flags of Kubernetes' own programs write them: `90s`, `5m`, `1h30m`.

use std::time::Duration;

/// Reads a duration that is not negative.
///
/// # Errors
/// What to write instead.
pub fn duration(text: &str) -> Result<Duration, &'static str> {
    let fix = "write a duration such as 15s, 5m or 1h30m";
    let span: jiff::SignedDuration = text.parse().map_err(|_invalid| fix)?;
    Duration::try_from(span).map_err(|_negative| fix)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_written_as_elsewhere() {
        for (text, millis) in [("0s", 0), ("500ms", 500), ("15s", 15_000), ("1h30m", 5_400_000)] {
            assert_eq!(duration(text), Ok(Duration::from_millis(millis)), "{text}");
        }
        for text in ["", "5", "-5m", "soon"] {
            assert!(duration(text).expect_err(text).contains("such as 15s"), "{text}");
        }
    }
}
