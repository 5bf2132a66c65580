//! Polls a condition until it holds, and prints its name and the waiting time. All waits for parts of the cluster use this module.

use std::io::Write;
use std::time::Duration;

use anyhow::{anyhow, bail};
use tokio::time::{Instant, sleep};

const CHECK_EVERY: Duration = Duration::from_millis(50);
/// Time limit of a wait. The slowest condition, a node's first report, takes 2 s; the limit is higher because the host may be busy.
const WITHIN: Duration = Duration::from_secs(90);
const REPORT_INTERVAL: Duration = Duration::from_secs(3);

/// The maximum length of the observed state in a progress line, in characters.
const SHOWN: usize = 120;

/// Prints a progress line to standard error, because standard output is for results.
pub(crate) fn say(line: &str) {
    // Printing fails if standard error is closed; the work continues.
    std::io::stderr().write_all(format!("{line}\n").as_bytes()).ok();
}

/// The result of one check.
pub(crate) enum Seen<T> {
    /// The condition holds.
    Yes(T),
    /// The condition does not hold yet; the text is the observed state.
    NotYet(String),
    /// The condition can no longer hold; the text is the reason.
    Never(String),
}

/// Repeats the check until the condition holds. Returns an error if the condition can no longer hold, or after [`WITHIN`].
pub(crate) async fn wait<T>(what: &str, mut look: impl FnMut() -> Seen<T>) -> anyhow::Result<T> {
    let begin = Instant::now();
    let mut tell_at = begin + REPORT_INTERVAL;
    loop {
        let seen = match look() {
            Seen::Yes(value) => {
                say(&format!("  {what} after {:.1} s", begin.elapsed().as_secs_f64()));
                return Ok(value);
            }
            Seen::Never(why) => bail!("condition failed: {what}: {why}"),
            Seen::NotYet(seen) => seen,
        };
        if begin.elapsed() >= WITHIN {
            return Err(anyhow!("condition not met within {WITHIN:?}: {what}; last seen: {seen}"));
        }
        if Instant::now() >= tell_at {
            tell_at = Instant::now() + REPORT_INTERVAL;
            say(&format!("  ... {:.0} s until {what}; now: {}", begin.elapsed().as_secs_f64(), short(&seen)));
        }
        sleep(CHECK_EVERY).await;
    }
}

/// Returns the end of the first line, where programs print their errors.
fn short(text: &str) -> String {
    let line = text.lines().next().unwrap_or_default();
    let cut = line.chars().count().saturating_sub(SHOWN);
    line.chars().skip(cut).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn wait_returns_the_value_or_the_last_observation() {
        let mut looks = 0;
        let third = || {
            looks += 1;
            if looks == 3 { Seen::Yes(looks) } else { Seen::NotYet(String::new()) }
        };
        assert_eq!(wait("three", third).await.unwrap(), 3);
        let error = wait("green", || Seen::<()>::NotYet("red".to_owned())).await.unwrap_err();
        assert_eq!(error.to_string(), "condition not met within 90s: green; last seen: red");
        let error = wait("green", || Seen::<()>::Never("broken".to_owned())).await.unwrap_err();
        assert_eq!(error.to_string(), "condition failed: green: broken");
    }
}
