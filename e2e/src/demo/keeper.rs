//! Restarts ended processes as a kubelet restarts containers. While the demo waits for the user, a killed process is started again, as with
//! `restartPolicy: Always`.
//!
//! [`Pauses`] decides when to restart; [`Keeper`] checks, starts and reports. The keeper ignores processes that were never started or that
//! were stopped on purpose.

use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::control_plane::APISERVER;
use crate::{ADAPTER, CONTROLLERS, seconds};

use super::report::{Report, Running};
use super::stage::Stage;

/// Interval between checks; short enough for a waiting user.
const CHECK_EVERY: Duration = Duration::from_millis(100);
const FIRST_PAUSE: Duration = seconds(1);
/// Longest pause. A kubelet waits up to five minutes, but here a user is waiting.
const LONGEST_PAUSE: Duration = seconds(10);
/// A process that ran for this duration counts as recovered. The duration exceeds the longest pause, so that slow starts do not count.
const RECOVERED_AFTER: Duration = seconds(30);

/// Restarts the four processes and the API server when they end.
#[derive(Debug)]
pub(super) struct Keeper {
    kept: Vec<Kept>,
}

#[derive(Debug)]
struct Kept {
    name: &'static str,
    pauses: Pauses,
    /// The time of the restart; `None` while the process runs.
    due: Option<Instant>,
}

/// The pauses before restarts, which grow while the process keeps ending.
#[derive(Debug)]
struct Pauses {
    next: Duration,
    started: Instant,
}

impl Keeper {
    pub(super) fn new() -> Self {
        let pauses = || Pauses { next: FIRST_PAUSE, started: Instant::now() };
        let names = [ADAPTER].into_iter().chain(CONTROLLERS).chain([APISERVER]);
        Self { kept: names.map(|name| Kept { name, pauses: pauses(), due: None }).collect() }
    }

    /// Runs until the future is dropped. Dropping it is safe at any time, because `stage` owns the started processes.
    pub(super) async fn keep(mut self, stage: &mut Stage) {
        loop {
            for kept in &mut self.kept {
                if let Some(report) = kept.look(stage) {
                    stage.output.print(&report);
                }
            }
            sleep(CHECK_EVERY).await;
        }
    }
}

impl Kept {
    /// Performs a check or a restart that is due, and returns a report if anything changed.
    fn look(&mut self, stage: &mut Stage) -> Option<Report> {
        let (process, now) = (self.name, Instant::now());
        match self.due {
            None => {
                let how = how(stage.ended(process)?);
                let again_in_millis = self.wait(now);
                Some(Report::ProcessEnded { process, how, again_in_millis })
            }
            Some(due) if now < due => None,
            Some(_) => Some(match stage.start(process) {
                Ok(pid) => {
                    self.due = None;
                    self.pauses.started = now;
                    Report::ProcessStarted(Running { process, pid })
                }
                Err(error) => {
                    let again_in_millis = self.wait(now);
                    Report::ProcessNotStarted { process, why: format!("{error:#}"), again_in_millis }
                }
            }),
        }
    }

    fn wait(&mut self, now: Instant) -> u64 {
        let pause = self.pauses.after_end(now);
        self.due = Some(now + pause);
        u64::try_from(pause.as_millis()).unwrap_or(u64::MAX)
    }
}

impl Pauses {
    fn after_end(&mut self, now: Instant) -> Duration {
        if now.duration_since(self.started) >= RECOVERED_AFTER {
            self.next = FIRST_PAUSE;
        }
        // A failed start counts as a process that ended at once.
        self.started = now;
        let pause = self.next;
        self.next = (pause * 2).min(LONGEST_PAUSE);
        pause
    }
}

fn how(status: ExitStatus) -> String {
    match status.signal() {
        Some(signal) => format!("signal {signal}"),
        None => format!("exit code {}", status.code().unwrap_or_default()),
    }
}

#[cfg(test)]
mod tests {
    use super::{ExitStatus, ExitStatusExt, FIRST_PAUSE, Instant, Pauses, how, seconds};

    #[tokio::test(start_paused = true)]
    async fn pauses_double_and_are_reset_after_a_long_run() {
        let mut now = Instant::now();
        let mut pauses = Pauses { next: FIRST_PAUSE, started: now };
        let mut after = |run| {
            now += seconds(run);
            let pause = pauses.after_end(now);
            now += pause;
            pauses.started = now;
            pause.as_secs()
        };
        assert_eq!([0, 1, 2, 29, 3, 0].map(&mut after), [1, 2, 4, 8, 10, 10]);
        assert_eq!([30, 0].map(&mut after), [1, 2]);
    }

    #[test]
    fn exit_status_is_described() {
        assert_eq!(how(ExitStatus::from_raw(9)), "signal 9");
        assert_eq!(how(ExitStatus::from_raw(2 << 8)), "exit code 2");
    }
}
