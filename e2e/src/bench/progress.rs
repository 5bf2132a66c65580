//! Who waits for an hour is told what goes on: lines on standard error.

use std::io::{self, Write};
use std::time::Duration;

use tokio::time::{Instant, MissedTickBehavior, interval_at, sleep};

/// Between two lines while the same thing goes on.
const LINE_EVERY: Duration = Duration::from_secs(30);

/// Lines with the time since the beginning.
#[derive(Clone, Copy, Debug)]
pub(super) struct Progress {
    began: Instant,
}

impl Progress {
    pub(super) fn begin() -> Self {
        Self { began: Instant::now() }
    }

    pub(super) fn say(self, line: &str) {
        let seconds = self.began.elapsed().as_secs();
        let line = format!("[{:3}:{:02}] {line}\n", seconds / 60, seconds % 60);
        // Nobody reads any more when standard error is gone; the report still tells.
        io::stderr().write_all(line.as_bytes()).ok();
    }

    /// Says what is done, and again while it lasts.
    pub(super) async fn told<T>(self, what: &str, work: impl Future<Output = T>) -> T {
        self.say(what);
        let began = Instant::now();
        let mut due = interval_at(began + LINE_EVERY, LINE_EVERY);
        due.set_missed_tick_behavior(MissedTickBehavior::Skip);
        let mut work = std::pin::pin!(work);
        loop {
            tokio::select! {
                done = &mut work => return done,
                _ = due.tick() => self.say(&format!("  ... {what}, for {} s", began.elapsed().as_secs())),
            }
        }
    }

    /// Lets time pass.
    pub(super) async fn wait(self, what: &str, time: Duration) {
        self.told(&format!("{what}, {} s", time.as_secs()), sleep(time)).await;
    }
}
