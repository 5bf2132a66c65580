//! Progress lines on standard error; a run can take an hour.

use std::io::{self, Write};
use std::time::Duration;

use tokio::time::{Instant, MissedTickBehavior, interval_at, sleep};

/// The time between two lines during the same step.
const LINE_EVERY: Duration = Duration::from_secs(30);

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
        // Printing fails if standard error is closed; the report still contains the result.
        io::stderr().write_all(line.as_bytes()).ok();
    }

    /// Prints the step, and repeats the line while the step lasts.
    pub(super) async fn step<T>(self, what: &str, work: impl Future<Output = T>) -> T {
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

    pub(super) async fn wait(self, what: &str, time: Duration) {
        self.step(&format!("{what}, {} s", time.as_secs()), sleep(time)).await;
    }
}
