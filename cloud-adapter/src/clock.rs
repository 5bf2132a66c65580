//! Wall-clock time that follows tokio's clock, so that tests can pause it.

use std::time::SystemTime;

use tokio::time::Instant;

/// Wall-clock time: a known start time plus the time that has passed on tokio's clock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    wall: SystemTime,
    started: Instant,
}

impl Clock {
    #[must_use]
    pub(crate) fn starting_at(wall: SystemTime) -> Self {
        Self { wall, started: Instant::now() }
    }

    #[must_use]
    pub(crate) fn at(&self, instant: Instant) -> SystemTime {
        match instant.checked_duration_since(self.started) {
            Some(since) => self.wall + since,
            // The time comes from another process, which observed it before this process started.
            None => self.wall.checked_sub(self.started - instant).unwrap_or(self.wall),
        }
    }

    /// Converts a wall-clock time, possibly from another host's clock, to an instant. Never returns an instant in the future.
    #[must_use]
    pub(crate) fn instant(&self, wall: SystemTime) -> Instant {
        let now = Instant::now();
        let age = self.now().duration_since(wall).unwrap_or_default();
        now.checked_sub(age).unwrap_or(self.started)
    }

    #[must_use]
    pub(crate) fn now(&self) -> SystemTime {
        self.at(Instant::now())
    }
}

#[expect(clippy::disallowed_methods, reason = "the only place that reads the wall clock")]
pub(crate) fn wall() -> SystemTime {
    SystemTime::now()
}
