//! The wall clock, for times that are shown to users. Durations are measured with `tokio::time::Instant`.

use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

/// A source of the time of day.
#[derive(Clone, Copy, Debug)]
pub struct Clock(Source);

#[derive(Clone, Copy, Debug)]
enum Source {
    System,
    Simulated { wall: Timestamp, since: Instant },
}

impl Clock {
    /// Returns the system clock.
    #[must_use]
    pub fn system() -> Self {
        Self(Source::System)
    }

    /// Returns a clock that starts at `wall` and then follows tokio's time, which tests pause and advance.
    #[must_use]
    pub fn starting_at(wall: Timestamp) -> Self {
        Self(Source::Simulated { wall, since: Instant::now() })
    }

    /// Returns the time of day in UTC.
    #[must_use]
    #[expect(clippy::disallowed_methods, reason = "the only place that reads the system clock")]
    pub fn now(&self) -> Timestamp {
        match self.0 {
            Source::System => Timestamp::now(),
            Source::Simulated { wall, since } => SignedDuration::try_from(since.elapsed())
                .ok()
                .and_then(|passed| wall.checked_add(passed).ok())
                .unwrap_or(wall),
        }
    }
}
