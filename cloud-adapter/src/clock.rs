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
        match instant.checked_duration_since(self.started) {
            Some(since) => self.wall + since,
            // Seen by another process, before this one began.
            None => self.wall.checked_sub(self.started - instant).unwrap_or(self.wall),
        }
    }

    /// The instant of a wall-clock time, which another machine's clock may have told: never in the future.
    #[must_use]
    pub(crate) fn instant(&self, wall: SystemTime) -> Instant {
        let now = Instant::now();
        let age = self.now().duration_since(wall).unwrap_or_default();
        now.checked_sub(age).unwrap_or(self.started)
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
