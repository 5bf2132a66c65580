//! The text that describes a call waiting for its budget. All logs, Events and status pages use this text.

use std::{fmt, time::Duration};

/// A call that waits only for the tokens of a bucket.
///
/// In the text form, the part before the colon does not change while the call waits for that bucket. The part after the colon is the
/// current state.
///
/// ```
/// # use std::time::Duration;
/// # use cloud_budget::BudgetWait;
/// let wait = BudgetWait { bucket: "compute".into(), ahead: 37, rate: 4.5, about: Duration::from_millis(8_100) };
/// assert_eq!(wait.to_string(), "waits for the call budget of bucket compute: 37 calls ahead at 4.5 a second, next call in about 9 s");
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct BudgetWait {
    /// The bucket that delays the call the longest. If several buckets delay the call equally, this is the most specific bucket.
    pub bucket: String,
    /// Estimated number of calls that are sent before this call.
    pub ahead: u64,
    /// Current rate of the bucket in calls per second.
    pub rate: f64,
    /// Estimated time until the call is sent.
    pub about: Duration,
}

impl fmt::Display for BudgetWait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { bucket, ahead, rate, about } = self;
        let calls = if *ahead == 1 { "call" } else { "calls" };
        let (rate, seconds) = (Rate(*rate), about.as_secs_f64().ceil());
        write!(
            f,
            "waits for the call budget of bucket {bucket}: {ahead} {calls} ahead at {rate} a second, next call in about {seconds} s"
        )
    }
}

/// Calls per second, rounded for readers.
struct Rate(f64);

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let steps = match self.0 {
            few if few < 1.0 => 100.0,
            some if some < 10.0 => 10.0,
            _ => 1.0,
        };
        write!(f, "{}", (self.0 * steps).round() / steps)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_rounded_for_readers() {
        let text = |ahead, rate, seconds| {
            let about = Duration::from_secs_f64(seconds);
            BudgetWait { bucket: "b".into(), ahead, rate, about }.to_string()
        };
        assert_eq!(
            text(0, 0.123, 8.2),
            "waits for the call budget of bucket b: 0 calls ahead at 0.12 a second, next call in about 9 s"
        );
        assert_eq!(
            text(1, 5.0, 0.0),
            "waits for the call budget of bucket b: 1 call ahead at 5 a second, next call in about 0 s"
        );
        assert_eq!(
            text(2, 123.4, 1.0),
            "waits for the call budget of bucket b: 2 calls ahead at 123 a second, next call in about 1 s"
        );
    }
}
