//! Wall-clock time that follows tokio's clock, so that tests can pause it.

use std::time::SystemTime;

use tokio::time::Instant;

/// Tells wall-clock time: a known beginning plus what tokio's clock says has passed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    wall: SystemTime,
    started: Instant,
}

impl Clock {
    /// A clock that shows `wall` now.
    #[must_use]
    pub(crate) fn starting_at(wall: SystemTime) -> Self {
        Self { wall, started: Instant::now() }
    }

    /// The wall-clock time of an instant.
    #[must_use]
    pub(crate) fn at(&self, instant: Instant) -> SystemTime {
        self.wall + instant.saturating_duration_since(self.started)
    }

    /// The wall-clock time.
    #[must_use]
    pub(crate) fn now(&self) -> SystemTime {
        self.at(Instant::now())
    }
}

/// The wall-clock time, which certificates and timestamps are about.
#[expect(clippy::disallowed_methods, reason = "the one place where wall-clock time comes in")]
pub(crate) fn wall() -> SystemTime {
    SystemTime::now()
}
