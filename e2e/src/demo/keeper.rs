//! What a kubelet does for containers that end: while the demo stays, a process that somebody kills is started again, as
//! `restartPolicy: Always` says.
//!
//! [`Pauses`] decides when; [`Keeper`] looks, starts and tells. What was not started, or was ended on purpose, stays so.

use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::control_plane::APISERVER;
use crate::{ADAPTER, CONTROLLERS, seconds};

use super::report::{Report, Running};
use super::stage::Stage;
use super::teller::Teller;

/// Soon enough for who watches, and nothing for the machine.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Before the first start.
const FIRST_PAUSE: Duration = seconds(1);
/// A kubelet goes on to five minutes; somebody is waiting here.
const LONGEST_PAUSE: Duration = seconds(10);
/// Who ran so long does not keep ending. More than the longest pause, so that a slow start is not taken for that.
const RECOVERED_AFTER: Duration = seconds(30);

/// Keeps the four processes and the API server running.
#[derive(Debug)]
pub(super) struct Keeper {
    kept: Vec<Kept>,
}

#[derive(Debug)]
struct Kept {
    name: &'static str,
    pauses: Pauses,
    /// When to start it again; it runs if there is none.
    due: Option<Instant>,
}

/// How long to wait before each start: longer and longer while it keeps ending.
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

    /// Goes on until it is dropped, which may be at any moment: what it has started is in `stage`.
    pub(super) async fn keep(mut self, stage: &mut Stage, teller: &Teller) {
        loop {
            for report in self.kept.iter_mut().filter_map(|kept| kept.look(stage)) {
                teller.tell(&report);
            }
            sleep(LOOK_EVERY).await;
        }
    }
}

impl Kept {
    /// Does what is to be done now, and says so if it was anything.
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
        // A start that fails is an end too, and no time was spent running.
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
    async fn pauses_double_up_to_ten_seconds_and_begin_anew_after_a_good_run() {
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
    fn ends_are_told_as_people_know_them() {
        assert_eq!(how(ExitStatus::from_raw(9)), "signal 9");
        assert_eq!(how(ExitStatus::from_raw(2 << 8)), "exit code 2");
    }
}
